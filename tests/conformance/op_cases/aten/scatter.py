"""Writes along a dimension, at places that indices choose, and by a mask."""

import numpy

from ..checks import close, equal
from .harness import aten, axis_of, define, draw, flags, floats, integers, shape
from .indexing import smaller


@define("index_add.default")
def index_add(case, name):
    case.special = False
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    source = [3 if i == axis % len(dims) else dim for i, dim in enumerate(dims)]
    aten(case, name, floats(case, dims), axis, integers(case, [3], 0, dims[axis]), floats(case, source), case.one_of([1, -0.5]))


@define("scatter_add.default")
def scatter_add(case, name):
    case.special = False
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    part = smaller(case, dims, axis)
    source = [dim + draw(case, 0, 2) for dim in part]
    aten(case, name, floats(case, dims), axis, integers(case, part, 0, dims[axis]), floats(case, source), check=close(2))


@define("scatter.src", "scatter.value")
def scatter(case, name):
    case.special = False
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    part = [draw(case, 1, dim + 1) for dim in dims]
    # No place is written twice.
    places = numpy.argsort(case.random.random([dims[axis] if i == axis % len(dims) else dim for i, dim in enumerate(part)]), axis=axis)
    places = places[tuple(slice(0, dim) for dim in part)].astype(numpy.int32)
    source = floats(case, part) if name == "scatter.src" else 0.5
    aten(case, name, floats(case, dims), axis, case.operand(places), source, check=equal)


def _places(case, dims, axis, count):
    """Different ones: the order of writes to one place is not defined."""
    return case.operand(case.random.permutation(dims[axis])[:count].astype(numpy.int32))


def _rows(dims, axis, count):
    return [count if i == axis % len(dims) else dim for i, dim in enumerate(dims)]


@define("index_copy.default")
def index_copy(case, name):
    case.special = False
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    count = draw(case, 1, dims[axis] + 1)
    aten(case, name, floats(case, dims), axis, _places(case, dims, axis, count), floats(case, _rows(dims, axis, count)),
         check=equal)


@define("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(case, name):
    case.special = False
    dims = shape(case)
    axis = axis_of(case, dims)
    length = dims[axis] if dims else 1
    # PyTorch's gradient of an element does not take negative indices, and counts the element once
    # for each of equal indices.
    counts = [[3], [1], []] if name.endswith("Scalar") else [[1], []]
    indices = integers(case, case.one_of(counts), 0, length)
    aten(case, name, floats(case, dims), axis, indices, 0.75 if name.endswith("Scalar") else floats(case, []), check=close())


def _distinct(case, dims):
    """Different numbers, none of them 0: which of equals takes a gradient is another question."""
    count = int(numpy.prod(dims))
    return (case.random.permutation(count) + 1).reshape(dims) * case.random.choice([-1, 1], dims)


def _reduced(case, dims, source, reduction):
    """Destination and source, with zeros among the factors of a product."""
    parts = []
    numbers = _distinct(case, [int(numpy.prod(dims)) + int(numpy.prod(source))])
    if reduction in ("prod", "multiply"):
        numbers = numpy.where(case.random.random(numbers.shape) < 0.15, 0, numbers % 7 - 3)
    for part in (numbers[: int(numpy.prod(dims))].reshape(dims), numbers[int(numpy.prod(dims)) :].reshape(source)):
        parts.append(case.operand((part / 4).astype(numpy.float32 if case.type == "FLOAT32" else numpy.float16)))
    return parts


@define("scatter_reduce.two")
def scatter_reduce(case, name):
    case.special = False
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    part = smaller(case, dims, axis)
    reduction = case.one_of(["sum", "prod", "mean", "amax", "amin"])
    case.words.append(reduction)
    more = case.chance(0.2)  # PyTorch has no gradient then
    x, source = _reduced(case, dims, [dim + more for dim in part], reduction)
    aten(case, name, x, axis, integers(case, part, 0, dims[axis]), source, reduction, case.chance(0.5), check=close(2))


@define("scatter.reduce", "scatter.value_reduce")
def scatter_combined(case, name):
    case.special = False
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    part = smaller(case, dims, axis)
    reduction = case.one_of(["add", "multiply"])
    case.words.append(reduction)
    x, source = _reduced(case, dims, part, reduction)
    aten(case, name, x, axis, integers(case, part, 0, dims[axis]), source if name == "scatter.reduce" else 1.5, reduction,
         check=close(2), gradient=False)


@define("index_reduce.default")
def index_reduce(case, name):
    case.special = False
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    reduction = case.one_of(["prod", "mean", "amax", "amin"])
    case.words.append(reduction)
    x, source = _reduced(case, dims, _rows(dims, axis, 3), reduction)
    aten(case, name, x, axis, integers(case, [3], 0, dims[axis]), source, reduction, case.chance(0.5), check=close(2))


@define("put.default")
def put(case, name):
    case.special = False
    dims = shape(case, 1)
    count = int(numpy.prod(dims))
    accumulate = case.chance(0.5)
    indices = integers(case, [4], -count, count) if accumulate else _places(case, [count], 0, min(3, count))
    aten(case, name, floats(case, dims), indices, floats(case, indices.dims), accumulate, check=close(2))


@define("masked_scatter.default")
def masked_scatter(case, name):
    case.special = False
    dims = shape(case)
    mask = flags(case, dims[draw(case, 0, len(dims) + 1) if dims else 0 :])
    aten(case, name, floats(case, dims), mask, floats(case, [int(numpy.prod(dims)) + draw(case, 0, 3)]), check=equal)
