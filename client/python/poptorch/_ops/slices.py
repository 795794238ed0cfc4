"""Slices that begin where a tensor says."""

import torch

from .. import _errors
from .checks import capture_of, check_integer, check_tensor


def dynamic_slice(
    tensor: torch.Tensor, dim: int, start: torch.Tensor, size: int, step: int
) -> torch.Tensor:
    """A slice of a tensor that begins at an element which is known when the model runs.

    >>> window = poptorch.dynamic_slice(x, 0, first, 4, 1)   # x[first : first + 4]

    A slice past the end goes on at the beginning. Gradients flow to the tensor.

    Args:
        tensor: of any type and shape.
        dim: the dimension that is sliced; negative numbers count from the end.
        start: an integer tensor with one element.
        size: the number of elements between the first one and the end of the slice. On the IPU it
            must divide the size of the dimension.
        step: the distance between elements of the slice.

    Returns:
        The tensor with ceil(size / step) elements in the dimension.

    Raises:
        poptorch.Error: an argument has another type or is out of range.
    """
    check_tensor(tensor, "dynamic_slice")
    check_integer(dim, _errors.DYNAMIC_DIMENSION)
    check_tensor(start, "The start of dynamic_slice")
    check_integer(size, _errors.DYNAMIC_SIZE)
    check_integer(step, _errors.DYNAMIC_STEP)
    dim = _dimension(tensor, dim)
    _check_size(size, tensor.shape[dim])
    if step < 1:
        raise _errors.cpp_error(_errors.SLICE_STEP % step)
    if capture_of(tensor, start) is not None and tensor.shape[dim] % size:
        raise _errors.cpp_error(_errors.SLICE_FACTOR % (size, tensor.shape[dim]))
    return tensor.index_select(dim, _places(start, size, step, tensor.shape[dim]))


def dynamic_update(
    input: torch.Tensor,  # pylint: disable=redefined-builtin
    src: torch.Tensor,
    dim: int,
    start: torch.Tensor,
    size: int,
) -> torch.Tensor:
    """A copy of a tensor with another one in the place of a slice.

    >>> x = poptorch.dynamic_update(x, part, 0, first, 4)   # x[first : first + 4] = part

    A slice past the end goes on at the beginning. Gradients flow to both tensors.

    Args:
        input: the tensor that is copied.
        src: of its type and shape, with `size` elements in the dimension.
        dim: the dimension that is sliced; negative numbers count from the end.
        start: an integer tensor with one element.
        size: the number of elements of the slice.

    Returns:
        A tensor like `input`.

    Raises:
        poptorch.Error: an argument has another type or shape, or is out of range.
    """
    check_tensor(input, "dynamic_update")
    check_integer(dim, _errors.DYNAMIC_DIMENSION)
    check_tensor(start, "The start of dynamic_update")
    check_tensor(src, "The src of dynamic_update")
    check_integer(size, _errors.DYNAMIC_SIZE)
    if input.dim() != src.dim():
        raise _errors.py_error(_errors.DYNAMIC_UPDATE_RANK % (input.dim(), src.dim()))
    if input.dtype != src.dtype:
        raise _errors.py_error(_errors.DYNAMIC_UPDATE_TYPE % (input.dtype, src.dtype))
    dim = _dimension(input, dim)
    _check_size(size, input.shape[dim])
    wanted = list(input.shape)
    wanted[dim] = size
    if list(src.shape) != wanted:
        raise _errors.py_error(_errors.DYNAMIC_UPDATE_SHAPE % (list(src.shape), wanted))
    places = _places(start, size, 1, input.shape[dim])
    shape = [1] * input.dim()
    shape[dim] = size
    return input.scatter(dim, places.reshape(shape).expand(wanted), src)


def _dimension(tensor: torch.Tensor, dim: int) -> int:
    if not -tensor.dim() <= dim < tensor.dim():
        raise _errors.py_error(_errors.DYNAMIC_DIMENSION_RANGE % (dim, tensor.dim()))
    return dim % tensor.dim()


def _check_size(size: int, dimension: int) -> None:
    if size == 0:
        raise _errors.cpp_error(_errors.SLICE_EMPTY)
    if size < 0:
        raise _errors.cpp_error(_errors.SLICE_DESCENDS)
    if size > dimension:
        raise _errors.cpp_error(_errors.SLICE_TOO_LONG % (size, dimension))


def _places(start: torch.Tensor, size: int, step: int, dimension: int) -> torch.Tensor:
    """The numbers of the chosen elements, [ceil(size / step)]."""
    if start.numel() != 1 or start.is_floating_point():
        raise _errors.py_error(_errors.DYNAMIC_START % (start.dtype, list(start.shape)))
    offsets = torch.arange(0, size, step, dtype=torch.int64, device=start.device)
    return (start.reshape(1) + offsets).remainder(dimension)
