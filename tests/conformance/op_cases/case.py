"""A case: a small graph for the device, and what PyTorch in float64 makes of the same rounded inputs.

Each value has two tensors of PyTorch beside its place in the graph: `exact` is the value itself, and `size` the same
expression over absolute values, of which the error may be a part. Both carry gradients back to the inputs, so that
gradients and their allowed errors follow from the references alone.
"""

import numpy
import torch

TYPES = {
    "FLOAT32": numpy.float32,
    "FLOAT16": numpy.float16,
    "INT8": numpy.int8,
    "INT16": numpy.int16,
    "INT32": numpy.int32,
    "UINT8": numpy.uint8,
    "UINT16": numpy.uint16,
    "UINT32": numpy.uint32,
    "BOOL": numpy.bool_,
}
FLOATS = ["FLOAT32", "FLOAT16"]
INTEGERS = [name for name in TYPES if "INT" in name]
# Traits that must each occur in enough cases.
TRAITS = ["gradient", "ties with gradient", "broadcasting", "scalar", "empty", "view", "NaN", "infinity", "negative zero",
          *FLOATS, *INTEGERS, "BOOL"]
SPECIAL = [numpy.nan, numpy.inf, -numpy.inf, -0.0, 0.0, 1e-7, -1e-7, 6e4, -1.0, 1.0]


def to_torch(array):
    """Floats as float64, integers as int64: PyTorch lacks most unsigned types."""
    if array.dtype == numpy.bool_:
        return torch.tensor(array)
    return torch.tensor(array.astype(numpy.float64 if array.dtype.kind == "f" else numpy.int64))


def single(value):
    """As float32 holds it."""
    return float(numpy.float32(value))


def wrap(integers, type_name):
    """int64 modulo the range of a narrower type."""
    return to_torch(integers.numpy().astype(TYPES[type_name]))


class Value:
    def __init__(self, number, type_name, exact, size):
        self.number, self.type, self.exact, self.size = number, type_name, exact, size

    @property
    def dims(self):
        return list(self.exact.shape)

    @property
    def is_float(self):
        return self.type in FLOATS


class Local(torch.autograd.Function):
    """A size whose derivatives are given: those of element-by-element functions."""

    @staticmethod
    def forward(context, value, *sizes_and_slopes):
        context.slopes = sizes_and_slopes[len(sizes_and_slopes) // 2 :]
        return value.clone()

    @staticmethod
    def backward(context, gradient):
        return (None, *(gradient * slope for slope in context.slopes), *(None for _ in context.slopes))


def local_size(function, exacts, sizes, slopes=None):
    """|f(x)|, with |f'(x)| or what is given as its derivatives: for element-by-element functions."""
    inputs = [x.detach().requires_grad_() for x in torch.broadcast_tensors(*exacts)]
    value = function(*inputs)
    if slopes is None:
        slopes = torch.autograd.grad(value.sum(), inputs, allow_unused=True)
    slopes = [torch.zeros_like(value) if slope is None else slope.abs() for slope in slopes]
    return Local.apply(value.detach().abs(), *torch.broadcast_tensors(*sizes), *slopes)


class Case:
    def __init__(self, random, special):
        self.random = random
        self.special = special  # whether floats have NaN, infinities, zeros of both signs
        self.words = []  # what the case is, for its name
        self.traits = set()
        self.ties = False
        self.steps, self.train, self.values = [], None, 0
        self.wanted = []  # (label, number, check), check: numpy array -> what is wrong, or None
        self.leaves = []
        self.data = []  # (step, array)
        self.error = None  # words of the error that is expected

    # --- Choices ---

    def one_of(self, options):
        options = list(options)
        return options[self.random.integers(len(options))]

    def chance(self, probability):
        return bool(self.random.random() < probability)

    def shape(self, least_rank=0, most_rank=4, most_elements=400, empty=True):
        """Sometimes long rows, which are cut into vectors and blocks; sometimes, if `empty`, no elements."""
        rank = int(self.random.integers(least_rank, most_rank + 1))
        dims = [int(self.random.integers(1, 7)) for _ in range(rank)]
        if rank > 0 and self.chance(0.2):
            dims[self.random.integers(rank)] = int(self.random.integers(30, 70))
        while numpy.prod(dims) > most_elements:
            dims[int(numpy.argmax(dims))] = 2
        if empty and rank > 0 and self.chance(0.08):
            dims[self.random.integers(rank)] = 0
            self.words.append("empty")
        return dims

    def batch(self, most):
        """Images or rows; sometimes none."""
        if self.chance(0.07):
            self.words.append("empty")
            return 0
        return int(self.random.integers(1, most + 1))

    def floats(self, type_name, dims, low=-3.0, high=3.0, ties=False):
        values = self.random.uniform(low, high, dims)
        if ties:
            values = numpy.round(values)
            self.ties = True
        values = numpy.array(values)
        if self.special:
            places = self.random.random(dims) < 0.3
            values = numpy.where(places, self.random.choice(SPECIAL, dims), values)
        return values.astype(TYPES[type_name])

    def integers(self, type_name, dims, small=False):
        limits = numpy.iinfo(TYPES[type_name])
        low, high = (max(limits.min, -5), 6) if small else (limits.min, limits.max + 1)
        return self.random.integers(low, high, dims).astype(TYPES[type_name])

    def elements(self, type_name, dims, **options):
        if type_name in FLOATS:
            return self.floats(type_name, dims, **options)
        if type_name == "BOOL":
            return numpy.array(self.random.random(dims) < 0.5)
        return self.integers(type_name, dims, small=self.chance(0.5))

    # --- Building ---

    def _add(self, step, outputs=1):
        self.steps.append(step)
        self.values += outputs
        return self.values - outputs

    def input(self, array, kind="input"):
        """`array` as it is stored."""
        type_name = next(name for name, dtype in TYPES.items() if dtype == array.dtype)
        step = {kind: type_name, "dims": list(array.shape)}
        exact = to_torch(array)
        size = exact.abs() if type_name in FLOATS else exact
        if type_name in FLOATS:
            exact.requires_grad_()
            size.requires_grad_()
        value = Value(self._add(step), type_name, exact, size)
        self.data.append((step, array.astype(numpy.float32) if kind == "variable" else array))
        self.leaves.append(value)
        self._note(array)
        return value

    def _note(self, array):
        """The traits of an operand."""
        self.traits |= {"scalar"} if array.ndim == 0 else set()
        self.traits |= {"empty"} if array.size == 0 else set()
        if array.dtype.kind == "f":
            self.traits |= {"NaN"} if numpy.isnan(array).any() else set()
            self.traits |= {"infinity"} if numpy.isinf(array).any() else set()
            self.traits |= {"negative zero"} if (numpy.signbit(array) & (array == 0)).any() else set()

    def constant(self, type_name, dims, number):
        exact = to_torch(numpy.full(dims, number, TYPES[type_name]))
        step = {"constant": type_name, "dims": dims, "value": number}
        return Value(self._add(step), type_name, exact, exact.abs() if type_name in FLOATS else exact)

    def operand(self, array, views=True):
        """An input with these elements, often a view of something that is stored otherwise. No elements are a slice of
        some: streams have one or more."""
        array = numpy.asarray(array)
        if array.size == 0:
            kind = "slice"
        else:
            kind = self.one_of(["plain", "plain", "transpose", "slice", "slice", "reshape"]) if views else "plain"
        if array.ndim == 0 or kind == "plain":
            return self.input(array)
        self.words.append(kind + "d" if kind[-1] == "e" else kind + "ed")
        self.traits.add("view")
        self._note(array)
        if kind == "transpose":
            order = [int(axis) for axis in self.random.permutation(array.ndim)]
            stored = self.input(numpy.ascontiguousarray(array.transpose(numpy.argsort(order))))
            return self.transpose(stored, order)
        if kind == "reshape":
            return self.reshape(self.input(array.reshape(-1)), list(array.shape))
        begin = [int(self.random.integers(0, 3)) for _ in array.shape]
        step = [int(self.random.integers(1, 4)) if dim < 10 else 1 for dim in array.shape]
        dims = [b + s * max(d - 1, 0) + 1 + int(self.random.integers(0, 2)) for b, s, d in zip(begin, step, array.shape)]
        stored = numpy.resize(array, dims) if array.size else numpy.zeros(dims, array.dtype)
        stored[tuple(slice(b, b + s * d, s) for b, s, d in zip(begin, step, array.shape))] = array
        return self.slice(self.input(stored), begin, list(array.shape), step)

    def op(self, attributes, inputs, reference, size=None, types=None):
        """Adds an instruction. `reference(*exact)` gives the outputs; `size(exacts, sizes)` their sizes, which are the
        reference of the inputs' sizes where nothing else is said: right for what is linear in each input. `types` are
        those of the outputs where they are not that of the first input."""
        exacts = reference(*(value.exact for value in inputs))
        if size is None:
            sizes = reference(*(value.size for value in inputs))
        else:
            sizes = size([value.exact for value in inputs], [value.size for value in inputs])
        many = isinstance(exacts, tuple)
        exacts, sizes = (exacts, sizes) if many else ((exacts,), (sizes,))
        types = types or [inputs[0].type] * len(exacts)
        first = self._add({"op": attributes, "inputs": [value.number for value in inputs]}, len(exacts))
        outputs = [Value(first + i, *parts) for i, parts in enumerate(zip(types, exacts, sizes))]
        self.traits.update(types)
        if ("binary" in attributes or "select" in attributes) and len({tuple(value.dims) for value in inputs}) > 1:
            self.traits.add("broadcasting")
        return outputs if many else outputs[0]

    # --- Views ---

    def transpose(self, value, order):
        return self.op({"transpose": {"permutation": order}}, [value], lambda x: x.permute(order))

    def slice(self, value, begin, size, step):
        places = tuple(slice(b, b + s * d, s) for b, d, s in zip(begin, size, step))
        return self.op({"slice": {"begin": begin, "size": size, "step": step}}, [value], lambda x: x[places])

    def expand(self, value, dims):
        return self.op({"expand": {"dims": dims}}, [value], lambda x: x.expand(dims))

    def reshape(self, value, dims):
        number = self._add({"reshape": dims, "inputs": [value.number]})
        return Value(number, value.type, value.exact.reshape(dims), value.size.reshape(dims))

    def cast(self, value, type_name):
        if value.type == type_name:
            return value
        return self.op({"cast": {"type": type_name}}, [value], lambda x: x * 1.0, types=[type_name])

    def composed(self, step, inputs, reference, size=None):
        """An operation that is composed of ops, with a step of its own in run_cases.cc."""
        exact = reference(*(value.exact for value in inputs))
        if size is not None:
            size = size(*(value.size for value in inputs))
        number = self._add({**step, "inputs": [value.number for value in inputs]})
        return Value(number, inputs[0].type, exact, exact.abs() if size is None else size)

    # --- Results ---

    def want(self, value, check, label="result"):
        """`check(result, exact, size, type)` gives what is wrong, or None."""
        exact, size = value.exact.detach().numpy(), value.size.detach().numpy()
        if value.is_float:
            size = numpy.abs(size)

        def whole_check(result):
            if result.shape != exact.shape:
                return f"the shape is {list(result.shape)}, PyTorch has {list(exact.shape)}"
            return check(result, exact, size, value.type)

        self.wanted.append((label, value.number, value.type, whole_check))

    def want_gradients(self, output, check, leaves=None):
        """Compares the gradients of the sum of the output's elements times random factors."""
        leaves = [leaf for leaf in (leaves or self.leaves) if leaf.is_float]
        factors = numpy.round(self.random.uniform(-2, 2, output.dims) * 64) / 64  # not rounded in float16
        self.words.append("gradient")
        self.traits |= {"gradient", "ties with gradient"} if self.ties else {"gradient"}
        if factors.size == 0:
            factor_number = self.constant("FLOAT32", output.dims, 1).number
        else:
            step = {"input": "FLOAT32", "dims": output.dims}
            factor_number = self._add(step)
            self.data.append((step, numpy.asarray(factors, numpy.float32)))
        loss = self.cast(output, "FLOAT32").number
        loss = self._add({"op": {"binary": {"operator": "MULTIPLY"}}, "inputs": [loss, factor_number]})
        numbers = [leaf.number for leaf in leaves]
        first = self._add({"gradients": numbers, "loss": loss}, len(leaves))

        def gradients(of, inputs, weights):
            found = torch.autograd.grad(of, inputs, weights, allow_unused=True)
            return [torch.zeros_like(x) if g is None else g for g, x in zip(found, inputs)]

        weights = torch.tensor(factors)
        exacts = gradients(output.exact, [leaf.exact for leaf in leaves], weights)
        sizes = gradients(output.size, [leaf.size for leaf in leaves], weights.abs())
        for i, (leaf, exact, size) in enumerate(zip(leaves, exacts, sizes)):
            self.want(Value(first + i, leaf.type, exact, size), check, f"gradient of input {i}")
