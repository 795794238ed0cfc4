"""Ops that move elements: exact in every type."""

import numpy
import torch

from .case import FLOATS, TYPES
from .checks import close, equal, same_zero


def _elements(case, dims):
    type_name = case.one_of(list(TYPES) + FLOATS * 3)
    case.words.append(type_name)
    return case.elements(type_name, dims)


def _finish(case, y):
    case.want(y, same_zero if y.is_float else equal)
    if y.is_float and case.chance(0.7):
        case.want_gradients(y, close())


def fill(case):
    type_name = case.one_of(TYPES)
    case.words.append(type_name)
    number = float(case.elements(type_name, []))
    if not numpy.isfinite(number):
        number = 0.0  # JSON has no others
    # Added to zeros, so that it is an operand.
    dims = case.shape()
    filled = case.constant(type_name, dims, number)
    if type_name == "BOOL":
        _finish(case, case.op({"unary": {"operator": "LOGICAL_NOT"}}, [filled], torch.logical_not))
    else:
        other = case.operand(numpy.zeros(dims, TYPES[type_name]))
        _finish(case, case.op({"binary": {"operator": "ADD"}}, [filled, other], torch.add))


def copy(case):
    x = case.operand(_elements(case, case.shape()))
    _finish(case, case.op({"copy": {}}, [x], lambda x: x))


def transpose(case):
    x = case.operand(_elements(case, case.shape(1, 6)))
    _finish(case, case.transpose(x, [int(axis) for axis in case.random.permutation(len(x.dims))]))


def slice_(case):
    x = case.operand(_elements(case, case.shape(1)))
    begin = [int(case.random.integers(0, dim + 1 if case.chance(0.05) else max(dim, 1))) for dim in x.dims]
    step = [int(case.random.integers(1, 4)) for _ in x.dims]
    most = [(dim - 1 - b) // s + 1 for dim, b, s in zip(x.dims, begin, step)]
    size = [int(case.random.integers(0 if case.chance(0.03) else min(1, n), n + 1)) for n in most]
    _finish(case, case.slice(x, begin, size, step))


def expand(case):
    dims = case.shape(1)
    x = case.operand(_elements(case, [1 if case.chance(0.5) else dim for dim in dims]))
    front = [int(case.random.integers(0 if case.chance(0.1) else 1, 4))] if case.chance(0.4) else []
    _finish(case, case.expand(x, front + dims))


def _other_dims(case, dims):
    count = int(numpy.prod(dims))
    return case.one_of([[count], [1, count], dims[::-1], dims + [1]])


def reshape(case):
    x = case.operand(_elements(case, case.shape()))
    _finish(case, case.reshape(x, _other_dims(case, x.dims)))


def pad(case):
    x = case.operand(_elements(case, case.shape(1)))
    before, after = ([int(case.random.integers(0, 4)) for _ in x.dims] for _ in range(2))
    value = case.one_of([0, 1]) if x.type == "BOOL" else case.one_of([0, 3])
    dims = [b + dim + a for b, dim, a in zip(before, x.dims, after)]
    places = tuple(slice(b, b + dim) for b, dim in zip(before, x.dims))

    def reference(x):  # PyTorch 1.13 does not pad to a dimension of 0
        y = torch.full(dims, value, dtype=x.dtype)
        y[places] = x
        return y

    _finish(case, case.op({"pad": {"before": before, "after": after, "value": value}}, [x], reference))


def concat(case):
    dims = case.shape(1)
    axis = int(case.random.integers(len(dims)))
    parts = []
    for _ in range(int(case.random.integers(1, 5))):
        dims[axis] = int(case.random.integers(0, 6))
        parts.append(list(dims))
    type_name = case.one_of(list(TYPES) + FLOATS * 3)
    case.words.append(type_name)
    inputs = [case.operand(case.elements(type_name, part)) for part in parts]
    _finish(case, case.op({"concat": {"axis": axis}}, inputs, lambda *x: torch.cat(x, axis)))


def _slice_place(case):
    """A tensor, some axes of it, and a slice of each that fits."""
    x = _elements(case, case.shape(1))
    axes = [axis for axis in range(x.ndim) if case.chance(0.6)] or [0]
    size = [int(case.random.integers(0 if case.chance(0.03) else min(1, x.shape[axis]), x.shape[axis] + 1)) for axis in axes]
    start = [int(case.random.integers(0, x.shape[axis] - n + 1)) for axis, n in zip(axes, size)]
    case.words.append(f"{list(x.shape)} axes {axes} start {start} size {size}")
    return x, axes, start, size


def _leave(case, dims, axes, start, size):
    """Sometimes a start from which the slice does not fit."""
    if case.chance(0.15):
        i = int(case.random.integers(len(axes)))
        last = dims[axes[i]] - size[i]
        start[i] = case.one_of([-1, last + 1, 2**31 - 1, -(2**31)])
        case.error = f"start {start[i]} on axis {axes[i]} is outside 0 to {last}"
    return case.operand(numpy.array(start, numpy.int32))


def dynamic_slice(case):
    x, axes, start, size = _slice_place(case)
    places = [slice(None)] * x.ndim
    for axis, begin, n in zip(axes, start, size):
        places[axis] = slice(begin, begin + n)
    x, start = case.operand(x), _leave(case, x.shape, axes, start, size)
    _finish(case, case.op({"dynamic_slice": {"axes": axes, "size": size}}, [x, start], lambda x, start: x[tuple(places)]))


def dynamic_update(case):
    x, axes, start, size = _slice_place(case)
    places, dims = [slice(None)] * x.ndim, list(x.shape)
    for axis, begin, n in zip(axes, start, size):
        places[axis], dims[axis] = slice(begin, begin + n), n
    type_name = next(name for name, dtype in TYPES.items() if dtype == x.dtype)
    update = case.operand(case.elements(type_name, dims))
    x, start = case.operand(x), _leave(case, x.shape, axes, start, size)

    def reference(x, update, start):
        x = x.clone()
        x[tuple(places)] = update
        return x

    _finish(case, case.op({"dynamic_update": {"axes": axes}}, [x, update, start], reference))


def generators():
    yield "fill", fill
    yield "copy", copy
    yield "transpose", transpose
    yield "slice", slice_
    yield "expand", expand
    yield "reshape", reshape
    yield "pad", pad
    yield "concat", concat
    yield "dynamic_slice", dynamic_slice
    yield "dynamic_update", dynamic_update
