"""Batch, layer and group norm."""

import numpy

from ..checks import close
from .harness import aten, define, draw, floats, perhaps, singles


def _image(case):
    rank = case.one_of([0, 1, 2])
    return [draw(case, 2, 4), draw(case, 1, 4)] + draw(case, 2, 4, rank)


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
    weight = perhaps(case, lambda: singles(case, [dims[1]]))
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
