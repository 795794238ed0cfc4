"""Modules as text, with the blocks that they begin."""

import builtins

import torch

from ._blocks import module_repr

__all__ = ["module_repr", "print"]


# pylint: disable-next=redefined-builtin
def print(module: object, *args: object, **kwargs: object) -> None:
    """As the builtin `print`, with BeginBlock(…) in front of modules that begin a block.

    >>> poptorch.print(model)
    """
    first = module_repr(module) if isinstance(module, torch.nn.Module) else module
    builtins.print(first, *args, **kwargs)
