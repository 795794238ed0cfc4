"""Reductions, arg-max and matrix products."""

import numpy
import torch

from .case import FLOATS, TYPES, wrap
from .checks import close, equal


def _product(x, axes):
    for axis in reversed(axes):  # PyTorch takes one at a time
        x = x.prod(axis)
    return x


def _reference(operator, axes):
    if not axes:  # for PyTorch an empty list is all axes
        return lambda x: x * 1
    return {
        "SUM": lambda x: x.sum(axes),
        "MEAN": lambda x: x.mean(axes),
        "MAX": lambda x: x.amax(axes),
        "MIN": lambda x: x.amin(axes),
        "PRODUCT": lambda x: _product(x, axes),
    }[operator]


def reduce(case, operator):
    type_name = case.one_of(FLOATS * 2 + (["INT32"] if operator != "MEAN" else []))
    case.words.append(type_name)
    dims = case.shape()
    is_long = case.chance(0.15)
    if is_long:
        dims = [3, 1000] if case.chance(0.5) else [1000, 3]
    axes = [axis for axis in range(len(dims)) if case.chance(0.5)]
    case.words.append(f"{dims} over {axes}")
    extreme = operator in ("MAX", "MIN")
    # Long products of other numbers leave the range of float32.
    low, high = (0.9, 1.1) if is_long and operator == "PRODUCT" else (-3, 3)
    ties = case.chance(0.5)
    array = case.elements(type_name, dims) if type_name == "INT32" else case.floats(type_name, dims, low, high, ties=ties)
    x = case.operand(array)
    attributes = {"reduce": {"operator": operator, "axes": axes}}
    if extreme and any(dims[axis] == 0 for axis in axes):
        case.error = f"{operator} needs an element"
        case.op(attributes, [x], lambda x: x.sum(axes))
        return
    reference = _reference(operator, axes)
    if type_name == "INT32":
        case.want(case.op(attributes, [x], lambda x: wrap(reference(x), type_name)), equal)
        return
    # The size of an extreme only bounds gradients: a share of each is at most the sum's.
    size = (lambda exacts, sizes: _reference("SUM", axes)(sizes[0])) if extreme else None
    y = case.op(attributes, [x], reference, size)
    case.want(y, equal if extreme else close())
    if not case.special and case.chance(0.7):
        case.want_gradients(y, close())


def large(case, operator):
    """Counts beyond float16, of which each element takes a share."""
    case.special = False
    case.words.append("FLOAT16")
    count = int(numpy.exp(case.random.uniform(numpy.log(1e5), numpy.log(2e6))))
    dims = [count] if case.chance(0.5) else [2, count // 2]
    case.words.append(f"{dims}")
    # Whole numbers are equal to many others.
    x = case.input(case.floats("FLOAT16", dims, -0.6, 0.6, ties=operator != "MEAN"))
    reference = _reference(operator, [len(dims) - 1])
    size = (lambda exacts, sizes: _reference("SUM", [len(dims) - 1])(sizes[0])) if operator != "MEAN" else None
    y = case.op({"reduce": {"operator": operator, "axes": [len(dims) - 1]}}, [x], reference, size)
    case.want(y, close() if operator == "MEAN" else equal)
    case.want_gradients(y, close(part=0))


def arg_max(case):
    type_name = case.one_of(FLOATS)
    case.words.append(type_name)
    x = case.operand(case.floats(type_name, case.shape(1), ties=case.chance(0.6)))
    if x.dims[-1] == 0:
        case.error = "arg-max needs an element"
        case.op({"arg_max": {}}, [x], lambda x: x.sum(-1), types=["INT32"])
        return
    # The first of equals, as NumPy says and PyTorch does not promise.
    reference = lambda x: torch.tensor(numpy.argmax(x.detach().numpy(), -1))
    case.want(case.op({"arg_max": {}}, [x], reference, types=["INT32"]), equal)


def mat_mul(case):
    type_name = case.one_of(FLOATS)
    case.words.append(type_name)
    m, k, n = (0 if case.chance(0.04) else case.one_of([1, 2, 3, 7, 16, 33, 64]) for _ in range(3))
    left, right = case.chance(0.4), case.chance(0.4)
    case.words.append(f"{m}×{k}×{n}")
    case.words += ["a stored transposed"] * left + ["b stored transposed"] * right
    batch = [case.one_of([1, 2, 3]) for _ in range(case.one_of([0, 0, 1, 2]))]
    case.words += [f"{batch} of them"] * bool(batch)
    a = case.operand(case.floats(type_name, batch + ([k, m] if left else [m, k])))
    b = case.operand(case.floats(type_name, batch + ([n, k] if right else [k, n])))
    reference = lambda a, b: torch.matmul(a.mT if left else a, b.mT if right else b)
    y = case.op({"mat_mul": {"transpose_a": left, "transpose_b": right}}, [a, b], reference)
    case.want(y, close())
    if not case.special and case.chance(0.7):
        case.want_gradients(y, close())


def generators():
    for operator in ("SUM", "MEAN", "MAX", "MIN", "PRODUCT"):
        yield f"reduce {operator}", lambda case, operator=operator: reduce(case, operator)
    for operator in ("MEAN", "MAX", "MIN"):
        yield f"reduce {operator} of many", lambda case, operator=operator: large(case, operator)
    yield "arg_max", arg_max
    yield "mat_mul", mat_mul
