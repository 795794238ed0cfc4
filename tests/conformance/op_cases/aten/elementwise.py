"""Functions of each element, and of two with broadcasting."""

from ..case import Value
from ..checks import close, equal
from .harness import aten, define, flags, floats, integers, pair, shape


DOMAINS = {"abs": (-3, 3), "acos": (-0.95, 0.95), "acosh": (1.1, 5), "asin": (-0.95, 0.95), "asinh": (-3, 3), "atan": (-3, 3),
           "atanh": (-0.9, 0.9), "ceil": (-3, 3), "cos": (-3, 3), "cosh": (-3, 3), "erf": (-2, 2), "erfinv": (-0.9, 0.9),
           "exp": (-3, 3), "expm1": (-3, 3), "floor": (-3, 3), "frac": (-3, 3), "log": (0.1, 5), "log1p": (-0.8, 5), "neg": (-3, 3),
           "reciprocal": (0.2, 4), "round": (-3, 3), "rsqrt": (0.2, 4), "sign": (-3, 3), "sin": (-3, 3), "sinh": (-3, 3),
           "sqrt": (0.1, 5), "square": (-3, 3), "tan": (-1.2, 1.2), "trunc": (-3, 3), "relu": (-3, 3), "sigmoid": (-5, 5),
           "tanh": (-3, 3), "silu": (-5, 5), "hardsigmoid": (-5, 5), "hardswish": (-5, 5), "mish": (-5, 5), "log_sigmoid": (-5, 5)}


@define(*(f"{name}.default" for name in DOMAINS), "relu_.default", "tanh_.default", "sigmoid_.default", "silu_.default",
        "hardsigmoid_.default", "hardswish_.default")
def unary(case, name):
    low, high = DOMAINS[name.split(".")[0].rstrip("_")]
    ties = name.startswith(("relu", "hardsigmoid", "abs", "round"))
    aten(case, name, floats(case, shape(case), low, high, ties=ties and case.chance(0.5)))


@define("isnan.default")
def isnan(case, name):
    case.special = True
    aten(case, name, floats(case, shape(case)))


@define("logical_not.default", "bitwise_not.default")
def negation(case, name):
    dims = shape(case)
    x = flags(case, dims) if case.chance(0.5) or name == "logical_not.default" else integers(case, dims, -9, 9)
    aten(case, name, x)


@define("add.Tensor", "sub.Tensor", "add_.Tensor", "rsub.Tensor")
def added(case, name):
    a, b = pair(case)
    if name == "add_.Tensor":
        a, b = (a, b) if len(a) > len(b) or (len(a) == len(b) and all(x >= y for x, y in zip(a, b))) else (b, a)
        b = [y for y in b]
    other = floats(case, b) if case.chance(0.7) else case.one_of([2, 0.5])
    alpha = [case.one_of([1, 2, -0.5])] if case.chance(0.5) else []
    if name == "rsub.Tensor" and not isinstance(other, Value):
        other = floats(case, b)
    aten(case, name, floats(case, a), _tensor(case, name, other), *alpha)


def _tensor(case, name, other):
    """PyTorch's schema has a tensor where a trace has a number."""
    return other if isinstance(other, Value) else case.constant("FLOAT32", [], float(other))


@define("add.Scalar", "sub.Scalar", "rsub.Scalar")
def added_number(case, name):
    aten(case, name, floats(case, shape(case)), case.one_of([2, -0.75]), *([case.one_of([2, 0.5])] if case.chance(0.5) else []))


@define("mul.Tensor", "mul_.Tensor", "div.Tensor", "div_.Tensor", "maximum.default", "minimum.default", "atan2.default")
def combined(case, name):
    a, b = pair(case)
    if "_." in name:
        a = b = shape(case)
    low = 0.3 if name.startswith("div") else -3.0
    ties = name.startswith("m") and case.chance(0.4)
    case.special = case.special and name.startswith("m")
    aten(case, name, floats(case, a, ties=ties), floats(case, b, low, 3.0, ties=ties))


@define("mul.Scalar", "div.Scalar", "div_.Scalar")
def by_number(case, name):
    aten(case, name, floats(case, shape(case)), case.one_of([2, -0.75, 3.0]))


@define("div.Tensor_mode", "div.Scalar_mode")
def rounded_quotient(case, name):
    case.special = False
    mode = case.one_of(["trunc", "floor", None])
    if name == "div.Scalar_mode":
        aten(case, name, floats(case, shape(case)), 0.75, mode, gradient=mode is None)
    elif case.chance(0.5) and mode:
        dims = shape(case)
        aten(case, name, integers(case, dims, -20, 20), integers(case, dims, 1, 6), mode)
    else:
        a, b = pair(case)
        aten(case, name, floats(case, a), floats(case, b, 0.5, 2), mode, gradient=mode is None)


@define("floor_divide.default")
def floor_divide(case, name):
    """A fraction through 0 is infinite."""
    case.special = False
    if case.chance(0.5):
        dims = shape(case)
        aten(case, name, integers(case, dims, -20, 20), integers(case, dims, 1, 6))
        return
    a, b = pair(case)
    divisors = case.floats(case.type, b, 0.5, 2)
    if case.chance(0.3):
        divisors.flat[0] = 0
    aten(case, name, floats(case, a, 1, 9), case.operand(divisors), gradient=False)


@define("floor_divide.Scalar")
def floor_divide_by_number(case, name):
    case.special = False
    aten(case, name, floats(case, shape(case)), 0.75, gradient=False)


@define("pow.Tensor_Scalar")
def power_number(case, name):
    case.special = False
    exponent = case.one_of([2, 3, 0.5, -1.0])
    aten(case, name, floats(case, shape(case), 0.2, 3), exponent)


@define("pow.Tensor_Tensor")
def power(case, name):
    case.special = False
    a, b = pair(case)
    aten(case, name, floats(case, a, 0.2, 3), floats(case, b, -2, 2))


@define("pow.Scalar")
def power_of_number(case, name):
    case.special = False
    aten(case, name, 2.0, floats(case, shape(case), -2, 2))


COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge"]


@define(*(f"{name}.Tensor" for name in COMPARISONS))
def compared(case, name):
    a, b = pair(case)
    aten(case, name, floats(case, a, ties=True), floats(case, b, ties=True))


@define(*(f"{name}.Scalar" for name in COMPARISONS))
def compared_number(case, name):
    if case.chance(0.5):
        aten(case, name, floats(case, shape(case), ties=True), case.one_of([1, 0.0]))
    else:
        aten(case, name, integers(case, shape(case), -2, 3), 1)


@define("fmod.Tensor", "remainder.Tensor")
def remainder(case, name):
    case.special = False
    dims = shape(case)
    if case.chance(0.5):
        aten(case, name, integers(case, dims, -20, 20), integers(case, dims, 1, 6))
    else:
        aten(case, name, floats(case, dims), floats(case, dims, 0.5, 2), gradient=False)


@define("fmod.Scalar", "remainder.Scalar")
def remainder_number(case, name):
    case.special = False
    aten(case, name, floats(case, shape(case)), 0.75, gradient=False)


@define("bitwise_and.Tensor", "bitwise_or.Tensor", "bitwise_xor.Tensor")
def bits(case, name):
    dims = shape(case)
    of = (lambda: flags(case, dims)) if case.chance(0.5) else (lambda: integers(case, dims, -9, 9))
    aten(case, name, of(), of())


@define("bitwise_and.Scalar", "bitwise_or.Scalar", "bitwise_xor.Scalar")
def bits_number(case, name):
    aten(case, name, integers(case, shape(case), -9, 9), 5)


@define("logical_and.default", "logical_or.default", "logical_xor.default")
def logical(case, name):
    dims = shape(case)
    aten(case, name, flags(case, dims), flags(case, dims))


@define("where.self")
def where(case, name):
    a, b = pair(case)
    aten(case, name, flags(case, a), floats(case, b), floats(case, a))


@define("masked_fill.Scalar", "masked_fill_.Scalar")
def masked_fill(case, name):
    dims = shape(case)
    aten(case, name, floats(case, dims), flags(case, dims), case.one_of([-float("inf"), 0, 1.5]), check=equal)


@define("masked_fill.Tensor")
def masked_fill_tensor(case, name):
    dims = shape(case)
    aten(case, name, floats(case, dims), flags(case, dims), floats(case, []), check=close())


@define("clamp.default")
def clamp(case, name):
    low, high = case.one_of([(-1, 1), (None, 1.0), (-1.0, None), (0, 2)])
    aten(case, name, floats(case, shape(case), ties=case.chance(0.5)), low, high, check=equal)


@define("clamp_min.default", "clamp_max.default")
def clamp_one(case, name):
    aten(case, name, floats(case, shape(case), ties=case.chance(0.5)), case.one_of([1, -1.0]), check=equal)


@define("clamp.Tensor")
def clamp_by_tensors(case, name):
    case.special = False
    dims, other = pair(case)
    limits = case.one_of([(True, True), (True, False), (False, True)])
    low = floats(case, other, -3, 0) if limits[0] else None
    high = floats(case, other, -0.5, 3) if limits[1] else None
    aten(case, name, floats(case, dims), low, high, check=equal)


@define("clamp_min.Tensor", "clamp_max.Tensor")
def clamp_by_tensor(case, name):
    case.special = False
    dims, other = pair(case)
    aten(case, name, floats(case, dims), floats(case, other), check=equal)


@define("addcmul.default", "addcdiv.default")
def added_product(case, name):
    case.special = False
    dims = shape(case)
    aten(case, name, floats(case, dims), floats(case, dims), floats(case, dims, 0.5, 3), case.one_of([1, -0.5]))


@define("lerp.Scalar")
def lerp(case, name):
    case.special = False
    dims = shape(case)
    aten(case, name, floats(case, dims), floats(case, dims), 0.25)


@define("lerp.Tensor")
def lerp_tensor(case, name):
    case.special = False
    dims = shape(case)
    aten(case, name, floats(case, dims), floats(case, dims), floats(case, dims, 0, 1))
