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
