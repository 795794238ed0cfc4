"""Matrix products in parts."""

import torch

from .. import _errors, enums
from .checks import capture_of

_Mode = enums.MatMulSerializationMode
_HALF = torch.float16


def serializedMatMul(
    lhs: torch.Tensor,
    rhs: torch.Tensor,
    mode: enums.MatMulSerializationMode,
    factor: int = 0,
    keep_precision: bool = False,
) -> torch.Tensor:
    """The product of two matrices, computed on the IPU in parts one after the other.

    >>> logits = poptorch.serializedMatMul(
    ...     x, self.embedding.weight.t(), poptorch.MatMulSerializationMode.OutputChannels, 4)

    Parts take less memory while they are computed, and so do their gradients. The program itself,
    outside of IPUs, computes a plain `torch.matmul`.

    Args:
        lhs: [..., m, n].
        rhs: [..., n, p].
        mode: the dimension that is divided: m (InputChannels), n (ReducingDim), p (OutputChannels)
            or none (Disabled).
        factor: the number of parts, which divides the dimension.
        keep_precision: whether sums over parts of float16 matrices are computed in float32 and
            rounded once. There are such sums in the result of ReducingDim, and in the gradients of
            InputChannels.

    Returns:
        [..., m, p].

    Raises:
        AssertionError: an argument has another type.
        poptorch.Error: the factor does not divide the dimension.
    """
    assert isinstance(keep_precision, bool), "keep_precision must be True or False"
    assert isinstance(factor, int), "factor must be an integer"
    assert isinstance(mode, _Mode), "mode must be one of poptorch.MatMulSerializationMode"
    if mode is _Mode.Disabled or capture_of(lhs, rhs) is None:
        return torch.matmul(lhs, rhs)
    _check_factor(lhs, rhs, mode, factor)
    if (
        keep_precision
        and lhs.dtype is _HALF
        and rhs.dtype is _HALF
        and (mode is not _Mode.OutputChannels)
    ):
        # A product of float16 numbers is exact in float32.
        return _in_parts(lhs.float(), rhs.float(), mode, factor).to(_HALF)
    return _in_parts(lhs, rhs, mode, factor)


def _check_factor(lhs: torch.Tensor, rhs: torch.Tensor, mode: _Mode, factor: int) -> None:
    if lhs.dim() < 2 or rhs.dim() < 2:
        raise _errors.cpp_error(_errors.SERIALIZED_DIMENSIONS % (lhs.dim(), rhs.dim()))
    size = {
        _Mode.InputChannels: lhs.shape[-2],
        _Mode.ReducingDim: lhs.shape[-1],
        _Mode.OutputChannels: rhs.shape[-1],
    }[mode]
    if factor < 1 or size % factor:
        raise _errors.cpp_error(_errors.SERIALIZED_FACTOR % (factor, size, mode.value))


def _in_parts(lhs: torch.Tensor, rhs: torch.Tensor, mode: _Mode, factor: int) -> torch.Tensor:
    if mode is _Mode.OutputChannels:
        parts = [torch.matmul(lhs, part) for part in rhs.chunk(factor, -1)]
        return torch.cat(parts, -1)
    if mode is _Mode.InputChannels:
        parts = [torch.matmul(part, rhs) for part in lhs.chunk(factor, -2)]
        return torch.cat(parts, -2)
    total = None
    for left, right in zip(lhs.chunk(factor, -1), rhs.chunk(factor, -2)):
        part = torch.matmul(left, right)
        total = part if total is None else total + part
    return total
