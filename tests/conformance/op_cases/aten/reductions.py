"""Reductions and running sums."""

import numpy

from .harness import aten, axes_of, axis_of, define, draw, flags, floats, integers, perhaps, shape


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


@define("any.dim", "all.dim")
def truth(case, name):
    dims = shape(case, 1)
    aten(case, name, flags(case, dims), axis_of(case, dims), case.chance(0.5))


@define("any.default", "all.default")
def truth_of_all(case, name):
    aten(case, name, flags(case, shape(case)))


@define("var.correction", "std.correction", "var_mean.correction", "std_mean.correction")
def variance(case, name):
    case.special = False
    dims = [dim + 2 for dim in shape(case, 1, 2)]
    aten(case, name, floats(case, dims), axes_of(case, dims), case.one_of([0, 1]), case.chance(0.5))


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


@define("logcumsumexp.default")
def logcumsumexp(case, name):
    """Numbers far from each other, too, whose exponentials float32 cannot hold beside each other."""
    dims = shape(case)
    far = case.one_of([1, 30])
    aten(case, name, floats(case, dims, -3 * far, 3 * far), axis_of(case, dims))


@define("count_nonzero.default", "count_nonzero.dim_IntList")
def count_nonzero(case, name):
    dims = shape(case)
    values = integers(case, dims, -1, 2) if case.chance(0.3) else floats(case, dims, ties=True)
    if name == "count_nonzero.default":
        aten(case, name, values, perhaps(case, lambda: axis_of(case, dims)))
    else:
        aten(case, name, values, axes_of(case, dims))


@define("nansum.default")
def nansum(case, name):
    case.special = False
    dims = shape(case)
    numbers = case.floats(case.type, dims)
    numbers = numpy.where(case.random.random(dims) < 0.3, numpy.nan, numbers).astype(numbers.dtype)
    aten(case, name, case.operand(numbers), axes_of(case, dims), case.chance(0.5))


@define("aminmax.default")
def both_extremes(case, name):
    """PyTorch gives a scalar's a dimension, with a warning."""
    case.special = False
    dims = shape(case, 1)
    aten(case, name, floats(case, dims), perhaps(case, lambda: axis_of(case, dims)), case.chance(0.5))


@define("trace.default")
def trace(case, name):
    # PyTorch 1.13 puts the gradient of a matrix with more rows than columns at wrong places.
    dims = sorted(draw(case, 1, 7, 2))
    aten(case, name, integers(case, dims, -9, 9) if case.chance(0.2) else floats(case, dims))
