"""Views of a tensor."""

from ..checks import close, equal
from .harness import aten, axis_of, define, draw, floats, shape


@define("detach.default", "alias.default", "lift_fresh.default", "lift_fresh_copy.default", "clone.default")
def same(case, name):
    aten(case, name, floats(case, shape(case)), check=equal, gradient=name == "clone.default")


@define("contiguous.default", "t.default", "squeeze.default")
def of_one(case, name):
    dims = [draw(case, 1, 3) for _ in range(draw(case, 0, 3))]
    aten(case, name, floats(case, dims), check=equal)


@define("view.default", "_unsafe_view.default", "reshape.default", "_reshape_alias.default")
def view(case, name):
    dims = draw(case, 1, 4, 3)
    target = case.one_of([[-1], [dims[0], -1], [dims[0] * dims[1], dims[2]], [1, *dims]])
    x = case.input(case.floats(case.type, dims))
    if name == "_reshape_alias.default":
        target = [dims[0] * dims[1], dims[2]]
        aten(case, name, x, target, [dims[2], 1], check=equal)
    else:
        aten(case, name, x, target, check=equal)


@define("transpose.int", "transpose_.default")
def transpose(case, name):
    dims = shape(case, 1)
    aten(case, name, floats(case, dims), axis_of(case, dims), axis_of(case, dims), check=equal, gradient=name == "transpose.int")


@define("permute.default")
def permute(case, name):
    dims = shape(case, 1)
    aten(case, name, floats(case, dims), [int(a) for a in case.random.permutation(len(dims))], check=equal)


@define("expand.default")
def expand(case, name):
    dims = draw(case, 1, 4, 2)
    dims[draw(case, 0, 2)] = 1
    target = [draw(case, 1, 3)] + [draw(case, 1, 4) if dim == 1 else case.one_of([dim, -1]) for dim in dims]
    aten(case, name, floats(case, dims), target, check=close())


@define("squeeze.dim")
def squeeze(case, name):
    dims = draw(case, 1, 3, 3)
    aten(case, name, floats(case, dims), axis_of(case, dims), check=equal)


@define("unsqueeze.default")
def unsqueeze(case, name):
    dims = shape(case)
    aten(case, name, floats(case, dims), draw(case, -len(dims) - 1, len(dims) + 1), check=equal)


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
