"""Traces a training step of PyTorch models, forward and backward, and runs the operators of the trace on the device: the
loss and the gradients of all parameters must be PyTorch's in float64, as near as those of PyTorch in float32 are.

    PYTHONPATH=client/python tests/conformance/traces.py
"""

import sys

import numpy
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import vpod

NUMBERS = {torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.int64: 4, torch.float16: 5, torch.float32: 6,
           torch.float64: 7, torch.bool: 11}


class Trace(TorchDispatchMode):
    """Adds what runs to a graph. Tensors of PyTorch are keys; a write into a view is a write into what it views."""

    def __init__(self, graph):
        super().__init__()
        self.graph, self.values, self.kept, self.operators = graph, {}, [], set()

    def bind(self, tensor, value):
        self.kept.append(tensor)  # so that its id stays its own
        self.values[id(tensor)] = value

    def value(self, argument):
        if isinstance(argument, torch.Tensor):
            if id(argument) not in self.values:  # a number that became a tensor
                self.bind(argument, self.graph.constant(float(argument), [], str(argument.dtype).split(".")[1].replace("64", "32")))
            return self.values[id(argument)]
        if isinstance(argument, torch.dtype):
            return NUMBERS[argument]
        if isinstance(argument, (torch.layout, torch.device, torch.memory_format)):
            return None
        if isinstance(argument, (list, tuple)):
            return [self.value(part) for part in argument]
        return argument

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        keywords = keywords or {}
        inputs = []
        for i, parameter in enumerate(function._schema.arguments):
            default = parameter.default_value if parameter.has_default_value() else None
            given = arguments[i] if i < len(arguments) else keywords.get(parameter.name, default)
            inputs.append(self.value(given))
        result = function(*arguments, **keywords)
        name = f"{function._schema.name.split('::')[1]}.{function._overloadname}"
        self.operators.add(name)
        needed = sum(not parameter.kwarg_only for parameter in function._schema.arguments)
        while len(inputs) > needed and inputs[-1] is None:
            inputs.pop()
        outputs = self.graph.aten(name, *inputs)
        for tensor, value in zip(result if isinstance(result, (list, tuple)) else [result], outputs):
            if tensor is not None and value is not None:
                self.bind(tensor, value)
        return result


def step(model, x, labels):
    """The loss, and the gradients of the parameters by their names."""
    loss = torch.nn.functional.cross_entropy(model(x), labels)
    names = dict(model.named_parameters())
    return loss, dict(zip(names, torch.autograd.grad(loss, list(names.values()))))


def on_device(model, x, labels):
    """Runs the trace of a step in float32."""
    graph = vpod.Graph()
    trace = Trace(graph)
    for name, state in [*model.named_parameters(), *model.named_buffers()]:
        if state.is_floating_point():
            trace.bind(state, graph.buffer(name, state.detach().numpy().astype(numpy.float32)))
        else:
            trace.bind(state, graph.buffer(name, state.numpy().astype(numpy.int32)))
    trace.bind(x, graph.input("x", list(x.shape), "float32" if x.is_floating_point() else "int32"))
    trace.bind(labels, graph.input("labels", list(labels.shape), "int32"))
    with trace:
        loss, gradients = step(model, x, labels)
    graph.output("loss", trace.values[id(loss)])
    for name, gradient in gradients.items():
        graph.output(f"gradient of {name}", trace.values[id(gradient)])
    with vpod.Session(vpod.compile(graph, [vpod.Program("step")])) as session:
        results = session.run("step", {"x": x.numpy(), "labels": labels.numpy()})
    return results.pop("loss"), {name: results[f"gradient of {name}"] for name in gradients}, trace.operators


class Convolutional(torch.nn.Module):
    def __init__(self):
        super().__init__()
        nn = torch.nn
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True),
            nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.SiLU(), nn.AvgPool2d(2), nn.Conv2d(8, 12, 1), nn.Hardswish(),
            nn.ConvTranspose2d(12, 6, 2, stride=2), nn.GELU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 10))

    def forward(self, x):
        return self.body(x)


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(30, 16)
        layer = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2)
        self.head = torch.nn.Linear(16, 10)

    def forward(self, tokens):
        return self.head(self.layers(self.embedding(tokens)).mean(1))


class Recurrent(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cells = kind(8, 12, batch_first=True)
        self.head = torch.nn.Linear(12, 10)

    def forward(self, x):
        return self.head(self.cells(x)[0][:, -1])


CASES = {
    "convolutional": (Convolutional, lambda: torch.randn(4, 3, 20, 20)),
    "encoder": (Encoder, lambda: torch.randint(0, 30, (4, 7))),
    "lstm": (lambda: Recurrent(torch.nn.LSTM), lambda: torch.randn(4, 5, 8)),
    "gru": (lambda: Recurrent(torch.nn.GRU), lambda: torch.randn(4, 5, 8)),
}


def compare(name):
    """Says what is wrong; None if nothing is."""
    torch.manual_seed(3)
    make, data = CASES[name]
    model, x, labels = make(), data(), torch.randint(0, 10, (4,))
    loss, gradients, operators = on_device(model, x, labels)
    _, single = step(model, x, labels)
    exact_loss, exact = step(model.double(), x.double() if x.is_floating_point() else x, labels)
    print(f"{name}: {len(operators)} operators, loss {float(loss):.6f}, PyTorch {float(exact_loss):.6f}")
    if abs(float(loss) - float(exact_loss)) > 1e-5 * (1 + abs(float(exact_loss))):
        return f"the loss is {float(loss)}, PyTorch has {float(exact_loss)}"
    for parameter, gradient in gradients.items():
        of = exact[parameter].numpy()
        allowed = 3 * numpy.abs(single[parameter].numpy() - of).max() + 1e-6
        off = numpy.abs(gradient - of).max()
        if not off <= allowed:
            return f"the gradient of {parameter} is off by {off}, may be {allowed}"
    return None


def main():
    failed = 0
    for name in CASES:
        wrong = compare(name)
        if wrong:
            print(f"FAILED {name}: {wrong}")
        failed += wrong is not None
    print(f"{len(CASES) - failed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
