"""The block that a program is in, as the tape reads it.

Blocks (`poptorch.Block`, `BeginBlock`, `BlockFunction`) set the state; the tape asks for it at
every operator. What a block is to the tape is any hashable tuple, (stage, ipu, phase) once it is
resolved.
"""

from typing import Callable, Optional

_source: Optional[Callable[[], Optional[tuple]]] = None
_block: Optional[tuple] = None


def current() -> Optional[tuple]:
    """The block of the operator that is called now, or None outside blocks."""
    return _source() if _source is not None else _block


def enter(block: Optional[tuple]) -> Optional[tuple]:
    """Makes this the current block and returns the one before it."""
    global _block
    before, _block = _block, block
    return before


def read_from(source: Optional[Callable[[], Optional[tuple]]]) -> None:
    """Lets `current` ask another function, such as that of a module which keeps a stack."""
    global _source
    _source = source
