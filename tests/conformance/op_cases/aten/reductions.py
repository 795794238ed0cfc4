"""Reductions, running sums and sorting."""

from .harness import DEVICE, aten, axes_of, axis_of, define, draw, flags, floats, integers, shape


@define("sum.dim_IntList", "mean.dim", "amax.default", "amin.default")
def reduction(case, name):
    dims = shape(case)
    axes = axes_of(case, dims)
    kept = case.chance(0.5)
    if name == "sum.dim_IntList" and case.chance(0.3):
        aten(case, name, integers(case, dims, -9, 9), axes, kept)
    else:
        aten(case, name, floats(case, dims, ties=name.startswith("am") and case.chance(0.4)), axes, kept)


@define("sum.default", "mean.default", "max.default", "min.default")
def reduction_of_all(case, name):
    aten(case, name, floats(case, shape(case)))


@define("prod.default")
def prod(case, name):
    case.special = False
    aten(case, name, floats(case, shape(case, 0, 2), 0.5, 1.5))


@define("prod.dim_int")
def prod_along(case, name):
    case.special = False
    dims = shape(case, 1, 2)
    aten(case, name, floats(case, dims, 0.5, 1.5), axis_of(case, dims), case.chance(0.5))


@define("max.dim", "min.dim")
def extreme(case, name):
    case.special = False
    dims = shape(case)
    aten(case, name, floats(case, dims), axis_of(case, dims), case.chance(0.5))


@define("argmax.default", "argmin.default")
def place_of_extreme(case, name):
    case.special = False
    dims = shape(case)
    axis, kept = case.one_of([(None, False), (axis_of(case, dims), case.chance(0.5))])
    aten(case, name, floats(case, dims), axis, kept)


@define("any.dim", "all.dim")
def truth(case, name):
    dims = shape(case, 1)
    aten(case, name, flags(case, dims), axis_of(case, dims), case.chance(0.5))


@define("any.default", "all.default")
def truth_of_all(case, name):
    aten(case, name, flags(case, shape(case)))


@define("var.correction", "std.correction", "var_mean.correction")
def variance(case, name):
    case.special = False
    dims = [dim + 2 for dim in shape(case, 1, 2)]
    aten(case, name, floats(case, dims), axes_of(case, dims), case.one_of([0, 1]), case.chance(0.5))


@define("norm.ScalarOpt_dim")
def norm(case, name):
    case.special = False
    dims = shape(case, 1)
    aten(case, name, floats(case, dims), case.one_of([None, 2, 1, 3.0, float("inf")]), axes_of(case, dims), case.chance(0.5))


@define("norm.Scalar")
def norm_of_all(case, name):
    case.special = False
    aten(case, name, floats(case, shape(case)), case.one_of([2, 1, 3.0]))


@define("linalg_vector_norm.default")
def vector_norm(case, name):
    case.special = False
    dims = shape(case, 1)
    number = case.one_of([None, 6])
    aten(case, name, floats(case, dims), case.one_of([2, 1, 3.0, float("inf")]), axes_of(case, dims), case.chance(0.5),
         number, types=[DEVICE[number]] if number else None)


@define("logsumexp.default")
def logsumexp(case, name):
    case.special = False
    dims = shape(case, 1)
    values = integers(case, dims, -9, 9) if case.chance(0.2) else floats(case, dims)
    aten(case, name, values, axes_of(case, dims), case.chance(0.5))


@define("cumsum.default", "cumprod.default")
def cumulative(case, name):
    case.special = False
    dims = shape(case)
    aten(case, name, floats(case, dims, *((0.5, 1.5) if name == "cumprod.default" else (-3, 3))), axis_of(case, dims))


@define("sort.default")
def sort(case, name):
    case.special = False
    dims = shape(case)
    aten(case, name, floats(case, dims), axis_of(case, dims), case.chance(0.5))


@define("sort.stable")
def stable_sort(case, name):
    case.special = False
    dims = shape(case)
    aten(case, name, floats(case, dims, ties=True), True, axis_of(case, dims), case.chance(0.5))


@define("topk.default")
def topk(case, name):
    case.special = False
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    aten(case, name, floats(case, dims), draw(case, 1, dims[axis] + 1), axis, case.chance(0.5))
