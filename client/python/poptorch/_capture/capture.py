"""Captures a model: forward runs once on tensors without elements, and the tape is its record.

While forward runs, PyTorch is patched, and parameters and buffers are exchanged for *twins*, meta
tensors of the same type and shape. All of it is undone, whatever happens.
"""

import contextlib
import threading
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

import torch
from torch import nn

from . import errors, modes, patches as _patches, recorder as _recorder
from .dispatch import Dispatch
from .inputs import Inputs
from .regions import Regions
from .structure import flatten
from .tape import Tape
from .twins import Twins

_lock = threading.RLock()
_capturing = False


def capture(
    module: Callable,
    args: tuple,
    kwargs: dict,
    *,
    supported: Optional[Callable[[str], bool]] = None,
    refused: Optional[list] = None,
    training: bool = False,
    grouped: Optional[Dict[int, Tuple[int, bool]]] = None,
    excludes: Sequence[str] = (),
) -> Tuple[Tape, Any]:
    """Records one forward pass.

    Args:
        module: a `torch.nn.Module` or another callable. Its class, parameters, buffers and
            attributes are afterwards what they were.
        args, kwargs: what forward is called with, of the sizes of one micro-batch. Tensors, also
            nested ones, are inputs; their elements are not read. Other arguments are constants.
        supported: tells whether an operator such as "add.Tensor" can be compiled.
        refused: gets the operators that cannot, as errors.listed gives them. Without a list they
            are an error, as operators whose result has no known shape always are.
        training: whether the model is to be trained.
        grouped: (groups of replicas, whether they are orthogonal) of parameters that have a value
            for each group, by identity. Forward sees one of them.
        excludes: parts of the names of files whose lines are not the source of an operator.

    Returns:
        The tape, and the structure of forward's result, see `structure.rebuild`.

    Raises:
        poptorch.Error: the model does what a compiled model cannot, such as reading elements.
    """
    global _capturing
    with _lock:
        if _capturing:
            raise errors.py_error(errors.NESTED_CAPTURE)
        try:
            _capturing = True
            with contextlib.ExitStack() as stack:
                recorder = _recorder.Recorder(Tape(), supported, training, excludes)
                return _captured(stack, module, args, kwargs, recorder, refused, grouped or {})
        finally:
            _capturing = False


def _captured(
    stack: contextlib.ExitStack,
    module,
    args,
    kwargs,
    recorder: _recorder.Recorder,
    refused,
    grouped: Dict[int, Tuple[int, bool]],
) -> Tuple[Tape, Any]:
    tape = recorder.tape
    stack.enter_context(torch.enable_grad())
    # Scripted functions would otherwise be another graph after their first calls.
    stack.enter_context(torch.jit.optimized_execution(False))
    twins = Twins(stack, module, recorder, grouped)
    inputs = Inputs(module, args, kwargs, recorder)
    patches = _patches.Patches(stack)
    _patches.apply(patches)
    Regions(recorder).watch(stack, patches)
    _enter_scopes(patches, module)
    _ignore_backward_hooks(patches)
    _validate_nothing(patches)
    stack.callback(_recorder.activate, None)
    _recorder.activate(recorder)
    leave = modes.enter(stack, _patches.CaptureFunctions(recorder), Dispatch(recorder))
    result = module(*inputs.args, **inputs.kwargs)
    tensors, structure = flatten(result)
    tensors = [_on_device(recorder, tensor) for tensor in tensors]
    recorder.finish_calls()
    leave()
    if refused is None:
        recorder.raise_if_unsupported()
    else:
        refused.extend(errors.listed(recorder.unsupported))
    tape.results = [recorder.value_of(tensor) for tensor in tensors]
    twins.finish()
    inputs.finish()
    if not tape.results:
        raise errors.cpp_error(errors.EMPTY)
    tape.results.extend(value for value, *_ in tape.prints)
    return tape, structure


def _on_device(recorder: _recorder.Recorder, tensor: torch.Tensor) -> torch.Tensor:
    if recorder.knows(tensor) or tensor.is_meta:
        return tensor
    _patches.warn(errors.HOST_RESULT % tensor.device)
    return recorder.constant(tensor)


def _enter_scopes(patches: _patches.Patches, module) -> None:
    """Lets calls of modules keep the scope."""
    if not isinstance(module, nn.Module):
        paths = {}
    else:
        paths = {id(m): path for path, m in module.named_modules()}

    def call(recorder, old, args, kwargs):
        if args[0]._backward_hooks:
            _patches.warn_once(recorder, errors.BACKWARD_HOOKS)
        with recorder.module(paths.get(id(args[0]))):
            return old(*args, **kwargs)

    patches.wrap(nn.Module, "__call__", call)


def _ignore_backward_hooks(patches: _patches.Patches) -> None:
    """Backward hooks of modules have no effect, as on the real system."""
    unchanged = lambda recorder, old, args, kwargs: args[1]
    for name in ("setup_input_hook", "setup_output_hook"):
        patches.wrap(torch.utils.hooks.BackwardHook, name, unchanged)


def _validate_nothing(patches: _patches.Patches) -> None:
    """Arguments of distributions are checked by reading them."""
    patches.set(torch.distributions.Distribution, "_validate_args", False)
