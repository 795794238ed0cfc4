"""Arguments of a captured forward pass: meta tensors stand for their tensors."""

import inspect
from typing import Any, Dict, List, Tuple

import torch
from torch import nn

from . import errors, patches
from .recorder import META, Recorder
from .tape import HELD, dtype_number


class Inputs:
    """Stand-ins for the tensors of forward's arguments.

    Attributes:
        args, kwargs: the arguments with stand-ins in the place of tensors.
    """

    def __init__(self, module, args: tuple, kwargs: dict, recorder: Recorder) -> None:
        self._recorder = recorder
        self._inputs: List[Tuple[str, int, torch.Tensor]] = []
        names = _names(module, len(args))
        self.args = tuple(self._stand_in(name, arg) for name, arg in zip(names, args))
        self.kwargs = {name: self._stand_in(name, arg) for name, arg in kwargs.items()}

    def _stand_in(self, name: str, argument: Any) -> Any:
        if isinstance(argument, torch.Tensor):
            return self._input(name, argument)
        if isinstance(argument, tuple):
            elements = [self._stand_in(f"{name}.{i}", a) for i, a in enumerate(argument)]
            named = hasattr(argument, "_fields")
            return type(argument)(*elements) if named else type(argument)(elements)
        if isinstance(argument, list):
            return [self._stand_in(f"{name}.{i}", a) for i, a in enumerate(argument)]
        if isinstance(argument, dict):
            copy = argument.copy()
            for key, value in argument.items():
                copy[key] = self._stand_in(f"{name}.{key}", value)
            return copy
        return argument

    def _input(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout != torch.strided or tensor.is_quantized:
            raise errors.py_error(f"Input {name} is sparse or quantised, which is not supported")
        if dtype_number(tensor.dtype) not in HELD:
            raise errors.unsupported_type(tensor.dtype, name)
        if tensor.requires_grad:
            patches.warn(errors.INPUT_DETACHED)
        stand_in = torch.empty(tensor.shape, dtype=tensor.dtype, device=META)
        self._recorder.leaves.add(id(stand_in))
        self._inputs.append((name, self._recorder.add(stand_in), stand_in))
        return stand_in

    def finish(self) -> None:
        """Writes inputs with their final values to the tape.

        Raises:
            poptorch.Error: forward has asked for the gradient of an input.
        """
        for index, (name, value, stand_in) in enumerate(self._inputs):
            if stand_in.requires_grad and stand_in.is_leaf:
                raise errors.cpp_error(errors.INPUT_REQUIRES_GRAD % (index, name))
            value, final = self._recorder.entry(value, self._recorder.data_of(stand_in))
            self._recorder.tape.inputs.append((name, value, final))


def _names(module, count: int) -> List[str]:
    """Names of positional parameters; those of `*args` are numbered."""
    function = module.forward if isinstance(module, nn.Module) else module
    names: List[str] = []
    try:
        parameters: Dict[str, inspect.Parameter] = dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        parameters = {}
    for name, parameter in parameters.items():
        if parameter.kind == inspect.Parameter.VAR_POSITIONAL:
            names.extend(f"{name}.{i}" for i in range(count - len(names)))
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(name)
    names.extend(f"input{i}" for i in range(len(names), count))
    return names[:count]
