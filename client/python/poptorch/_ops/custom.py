"""Operators that a program brings along."""

import sys
from typing import Any, Dict, List, Optional, Sequence, Union

import torch

from .. import _errors
from .._capture import recorder as _recorder
from .._capture.recorder import META

AttributeValue = Union[float, int, str, list, tuple]

_LARGEST = 3.4028234663852886e38  # of float32, the type of such attributes


def custom_op(
    inputs: Sequence[torch.Tensor],
    name: str,
    domain: str,
    domain_version: int,
    example_outputs: Sequence[torch.Tensor],
    attributes: Optional[Dict[str, AttributeValue]] = None,
) -> List[torch.Tensor]:
    """An operator that a library for PopART defines. No model with one can be compiled or run.

    Such libraries are machine code of real IPUs. The call checks its arguments; the compilation
    then lists the operator among those that are not supported, with its module and line.

    Args:
        inputs: the operands.
        name, domain, domain_version: of the operator.
        example_outputs: tensors of the types and shapes of the results.
        attributes: names and values: float, int, str, or a list or tuple of one of these types.

    Returns:
        Tensors like the examples, so that the capture goes on.

    Raises:
        ValueError: an attribute is of another type or not of ASCII characters.
        poptorch.Error: a number is out of range; or the call is outside of a capture.
    """
    for key, value in (attributes or {}).items():
        _check_attribute(key, value)
    recorder = _recorder.active()
    if recorder is None:
        raise _errors.py_error(_errors.CUSTOM_OP_EAGER % (domain, name, domain_version))
    for tensor in inputs:
        recorder.use(tensor)
    recorder.refuse(f"{domain}::{name}", recorder.place())
    return [torch.zeros(e.shape, dtype=e.dtype, device=META) for e in example_outputs]


def _check_attribute(key: Any, value: Any) -> None:
    if not isinstance(key, str):
        raise ValueError(_errors.CUSTOM_OP_KEY)
    elements = value if isinstance(value, (list, tuple)) else [value]
    if not all(isinstance(element, (float, int, str)) for element in elements):
        raise ValueError(_errors.CUSTOM_OP_VALUE)
    if len({type(element) for element in elements}) > 1:
        raise ValueError(_errors.CUSTOM_OP_MIXED)
    for text in [key, *elements]:
        if isinstance(text, str) and not text.isascii():
            raise ValueError(_errors.CUSTOM_OP_ASCII % text)
    for number in elements:
        if isinstance(number, float) and _LARGEST < abs(number) <= sys.float_info.max:
            word = "low" if number < 0 else "high"
            raise _errors.cpp_error(_errors.CUSTOM_OP_RANGE % (number, word))
