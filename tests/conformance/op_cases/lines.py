"""Operations along lines of a tensor: cumulative sums and products, sorting."""

import torch

from .case import FLOATS, INTEGERS, wrap
from .checks import close, equal


def _line(case):
    dims = case.shape(1, 4)
    return dims, int(case.random.integers(len(dims)))


def cumulate(case):
    product, exclusive, reverse = (case.chance(0.4) for _ in range(3))
    type_name = case.one_of(FLOATS * 2 + ["INT32"])
    dims, axis = _line(case)
    case.words += [type_name, "product" if product else "sum", f"axis {axis} of {dims}"]
    case.words += ["exclusive"] * exclusive + ["reverse"] * reverse
    x = case.operand(case.floats(type_name, dims, -1.5, 1.5) if type_name in FLOATS else case.elements(type_name, dims))

    def reference(x):
        x = x.flip(axis) if reverse else x
        if exclusive and dims[axis] > 0:
            first = torch.full_like(x.narrow(axis, 0, 1), 1 if product else 0)
            x = torch.cat([first, x.narrow(axis, 0, dims[axis] - 1)], axis)
        y = torch.cumprod(x, axis) if product else torch.cumsum(x, axis)
        y = y.flip(axis) if reverse else y
        return y if type_name in FLOATS else wrap(y, type_name)

    attributes = {"operator": "PRODUCT" if product else "SUM", "axis": axis, "exclusive": exclusive, "reverse": reverse}
    y = case.op({"cumulate": attributes}, [x], reference)
    case.want(y, close() if type_name in FLOATS else equal)
    if type_name in FLOATS and not case.special and case.chance(0.7):
        case.want_gradients(y, close(roundings=1))


def sort(case):
    type_name = case.one_of(FLOATS * 2 + INTEGERS + ["BOOL"])
    descending = case.chance(0.5)
    dims, axis = _line(case)
    count = int(case.random.integers(0, dims[axis] + 1)) if case.chance(0.5) else dims[axis]
    case.words += [type_name, f"{count} along axis {axis} of {dims}"] + ["descending"] * descending
    ties = type_name in FLOATS and case.chance(0.4)
    case.ties = ties
    x = case.operand(case.floats(type_name, dims, ties=ties) if ties else case.elements(type_name, dims))

    def sorted_lines(x):
        values, places = torch.sort(x, dim=axis, descending=descending, stable=True)
        return values.narrow(axis, 0, count), places.narrow(axis, 0, count)

    def size(exacts, sizes):
        places = sorted_lines(exacts[0].detach())[1]
        return torch.gather(sizes[0], axis, places), places

    values, places = case.op({"sort": {"axis": axis, "descending": descending, "count": count}}, [x], sorted_lines, size,
                             types=[type_name, "INT32"])
    case.want(values, equal)
    case.want(places, equal, "places")
    if type_name in FLOATS and not case.special and case.chance(0.7):
        case.want_gradients(values, close())


def generators():
    yield "cumulate", cumulate
    yield "sort", sort
