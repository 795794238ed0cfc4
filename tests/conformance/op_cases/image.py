"""Convolution, pooling and batch norm, of one to three spatial dimensions."""

import numpy
import torch
import torch.nn.functional as functional

from .case import FLOATS
from .checks import close, equal

CONVOLUTIONS = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
MAX_POOLS = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}


class Window:
    """A random window that fits its image; padding may differ before and after."""

    def __init__(self, case, rank):
        draw = lambda low, high: [int(case.random.integers(low, high)) for _ in range(rank)]
        self.kernel, self.stride = draw(1, 4), draw(1, 4)
        self.dilation = draw(1, 3) if case.chance(0.3) else [1] * rank
        extents = [d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel)]
        pad = lambda: [int(case.random.integers(0, extent)) for extent in extents]
        self.before, self.after = (pad(), pad()) if case.chance(0.6) else ([0] * rank, [0] * rank)
        least = [max(1, e - b - a) for e, b, a in zip(extents, self.before, self.after)]
        self.image = [low + int(case.random.integers(0, 7 if rank < 3 else 3)) for low in least]
        self.attributes = {
            "kernel": self.kernel,
            "stride": self.stride,
            "dilation": self.dilation,
            "pad_before": self.before,
            "pad_after": self.after,
        }
        case.words.append(f"kernel {self.kernel} stride {self.stride} dilation {self.dilation} "
                          f"padding {self.before}+{self.after} image {self.image}")

    def pad(self, image, value=0.0):
        return functional.pad(image, [w for pair in zip(self.before[::-1], self.after[::-1]) for w in pair], value=value)


def _type(case):
    type_name = case.one_of(FLOATS)
    case.words.append(type_name)
    return type_name


def convolution(case):
    type_name = _type(case)
    rank = case.one_of([1, 2, 2, 3])
    window = Window(case, rank)
    groups = case.one_of([1, 1, 2, 3])
    inputs, outputs = groups * int(case.random.integers(1, 5)), groups * int(case.random.integers(1, 5))
    if case.chance(0.2):
        groups = inputs = outputs = 8  # depthwise
    case.words.append(f"channels {inputs} to {outputs} groups {groups}")
    batch = case.batch(3)
    image = case.operand(case.floats(type_name, [batch, inputs, *window.image]))
    weights = case.operand(case.floats(type_name, [outputs, inputs // groups, *window.kernel]))
    reference = lambda image, weights: CONVOLUTIONS[rank](
        window.pad(image).contiguous(), weights.contiguous(), stride=window.stride, dilation=window.dilation, groups=groups)
    attributes = {"pass": "FORWARD", "window": window.attributes, "groups": groups}
    y = case.op({"convolution": attributes}, [image, weights], reference)
    if not case.special:
        case.want(y, close())
        case.want_gradients(y, close())
    else:  # whether zeros of the padding meet infinities is not PyTorch's to say either
        case.want(y, finite_alike)


def finite_alike(result, exact, size, type_name):
    """As close, where the exact result is a number."""
    known = numpy.isfinite(exact)
    return close()(numpy.where(known, result, 0).astype(result.dtype), numpy.where(known, exact, 0),
                   numpy.where(known, size, 0), type_name)


def _pool_image(case, type_name, window):
    dims = [case.batch(3), int(case.random.integers(1, 18)), *window.image]
    return case.operand(case.floats(type_name, dims, ties=case.chance(0.5)))


def max_pool(case):
    """The first of several equal elements in a window takes the gradient, as in PyTorch."""
    type_name = _type(case)
    rank = case.one_of([1, 2, 2, 3])
    window = Window(case, rank)
    image = _pool_image(case, type_name, window)
    padded = window.pad(torch.zeros(1, 1, *window.image)).shape[2:]

    def pool(x):
        return MAX_POOLS[rank](window.pad(x, -numpy.inf), window.kernel, window.stride, dilation=window.dilation,
                               return_indices=True)

    def in_image(places):
        """Places in the padded image as places in the image; -1 in the padding."""
        at = numpy.stack(numpy.unravel_index(places.numpy(), padded)) - numpy.array(window.before).reshape(-1, *[1] * places.dim())
        inside = ((at >= 0) & (at < numpy.array(window.image).reshape(-1, *[1] * places.dim()))).all(0)
        flat = numpy.ravel_multi_index(tuple(at), window.image, mode="clip")
        return torch.tensor(numpy.where(inside, flat, -1))

    def reference(x):
        value, places = pool(x)
        return value, in_image(places)

    def size(exacts, sizes):
        value, places = pool(exacts[0].detach())
        return window.pad(sizes[0]).flatten(2).gather(2, places.flatten(2)).reshape(value.shape), in_image(places)

    y, places = case.op({"max_pool": {"window": window.attributes}}, [image], reference, size, types=[type_name, "INT32"])
    case.want(y, equal)
    if not case.special:  # PyTorch has the place of the last NaN
        case.want(places, equal, "indices")
        case.want_gradients(y, close())


def average_pool(case):
    type_name = _type(case)
    rank = case.one_of([1, 2, 2, 3])
    window = Window(case, rank)
    count_padding = case.chance(0.5)
    image = _pool_image(case, type_name, window)

    def sums(x):
        channels = x.shape[1]
        ones = torch.ones([channels, 1, *window.kernel], dtype=x.dtype)
        return CONVOLUTIONS[rank](window.pad(x), ones, stride=window.stride, dilation=window.dilation, groups=channels)

    def reference(x):
        counts = sums(torch.ones_like(x)).detach()
        return sums(x) / (float(numpy.prod(window.kernel)) if count_padding else counts)

    attributes = {"window": window.attributes, "count_padding": count_padding}
    y = case.op({"average_pool": attributes}, [image], reference)
    case.want(y, close() if not case.special else finite_alike)
    if not case.special:
        case.want_gradients(y, close())


ADAPTIVE = {
    "max_pool": {1: functional.adaptive_max_pool1d, 2: functional.adaptive_max_pool2d, 3: functional.adaptive_max_pool3d},
    "average_pool": {1: functional.adaptive_avg_pool1d, 2: functional.adaptive_avg_pool2d, 3: functional.adaptive_avg_pool3d},
}


def adaptive_pool(case, kind):
    """The op, or what the graph builder makes of it where windows may slide."""
    type_name = _type(case)
    rank = case.one_of([1, 2, 2, 3])
    dims = [int(case.random.integers(1, 9 if rank < 3 else 5)) for _ in range(rank)]
    result = [int(case.random.integers(1, dim + 3)) for dim in dims]
    case.words.append(f"{dims} to {result}")
    image = case.operand(case.floats(type_name, [case.batch(2), int(case.random.integers(1, 18)), *dims], ties=case.chance(0.5)))
    attributes = {kind: {"output_size": result}}
    if kind == "average_pool":
        y = case.op(attributes, [image], lambda x: ADAPTIVE[kind][rank](x, result))
    else:
        pool = lambda x: ADAPTIVE[kind][rank](x, result, return_indices=True)

        def size(exacts, sizes):
            value, places = pool(exacts[0].detach())
            return sizes[0].flatten(2).gather(2, places.flatten(2)).reshape(value.shape), places

        y, places = case.op(attributes, [image], pool, size, types=[type_name, "INT32"])
        if not case.special:
            case.want(places, equal, "indices")
    if case.chance(0.5):
        del case.steps[-1]["op"]
        case.steps[-1][f"adaptive_{kind}"] = result
    case.want(y, equal if kind == "max_pool" else close() if not case.special else finite_alike)
    if not case.special:
        case.want_gradients(y, close())


INTERPOLATIONS = [
    {1: "nearest", 2: "nearest", 3: "nearest"},
    {1: "nearest-exact", 2: "nearest-exact", 3: "nearest-exact"},
    {1: "linear", 2: "bilinear", 3: "trilinear"},
    {2: "bicubic"},
]


def resize(case):
    type_name = _type(case)
    number = int(case.random.integers(len(INTERPOLATIONS)))
    modes = INTERPOLATIONS[number]
    rank = case.one_of(list(modes))
    dims = [int(case.random.integers(1, 9 if rank < 3 else 5)) for _ in range(rank)]
    result = [int(case.random.integers(1, 20 if rank < 3 else 7)) for _ in dims]
    corners = number >= 2 and case.chance(0.5)
    case.words += [modes[rank], f"{dims} to {result}"] + ["corners aligned"] * corners
    case.special = False
    image = case.operand(case.floats(type_name, [case.batch(2), int(case.random.integers(1, 6)), *dims]))
    scaled = {"align_corners": corners} if number >= 2 else {}
    reference = lambda x: functional.interpolate(x, size=result, mode=modes[rank], **scaled)
    # Cubic weights have both signs: more than the sum of the image's elements they never are.
    size = lambda x: x.flatten(2).sum(2).reshape([*x.shape[:2]] + [1] * rank).expand([*x.shape[:2], *result])
    step = {"resize": result, "interpolation": number, "align_corners": corners}
    y = case.composed(step, [image], reference, size if number == 3 else reference)
    case.want(y, equal if number < 2 else close())
    case.want_gradients(y, close(roundings=1))


def _vector(case, channels, low=-2.0, high=2.0):
    return case.operand(case.floats("FLOAT32", [channels], low, high))


def _norm_dims(case):
    rank = case.one_of([0, 1, 2, 2, 3])
    dims = [int(case.random.integers(2, 6)), int(case.random.integers(1, 20))]
    return dims + [int(case.random.integers(1, 6)) for _ in range(rank)]


def batch_norm(case):
    """Sizes by hand: the moments depend on all elements."""
    type_name = _type(case)
    case.special = False
    dims = _norm_dims(case)
    case.words.append(f"{dims}")
    epsilon = case.one_of([1e-5, 1e-3])
    empty = case.chance(0.05)
    if empty:
        dims[0] = 0
    x, scale = case.operand(case.floats(type_name, dims)), _vector(case, dims[1])
    offset = _vector(case, dims[1])
    if empty:  # PyTorch gives x as it is
        case.error = "has no elements, of which the mean is taken"
        case.op({"batch_norm": {"epsilon": epsilon}}, [x, scale, offset], lambda x, *_: x)
        return
    others = [0, *range(2, len(dims))]
    along = [1, -1] + [1] * (len(dims) - 2)

    def reference(x, scale, offset):
        # PyTorch 1.13 reads a scale that is not contiguous as if it were.
        x, scale, offset = x.contiguous(), scale.contiguous(), offset.contiguous()
        y = functional.batch_norm(x, None, None, scale, offset, training=True, eps=epsilon)
        return y, x.mean(others), x.var(others, unbiased=False)

    def size(exacts, sizes):
        x, scale, offset = (tensor.detach() for tensor in exacts)
        inverse = 1 / torch.sqrt(x.var(others, unbiased=False, keepdim=True) + epsilon)
        centred = (x.abs() + x.abs().mean(others, keepdim=True)) * inverse
        y = BatchNormSize.apply(*sizes, centred, inverse, scale.abs().reshape(along), others)
        return y + offset.abs().reshape(along), x.abs().mean(others), (centred / inverse).square().mean(others)

    outputs = case.op({"batch_norm": {"epsilon": epsilon}}, [x, scale, offset], reference, size,
                      types=[type_name, "FLOAT32", "FLOAT32"])
    for output, label in zip(outputs, ("y", "mean", "variance")):
        case.want(output, close(), label)
    case.want_gradients(outputs[0], close())


class BatchNormSize(torch.autograd.Function):
    """The expressions of batch norm and its gradients over absolute values."""

    @staticmethod
    def forward(context, x, scale, offset, centred, inverse, factor, others):
        context.parts = centred, inverse, factor, others
        return centred * factor

    @staticmethod
    def backward(context, dy):
        centred, inverse, factor, others = context.parts
        dscale, doffset = (dy * centred).sum(others), dy.sum(others)
        mean = lambda values: values.mean(others, keepdim=True)
        dx = factor * inverse * (dy + mean(dy) + centred * mean(dy * centred))
        return dx, dscale, doffset, None, None, None, None


def batch_norm_inference(case):
    type_name = _type(case)
    case.special = False
    dims = _norm_dims(case)
    dims[0] = case.batch(5)
    case.words.append(f"{dims}")
    epsilon = case.one_of([1e-5, 1e-3])
    x, scale, offset = case.operand(case.floats(type_name, dims)), _vector(case, dims[1]), _vector(case, dims[1])
    mean, variance = _vector(case, dims[1]), _vector(case, dims[1], 0.1, 2)

    def formula(sign):
        def y(x, scale, offset, mean, variance):
            along = [1, -1] + [1] * (len(dims) - 2)
            scale, offset, mean, variance = (v.reshape(along) for v in (scale, offset, mean, variance))
            return (x + sign * mean) * scale / torch.sqrt(variance + epsilon) + offset
        return y

    y = case.op({"batch_norm_inference": {"epsilon": epsilon}}, [x, scale, offset, mean, variance], formula(-1),
                lambda exacts, sizes: formula(1)(*sizes))
    case.want(y, close())
    if case.chance(0.7):
        case.want_gradients(y, close())


def generators():
    yield "convolution", convolution
    yield "max_pool", max_pool
    yield "average_pool", average_pool
    yield "adaptive max_pool", lambda case: adaptive_pool(case, "max_pool")
    yield "adaptive average_pool", lambda case: adaptive_pool(case, "average_pool")
    yield "resize", resize
    yield "batch_norm", batch_norm
    yield "batch_norm_inference", batch_norm_inference
