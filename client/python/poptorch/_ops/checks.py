"""Checks that several functions of this room share."""

from typing import Any, Optional

import torch

from .. import _errors
from .._capture import recorder as _recorder


def check_tensor(tensor: Any, what: str) -> None:
    """Checks that an argument is a tensor.

    Args:
        tensor: the argument.
        what: the function, and the argument if it has several.

    Raises:
        poptorch.Error: the argument is something else.
    """
    if not isinstance(tensor, torch.Tensor):
        raise _errors.py_error(_errors.OPERAND_TENSOR % (what, type(tensor)))


def check_integer(value: Any, text: str) -> None:
    """Raises an error with the text unless the value is an int.

    Raises:
        poptorch.Error: the value is none.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise _errors.py_error(text)


def capture_of(*tensors: torch.Tensor) -> Optional[_recorder.Recorder]:
    """The capture to which one of the tensors belongs, or None if all are tensors of the host."""
    recorder = _recorder.active()
    if recorder is None or not any(recorder.knows(tensor) for tensor in tensors):
        return None
    return recorder
