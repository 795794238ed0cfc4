"""Operators that choose elements by index, or write them there."""

import numpy

from ..checks import close, equal
from .harness import aten, axis_of, define, draw, floats, integers, operator, shape


def _index(case):
    dims = draw(case, 2, 5, 3)
    which = case.one_of([[0], [1], [0, 1], [1, 2], [0, 2], [0, 1, 2]])
    shapes = case.one_of([[[4]] * 3, [[2, 3]] * 3, [[2, 1], [3], [1]]])
    indices = [None] * (max(which) + 1)
    return dims, which, shapes, indices


@define("index.Tensor")
def index(case, name):
    case.special = False
    dims, which, shapes, indices = _index(case)
    for axis in which:
        indices[axis] = integers(case, shapes[axis], -dims[axis], dims[axis])
    aten(case, name, floats(case, dims), indices, check=close())


@define("index_put.default")
def index_put(case, name):
    case.special = False
    dims, which, shapes, indices = _index(case)
    accumulate = case.chance(0.6)
    if not accumulate:  # the order of writes to one place is not defined
        which, indices = [0], [None]
        indices[0] = case.operand(case.random.permutation(dims[0])[:2].astype(numpy.int32))
    else:
        for axis in which:
            indices[axis] = integers(case, shapes[axis], -dims[axis], dims[axis])
    x = floats(case, dims)
    exacts = [None if i is None else i.exact for i in indices]
    result = list(operator("index.Tensor")(x.exact.detach(), exacts).shape)
    values = floats(case, case.one_of([result, result[-1:], []]))
    aten(case, name, x, indices, values, accumulate, check=close(2))


@define("embedding.default")
def embedding(case, name):
    case.special = False
    rows = draw(case, 2, 8)
    aten(case, name, floats(case, [rows, draw(case, 1, 5)]), integers(case, case.one_of([[4], [2, 3]]), 0, rows), check=close())


@define("embedding_dense_backward.default")
def embedding_backward(case, name):
    case.special = False
    rows, width, dims = draw(case, 2, 8), draw(case, 1, 5), case.one_of([[4], [2, 3]])
    aten(case, name, floats(case, [*dims, width]), integers(case, dims, 0, rows), rows, case.one_of([-1, 1]), case.chance(0.3),
         gradient=False)


@define("index_select.default")
def index_select(case, name):
    case.special = False
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    aten(case, name, floats(case, dims), axis, integers(case, [3], 0, dims[axis]), check=close())


@define("index_add.default")
def index_add(case, name):
    case.special = False
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    source = [3 if i == axis % len(dims) else dim for i, dim in enumerate(dims)]
    aten(case, name, floats(case, dims), axis, integers(case, [3], 0, dims[axis]), floats(case, source), case.one_of([1, -0.5]))


def _smaller(case, dims, axis):
    return [draw(case, 1, 5) if i == axis % len(dims) else draw(case, 1, dim + 1) for i, dim in enumerate(dims)]


@define("gather.default")
def gather(case, name):
    case.special = False
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    aten(case, name, floats(case, dims), axis, integers(case, _smaller(case, dims, axis), 0, dims[axis]), check=close())


@define("scatter_add.default")
def scatter_add(case, name):
    case.special = False
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    part = _smaller(case, dims, axis)
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
