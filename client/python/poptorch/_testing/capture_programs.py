"""Programs of the capture's tests: features of PyTorch, each in a few lines.

`PROGRAMS` maps a name to a `Program`. Their forward returns tensors of which the last is the loss.
"""

from typing import Callable, NamedTuple

import capture_networks as networks
import torch
import torch.utils.checkpoint
from torch import nn
from torch.nn import functional as F

from poptorch._capture.losses import identity_loss


class Sign(torch.autograd.Function):
    """A step with the gradient of the identity."""

    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, gradient):
        return gradient.clamp(-1, 1)


class Program(NamedTuple):
    """A model and its inputs; `replays` is False if PyTorch's CPU cannot run it."""

    make: Callable
    inputs: Callable
    replays: bool = True


PROGRAMS = {}

_STATE = {"w": (4, 4)}


class Body(nn.Module):
    """A module whose forward is a function of itself and the inputs."""

    def __init__(self, body, parameters, buffers):
        super().__init__()
        self._body = body
        for name, dims in parameters.items():
            self.register_parameter(name, nn.Parameter(torch.randn(dims)))
        for name, value in buffers.items():
            self.register_buffer(name, value.clone())

    def forward(self, *inputs):
        return self._body(self, *inputs)


def total(x):
    """The sum of a tensor, marked as loss."""
    return identity_loss(x, "sum")


def program(*inputs, parameters=None, buffers=None):
    """Adds a function as a program; its inputs are tensors or shapes of random ones."""

    def add(body):
        def make():
            return Body(body, parameters or _STATE, buffers or {})

        def fresh():
            shapes = inputs or ((4, 4),)
            return tuple(torch.randn(i) if isinstance(i, tuple) else i.clone() for i in shapes)

        PROGRAMS[body.__name__] = Program(make, fresh)
        return body

    return add


def network(name, make, inputs, replays=True):
    """Adds a network."""
    PROGRAMS[name] = Program(make, inputs, replays)


def classes(count, *dims):
    """Random labels."""
    return torch.randint(0, count, dims)


def _image(size, count, channels=3, batch=2):
    return lambda: (torch.randn(batch, channels, size, size), classes(count, batch))


def _text(words):
    def inputs():
        mask = torch.ones(2, 7)
        mask[1, 5:] = 0
        return classes(words, 2, 7), mask, classes(3, 2)

    return inputs


def _sequence(steps=6):
    return lambda: (torch.randn(3, steps, 5), classes(4, 3))


def _half(make):
    return lambda: make().half()


network("digits", networks.Digits, _image(28, 10, 1))
network("resnet", networks.ResNet, _image(32, 10))
network("resnet_eval", lambda: networks.ResNet().eval(), _image(32, 10))
network("mobile", networks.Mobile, _image(16, 5))
network("unet", networks.UNet, lambda: (torch.randn(2, 1, 8, 8), torch.rand(2, 1, 8, 8)))
network("encoder", networks.Encoder, _text(50))
network("encoder_eval", lambda: networks.Encoder().eval(), _text(50))
network(
    "tied_attention",
    networks.Tied,
    lambda: (classes(40, 2, 6), torch.ones(2, 6), classes(40, 2, 6)),
)
network("vision", networks.Vision, _image(16, 6))
network("lstm", lambda: networks.Recurrent(nn.LSTM), _sequence())
network("gru", lambda: networks.Recurrent(nn.GRU), _sequence())
network("rnn", lambda: networks.Recurrent(nn.RNN), _sequence())
network(
    "lstm_two_directions",
    lambda: networks.Recurrent(nn.LSTM, num_layers=2, bidirectional=True),
    _sequence(),
)
network("lstm_long", lambda: networks.Recurrent(nn.LSTM), _sequence(100))
network("cells", networks.Cells, lambda: (torch.randn(2, 3, 4),))
network(
    "resnet_half",
    _half(networks.ResNet),
    lambda: (torch.randn(2, 3, 32, 32).half(), classes(10, 2)),
    False,
)
network(
    "vision_half",
    _half(networks.Vision),
    lambda: (torch.randn(2, 3, 16, 16).half(), classes(6, 2)),
    False,
)


# --- Where gradients stop.


@program()
def detached(m, x):
    y = torch.tanh(x @ m.w)
    z = y * y.detach() + y.detach().exp()
    return z, total(z)


@program(parameters={"w": (4, 4), "v": (4, 4)})
def without_grad(m, x):
    y = x @ m.w
    with torch.no_grad():
        scale = (x @ m.v).abs().amax() + y.std()
    z = y / scale
    return z, total(z * z)


@program(parameters={"w": (4, 4), "v": (4, 4)})
def frozen_parameter(m, x):
    m.v.requires_grad_(False)
    y = x @ m.w @ m.v
    return y, total(y * y)


@program()
def switched_grad(m, x):
    with torch.set_grad_enabled(False):
        y = x @ m.w
        with torch.enable_grad():
            z = y + x @ m.w
    return z, total(z * z)


@program()
def leaf_inside(m, x):
    y = (x @ m.w).detach().requires_grad_()
    (g,) = torch.autograd.grad((y**3).sum(), [y])
    z = x @ m.w + g
    return z, total(z * z)


@program()
def gradient_penalty(m, x):
    y = (x @ m.w).tanh().sum()
    (g,) = torch.autograd.grad(y, [m.w], create_graph=True)
    loss = y + (g * g).sum()
    return g, total(loss)


# --- What a module has.


@program()
def tied_weight(m, x):
    y = torch.relu(x @ m.w) @ m.w.t()
    return y, total(y * y)


class Generator(nn.Module):
    """A trained network behind a frozen one, which still passes the gradient."""

    def __init__(self):
        super().__init__()
        self.made, self.judged = nn.Linear(4, 4), nn.Linear(4, 1)
        self.judged.requires_grad_(False)

    def forward(self, x):
        y = self.judged(torch.tanh(self.made(x)))
        return y, F.binary_cross_entropy_with_logits(y, torch.ones_like(y))


class Hooked(nn.Module):
    """Forward hooks that change inputs and outputs, and one that only looks."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.shapes = nn.Linear(4, 4), nn.Linear(4, 4), []
        self.a.register_forward_hook(lambda module, inputs, output: output * 2)
        self.b.register_forward_pre_hook(lambda module, inputs: (inputs[0] + 1,))
        self.b.register_forward_hook(lambda module, i, output: self.shapes.append(output.shape))

    def forward(self, x):
        y = self.b(self.a(x))
        return y, total(y * y)


class Normalised(nn.Module):
    """Weights that are computed from others before each call."""

    def __init__(self):
        super().__init__()
        self.f = nn.utils.spectral_norm(nn.Linear(4, 4))
        self.g = nn.utils.weight_norm(nn.Linear(4, 4))
        self.h = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))

    def forward(self, x):
        y = self.h(self.g(self.f(x)))
        return y, total(y * y)


class Listed(nn.Module):
    """Parameters that are also in a list, a dictionary and a plain attribute."""

    def __init__(self):
        super().__init__()
        self.w, self.v = nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.randn(4, 4))
        self.all = [self.w, (self.v, {"w": self.w})]
        self.__dict__["plain"] = self.v

    def forward(self, x):
        y = x @ self.all[0] @ self.all[1][0] + self.all[1][1]["w"] @ self.plain
        return y, total(y * y)


def _rows():
    return (torch.randn(4, 4),)


network("generator", Generator, _rows)
network("forward_hooks", Hooked, _rows)
network("normalised_weights", Normalised, _rows)
network("listed_parameters", Listed, _rows)
network("two_linear", lambda: _Summed(nn.Sequential(nn.Linear(4, 3), nn.Tanh())), _rows)


class _Summed(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        y = self.inner(x)
        return y, identity_loss(y, "mean")


@program(parameters={"w": (4, 4), "v": (4, 4)})
def checkpointed(m, x):
    run = torch.utils.checkpoint.checkpoint
    y = run(lambda t: torch.tanh(t @ m.w), x @ m.v)
    z = run(lambda t: torch.sin(t @ m.w), y, use_reentrant=False)
    return z, total(z)


@program()
def loss_none(m, x):
    y = x @ m.w
    return y, identity_loss(y * y, "none")


@torch.jit.script
def _scripted(x, y):
    return torch.sigmoid(x) * y + 0.5


@program()
def scripted(m, x):
    y = _scripted(x @ m.w, x)
    return y, total(y * y)


@program()
def shapes_decide(m, x):
    y = x
    for k in range(x.shape[0] // 2):
        y = y @ m.w if y.size(-1) == 4 else y
        if k > 0:
            y = y.flatten(1).reshape(y.shape[0], -1, 2).mean(-1).repeat(1, 2)
    return y, total(y)


@program()
def printed(m, x):
    y = x @ m.w
    text = f"{y} {y.sum()} {y!r}"
    assert "unavailable" in text or "grad_fn" in text
    return y, total(y)


@program()
def autocast(m, x):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
        y = x @ m.w
    return y.float(), total(y)
