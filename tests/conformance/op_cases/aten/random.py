"""Random elements: their moments are compared."""

import numpy
import torch

from ..case import Value
from .harness import aten, define, encoded


def moments(mean, deviation):
    def check(result, exact, size, type_name):
        values = result.astype(numpy.float64)
        off = abs(values.mean() - mean) > 6 * deviation / numpy.sqrt(values.size) or abs(values.std() - deviation) > 0.1 * deviation
        return f"mean {values.mean()} and deviation {values.std()}, should be {mean} and {deviation}" if off else None
    return check


def random_elements(case, name, *arguments, mean, deviation, wanted=None):
    """Compares the moments of 4096 elements."""
    first = case._add({"aten": name, "arguments": [encoded(argument) for argument in arguments]}, 2 if wanted else 1)
    of = torch.zeros(4096, dtype=torch.float64)
    case.want(Value(first, case.type, of, of), moments(mean, deviation))
    return first


@define("bernoulli_.float", "bernoulli.p")
def bernoulli(case, name):
    p = case.one_of([0.25, 0.5])
    random_elements(case, name, case.input(case.floats(case.type, [4096])), p, mean=p, deviation=(p * (1 - p)) ** 0.5)


@define("bernoulli.default")
def bernoulli_of(case, name):
    x = case.input(numpy.full([4096], 0.25, numpy.float32 if case.type == "FLOAT32" else numpy.float16))
    random_elements(case, name, x, mean=0.25, deviation=0.1875**0.5)


@define("rand_like.default")
def rand_like(case, name):
    random_elements(case, name, case.input(case.floats(case.type, [4096])), mean=0.5, deviation=12**-0.5)


@define("randn_like.default")
def randn_like(case, name):
    random_elements(case, name, case.input(case.floats(case.type, [4096])), mean=0, deviation=1)


@define("uniform_.default")
def uniform(case, name):
    random_elements(case, name, case.input(case.floats(case.type, [4096])), -2, 4, mean=1, deviation=6 * 12**-0.5)


@define("normal_.default")
def normal(case, name):
    random_elements(case, name, case.input(case.floats(case.type, [4096])), 3, 0.5, mean=3, deviation=0.5)


@define("native_dropout.default")
def native_dropout(case, name):
    x = case.input(numpy.full([4096], 1, numpy.float32 if case.type == "FLOAT32" else numpy.float16))
    random_elements(case, name, x, 0.25, True, mean=1, deviation=(0.25 / 0.75) ** 0.5, wanted=[0])
