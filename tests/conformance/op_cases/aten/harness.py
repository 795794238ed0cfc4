"""An operator that client/aten lowers, against the operator itself in float64.

What a result may be off by is a part of its conditioning: |f(x)| and the sum of |df/dx| |x|. That is the expression over
absolute values for whatever is linear, and takes no second formula for whatever is not.
"""

import numpy
import torch

from ..case import Value
from ..checks import close, equal

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
    if isinstance(argument, (list, tuple)) and any(isinstance(part, float) for part in argument):
        return {"numbers": list(argument)}
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


def aten(case, name, *arguments, check=None, gradient=True, part=1e-5, types=None, wanted=None, more=None):
    """Adds an operator. `types`: of its outputs, where they are not those of the first float; `wanted`: the numbers of
    outputs to compare; `more`: outputs that the device has beside PyTorch's, from the exact ones; `part`: see close, of
    gradients."""
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
        want_gradients(case, results[0], floats, lambda *x: function(*x)[0], part)
    return results


def want_gradients(case, output, floats, function, part=1e-5):
    """Compares the gradients of the sum of the output's elements times random factors."""
    factors = torch.tensor(numpy.round(case.random.uniform(-2, 2, output.dims) * 64) / 64)
    case.traits.add("gradient")
    if factors.numel() == 0:
        return
    step = {"input": "FLOAT32", "dims": output.dims}
    factor = case._add(step)
    case.data.append((step, numpy.asarray(factors.numpy(), numpy.float32)))

    def gradients(*tensors, factors=factors):
        tensors = [tensor if tensor.requires_grad else tensor.clone().requires_grad_() for tensor in tensors]
        found = torch.autograd.grad((function(*tensors) * factors).sum(), tensors, create_graph=True, allow_unused=True)
        return [torch.zeros_like(tensor) if slope is None else slope for slope, tensor in zip(found, tensors)]

    inputs = [value.exact.detach() for value in floats]
    try:
        exacts = [gradient.detach() for gradient in gradients(*inputs)]
    except RuntimeError:  # PyTorch has none
        return
    sizes = None
    # A gradient is a sum of the factors times slopes, which may cancel.
    for of in (lambda *x: gradients(*x[:-1], factors=x[-1]), lambda *x: gradients(*x[:-1])):
        try:
            sizes = sizes or conditioning(of, [*inputs, factors])
        except (RuntimeError, NotImplementedError):
            pass
    sizes = sizes or [torch.full_like(exact, float(exact.abs().max()) + 1 if exact.numel() else 1) for exact in exacts]
    loss = case.cast(output, "FLOAT32").number
    loss = case._add({"op": {"binary": {"operator": "MULTIPLY"}}, "inputs": [loss, factor]})
    first = case._add({"gradients": [value.number for value in floats], "loss": loss}, len(floats))
    for i, (value, exact, size) in enumerate(zip(floats, exacts, sizes)):
        case.want(Value(first + i, value.type, exact, size), close(2, part), f"gradient of tensor {i}")


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


def perhaps(case, make, probability=0.7):
    return make() if case.chance(probability) else None


TABLE = {}


def define(*names):
    def decorate(function):
        for name in names:
            TABLE[name] = function
        return function
    return decorate
