"""The blocks of the capture that is under way, as annotations write and the tape reads them.

    with capturing(options._execution_strategy):
        ... run forward; for every operator: block = _block_state.current() ...

Outside `capturing` there is no state, and all annotations do nothing.
"""

import contextlib
import threading
from typing import Iterator, List, NamedTuple, Optional

from . import _errors

#: The number that an operator before all blocks has; such operators run on IPU 0 in stage 0.
NO_BLOCK = -1

_lock = threading.RLock()  # A thread holds it while it captures.


class Placement(NamedTuple):
    """Where the operators of one block run."""

    stage: int
    ipu: int
    phase: int


class EnteredBlock(NamedTuple):
    """A block that forward has entered. A block that is entered twice is listed twice."""

    id: str
    placement: Placement


class BlockState:
    """The blocks that one run of forward has entered, and the one it is in.

    Attributes:
        blocks: all blocks entered so far, in program order.
        current: the index in `blocks` of the block that operators belong to now; None after a
            block has ended without another one beginning; NO_BLOCK before the first one.
    """

    def __init__(self, strategy) -> None:
        self.blocks: List[EnteredBlock] = []
        self.current: Optional[int] = NO_BLOCK
        self._strategy = strategy
        self._next_id = 0

    def restart_ids(self) -> None:
        """Numbers blocks without an id from 0 again."""
        self._next_id = 0

    def begin(self, user_id: Optional[object], ipu_id: Optional[int]) -> None:
        """Enters a block.

        Raises:
            AssertionError: the strategy knows no stage for it.
            Error: its stage is below that of the block before it in a pipeline.
        """
        if user_id is None:
            user_id = self._next_id
            self._next_id += 1
        block = EnteredBlock(str(user_id), self._strategy.placement(str(user_id), ipu_id))
        if self.blocks:
            self._strategy.check_order(self.blocks[-1], block)
        self.current = len(self.blocks)
        self.blocks.append(block)

    def end(self) -> None:
        """Leaves the current block."""
        self.current = None

    def block_of_operator(self) -> int:
        """The index of the block that an operator belongs to, or NO_BLOCK.

        Raises:
            Error: blocks were used, and the operator is behind the end of one and in no other.
        """
        if self.current is None:
            raise _errors.cpp_error(_errors.NO_ACTIVE_BLOCK)
        return self.current


_active: Optional[BlockState] = None


def active() -> Optional[BlockState]:
    """The state of the capture that is under way; None outside of captures."""
    return _active


def current() -> Optional[Placement]:
    """Where an operator that is called now runs; None before all blocks and outside of captures.

    Raises:
        Error: blocks were used, and the operator is in none.
    """
    if _active is None:
        return None
    index = _active.block_of_operator()
    return None if index == NO_BLOCK else _active.blocks[index].placement


@contextlib.contextmanager
def capturing(strategy) -> Iterator[BlockState]:
    """Makes annotations take effect for one run of forward. Other threads wait with theirs.

    Args:
        strategy: the execution strategy that places the blocks.
    """
    global _active  # pylint: disable=global-statement
    with _lock:
        if _active is not None:
            raise _errors.py_error(_errors.NESTED_CAPTURE)
        strategy.onStartTracing()
        _active = BlockState(strategy)
        try:
            yield _active
        finally:
            _active = None
            strategy.onEndTracing()
