"""Functions of elements that are formulas over several operations."""

import numpy

from ..checks import LARGEST, equal
from .harness import aten, define, floats, integers, pair, shape

DOMAINS = {"log2": (0.1, 5), "log10": (0.1, 5), "erfc": (-2, 4), "sinc": (0.3, 3)}


@define(*(f"{name}.default" for name in DOMAINS))
def of_fraction(case, name):
    aten(case, name, floats(case, shape(case), *DOMAINS[name.split(".")[0]]))


@define("logit.default")
def logit(case, name):
    case.special = False
    if case.chance(0.5):
        aten(case, name, floats(case, shape(case), 0.1, 0.9), None)
    else:
        aten(case, name, floats(case, shape(case), 0, 1), 0.25)


@define("hypot.default")
def hypot(case, name):
    """Numbers whose squares float32 cannot hold, too."""
    case.special = False
    scale = case.one_of([1.0, 1e30, 1e-30]) if case.type == "FLOAT32" else case.one_of([1.0, 1e4])
    a, b = pair(case)
    aten(case, name, floats(case, a, -3 * scale, 3 * scale), floats(case, b, 0.5 * scale, 3 * scale))


@define("logaddexp.default", "logaddexp2.default")
def logaddexp(case, name):
    a, b = pair(case)
    ties = case.chance(0.4)
    far = case.one_of([1, 30])
    aten(case, name, floats(case, a, -3 * far, 3 * far, ties=ties), floats(case, b, -3 * far, 3 * far, ties=ties))


@define("xlogy.Tensor")
def xlogy(case, name):
    a, b = pair(case)
    aten(case, name, floats(case, a, ties=case.chance(0.5)), floats(case, b, 0.1, 3))


@define("xlogy.Scalar_Self")
def xlogy_of_number(case, name):
    aten(case, name, case.one_of([2, 0, -0.5]), floats(case, shape(case), 0.1, 3))


@define("xlogy.Scalar_Other")
def xlogy_by_number(case, name):
    aten(case, name, floats(case, shape(case), ties=case.chance(0.5)), case.one_of([2, 0.25]))


def _limited(result, exact, size, type_name):
    """PyTorch computes in float64, whose largest numbers stand for infinities by default."""
    return equal(result, numpy.clip(exact, -LARGEST[type_name], LARGEST[type_name]), size, type_name)


@define("nan_to_num.default")
def nan_to_num(case, name):
    if case.chance(0.1):
        aten(case, name, integers(case, shape(case), -9, 9))
        return
    case.special = case.chance(0.8)
    numbers = case.one_of([[], [0.5], [None, 2.0, -3.0], [-1.0, None, 0.25]])
    aten(case, name, floats(case, shape(case)), *numbers, check=_limited)


@define("heaviside.default")
def heaviside(case, name):
    a, b = pair(case)
    aten(case, name, floats(case, a, ties=True), floats(case, b), gradient=False)


@define("isinf.default")
def isinf(case, name):
    case.special = True
    aten(case, name, integers(case, shape(case), -9, 9) if case.chance(0.2) else floats(case, shape(case)))
