"""Programs of the capture's tests that define gradients of their own."""

import torch
from capture_programs import network, program, total
from torch import nn
from torch.nn import functional as F


class Leaky(torch.autograd.Function):
    """A rectifier with a gradient that is wrong on purpose, and a number as argument."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x.clamp(min=0) * scale

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (x > -0.5).to(gradient.dtype) * ctx.scale * 10, None


class Rounded(torch.autograd.Function):
    """Rounding with the gradient of the identity."""

    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Reversed(torch.autograd.Function):
    """The identity with a reversed gradient; the input is returned as it is."""

    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient.neg() * ctx.strength, None


class Pair(torch.autograd.Function):
    """Two inputs, two outputs and a third that has no gradient."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        largest = (a * b).argmax(1)
        ctx.mark_non_differentiable(largest)
        return a * b, a + b.exp(), largest

    @staticmethod
    def backward(ctx, product, total_, _):
        a, b = ctx.saved_tensors
        by_a = product * b + total_
        by_a[0] *= 2.0
        return by_a, (product * a + total_ * b.exp()) * 3


class InPlace(torch.autograd.Function):
    """Doubles its input in place."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 5


@program()
def custom_function(m, x):
    y = Leaky.apply(x @ m.w, 2.0)
    return y, total(y)


_BOUND = Leaky.apply


@program()
def custom_function_by_another_name(m, x):
    y = _BOUND(x @ m.w, 0.5) + _BOUND(x, 2.0)
    return y, total(y * _BOUND(y, 1.0))


@program()
def straight_through(m, x):
    y = Rounded.apply(x @ m.w * 4) / 4
    return y, total(y * y)


@program(parameters={"w": (4, 4), "v": (4, 4)})
def reversed_gradient(m, x):
    y = torch.tanh(x @ m.w)
    z = Reversed.apply(y, 0.3) @ m.v
    return z, total(z * z + y)


@program(parameters={"w": (4, 4), "v": (4, 4)})
def pair_of_outputs(m, x):
    product, sums, largest = Pair.apply(x @ m.w, x @ m.v)
    y = product * 2 + sums * largest
    return y, total(y * y)


@program()
def frozen_pair(m, x):
    product, sums, _ = Pair.apply(x @ m.w, x)
    return sums, total(product)


@program()
def in_place_function(m, x):
    y = torch.sin(x @ m.w) + 0.0
    InPlace.apply(y)
    return y, total(y * y)


@program()
def function_without_grad(m, x):
    with torch.no_grad():
        y = Leaky.apply(x @ m.w, 2.0)
    z = Leaky.apply(x, 3.0) + y @ m.w
    return z, total(z)


@program()
def tensor_hooks(m, x):
    y = x @ m.w
    z = y * 2
    y.register_hook(lambda g: g * 3)
    y.register_hook(lambda g: (g + y).clamp(-1.0, 4.0))
    y.register_hook(lambda g: None)
    z = z + y.exp()
    return z, total(z * z)


@program()
def parameter_hook(m, x):
    y = x @ m.w
    m.w.register_hook(lambda g: g * 3)
    y = y @ m.w
    return y, total(y)


@program()
def hook_of_view(m, x):
    y = x @ m.w + 0.0
    row = y[1]
    row.register_hook(lambda g: g * 2 + y[0].detach())
    z = row.sin() + y
    return z, total(z * z)


@program()
def hook_of_later_value(m, x):
    y = x @ m.w
    z = (y * 0.5).sin() + y
    y.register_hook(lambda g: g + z.detach() * F.mse_loss(g, y))
    return z, total(z * z)


@program(parameters={"w": (4, 4), "v": (4, 4)})
def hooks_of_parameters(m, x):
    m.v.register_hook(lambda g: g.clamp(-0.5, 0.5))
    m.w.register_hook(lambda g: g + m.v)
    y = torch.tanh(x @ m.w) @ m.v + x @ m.w
    m.v.register_hook(lambda g: g * 2)
    return y, total(y * y)


@program()
def reversed_parameter(m, x):
    y = torch.tanh(x @ Reversed.apply(m.w, 0.5))
    return y, total(y)


class Watched(nn.Module):
    """A full backward hook that only looks, which a compiled model does not call."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.b.register_full_backward_hook(lambda module, inputs, outputs: None)

    def forward(self, x):
        y = self.b(self.a(x))
        return y, total(y * y)


network("watched_backward", Watched, lambda: (torch.randn(4, 4),))
