"""Cases for the operators that client/aten lowers, each against the operator itself in float64.

What a result may be off by is a part of its conditioning: |f(x)| and the sum of |df/dx| |x|. That is the expression over
absolute values for whatever is linear, and takes no second formula for whatever is not.
"""

import numpy
import torch

from .case import FLOATS, Value
from .checks import close, equal, last_places

# PyTorch's numbers of element types, and the types that stand for them on the device.
NUMBERS = {0: torch.uint8, 1: torch.int8, 2: torch.int16, 3: torch.int64, 4: torch.int64, 5: torch.float64, 6: torch.float64,
           7: torch.float64, 11: torch.bool}
DEVICE = {0: "UINT8", 1: "INT8", 2: "INT16", 3: "INT32", 4: "INT32", 5: "FLOAT16", 6: "FLOAT32", 7: "FLOAT32", 11: "BOOL"}


def operator(name):
    base, overload = name.split(".")
    return getattr(getattr(torch.ops.aten, base), overload)


def encoded(argument):
    if isinstance(argument, Value):
        return {"tensor": argument.number}
    if isinstance(argument, (list, tuple)) and any(isinstance(part, Value) for part in argument):
        return {"tensors": [None if part is None else part.number for part in argument]}
    if isinstance(argument, float) and not numpy.isfinite(argument):
        return {"number": repr(argument)}
    return [int(part) for part in argument] if isinstance(argument, (list, tuple)) else argument


def flat(arguments):
    """The values among the arguments."""
    for argument in arguments:
        if isinstance(argument, Value):
            yield argument
        elif isinstance(argument, (list, tuple)):
            yield from flat(argument)


def call(name, arguments, exacts):
    """The operator with tensors of PyTorch in the place of values; its outputs as a list."""
    function = operator(name)
    substitute = lambda argument: (exacts[argument.number] if isinstance(argument, Value)
                                   else [substitute(part) for part in argument] if isinstance(argument, (list, tuple))
                                   else argument)
    positional, keywords = [], {}
    for argument, parameter in zip(arguments, function._schema.arguments):
        value = substitute(argument)
        if parameter.name in ("dtype", "input_dtype") and value is not None:
            value = NUMBERS[value]
        if parameter.kwarg_only:
            keywords[parameter.name] = value
        else:
            positional.append(value)
    if name.split(".")[0].endswith("_"):
        positional[0] = positional[0].clone()
    result = function(*positional, **keywords)
    return list(result) if isinstance(result, (list, tuple)) else [result]


def conditioning(function, inputs):
    """For each tensor of floats that the function gives, |f(x)| + sum |df/dx| |x|."""
    inputs = [x.detach().clone().requires_grad_() for x in inputs]
    sizes = []
    for output in function(*inputs):
        size = output.detach().abs().flatten().clone()
        if output.requires_grad:
            for i, element in enumerate(output.flatten()):
                slopes = torch.autograd.grad(element, inputs, retain_graph=True, allow_unused=True)
                for slope, x in zip(slopes, inputs):
                    if slope is not None:  # 0 times NaN or infinity is of elements that it does not depend on
                        size[i] += torch.where((slope == 0) | slope.isnan(), 0.0, slope * x.detach()).abs().sum()
        sizes.append(size.reshape(output.shape))
    return sizes


def aten(case, name, *arguments, check=None, gradient=True, types=None, wanted=None, more=None):
    """Adds an operator. `types`: of its outputs, where they are not those of the first float; `wanted`: the numbers of
    outputs to compare; `more`: outputs that the device has beside PyTorch's, from the exact ones."""
    values = list(flat(arguments))
    floats = [value for value in values if value.is_float]
    own = floats[0].type if floats else "FLOAT32"

    def function(*tensors, every=True):
        exacts = {value.number: value.exact.detach() for value in values}
        exacts.update((value.number, tensor) for value, tensor in zip(floats, tensors))
        # Copies: PyTorch writes running moments into them, and takes some for contiguous that are not.
        exacts = {number: tensor.clone(memory_format=torch.contiguous_format) for number, tensor in exacts.items()}
        outputs = call(name, arguments, exacts)
        outputs += more(*outputs) if more else []
        return outputs if every else [output for output in outputs if output is not None and output.is_floating_point()]

    exact_inputs = [value.exact.detach() for value in floats]
    exacts = function(*exact_inputs)
    try:
        sizes = conditioning(lambda *x: function(*x, every=False), exact_inputs)
    except (RuntimeError, NotImplementedError):  # it has no derivative
        sizes = [torch.full_like(exact, float(exact.abs().max()) + 1 if exact.numel() else 1)
                 for exact in function(*exact_inputs, every=False)]
    step = {"aten": name, "arguments": [encoded(argument) for argument in arguments]}
    first = case._add(step, len(exacts))
    sizes = iter(sizes)
    results = []
    for i, exact in enumerate(exacts):
        if exact is None:
            results.append(None)
            continue
        is_float = exact.is_floating_point()
        type_name = types[i] if types else own if is_float else "BOOL" if exact.dtype == torch.bool else "INT32"
        results.append(Value(first + i, type_name, exact, next(sizes) if is_float else exact))
    for i in wanted if wanted is not None else range(len(results)):
        if results[i] is not None:
            case.want(results[i], (check or close(1)) if results[i].is_float else equal, f"output {i}")
    if gradient and results[0] is not None and results[0].is_float and floats and not case.special:
        want_gradients(case, results[0], floats, lambda *x: function(*x)[0])
    return results


def want_gradients(case, output, floats, function):
    """Compares the gradients of the sum of the output's elements times random factors."""
    factors = torch.tensor(numpy.round(case.random.uniform(-2, 2, output.dims) * 64) / 64)
    case.traits.add("gradient")
    if factors.numel() == 0:
        return
    step = {"input": "FLOAT32", "dims": output.dims}
    factor = case._add(step)
    case.data.append((step, numpy.asarray(factors.numpy(), numpy.float32)))

    def gradients(*tensors):
        tensors = [tensor if tensor.requires_grad else tensor.clone().requires_grad_() for tensor in tensors]
        found = torch.autograd.grad((function(*tensors) * factors).sum(), tensors, create_graph=True, allow_unused=True)
        return [torch.zeros_like(tensor) if slope is None else slope for slope, tensor in zip(found, tensors)]

    inputs = [value.exact.detach() for value in floats]
    try:
        exacts = [gradient.detach() for gradient in gradients(*inputs)]
    except RuntimeError:  # PyTorch has none
        return
    try:
        sizes = conditioning(gradients, inputs)
    except (RuntimeError, NotImplementedError):
        sizes = [torch.full_like(exact, float(exact.abs().max()) + 1 if exact.numel() else 1) for exact in exacts]
    loss = case.cast(output, "FLOAT32").number
    loss = case._add({"op": {"binary": {"operator": "MULTIPLY"}}, "inputs": [loss, factor]})
    first = case._add({"gradients": [value.number for value in floats], "loss": loss}, len(floats))
    for i, (value, exact, size) in enumerate(zip(floats, exacts, sizes)):
        case.want(Value(first + i, value.type, exact, size), close(2), f"gradient of tensor {i}")


# --- Operands ---

def floats(case, dims, low=-3.0, high=3.0, ties=False):
    return case.operand(case.floats(case.type, dims, low, high, ties))


def singles(case, dims, low=-3.0, high=3.0):
    return case.operand(case.floats("FLOAT32", dims, low, high))


def integers(case, dims, low, high):
    return case.operand(case.random.integers(low, high, dims).astype(numpy.int32))


def flags(case, dims):
    return case.operand(numpy.array(case.random.random(dims) < 0.5))


def shape(case, least=0, most=3):
    return case.shape(least, most, 40, empty=False)


def draw(case, low, high, count=None):
    if count is None:
        return int(case.random.integers(low, high))
    return [int(case.random.integers(low, high)) for _ in range(count)]


def axis_of(case, dims):
    return draw(case, -len(dims), len(dims)) if dims else 0


def axes_of(case, dims):
    count = draw(case, 1, len(dims) + 1) if dims else 0
    return [int(axis) for axis in case.random.permutation(len(dims))[:count]]


def pair(case):
    """Two shapes of which one is broadcast to the other's."""
    dims = shape(case)
    other = [dim if case.chance(0.7) else 1 for dim in dims][draw(case, 0, len(dims) + 1) if dims else 0 :]
    return (dims, other) if case.chance(0.5) else (other, dims)


TABLE = {}


def define(*names):
    def decorate(function):
        for name in names:
            TABLE[name] = function
        return function
    return decorate


# --- Views, copies, constants ---

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


@define("select.int")
def select(case, name):
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    aten(case, name, floats(case, dims), axis, draw(case, -dims[axis], dims[axis]), check=equal)


def _bounds(case, dim):
    return case.one_of([None, draw(case, -dim - 1, dim + 2)]), case.one_of([None, 2**63 - 1, draw(case, -dim - 1, dim + 2)])


@define("slice.Tensor")
def slices(case, name):
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    aten(case, name, floats(case, dims), axis, *_bounds(case, dims[axis]), draw(case, 1, 4), check=equal)


@define("select_backward.default")
def select_backward(case, name):
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    rest = [dim for i, dim in enumerate(dims) if i != axis % len(dims)]
    aten(case, name, floats(case, rest), dims, axis, draw(case, 0, dims[axis]), check=equal)


@define("slice_backward.default")
def slice_backward(case, name):
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    start, end, step = draw(case, 0, dims[axis]), case.one_of([2**63 - 1, dims[axis]]), draw(case, 1, 4)
    part = [len(range(start, dims[axis], step)) if i == axis % len(dims) else dim for i, dim in enumerate(dims)]
    aten(case, name, floats(case, part), dims, axis, start, end, step, check=equal)


@define("split.Tensor", "unsafe_split.Tensor")
def split(case, name):
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    aten(case, name, floats(case, dims), draw(case, 1, dims[axis] + 2), axis, check=equal)


@define("split_with_sizes.default")
def split_with_sizes(case, name):
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    first = draw(case, 0, dims[axis] + 1)
    aten(case, name, floats(case, dims), [first, dims[axis] - first], axis, check=equal)


@define("unbind.int")
def unbind(case, name):
    dims = shape(case, 1)
    aten(case, name, floats(case, dims), axis_of(case, dims), check=equal)


@define("as_strided.default", "as_strided_.default")
def as_strided(case, name):
    x = case.input(case.floats(case.type, [40]))
    size = draw(case, 1, 4, 2)
    strides = case.one_of([[size[1], 1], [1, 3], [2, 5], [0, 1]])
    aten(case, name, x, size, strides, draw(case, 0, 10), check=equal, gradient=name == "as_strided.default")


def _kind(case):
    return case.one_of([None, 6, 5, 4, 11])


def _made(case, name, *arguments, kind=None, wanted=None):
    """A new tensor whose type is one that PyTorch has a number for."""
    own = case.type if any(True for _ in flat(arguments)) else "FLOAT32"
    aten(case, name, *arguments, kind, check=equal, gradient=False, types=[own if kind is None else DEVICE[kind]], wanted=wanted)


@define("zeros.default", "ones.default")
def of_size(case, name):
    _made(case, name, shape(case), kind=_kind(case))


@define("empty.memory_format")
def empty(case, name):
    _made(case, name, shape(case), kind=_kind(case), wanted=[])


@define("zeros_like.default", "ones_like.default")
def like(case, name):
    _made(case, name, floats(case, shape(case)), kind=_kind(case))


@define("empty_like.default")
def empty_like(case, name):
    _made(case, name, floats(case, shape(case)), kind=_kind(case), wanted=[])


@define("new_zeros.default", "new_ones.default")
def new(case, name):
    _made(case, name, floats(case, shape(case)), shape(case), kind=_kind(case))


@define("new_empty.default")
def new_empty(case, name):
    _made(case, name, floats(case, shape(case)), shape(case), kind=_kind(case), wanted=[])


@define("new_empty_strided.default")
def new_empty_strided(case, name):
    _made(case, name, floats(case, shape(case)), [2, 3], [3, 1], kind=_kind(case), wanted=[])


@define("empty_strided.default")
def empty_strided(case, name):
    _made(case, name, [2, 3], [3, 1], kind=_kind(case), wanted=[])


@define("full.default")
def full(case, name):
    _made(case, name, shape(case), 2.5, kind=case.one_of([None, 6, 5]))


@define("full_like.default")
def full_like(case, name):
    _made(case, name, floats(case, shape(case)), -1.5, kind=case.one_of([None, 6, 5]))


@define("new_full.default")
def new_full(case, name):
    _made(case, name, floats(case, shape(case)), shape(case), -1.5, kind=case.one_of([None, 6, 5]))


@define("scalar_tensor.default")
def scalar_tensor(case, name):
    _made(case, name, 0.25, kind=case.one_of([6, 5]))


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


# --- Joins, padding, shifts ---

@define("cat.default")
def cat(case, name):
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    parts = []
    for _ in range(draw(case, 1, 4)):
        part = list(dims)
        part[axis] = draw(case, 1, 4)
        parts.append(floats(case, part))
    aten(case, name, parts, axis, check=equal)


@define("stack.default")
def stack(case, name):
    dims = shape(case)
    aten(case, name, [floats(case, dims) for _ in range(draw(case, 1, 4))], draw(case, -len(dims) - 1, len(dims) + 1), check=equal)


@define("constant_pad_nd.default")
def constant_pad(case, name):
    dims = [dim + 2 for dim in shape(case, 1)]
    widths = draw(case, -1, 3, 2 * draw(case, 1, len(dims) + 1))
    aten(case, name, floats(case, dims), widths, case.one_of([0, 1.5]), check=equal)


@define("roll.default")
def roll(case, name):
    dims = shape(case, 1)
    axes = axes_of(case, dims)
    shifts, axes = ([draw(case, -9, 9)], []) if case.chance(0.3) else (draw(case, -9, 9, len(axes)), axes)
    aten(case, name, floats(case, dims), shifts, axes, check=equal)


@define("triu.default", "tril.default")
def triangle(case, name):
    aten(case, name, floats(case, shape(case, 2)), draw(case, -3, 4), check=equal)


@define("flip.default")
def flip(case, name):
    dims = shape(case, 1)
    aten(case, name, floats(case, dims), axes_of(case, dims), check=equal)


@define("repeat.default")
def repeat(case, name):
    dims = shape(case, 0, 2)
    aten(case, name, floats(case, dims), draw(case, 1, 3, len(dims) + draw(case, 0, 2)), check=close())


# --- Element by element ---

DOMAINS = {"abs": (-3, 3), "acos": (-0.95, 0.95), "acosh": (1.1, 5), "asin": (-0.95, 0.95), "asinh": (-3, 3), "atan": (-3, 3),
           "atanh": (-0.9, 0.9), "ceil": (-3, 3), "cos": (-3, 3), "cosh": (-3, 3), "erf": (-2, 2), "erfinv": (-0.9, 0.9),
           "exp": (-3, 3), "expm1": (-3, 3), "floor": (-3, 3), "log": (0.1, 5), "log1p": (-0.8, 5), "neg": (-3, 3),
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


# --- Activations and their gradients ---

@define("sigmoid_backward.default", "tanh_backward.default")
def backward_of_output(case, name):
    case.special = False
    dims = shape(case)
    aten(case, name, floats(case, dims), floats(case, dims, 0.05, 0.95))


@define("silu_backward.default", "hardsigmoid_backward.default", "hardswish_backward.default")
def backward_of_input(case, name):
    """At 3 the vector code of PyTorch's hard swish has another slope than its scalar code."""
    case.special = False
    dims = shape(case)
    aten(case, name, floats(case, dims), floats(case, dims, -5, 5, ties=name.startswith("hardsigmoid")), gradient=False)


@define("hardtanh.default", "hardtanh_.default")
def hardtanh(case, name):
    aten(case, name, floats(case, shape(case), -3, 8, ties=case.chance(0.5)), case.one_of([-1, 0]), case.one_of([1, 6]), check=equal)


@define("hardtanh_backward.default")
def hardtanh_backward(case, name):
    case.special = False
    dims = shape(case)
    aten(case, name, floats(case, dims), floats(case, dims, -3, 8, ties=True), 0, 6, gradient=False)


@define("threshold.default")
def threshold(case, name):
    aten(case, name, floats(case, shape(case), ties=True), 1, -0.5, check=equal)


@define("threshold_backward.default")
def threshold_backward(case, name):
    case.special = False
    dims = shape(case)
    aten(case, name, floats(case, dims), floats(case, dims, ties=True), 0, check=equal, gradient=False)


@define("gelu.default")
def gelu(case, name):
    aten(case, name, floats(case, shape(case)), case.one_of(["none", "tanh"]))


@define("gelu_backward.default")
def gelu_backward(case, name):
    case.special = False
    dims = shape(case)
    aten(case, name, floats(case, dims), floats(case, dims), case.one_of(["none", "tanh"]), gradient=False)


@define("leaky_relu.default")
def leaky_relu(case, name):
    aten(case, name, floats(case, shape(case), ties=case.chance(0.5)), case.one_of([0.01, 0.25]))


@define("leaky_relu_backward.default")
def leaky_relu_backward(case, name):
    case.special = False
    dims = shape(case)
    aten(case, name, floats(case, dims), floats(case, dims, ties=True), 0.25, False, gradient=False)


@define("elu.default")
def elu(case, name):
    case.special = False
    aten(case, name, floats(case, shape(case)), *case.one_of([[], [1.5], [1.6, 1.05, 0.5]]))


@define("softplus.default")
def softplus(case, name):
    case.special = False
    aten(case, name, floats(case, shape(case), -8, 8), *case.one_of([[], [2, 10]]))


@define("prelu.default")
def prelu(case, name):
    case.special = False
    dims = shape(case, 2)
    aten(case, name, floats(case, dims), floats(case, [case.one_of([1, dims[1]])]))


# --- Products ---

@define("mm.default", "bmm.default", "mv.default", "dot.default")
def product(case, name):
    n, k, m, batch = draw(case, 1, 6, 4)
    left, right = {"mm.default": ([n, k], [k, m]), "bmm.default": ([batch, n, k], [batch, k, m]), "mv.default": ([n, k], [k]),
                   "dot.default": ([k], [k])}[name]
    aten(case, name, floats(case, left), floats(case, right))


@define("addmm.default", "baddbmm.default")
def added_matrices(case, name):
    n, k, m, batch = draw(case, 1, 6, 4)
    front = [batch] if name == "baddbmm.default" else []
    bias = case.one_of([[m], [1, m], [n, m]])
    # PyTorch's baddbmm reads what it has not written where beta is 0.
    factors = case.one_of([[], [0.5, 2], [0.5, 1] if front else [0, 1]])
    case.special = False
    aten(case, name, floats(case, bias), floats(case, front + [n, k]), floats(case, front + [k, m]), *factors, check=close(3))


@define("linear.default")
def linear(case, name):
    n, k, m = draw(case, 1, 6, 3)
    dims = case.one_of([[n, k], [2, n, k]])
    aten(case, name, floats(case, dims), floats(case, [m, k]), *([floats(case, [m])] if case.chance(0.6) else []), check=close(2))


def _geometry(case):
    rank = case.one_of([1, 2, 2, 3])
    transposed = case.chance(0.3)
    groups = case.one_of([1, 1, 2])
    kernel, stride = draw(case, 1, 4, rank), draw(case, 1, 3, rank)
    dilation = draw(case, 1, 3, rank) if case.chance(0.3) else [1] * rank
    extents = [d * (k - 1) + 1 for d, k in zip(dilation, kernel)]
    # Beyond the window's extent only where the convolution is not transposed.
    padding = [draw(case, 0, extent if transposed else extent + 1) for extent in extents]
    output_padding = [draw(case, 0, s) for s in stride] if transposed else [0] * rank
    image = [max(1, extent - 2 * p) + draw(case, 0, 4 if rank < 3 else 2) for extent, p in zip(extents, padding)]
    if transposed:
        image = [max(1, -(-(2 * p - extent + 1) // s) + 1) + draw(case, 0, 2)
                 for extent, p, s in zip(extents, padding, stride)]
    inputs, outputs = groups * draw(case, 1, 3), groups * draw(case, 1, 3)
    weights = [inputs, outputs // groups] if transposed else [outputs, inputs // groups]
    case.words.append(f"image {image} kernel {kernel} stride {stride} padding {padding} dilation {dilation} groups {groups} "
                      f"transposed {transposed} {output_padding}")
    return ([draw(case, 1, 3), inputs, *image], weights + kernel, outputs,
            [stride, padding, dilation, transposed, output_padding, groups])


@define("convolution.default")
def convolution(case, name):
    case.special = False
    image, weights, outputs, geometry = _geometry(case)
    bias = floats(case, [outputs]) if case.chance(0.5) else None
    aten(case, name, floats(case, image), floats(case, weights), bias, *geometry, check=close(2))


@define("convolution_backward.default")
def convolution_backward(case, name):
    case.special = False
    image, weights, outputs, geometry = _geometry(case)
    result = operator("convolution.default")(torch.zeros(image), torch.zeros(weights), None, *geometry).shape
    mask = case.one_of([[True, True, True], [False, True, False], [True, True, False]])
    aten(case, name, floats(case, list(result)), floats(case, image), floats(case, weights), [outputs], *geometry, mask,
         check=close(1), gradient=False)


# --- Norms ---

def _image(case):
    rank = case.one_of([0, 1, 2])
    return [draw(case, 2, 4), draw(case, 1, 4)] + draw(case, 2, 4, rank)


def _some(case, make, probability=0.7):
    return make() if case.chance(probability) else None


@define("native_batch_norm.default")
def batch_norm(case, name):
    case.special = False
    dims = _image(case)
    affine = case.chance(0.7)
    weight, bias = (singles(case, [dims[1]]), singles(case, [dims[1]])) if affine else (None, None)
    training, epsilon = case.chance(0.6), 0.125
    running = not training or case.chance(0.5)
    mean, variance = (singles(case, [dims[1]]), singles(case, [dims[1]], 0.5, 2)) if running else (None, None)
    x = floats(case, dims)
    momentum = 0.25

    def moved(y, *moments):
        """The running moments that PyTorch writes."""
        if not training or not running:
            return []
        others = [i for i in range(len(dims)) if i != 1]
        old = [mean.exact, variance.exact]
        now = [x.exact.mean(others), x.exact.var(others)]
        return [before.detach() * (1 - momentum) + moment.detach() * momentum for before, moment in zip(old, now)]

    aten(case, name, x, weight, bias, mean, variance, training, momentum, epsilon,
         types=[case.type, "FLOAT32", "FLOAT32", "FLOAT32", "FLOAT32"], more=moved if training and running else None,
         wanted=None if training else [0], check=close(2))


@define("native_batch_norm_backward.default")
def batch_norm_backward(case, name):
    case.special = False
    dims = _image(case)
    x = floats(case, dims)
    others = [i for i in range(len(dims)) if i != 1]
    training, epsilon = case.chance(0.7), 0.125
    exact = x.exact.detach()
    mean = case.input(exact.mean(others).numpy().astype(numpy.float32))
    inverse = case.input((exact.var(others, unbiased=False) + epsilon).rsqrt().numpy().astype(numpy.float32))
    weight = _some(case, lambda: singles(case, [dims[1]]))
    running = (singles(case, [dims[1]]), singles(case, [dims[1]], 0.5, 2))
    aten(case, name, floats(case, dims), x, weight, *running, mean, inverse, training, epsilon, [True, True, True],
         types=[case.type, "FLOAT32", "FLOAT32"], gradient=False, check=close(2))


def _layers(case):
    dims = [draw(case, 1, 4), draw(case, 2, 4), draw(case, 2, 5)]
    return dims, dims[case.one_of([1, 2]) :]


@define("native_layer_norm.default")
def layer_norm(case, name):
    case.special = False
    dims, normalized = _layers(case)
    weight, bias = (floats(case, normalized), floats(case, normalized)) if case.chance(0.7) else (None, None)
    x = floats(case, dims)
    aten(case, name, x, normalized, weight, bias, 0.125, types=[case.type, "FLOAT32", "FLOAT32"], check=close(2))


@define("native_layer_norm_backward.default")
def layer_norm_backward(case, name):
    case.special = False
    dims, normalized = _layers(case)
    weight, bias = (floats(case, normalized), floats(case, normalized)) if case.chance(0.7) else (None, None)
    x = floats(case, dims)
    axes = list(range(len(dims) - len(normalized), len(dims)))
    exact = x.exact.detach()
    mean = case.input(exact.mean(axes, keepdim=True).numpy().astype(numpy.float32))
    inverse = case.input((exact.var(axes, unbiased=False, keepdim=True) + 0.125).rsqrt().numpy().astype(numpy.float32))
    mask = [True, weight is not None, bias is not None]
    aten(case, name, floats(case, dims), x, normalized, mean, inverse, weight, bias, mask, gradient=False, check=close(2))


@define("native_group_norm.default")
def group_norm(case, name):
    case.special = False
    groups = draw(case, 1, 4)
    n, channels, pixels = draw(case, 1, 3), groups * draw(case, 1, 3), draw(case, 2, 5)
    weight, bias = (floats(case, [channels]), floats(case, [channels])) if case.chance(0.7) else (None, None)
    x = case.input(case.floats(case.type, [n, channels, pixels]))
    aten(case, name, x, weight, bias, n, channels, pixels, groups, 0.125, types=[case.type, "FLOAT32", "FLOAT32"],
         wanted=[0, 1, 2] if case.type == "FLOAT32" else [0], check=close(2))


# --- Windows ---

def _windows(case, rank):
    kernel = draw(case, 1, 4, rank)
    stride = case.one_of([[], draw(case, 1, 4, rank)])
    padding = [draw(case, 0, k // 2 + 1) for k in kernel]
    dims = [draw(case, 1, 3), draw(case, 1, 3)][case.one_of([0, 0, 1]) :]
    image = dims + [k + draw(case, 0, 4 if rank == 2 else 2) for k in kernel]
    return image, kernel, stride, padding, case.chance(0.4)


@define("max_pool2d_with_indices.default", "max_pool3d_with_indices.default")
def max_pool(case, name):
    case.special = False
    image, kernel, stride, padding, ceil = _windows(case, 2 if "2d" in name else 3)
    x = floats(case, image, ties=case.chance(0.4))
    aten(case, name, x, kernel, stride, padding, [1], ceil, check=equal)


@define("max_pool2d_with_indices_backward.default", "max_pool3d_with_indices_backward.default")
def max_pool_backward(case, name):
    case.special = False
    image, kernel, stride, padding, ceil = _windows(case, 2 if "2d" in name else 3)
    x = floats(case, image)
    forward = operator(name.replace("_backward", ""))
    indices = forward(x.exact.detach(), kernel, stride, padding, [1], ceil)[1]
    places = case.input(indices.numpy().astype(numpy.int32))
    aten(case, name, floats(case, list(indices.shape)), x, kernel, stride, padding, [1], ceil, places, gradient=False)


@define("avg_pool2d.default", "avg_pool3d.default")
def avg_pool(case, name):
    case.special = False
    image, kernel, stride, padding, ceil = _windows(case, 2 if "2d" in name else 3)
    aten(case, name, floats(case, image), kernel, stride, padding, ceil, case.chance(0.5), case.one_of([None, None, 3]))


@define("avg_pool2d_backward.default", "avg_pool3d_backward.default")
def avg_pool_backward(case, name):
    case.special = False
    image, kernel, stride, padding, ceil = _windows(case, 2 if "2d" in name else 3)
    result = operator(name.replace("_backward", ""))(torch.zeros(image), kernel, stride, padding, ceil).shape
    aten(case, name, floats(case, list(result)), floats(case, image), kernel, stride, padding, ceil, case.chance(0.5),
         case.one_of([None, None, 3]), gradient=False)


def _adaptive(case, name):
    rank = 2 if "2d" in name else 3
    image = draw(case, 1, 3, 2)[case.one_of([0, 0, 1]) :] + draw(case, 1, 7 if rank == 2 else 4, rank)
    return image, draw(case, 1, 5 if rank == 2 else 3, rank)


@define("_adaptive_avg_pool2d.default", "_adaptive_avg_pool3d.default", "adaptive_max_pool2d.default", "adaptive_max_pool3d.default")
def adaptive_pool(case, name):
    case.special = False
    image, size = _adaptive(case, name)
    aten(case, name, floats(case, image), size)


@define("_adaptive_avg_pool2d_backward.default", "_adaptive_avg_pool3d_backward.default")
def adaptive_pool_backward(case, name):
    case.special = False
    image, size = _adaptive(case, name)
    aten(case, name, floats(case, image[: len(image) - len(size)] + size), floats(case, image), gradient=False)


# --- Reductions ---

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
    aten(case, name, floats(case, dims), case.one_of([2, 1, 3.0, float("inf")]), axes_of(case, dims), case.chance(0.5))


@define("logsumexp.default")
def logsumexp(case, name):
    case.special = False
    dims = shape(case, 1)
    aten(case, name, floats(case, dims), axes_of(case, dims), case.chance(0.5))


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


# --- Softmax and losses ---

def _number(case):
    return 6 if case.type == "FLOAT32" else 5


@define("_softmax.default", "_log_softmax.default")
def softmax(case, name):
    case.special = False
    dims = shape(case)
    # The sum over the line cancels: rows.softmax has the sizes of gradients in float16.
    aten(case, name, floats(case, dims), axis_of(case, dims), False, gradient=case.type == "FLOAT32")


@define("_softmax_backward_data.default", "_log_softmax_backward_data.default")
def softmax_backward(case, name):
    case.special = False
    dims = shape(case)
    axis = axis_of(case, dims)
    output = operator(name.replace("_backward_data", ""))(torch.tensor(case.random.uniform(-3, 3, dims)), axis, False)
    y = case.input(numpy.asarray(output.numpy(), numpy.float32 if case.type == "FLOAT32" else numpy.float16))
    aten(case, name, floats(case, dims), y, axis, _number(case), gradient=False)


def _labels(case, name):
    classes, n = draw(case, 2, 6), draw(case, 1, 5)
    pixels = [draw(case, 1, 4), 2] if "2d" in name else []
    labels = case.random.integers(0, classes, [n, *pixels]).astype(numpy.int32)
    ignored = case.one_of([-100, 1])
    labels.flat[0] = 0  # so that one counts
    if "2d" not in name and case.chance(0.2):
        return [classes], labels[0], ignored, classes
    return [n, classes, *pixels], labels, ignored, classes


@define("nll_loss_forward.default", "nll_loss2d_forward.default")
def nll_loss(case, name):
    case.special = False
    dims, labels, ignored, classes = _labels(case, name)
    weight = _some(case, lambda: floats(case, [classes], 0.5, 2), 0.4)
    aten(case, name, floats(case, dims), case.operand(labels), weight, draw(case, 0, 3), ignored, check=close(2))


@define("nll_loss_backward.default", "nll_loss2d_backward.default")
def nll_loss_backward(case, name):
    case.special = False
    dims, labels, ignored, classes = _labels(case, name)
    weight = _some(case, lambda: floats(case, [classes], 0.5, 2), 0.4)
    reduction = draw(case, 0, 3)
    x = case.input(case.floats(case.type, dims))
    loss, total = operator(name.replace("backward", "forward"))(
        x.exact.detach(), torch.tensor(labels.astype(numpy.int64)), weight and weight.exact.detach(), reduction, ignored)
    dtype = numpy.float32 if case.type == "FLOAT32" else numpy.float16
    gradient = floats(case, list(loss.shape))
    aten(case, name, gradient, x, case.operand(labels), weight, reduction, ignored,
         case.input(numpy.asarray(total.numpy(), dtype)), gradient=False, check=close(2))


@define("mse_loss.default", "smooth_l1_loss.default", "huber_loss.default")
def loss(case, name):
    case.special = False
    dims = shape(case)
    extra = [] if name == "mse_loss.default" else [case.one_of([1.0, 0.5])]
    aten(case, name, floats(case, dims), floats(case, dims), draw(case, 0, 3), *extra)


@define("binary_cross_entropy.default")
def bce(case, name):
    case.special = False
    dims = shape(case)
    weight = _some(case, lambda: floats(case, dims, 0.5, 2), 0.4)
    aten(case, name, floats(case, dims, 0.05, 0.95), floats(case, dims, 0, 1), weight, draw(case, 0, 3), gradient=False)


@define("binary_cross_entropy_with_logits.default")
def bce_with_logits(case, name):
    case.special = False
    dims = shape(case)
    weight = _some(case, lambda: floats(case, dims, 0.5, 2), 0.4)
    aten(case, name, floats(case, dims), floats(case, dims, 0, 1), weight, None, draw(case, 0, 3), gradient=False)


# --- Indices ---

def _index(case):
    dims = draw(case, 2, 5, 3)
    which = case.one_of([[0], [1], [0, 1], [1, 2], [0, 2], [0, 1, 2]])
    shapes = case.one_of([[[4]] * 3, [[2, 3]] * 3, [[2, 1], [3], [1]]])
    indices = [None] * (max(which) + 1)
    return dims, which, shapes, indices


@define("index.Tensor")
def index(case, name):
    case.special = False
    dims, which, shapes, indices = _index(case)
    for axis in which:
        indices[axis] = integers(case, shapes[axis], -dims[axis], dims[axis])
    aten(case, name, floats(case, dims), indices, check=close())


@define("index_put.default")
def index_put(case, name):
    case.special = False
    dims, which, shapes, indices = _index(case)
    accumulate = case.chance(0.6)
    if not accumulate:  # the order of writes to one place is not defined
        which, indices = [0], [None]
        indices[0] = case.operand(case.random.permutation(dims[0])[:2].astype(numpy.int32))
    else:
        for axis in which:
            indices[axis] = integers(case, shapes[axis], -dims[axis], dims[axis])
    x = floats(case, dims)
    exacts = [None if i is None else i.exact for i in indices]
    result = list(operator("index.Tensor")(x.exact.detach(), exacts).shape)
    values = floats(case, case.one_of([result, result[-1:], []]))
    aten(case, name, x, indices, values, accumulate, check=close(2))


@define("embedding.default")
def embedding(case, name):
    case.special = False
    rows = draw(case, 2, 8)
    aten(case, name, floats(case, [rows, draw(case, 1, 5)]), integers(case, case.one_of([[4], [2, 3]]), 0, rows), check=close())


@define("embedding_dense_backward.default")
def embedding_backward(case, name):
    case.special = False
    rows, width, dims = draw(case, 2, 8), draw(case, 1, 5), case.one_of([[4], [2, 3]])
    aten(case, name, floats(case, [*dims, width]), integers(case, dims, 0, rows), rows, case.one_of([-1, 1]), case.chance(0.3),
         gradient=False)


@define("index_select.default")
def index_select(case, name):
    case.special = False
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    aten(case, name, floats(case, dims), axis, integers(case, [3], 0, dims[axis]), check=close())


@define("index_add.default")
def index_add(case, name):
    case.special = False
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    source = [3 if i == axis % len(dims) else dim for i, dim in enumerate(dims)]
    aten(case, name, floats(case, dims), axis, integers(case, [3], 0, dims[axis]), floats(case, source), case.one_of([1, -0.5]))


def _smaller(case, dims, axis):
    return [draw(case, 1, 5) if i == axis % len(dims) else draw(case, 1, dim + 1) for i, dim in enumerate(dims)]


@define("gather.default")
def gather(case, name):
    case.special = False
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    aten(case, name, floats(case, dims), axis, integers(case, _smaller(case, dims, axis), 0, dims[axis]), check=close())


@define("scatter_add.default")
def scatter_add(case, name):
    case.special = False
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    part = _smaller(case, dims, axis)
    source = [dim + draw(case, 0, 2) for dim in part]
    aten(case, name, floats(case, dims), axis, integers(case, part, 0, dims[axis]), floats(case, source), check=close(2))


@define("scatter.src", "scatter.value")
def scatter(case, name):
    case.special = False
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    part = [draw(case, 1, dim + 1) for dim in dims]
    # No place is written twice.
    places = numpy.argsort(case.random.random([dims[axis] if i == axis % len(dims) else dim for i, dim in enumerate(part)]), axis=axis)
    places = places[tuple(slice(0, dim) for dim in part)].astype(numpy.int32)
    source = floats(case, part) if name == "scatter.src" else 0.5
    aten(case, name, floats(case, dims), axis, case.operand(places), source, check=equal)


# --- Random elements: their moments ---

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


def fill_case(case, name):
    case.type = case.one_of(FLOATS)
    case.words.append(case.type)
    TABLE[name](case, name)
