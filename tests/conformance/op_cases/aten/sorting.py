"""Sorting and what follows from it; running extremes."""

import numpy

from .harness import aten, axis_of, define, draw, floats, shape


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


def _distinct(case, dims):
    """Numbers that are all different, in float16, too."""
    count = int(numpy.prod(dims))
    numbers = (case.random.permutation(count).reshape(dims) - count // 2) / 8
    return numbers.astype(numpy.float32 if case.type == "FLOAT32" else numpy.float16)


def _perhaps_nan(case, numbers):
    """At most one, as PyTorch does not say which of several it takes."""
    has_nan = case.chance(0.3)
    if has_nan:
        numbers.flat[case.random.integers(numbers.size)] = numpy.nan
    return has_nan


@define("median.default")
def median(case, name):
    case.special = False
    numbers = _distinct(case, shape(case))
    has_nan = _perhaps_nan(case, numbers)
    aten(case, name, case.operand(numbers), gradient=not has_nan)


@define("median.dim")
def median_along(case, name):
    case.special = False
    dims = shape(case)
    numbers = _distinct(case, dims)
    has_nan = _perhaps_nan(case, numbers)
    aten(case, name, case.operand(numbers), axis_of(case, dims), case.chance(0.5), gradient=not has_nan)


@define("kthvalue.default")
def kthvalue(case, name):
    case.special = False
    dims = shape(case)
    axis = axis_of(case, dims)
    k = draw(case, 1, dims[axis] + 1) if dims else 1
    aten(case, name, case.operand(_distinct(case, dims)), k, axis, case.chance(0.5))


@define("cummax.default", "cummin.default")
def running_extreme(case, name):
    dims = shape(case)
    aten(case, name, floats(case, dims, ties=case.chance(0.5)), axis_of(case, dims))
