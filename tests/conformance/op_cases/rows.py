"""Softmax and layer norm, and what chooses by index."""

import warnings

import numpy
import torch
import torch.nn.functional as functional

from .case import FLOATS, INTEGERS, wrap
from .checks import close, equal

warnings.filterwarnings("ignore", "scatter_reduce")  # says that it may change


class Sized(torch.autograd.Function):
    """Sizes of a result, and the function that takes sizes of its gradient to those of the inputs'."""

    @staticmethod
    def forward(context, backward, value, *sizes):
        context.back = backward
        return value.clone()

    @staticmethod
    def backward(context, gradient):
        return (None, None, *context.back(gradient))


def softmax(case):
    type_name = case.one_of(FLOATS)
    logarithm = case.chance(0.4)
    case.words += [type_name] + ["logarithm"] * logarithm
    dims = case.shape(1, empty=False)
    dims[0] = case.batch(6) if len(dims) > 1 and case.chance(0.2) else dims[0]
    x = case.operand(case.floats(type_name, dims, -8, 8, ties=case.chance(0.3)))
    reference = torch.log_softmax if logarithm else torch.softmax

    def size(exacts, sizes):
        exact = exacts[0].detach()
        p = torch.softmax(exact, -1)
        if logarithm:
            value = exact.abs() + torch.logsumexp(exact, -1, keepdim=True).abs()
            return Sized.apply(lambda g: (g + p * g.sum(-1, keepdim=True),), value, sizes[0])
        return Sized.apply(lambda g: (p * (g + (p * g).sum(-1, keepdim=True)),), p, sizes[0])

    y = case.op({"softmax": {"logarithm": logarithm}}, [x], lambda x: reference(x, -1), size)
    case.want(y, close())
    if not case.special and case.chance(0.7):
        case.want_gradients(y, close(roundings=2))


def layer_norm(case):
    type_name = case.one_of(FLOATS)
    affine = case.chance(0.6)
    case.words += [type_name] + ["affine"] * affine
    case.special = False
    dims = case.shape(1, empty=False)
    dims[0] = case.batch(6) if len(dims) > 1 and case.chance(0.2) else dims[0]
    epsilon = case.one_of([1e-5, 0.125])
    if dims[-1] < 3:
        epsilon = 0.125  # of two elements the deviation may vanish
    x = case.operand(case.floats(type_name, dims))
    vectors = [case.operand(case.floats(type_name, dims[-1:], 0.25, 2)) for _ in range(2 if affine else 0)]

    def moments(x):
        return x.mean(-1), (x.var(-1, unbiased=False) + numpy.float32(epsilon)).rsqrt()

    def reference(x, *vectors):
        y = functional.layer_norm(x, dims[-1:], *vectors, eps=float(numpy.float32(epsilon)))
        return y, *moments(x)

    def size(exacts, sizes):
        exact = exacts[0].detach()
        mean, inverse = (m.unsqueeze(-1) for m in moments(exact))
        normalized = (exact.abs() + mean.abs()) * inverse
        s = exacts[1].detach().abs() if affine else torch.ones(dims[-1:], dtype=torch.float64)
        value = normalized * s + (exacts[2].detach().abs() if affine else 0)

        def backward(g):
            gs = g * s
            dx = inverse * (gs + gs.mean(-1, keepdim=True) + normalized * (gs * normalized).mean(-1, keepdim=True))
            rows = list(range(g.ndim - 1))
            vectors = ((g * normalized).sum(rows) if rows else g * normalized, g.sum(rows) if rows else g)
            return (dx, *vectors) if affine else (dx,)

        return Sized.apply(backward, value, *sizes), mean.abs().squeeze(-1) + 1, inverse.squeeze(-1)

    y, mean, inverse = case.op({"layer_norm": {"epsilon": epsilon}}, [x, *vectors], reference, size,
                               types=[type_name, "FLOAT32", "FLOAT32"])
    case.want(y, close())
    case.want(mean, close())
    case.want(inverse, close())
    if case.chance(0.7):
        case.want_gradients(y, close(roundings=2))


def _choice(case, distinct=False):
    """A shape, an axis of it, and indices along it; whether they go along it; the shape of what they choose."""
    dims = case.shape(1, 3, empty=False)
    axis = int(case.random.integers(len(dims)))
    along = case.chance(0.4)
    count = dims[axis]
    if distinct:
        chosen = int(case.random.integers(1, count + 1))
        shape = dims[:axis] + [chosen] + dims[axis + 1 :] if along else [chosen]
        indices = case.random.permuted(numpy.broadcast_to(
            numpy.arange(count).reshape([-1] + [1] * (len(dims) - 1 - axis) if along else [-1]),
            dims if along else [count]).copy(), axis=axis if along else 0)
        indices = indices[(slice(None),) * (axis if along else 0) + (slice(0, chosen),)]
    else:
        shape = [int(case.random.integers(1, 9))] if case.chance(0.6) else [2, 3]
        shape = dims[:axis] + [int(case.random.integers(1, 9))] + dims[axis + 1 :] if along else shape
        indices = case.random.integers(0, count, shape)
    case.words.append(f"axis {axis} of {dims}" + " along it" * along)
    part = list(indices.shape) if along else dims[:axis] + list(indices.shape) + dims[axis + 1 :]
    return dims, axis, along, indices.astype(numpy.int32), part


def _expanded(indices, dims, axis, along):
    """The indices with the shape of what they choose, their own dimensions as one."""
    if along:
        return indices
    flat = indices.reshape([1] * axis + [-1] + [1] * (len(dims) - 1 - axis))
    return flat.expand(dims[:axis] + [indices.numel()] + dims[axis + 1 :])


def gather(case):
    type_name = case.one_of(FLOATS * 2 + INTEGERS)
    case.words.append(type_name)
    dims, axis, along, indices, part = _choice(case)
    x = case.operand(case.elements(type_name, dims))
    bad = case.chance(0.06)
    if bad:
        indices.flat[-1] = case.one_of([-1, dims[axis]])
        case.error = f"index {indices.flat[-1]} is outside 0 to {dims[axis] - 1}"
    where = case.operand(indices)

    def reference(x, indices):
        indices = indices.clamp(0, dims[axis] - 1)
        return torch.gather(x, axis, _expanded(indices, dims, axis, along)).reshape(part)

    y = case.op({"gather": {"axis": axis, "along": along}}, [x, where], reference,
                lambda exacts, sizes: reference(sizes[0], exacts[1]))
    case.want(y, equal)
    if type_name in FLOATS and not case.special and not bad:
        case.want_gradients(y, close())


COMBINE = {"ADD": "sum", "MULTIPLY": "prod", "MIN": "amin", "MAX": "amax"}


def scatter(case):
    combine = case.one_of(["SET", "ADD", "MULTIPLY", "MIN", "MAX"])
    rounds = combine in ("ADD", "MULTIPLY")
    type_name = case.one_of((["FLOAT32"] * 3 if rounds else FLOATS * 2) + ["INT32", "UINT8"])
    case.words += [combine, type_name]
    case.special = case.special and combine == "SET"
    # PyTorch does not say which of several sets is the last.
    dims, axis, along, indices, part = _choice(case, distinct=combine == "SET")
    x, update = (case.operand(case.elements(type_name, shape)) for shape in (dims, part))
    where = case.operand(indices)

    def reference(x, indices, update):
        indices = _expanded(indices, dims, axis, along)
        update = update.reshape(indices.shape)
        if combine == "SET":
            result = torch.scatter(x, axis, indices, update)
        else:
            result = torch.scatter_reduce(x, axis, indices, update, COMBINE[combine], include_self=True)
        return result if type_name in FLOATS else wrap(result, type_name)

    y = case.op({"scatter": {"combine": combine, "axis": axis, "along": along}}, [x, where, update], reference,
                lambda exacts, sizes: reference(sizes[0], exacts[1], sizes[2]))
    case.want(y, close() if type_name in FLOATS and rounds else equal)
    if type_name in FLOATS and combine in ("SET", "ADD") and not case.special:
        case.want_gradients(y, close())


def iota(case):
    type_name = case.one_of(["INT32", "FLOAT32"])
    dims = case.shape(1)
    axis = int(case.random.integers(len(dims)))
    case.words += [type_name, f"axis {axis} of {dims}"]
    dtype = torch.int64 if type_name == "INT32" else torch.float64

    def reference():
        return torch.arange(dims[axis], dtype=dtype).reshape([-1] + [1] * (len(dims) - 1 - axis)).expand(dims)

    y = case.op({"iota": {"type": type_name, "dims": dims, "axis": axis}}, [], reference,
                lambda exacts, sizes: reference(), types=[type_name])
    case.want(y, equal)


def generators():
    yield "softmax", softmax
    yield "layer_norm", layer_norm
    yield "gather", gather
    yield "scatter", scatter
    yield "iota", iota
