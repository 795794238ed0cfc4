"""Functions of each element, casts and Select."""

import numpy
import torch

from .case import FLOATS, INTEGERS, TYPES, local_size, wrap
from .checks import close, equal, last_places, same_zero

# operator: reference, check, range of the inputs
UNARY = {
    "NEGATE": (torch.neg, same_zero, (-3, 3)),
    "ABSOLUTE": (torch.abs, same_zero, (-3, 3)),
    "EXPONENT": (torch.exp, last_places, (-12, 9)),
    "LOGARITHM": (torch.log, last_places, (1e-3, 30)),
    "SQUARE_ROOT": (torch.sqrt, same_zero, (1e-3, 30)),
    "SQUARE": (torch.square, equal, (-3, 3)),
    "TANH": (torch.tanh, last_places, (-4, 4)),
    "SIGMOID": (torch.sigmoid, last_places, (-15, 15)),
    "RELU": (torch.relu, equal, (-3, 3)),
    "RELU6": (torch.nn.functional.relu6, equal, (-3, 9)),
    "SILU": (torch.nn.functional.silu, last_places, (-15, 15)),
    "RECIPROCAL": (torch.reciprocal, same_zero, (0.05, 3)),
    "ERF_INV": (torch.erfinv, last_places, (-0.99, 0.99)),
    "ERF": (torch.erf, last_places, (-4, 4)),
    "SIN": (torch.sin, last_places, (-20, 20)),
    "COS": (torch.cos, last_places, (-20, 20)),
    "TAN": (torch.tan, last_places, (-1.4, 1.4)),
    "ASIN": (torch.asin, last_places, (-0.95, 0.95)),
    "ACOS": (torch.acos, last_places, (-0.95, 0.95)),
    "ATAN": (torch.atan, last_places, (-5, 5)),
    "SINH": (torch.sinh, last_places, (-5, 5)),
    "COSH": (torch.cosh, last_places, (-5, 5)),
    "ASINH": (torch.asinh, last_places, (-5, 5)),
    "ACOSH": (torch.acosh, last_places, (1.1, 9)),
    "ATANH": (torch.atanh, last_places, (-0.95, 0.95)),
    "EXPM1": (torch.expm1, last_places, (-5, 5)),
    "LOG1P": (torch.log1p, last_places, (-0.9, 9)),
    "RECIPROCAL_ROOT": (torch.rsqrt, last_places, (0.05, 9)),
    "FLOOR": (torch.floor, same_zero, (-5, 5)),
    "CEIL": (torch.ceil, same_zero, (-5, 5)),
    "ROUND": (torch.round, same_zero, (-5, 5)),
    "TRUNCATE": (torch.trunc, same_zero, (-5, 5)),
    "SIGN": (torch.sign, equal, (-3, 3)),
}
INTEGER_UNARY = ["NEGATE", "ABSOLUTE", "SQUARE", "RELU", "SIGN"]
# Where the derivative's expression cancels, its size is not its absolute value. Takes input and output.
UNARY_SLOPES = {
    "TANH": lambda x, y: 1 + y * y,
    "SIGMOID": lambda x, y: y * (1 + y),
    "SILU": lambda x, y: torch.sigmoid(x) * (1 + x.abs() * torch.sigmoid(-x)),
}
# Constant, but for the jumps.
UNARY_STEPS = ("FLOOR", "CEIL", "ROUND", "TRUNCATE", "SIGN")
# Gradients that use the output, which float16 has rounded, as often as it is a factor.
UNARY_ROUNDINGS = {"EXPONENT": 1, "TANH": 2, "SIGMOID": 2}


def unary(case, operator):
    reference, check, (low, high) = UNARY[operator]
    type_name = case.one_of(FLOATS * 2 + (INTEGERS if operator in INTEGER_UNARY else []))
    case.words.append(type_name)
    ties = case.chance(0.3) and low < 0
    dims = case.shape()
    if type_name in FLOATS:
        x = case.operand(case.floats(type_name, dims, low, high, ties=ties))
    else:
        x = case.operand(case.integers(type_name, dims))
        function = lambda integers: wrap(reference(integers), type_name)
        y = case.op({"unary": {"operator": operator}}, [x], function)
        case.want(y, equal)
        return

    def size(exacts, sizes):
        slope = UNARY_SLOPES.get(operator)
        slopes = slope and [slope(exacts[0].detach(), reference(exacts[0].detach()))]
        return local_size(reference, exacts, sizes, slopes)

    y = case.op({"unary": {"operator": operator}}, [x], reference, size)
    case.want(y, check)
    # At NaN PyTorch's gradient of RELU6 is 0 or not, by the place of the element.
    varies = operator == "RELU6" and case.special
    if operator not in UNARY_STEPS and not varies and case.chance(0.6):
        exact_slope = operator in ("NEGATE", "ABSOLUTE", "RELU", "RELU6")
        case.want_gradients(y, equal if exact_slope else close(UNARY_ROUNDINGS.get(operator, 0)))


def logical_not(case):
    x = case.operand(case.elements("BOOL", case.shape()))
    case.want(case.op({"unary": {"operator": "LOGICAL_NOT"}}, [x], torch.logical_not), equal)


def broadcast_shapes(case, number):
    """Shapes that broadcast to one: with dimensions of 1, and without the first."""
    dims = case.shape()
    shapes = []
    for i in range(number):
        shape = [1 if case.chance(0.25) else dim for dim in dims]
        shapes.append(shape[int(case.random.integers(0, len(shape) + 1)) :] if case.chance(0.3) else shape)
    return shapes


BITWISE = {
    "BITWISE_AND": torch.bitwise_and,
    "BITWISE_OR": torch.bitwise_or,
    "BITWISE_XOR": torch.bitwise_xor,
    "SHIFT_LEFT": torch.bitwise_left_shift,
    "SHIFT_RIGHT": torch.bitwise_right_shift,
}


def bitwise(case, operator):
    type_name = case.one_of(INTEGERS)
    case.words.append(type_name)
    a, b = (case.elements(type_name, shape) for shape in broadcast_shapes(case, 2))
    if operator.startswith("SHIFT"):
        b = (numpy.abs(b.astype(numpy.int64)) % (8 * b.dtype.itemsize)).astype(b.dtype)
    a, b = case.operand(a), case.operand(b)
    reference = lambda x, y: wrap(BITWISE[operator](x, y), type_name)
    case.want(case.op({"binary": {"operator": operator}}, [a, b], reference), equal)


def bitwise_not(case):
    type_name = case.one_of(INTEGERS)
    case.words.append(type_name)
    x = case.operand(case.integers(type_name, case.shape()))
    reference = lambda x: wrap(torch.bitwise_not(x), type_name)
    case.want(case.op({"unary": {"operator": "BITWISE_NOT"}}, [x], reference), equal)


# operator: reference, range of the first and of the second input, check
CURVES = {
    "POWER": (torch.pow, (0.1, 4), (-3, 3), last_places),
    "ATAN2": (torch.atan2, (-3, 3), (-3, 3), last_places),
}


def curve(case, operator):
    """Transcendental functions of two floats."""
    reference, low_high_a, low_high_b, check = CURVES[operator]
    type_name = case.one_of(FLOATS)
    case.words.append(type_name)
    a, b = (case.operand(case.floats(type_name, shape, *low_high))
            for shape, low_high in zip(broadcast_shapes(case, 2), (low_high_a, low_high_b)))
    y = case.op({"binary": {"operator": operator}}, [a, b], reference,
                lambda exacts, sizes: local_size(reference, exacts, sizes))
    case.want(y, check)
    if not case.special and case.chance(0.7):
        case.want_gradients(y, close())


DIVISIONS = {"REMAINDER": torch.remainder, "FMOD": torch.fmod}


def division(case, operator):
    type_name = case.one_of(FLOATS + INTEGERS)
    case.words.append(type_name)
    reference = DIVISIONS[operator]
    a, b = (case.elements(type_name, shape) for shape in broadcast_shapes(case, 2))
    attributes = {"binary": {"operator": operator}}
    if type_name in FLOATS:
        size = lambda exacts, sizes: local_size(reference, exacts, sizes)
        y = case.op(attributes, [case.operand(a), case.operand(b)], reference, size)
        case.want(y, close())
        if not case.special and b.size and (b != 0).all() and case.chance(0.7):
            case.want_gradients(y, close())
        return
    b = numpy.where(b == 0, b + 1, b).astype(b.dtype)
    exact = lambda x, y: wrap(reference(x, y), type_name)
    case.want(case.op(attributes, [case.operand(a), case.operand(b)], exact), equal)


BINARY = {
    "ADD": torch.add,
    "SUBTRACT": torch.sub,
    "MULTIPLY": torch.mul,
    "DIVIDE": torch.div,
    "MAXIMUM": torch.maximum,
    "MINIMUM": torch.minimum,
}


def binary(case, operator):
    type_name = case.one_of(FLOATS * 2 + INTEGERS)
    case.words.append(type_name)
    shapes = broadcast_shapes(case, 2)
    attributes = {"binary": {"operator": operator}}
    reference = BINARY[operator]
    if type_name not in FLOATS:
        a, b = (case.elements(type_name, shape) for shape in shapes)
        if operator == "DIVIDE":
            b = numpy.where(b == 0, b + 1, b).astype(b.dtype)
            reference = lambda x, y: torch.div(x, y, rounding_mode="trunc")
        a, b = case.operand(a), case.operand(b)
        case.want(case.op(attributes, [a, b], lambda x, y: wrap(reference(x, y), type_name)), equal)
        return
    ties = case.chance(0.5)
    a, b = (case.floats(type_name, shape, ties=ties) for shape in shapes)
    if operator == "DIVIDE" and not case.special:
        b = numpy.where(numpy.abs(b) < 0.1, numpy.array(0.5, b.dtype), b)
    a, b = case.operand(a), case.operand(b)
    y = case.op(attributes, [a, b], reference, lambda exacts, sizes: local_size(reference, exacts, sizes))
    case.want(y, equal if operator in ("MAXIMUM", "MINIMUM") else same_zero)
    if not case.special and case.chance(0.7):
        case.want_gradients(y, close())


COMPARISONS = {
    "EQUAL": torch.eq,
    "NOT_EQUAL": torch.ne,
    "LESS": torch.lt,
    "LESS_EQUAL": torch.le,
    "GREATER": torch.gt,
    "GREATER_EQUAL": torch.ge,
    "LOGICAL_AND": torch.logical_and,
    "LOGICAL_OR": torch.logical_or,
}


def comparison(case, operator):
    type_name = "BOOL" if operator.startswith("LOGICAL") else case.one_of(FLOATS * 2 + INTEGERS)
    case.words.append(type_name)
    options = {"ties": True} if type_name in FLOATS else {}
    a, b = (case.operand(case.elements(type_name, shape, **options)) for shape in broadcast_shapes(case, 2))
    case.want(case.op({"binary": {"operator": operator}}, [a, b], COMPARISONS[operator], types=["BOOL"]), equal)


# The gradients of activations, as functions of their own.
SLOPES = {
    "RELU_GRADIENT": (lambda a, b: torch.where(a > 0, b, 0 * b), lambda a, b: (0 * a, (a > 0) * 1.0)),
    "RELU6_GRADIENT": (
        lambda a, b: torch.where((a > 0) & (a < 6), b, 0 * b),
        lambda a, b: (0 * a, ((a > 0) & (a < 6)) * 1.0),
    ),
    "SILU_GRADIENT": (
        lambda a, b: torch.sigmoid(a) * (1 + a * torch.sigmoid(-a)) * b,
        lambda a, b: ((2 + a) * b, 1 + a),
    ),
    "TANH_GRADIENT": (lambda a, b: (1 - a * a) * b, lambda a, b: (2 * a * b, 1 + a * a)),
    "SIGMOID_GRADIENT": (lambda a, b: a * (1 - a) * b, lambda a, b: ((1 + 2 * a) * b, a * (1 + a))),
}


def slope(case, operator):
    type_name = case.one_of(FLOATS)
    case.words.append(type_name)
    case.special = False
    reference, slopes = SLOPES[operator]
    dims = case.shape()
    low, high = (-2, 8) if operator == "RELU6_GRADIENT" else (-1, 1)
    a, b = (case.operand(case.floats(type_name, dims, *limits)) for limits in ((low, high), (-1, 1)))

    def size(exacts, sizes):
        derivatives = slopes(*(x.detach().abs() for x in exacts))
        if operator.startswith("RELU"):
            derivatives = slopes(*(x.detach() for x in exacts))
        whole = local_size(reference, exacts, sizes, derivatives)
        return whole + (derivatives[1] * exacts[1].detach().abs() - whole.detach())

    y = case.op({"binary": {"operator": operator}}, [a, b], reference, size)
    case.want(y, close())
    if case.chance(0.5):
        case.want_gradients(y, close())


def select(case):
    type_name = case.one_of(list(TYPES) + FLOATS * 2)
    case.words.append(type_name)
    shapes = broadcast_shapes(case, 3)
    condition = case.operand(case.elements("BOOL", shapes[0]))
    a, b = (case.operand(case.elements(type_name, shape)) for shape in shapes[1:])
    y = case.op({"select": {}}, [condition, a, b], torch.where, lambda exacts, sizes: torch.where(exacts[0], *sizes[1:]),
                types=[type_name])
    case.want(y, same_zero if type_name in FLOATS else equal)
    if type_name in FLOATS and not case.special:
        case.want_gradients(y, close())


def cast(case):
    """Values that both types have: what happens to others is not PyTorch's to say."""
    source, target = case.one_of(TYPES), case.one_of(TYPES)
    case.words += [source, "to", target]
    dims = case.shape()
    if source in FLOATS:
        case.special = case.special and target in FLOATS
        unsigned = target.startswith("U") or target == "BOOL"
        values = case.floats(source, dims, 0 if unsigned else -100, 100, ties=case.chance(0.3))
        if target == "BOOL":
            values = numpy.where(case.random.random(dims) < 0.3, 0, values).astype(values.dtype)
    elif source == "BOOL":
        values = case.elements(source, dims)
    else:
        limits = [numpy.iinfo(TYPES[name]) for name in (source, target) if name in INTEGERS]
        low, high = max(limit.min for limit in limits), min(limit.max for limit in limits)
        values = numpy.array(case.random.integers(low, high + 1, dims), TYPES[source])

    def convert(x):
        if target in FLOATS:
            return x.double()
        if target == "BOOL":
            return x != 0
        return x.to(torch.int64)

    x = case.operand(values)
    y = case.op({"cast": {"type": target}}, [x], convert, types=[target])
    case.want(y, same_zero if target in FLOATS else equal)
    if source in FLOATS and target in FLOATS and not case.special:
        case.want_gradients(y, close())


def generators():
    for operator in UNARY:
        yield f"unary {operator}", lambda case, operator=operator: unary(case, operator)
    yield "unary LOGICAL_NOT", logical_not
    for operator in BINARY:
        yield f"binary {operator}", lambda case, operator=operator: binary(case, operator)
    for operator in BITWISE:
        yield f"binary {operator}", lambda case, operator=operator: bitwise(case, operator)
    yield "unary BITWISE_NOT", bitwise_not
    for operator in CURVES:
        yield f"binary {operator}", lambda case, operator=operator: curve(case, operator)
    for operator in DIVISIONS:
        yield f"binary {operator}", lambda case, operator=operator: division(case, operator)
    for operator in COMPARISONS:
        yield f"binary {operator}", lambda case, operator=operator: comparison(case, operator)
    for operator in SLOPES:
        yield f"binary {operator}", lambda case, operator=operator: slope(case, operator)
    yield "select", select
    yield "cast", cast
