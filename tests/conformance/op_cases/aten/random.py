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


def _elements(case, value=None):
    """4096 elements of the case's type, all equal to a value if there is one."""
    kind = numpy.float32 if case.type == "FLOAT32" else numpy.float16
    return case.input(case.floats(case.type, [4096]) if value is None else numpy.full([4096], value, kind))


def _new(case):
    """The number of a type for a new tensor, which is the case's type."""
    return 6 if case.type == "FLOAT32" else 5


@define("rand.default", "randn.default")
def of_size(case, name):
    mean, deviation = (0.5, 12**-0.5) if name == "rand.default" else (0, 1)
    random_elements(case, name, [4096], _new(case), mean=mean, deviation=deviation)


def _integers(low, high):
    return {"mean": (low + high - 1) / 2, "deviation": (((high - low) ** 2 - 1) / 12) ** 0.5}


@define("randint.default", "randint.low")
def randint(case, name):
    low, high = (0, 5) if name == "randint.default" else (-3, 9)
    bounds = [high] if name == "randint.default" else [low, high]
    if case.chance(0.5):
        case.type = "INT32"
        random_elements(case, name, *bounds, [4096], 4, **_integers(low, high))
    else:
        random_elements(case, name, *bounds, [4096], _new(case), **_integers(low, high))


@define("randint_like.default", "randint_like.low_dtype", "random_.to", "random_.from")
def randint_like(case, name):
    low, high = (0, 7) if name.endswith("default") or name.endswith("to") else (2, 20)
    random_elements(case, name, _elements(case), *([high] if low == 0 else [low, high]), **_integers(low, high))


@define("random_.default")
def random_whole(case, name):
    random_elements(case, name, _elements(case), **_integers(0, 2**24 + 1 if case.type == "FLOAT32" else 2**11 + 1))


@define("randperm.default")
def randperm(case, name):
    """Each number once, and not in order."""
    def check(result, exact, size, type_name):
        in_order = numpy.array_equal(result, numpy.arange(result.size))
        return "no permutation" if in_order or not numpy.array_equal(numpy.sort(result), numpy.arange(result.size)) else None

    first = case._add({"aten": name, "arguments": [100, 4]}, 1)
    of = torch.zeros(100, dtype=torch.float64)
    case.want(Value(first, "INT32", of, of), check)


@define("normal.float_float")
def normal_of_size(case, name):
    random_elements(case, name, 1.5, 0.5, [4096], None, _new(case), mean=1.5, deviation=0.5)


@define("normal.Tensor_float", "normal.float_Tensor", "normal.Tensor_Tensor")
def normal_around(case, name):
    first, second = name.split(".")[1].split("_")
    mean = _elements(case, -2) if first == "Tensor" else -2.0
    deviation = _elements(case, 0.75) if second == "Tensor" else 0.75
    random_elements(case, name, mean, deviation, mean=-2, deviation=0.75)


@define("log_normal_.default")
def log_normal(case, name):
    mean, deviation = numpy.exp(0.5 + 0.25**2 / 2), (numpy.exp(0.25**2) - 1) ** 0.5
    random_elements(case, name, _elements(case), 0.5, 0.25, mean=mean, deviation=mean * deviation)


@define("exponential_.default")
def exponential(case, name):
    random_elements(case, name, _elements(case), 2.0, mean=0.5, deviation=0.5)


@define("geometric_.default")
def geometric(case, name):
    random_elements(case, name, _elements(case), 0.25, mean=4, deviation=0.75**0.5 / 0.25)


@define("cauchy_.default")
def cauchy(case, name):
    """It has no moments: half of it lies within the scale of the median."""
    def check(result, exact, size, type_name):
        values = result.astype(numpy.float64)
        quarters = numpy.quantile(values, [0.25, 0.5, 0.75])
        off = numpy.abs(quarters - [1.5, 2, 2.5]) > 0.1
        return f"quartiles {quarters}" if off.any() else None

    first = case._add({"aten": name, "arguments": [encoded(_elements(case)), 2.0, 0.5]}, 1)
    of = torch.zeros(4096, dtype=torch.float64)
    case.want(Value(first, case.type, of, of), check)


@define("bernoulli_.Tensor")
def bernoulli_by_tensor(case, name):
    random_elements(case, name, _elements(case), _elements(case, 0.25), mean=0.25, deviation=0.1875**0.5)
