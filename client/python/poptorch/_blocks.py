"""Annotations that divide a model into blocks. Outside of captures they do nothing."""

import functools
from typing import Callable, List, Optional, Union

import torch

from . import _block_state, _errors

BlockId = str


class Block:
    """A part of forward that runs on one IPU, as a context.

    >>> with poptorch.Block("encoder", ipu_id=0):
    ...     x = self.encoder(x)
    >>> with poptorch.Block("decoder", ipu_id=1):
    ...     x = self.decoder(x)

    Once such a block has ended, every operator has to be in another one. Blocks that begin inside
    a block replace it.
    """

    def __init__(self, user_id: Optional[BlockId] = None, ipu_id: Optional[int] = None) -> None:
        """
        Args:
            user_id: the name of the block in the execution strategy. Blocks without one are "0",
                "1", … in program order.
            ipu_id: the IPU of the block; a stage's own IPU takes precedence over it.
        """
        self._user_id = user_id
        self._ipu_id = ipu_id

    def __enter__(self) -> "Block":
        Block.start(self._user_id, self._ipu_id)
        return self

    def __exit__(self, type, value, traceback) -> None:  # pylint: disable=redefined-builtin
        state = _block_state.active()
        if state is not None:
            state.end()

    @staticmethod
    def start(user_id: Optional[BlockId] = None, ipu_id: Optional[int] = None) -> None:
        """Begins a block that lasts until the next block begins."""
        state = _block_state.active()
        if state is not None:
            state.begin(user_id, ipu_id)

    @staticmethod
    def useAutoId() -> None:
        """Numbers the blocks without a user_id from "0". It belongs at the beginning of forward."""
        state = _block_state.active()
        if state is not None:
            state.restart_ids()


class _BeginBlockHook:
    """The forward pre-hook of a module that begins a block. It is copied and pickled with it."""

    def __init__(self, user_id: Optional[BlockId], ipu_id: Optional[int]) -> None:
        self.user_id = user_id
        self.ipu_id = ipu_id

    def __call__(self, module: torch.nn.Module, inputs) -> None:
        Block.start(self.user_id, self.ipu_id)

    def __repr__(self) -> str:
        return f"BeginBlock(user_id={self.user_id}, ipu_id={self.ipu_id})"


class LegacyBeginBlockFn:
    """A function that begins a block when it is called."""

    def __init__(
        self,
        layer_to_call: Callable,
        user_id: Optional[BlockId] = None,
        ipu_id: Optional[int] = None,
    ) -> None:
        self._layer_to_call = layer_to_call
        self._user_id = user_id
        self._ipu_id = ipu_id

    def __call__(self, *args, **kwargs):
        Block.start(self._user_id, self._ipu_id)
        return self._layer_to_call(*args, **kwargs)

    def __repr__(self) -> str:
        return f"BeginBlock(user_id={self._user_id}, ipu_id={self._ipu_id})"


def _hook_keys(module: torch.nn.Module) -> List[int]:
    hooks = module._forward_pre_hooks  # pylint: disable=protected-access
    return [key for key, hook in hooks.items() if isinstance(hook, _BeginBlockHook)]


def begin_block_of(module: torch.nn.Module) -> Optional[str]:
    """"BeginBlock(user_id=…, ipu_id=…)" of a module that begins a block, else None."""
    keys = _hook_keys(module)
    return repr(module._forward_pre_hooks[keys[0]]) if keys else None


def BeginBlock(
    layer_to_call: Union[torch.nn.Module, Callable],
    user_id: Optional[BlockId] = None,
    ipu_id: Optional[int] = None,
) -> Union[torch.nn.Module, LegacyBeginBlockFn]:
    """Makes a module begin a block that lasts until the next block begins.

    >>> poptorch.BeginBlock(model.encoder.layer[6], "second half", ipu_id=1)

    Args:
        layer_to_call: the module, which is changed in place, or a function, which is wrapped.
            Hooks that were registered on the module earlier belong to the block before it.
        user_id: the name of the block in the execution strategy.
        ipu_id: the IPU of the block.
    Returns:
        The module itself, or the wrapped function.
    Raises:
        Error: the module begins a block already, or the argument is neither.
    """
    if isinstance(layer_to_call, torch.nn.Module):
        if _hook_keys(layer_to_call):
            raise _errors.py_error(_errors.ALREADY_BLOCK)
        layer_to_call.register_forward_pre_hook(_BeginBlockHook(user_id, ipu_id))
        return layer_to_call
    if isinstance(layer_to_call, type) or not callable(layer_to_call):
        raise _errors.py_error(_errors.NOT_A_MODULE)
    return LegacyBeginBlockFn(layer_to_call, user_id, ipu_id)


def BlockFunction(
    user_id: Optional[BlockId] = None, ipu_id: Optional[int] = None
) -> Callable[[Callable], Callable]:
    """Decorates a function or method whose body is a block, as that of a `with poptorch.Block`.

    >>> @poptorch.BlockFunction("head", ipu_id=1)
    ... def head(self, x):
    ...     return self.fc(x)
    """

    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def call(*args, **kwargs):
            with Block(user_id, ipu_id):
                return function(*args, **kwargs)

        return call

    return decorate


def removeBlocks(module: torch.nn.Module) -> None:
    """Undoes BeginBlock for a module and all modules in it."""
    for each in module.modules():
        for key in _hook_keys(each):
            del each._forward_pre_hooks[key]


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
