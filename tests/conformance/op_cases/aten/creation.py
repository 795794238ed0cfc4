"""Tensors of equal or counted elements, and copies with another type."""

from ..checks import close, equal
from .harness import DEVICE, aten, define, draw, flat, floats, shape


def kind_of(case):
    return case.one_of([None, 6, 5, 4, 11])


def made(case, name, *arguments, kind=None, wanted=None):
    """A new tensor whose type is one that PyTorch has a number for."""
    own = case.type if any(True for _ in flat(arguments)) else "FLOAT32"
    aten(case, name, *arguments, kind, check=equal, gradient=False, types=[own if kind is None else DEVICE[kind]], wanted=wanted)


@define("zeros.default", "ones.default")
def of_size(case, name):
    made(case, name, shape(case), kind=kind_of(case))


@define("empty.memory_format")
def empty(case, name):
    made(case, name, shape(case), kind=kind_of(case), wanted=[])


@define("zeros_like.default", "ones_like.default")
def like(case, name):
    made(case, name, floats(case, shape(case)), kind=kind_of(case))


@define("empty_like.default")
def empty_like(case, name):
    made(case, name, floats(case, shape(case)), kind=kind_of(case), wanted=[])


@define("new_zeros.default", "new_ones.default")
def new(case, name):
    made(case, name, floats(case, shape(case)), shape(case), kind=kind_of(case))


@define("new_empty.default")
def new_empty(case, name):
    made(case, name, floats(case, shape(case)), shape(case), kind=kind_of(case), wanted=[])


@define("new_empty_strided.default")
def new_empty_strided(case, name):
    made(case, name, floats(case, shape(case)), [2, 3], [3, 1], kind=kind_of(case), wanted=[])


@define("empty_strided.default")
def empty_strided(case, name):
    made(case, name, [2, 3], [3, 1], kind=kind_of(case), wanted=[])


@define("full.default")
def full(case, name):
    made(case, name, shape(case), 2.5, kind=case.one_of([None, 6, 5]))


@define("full_like.default")
def full_like(case, name):
    made(case, name, floats(case, shape(case)), -1.5, kind=case.one_of([None, 6, 5]))


@define("new_full.default")
def new_full(case, name):
    made(case, name, floats(case, shape(case)), shape(case), -1.5, kind=case.one_of([None, 6, 5]))


@define("scalar_tensor.default")
def scalar_tensor(case, name):
    made(case, name, 0.25, kind=case.one_of([6, 5]))


@define("arange.default", "arange.start", "arange.start_step")
def arange(case, name):
    whole = case.chance(0.5)
    numbers = {"arange.default": [draw(case, 1, 20)], "arange.start": [draw(case, -5, 5), draw(case, 5, 20)],
               "arange.start_step": [draw(case, -5, 5), draw(case, 5, 20), draw(case, 1, 4)]}[name]
    numbers = numbers if whole else [float(number) for number in numbers]
    aten(case, name, *numbers, None if whole else 6, check=equal, types=["INT32" if whole else "FLOAT32"])


@define("_to_copy.default")
def to_copy(case, name):
    kind = case.one_of([None, 6, 5])
    aten(case, name, floats(case, shape(case)), kind, check=equal, types=[case.type if kind is None else DEVICE[kind]])


@define("copy_.default")
def copy(case, name):
    dims = shape(case, 1)
    aten(case, name, floats(case, dims), floats(case, dims[1:] if case.chance(0.5) else dims), check=equal, gradient=False)


@define("zero_.default")
def zero(case, name):
    aten(case, name, floats(case, shape(case)), check=equal, gradient=False)


@define("fill_.Scalar", "fill.Scalar")
def fill(case, name):
    aten(case, name, floats(case, shape(case)), 0.75, check=equal, gradient=False)


@define("fill_.Tensor", "fill.Tensor")
def fill_tensor(case, name):
    aten(case, name, floats(case, shape(case)), floats(case, []), check=equal, gradient=False)


@define("linspace.default", "logspace.default")
def spaced(case, name):
    kind = case.one_of([None, 6, 5])
    base = [case.one_of([10.0, 2.0, 0.5])] if name == "logspace.default" else []
    ends = [round(float(end), 2) for end in case.random.uniform(-2, 2, 2)]
    type_name = "FLOAT32" if kind is None else DEVICE[kind]
    aten(case, name, *ends, draw(case, 1, 12), *base, kind, check=close(), gradient=False, types=[type_name])


@define("range.step")
def range_step(case, name):
    aten(case, name, draw(case, -4, 3), draw(case, 4, 9), case.one_of([1, 0.5, 3]), 6, check=equal, gradient=False, types=["FLOAT32"])


@define("tril_indices.default", "triu_indices.default")
def triangle_indices(case, name):
    aten(case, name, draw(case, 1, 6), draw(case, 1, 6), draw(case, -2, 3), 4, gradient=False)
