"""Parts of a tensor along its dimensions, and writes of such parts."""

from ..checks import close, equal
from .harness import aten, axis_of, define, draw, floats, shape


@define("select.int")
def select(case, name):
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    aten(case, name, floats(case, dims), axis, draw(case, -dims[axis], dims[axis]), check=equal)


def _bounds(case, dim):
    return case.one_of([None, draw(case, -dim - 1, dim + 2)]), case.one_of([None, 2**63 - 1, draw(case, -dim - 1, dim + 2)])


@define("slice.Tensor")
def slices(case, name):
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    aten(case, name, floats(case, dims), axis, *_bounds(case, dims[axis]), draw(case, 1, 4), check=equal)


@define("select_backward.default")
def select_backward(case, name):
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    rest = [dim for i, dim in enumerate(dims) if i != axis % len(dims)]
    aten(case, name, floats(case, rest), dims, axis, draw(case, 0, dims[axis]), check=equal)


@define("slice_backward.default")
def slice_backward(case, name):
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    start, end, step = draw(case, 0, dims[axis]), case.one_of([2**63 - 1, dims[axis]]), draw(case, 1, 4)
    part = [len(range(start, dims[axis], step)) if i == axis % len(dims) else dim for i, dim in enumerate(dims)]
    aten(case, name, floats(case, part), dims, axis, start, end, step, check=equal)


@define("split.Tensor", "unsafe_split.Tensor")
def split(case, name):
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    aten(case, name, floats(case, dims), draw(case, 1, dims[axis] + 2), axis, check=equal)


@define("split_with_sizes.default")
def split_with_sizes(case, name):
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    first = draw(case, 0, dims[axis] + 1)
    aten(case, name, floats(case, dims), [first, dims[axis] - first], axis, check=equal)


@define("unbind.int")
def unbind(case, name):
    dims = shape(case, 1)
    aten(case, name, floats(case, dims), axis_of(case, dims), check=equal)


@define("as_strided.default", "as_strided_.default")
def as_strided(case, name):
    x = case.input(case.floats(case.type, [40]))
    size = draw(case, 1, 4, 2)
    strides = case.one_of([[size[1], 1], [1, 3], [2, 5], [0, 1]])
    aten(case, name, x, size, strides, draw(case, 0, 10), check=equal, gradient=name == "as_strided.default")


@define("unfold.default")
def unfold(case, name):
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    aten(case, name, floats(case, dims), axis, draw(case, 1, dims[axis] + 1), draw(case, 1, 4), check=close())


@define("slice_scatter.default")
def slice_scatter(case, name):
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    start, end, step = *_bounds(case, dims[axis]), draw(case, 1, 4)
    # PyTorch's own gradient takes no None.
    start, end = 0 if start is None else start, 2**63 - 1 if end is None else end
    part = [len(range(*slice(start, end, step).indices(dim))) if i == axis % len(dims) else dim for i, dim in enumerate(dims)]
    aten(case, name, floats(case, dims), floats(case, part), axis, start, end, step, check=equal)


@define("select_scatter.default")
def select_scatter(case, name):
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    rest = [dim for i, dim in enumerate(dims) if i != axis % len(dims)]
    aten(case, name, floats(case, dims), floats(case, rest), axis, draw(case, -dims[axis], dims[axis]), check=equal)


@define("as_strided_scatter.default")
def as_strided_scatter(case, name):
    case.special = False
    x = case.input(case.floats(case.type, [40]))
    size = draw(case, 1, 4, 2)
    strides = case.one_of([[size[1], 1], [1, 3], [7, 2]])
    # PyTorch 1.13 does not initialise the gradient of the first tensor.
    aten(case, name, x, floats(case, size), size, strides, draw(case, 0, 10), check=equal, gradient=False)
