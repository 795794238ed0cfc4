"""Modules as text, with the blocks that they begin."""

import builtins

import torch

from ._blocks import begin_block_of

__all__ = ["module_repr", "print"]


def module_repr(module: torch.nn.Module) -> str:
    """The representation of a module with BeginBlock(…) in front of those that begin a block."""
    block = begin_block_of(module)
    prefix = f"{block} " if block else ""
    if type(module).__repr__ is not torch.nn.Module.__repr__:
        return prefix + repr(module)
    extra = module.extra_repr()
    lines = extra.split("\n") if extra else []
    for name, child in module._modules.items():  # pylint: disable=protected-access
        text = module_repr(child) if child is not None else repr(child)
        lines.append(f"({name}): " + text.replace("\n", "\n  "))
    if not lines:
        body = ""
    elif len(lines) == 1 and not module._modules:
        body = lines[0]
    else:
        body = "\n  " + "\n  ".join(lines) + "\n"
    return f"{prefix}{module._get_name()}({body})"


# pylint: disable-next=redefined-builtin
def print(module: object, *args: object, **kwargs: object) -> None:
    """As the builtin `print`, with BeginBlock(…) in front of modules that begin a block.

    >>> poptorch.print(model)
    """
    first = module_repr(module) if isinstance(module, torch.nn.Module) else module
    builtins.print(first, *args, **kwargs)
