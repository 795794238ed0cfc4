"""Pooling, and its gradients."""

import numpy
import torch

from ..checks import close, equal
from .harness import aten, define, draw, floats, operator


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


@define("im2col.default", "col2im.default")
def columns(case, name):
    case.special = False
    kernel, dilation, padding, stride = draw(case, 1, 4, 2), draw(case, 1, 3, 2), draw(case, 0, 3, 2), draw(case, 1, 4, 2)
    image = [d * (k - 1) + 1 + draw(case, 0, 4) for d, k in zip(dilation, kernel)]
    dims = draw(case, 1, 3, 2)[case.one_of([0, 0, 1]) :]
    if name == "im2col.default":
        aten(case, name, floats(case, dims + image), kernel, dilation, padding, stride, check=close())
        return
    counts = [(i + 2 * p - d * (k - 1) - 1) // s + 1 for i, p, d, k, s in zip(image, padding, dilation, kernel, stride)]
    dims[-1] *= kernel[0] * kernel[1]
    aten(case, name, floats(case, [*dims, counts[0] * counts[1]]), image, kernel, dilation, padding, stride, check=close())
