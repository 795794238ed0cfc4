"""Operators that choose elements by index, and writes by indices of several dimensions."""

import numpy

from ..case import Value
from ..checks import close
from .harness import aten, axis_of, define, draw, encoded, floats, integers, operator, shape


def _index(case):
    dims = draw(case, 2, 5, 3)
    which = case.one_of([[0], [1], [0, 1], [1, 2], [0, 2], [0, 1, 2]])
    shapes = case.one_of([[[4]] * 3, [[2, 3]] * 3, [[2, 1], [3], [1]]])
    indices = [None] * (max(which) + 1)
    return dims, which, shapes, indices


@define("index.Tensor")
def index(case, name):
    case.special = False
    dims, which, shapes, indices = _index(case)
    for axis in which:
        indices[axis] = integers(case, shapes[axis], -dims[axis], dims[axis])
    aten(case, name, floats(case, dims), indices, check=close())


def _masked_put(case, name):
    """A mask, beside dimensions before and behind it."""
    dims = draw(case, 1, 4, 3)
    first = draw(case, 0, 3)
    covered = dims[first : draw(case, first + 1, 4)]
    mask = numpy.array(case.random.random(covered) < 0.5)
    behind = dims[first + len(covered) :]
    count = int(mask.sum())
    shapes = [[], behind, [1, *behind], [*dims[:first], 1, *behind]]
    if count > 0:
        shapes += [[count, *behind], [*dims[:first], count, *behind]]
    x, values = floats(case, dims), floats(case, case.one_of(shapes))
    aten(case, name, x, [None] * first + [case.operand(mask)], values, case.chance(0.4), check=close(1))


def _mask_beside_index(case, name):
    """A mask, or two of as many true elements, beside indices that are as long or are broadcast."""
    dims = draw(case, 2, 5, 4)
    first, width = draw(case, 0, 2), draw(case, 1, 3)
    mask = numpy.array(case.random.random(dims[first : first + width]) < 0.5)
    mask.flat[draw(case, 0, mask.size)] = True
    count = int(mask.sum())
    indices = [None] * first + [case.operand(mask)]
    other = case.one_of([axis for axis in range(4) if not first <= axis < first + width])
    lengths = [[], [1], [count], [2, 1], [2, count]] if count > 1 else [[], [1], [3], [2, 3]]
    if case.chance(0.2):
        second = numpy.arange(dims[other]) < count
        index = case.operand(second) if second.sum() == count else integers(case, [], 0, dims[other])
    else:
        index = integers(case, case.one_of(lengths), -dims[other], dims[other])
    if other < first:
        indices[other] = index
    else:
        indices += [None] * (other - first - width) + [index]
    x = floats(case, dims)
    exacts = [None if i is None else i.exact for i in indices]
    result = list(operator("index.Tensor")(x.exact.detach(), exacts).shape)
    values = floats(case, case.one_of([result, result[-1:], []]))
    # Places may be chosen twice, and the order of writes is not defined.
    accumulate = values.dims != [] or case.chance(0.5)
    aten(case, name, x, indices, values, accumulate, check=close(2))


def _mask_of_wrong_count(case, name):
    """More or fewer true elements than the index beside the mask has, or the values."""
    dims = draw(case, 4, 6, 2)
    count, length = (int(number) for number in case.random.permutation(numpy.arange(2, 5))[:2])
    mask = case.operand(case.random.permutation(numpy.arange(dims[0]) < count))
    by_index = case.chance(0.5)
    index = integers(case, [length] if by_index else [], 0, dims[1])
    x, values = floats(case, dims), floats(case, [] if by_index else [length])
    number = case._add({"aten": name, "arguments": [encoded(each) for each in (x, [mask, index], values, False)]}, 1)
    case.want(Value(number, x.type, x.exact, x.exact), close(), "output")
    case.error = "is outside 0 to"


@define("index_put.default")
def index_put(case, name):
    case.special = False
    if case.chance(0.6):
        make = case.one_of([_masked_put, _mask_beside_index, _mask_beside_index, _mask_of_wrong_count])
        return make(case, name)
    dims, which, shapes, indices = _index(case)
    accumulate = case.chance(0.6)
    if not accumulate:  # the order of writes to one place is not defined
        which, indices = [0], [None]
        indices[0] = case.operand(case.random.permutation(dims[0])[:2].astype(numpy.int32))
    else:
        for axis in which:
            indices[axis] = integers(case, shapes[axis], -dims[axis], dims[axis])
    x = floats(case, dims)
    exacts = [None if i is None else i.exact for i in indices]
    result = list(operator("index.Tensor")(x.exact.detach(), exacts).shape)
    values = floats(case, case.one_of([result, result[-1:], []]))
    aten(case, name, x, indices, values, accumulate, check=close(2))


@define("embedding.default")
def embedding(case, name):
    case.special = False
    rows = draw(case, 2, 8)
    aten(case, name, floats(case, [rows, draw(case, 1, 5)]), integers(case, case.one_of([[4], [2, 3]]), 0, rows), check=close())


@define("embedding_dense_backward.default")
def embedding_backward(case, name):
    case.special = False
    rows, width, dims = draw(case, 2, 8), draw(case, 1, 5), case.one_of([[4], [2, 3]])
    aten(case, name, floats(case, [*dims, width]), integers(case, dims, 0, rows), rows, case.one_of([-1, 1]), case.chance(0.3),
         gradient=False)


@define("index_select.default")
def index_select(case, name):
    case.special = False
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    aten(case, name, floats(case, dims), axis, integers(case, [3], 0, dims[axis]), check=close())


@define("take.default")
def take(case, name):
    case.special = False
    dims = shape(case)
    count = int(numpy.prod(dims))
    aten(case, name, floats(case, dims), integers(case, case.one_of([[4], [2, 3], []]), -count, count), check=close())


@define("bucketize.Tensor", "bucketize.Scalar")
def bucketize(case, name):
    boundaries = numpy.sort(case.random.choice(numpy.arange(-8, 9) / 4, draw(case, 1, 6)))
    boundaries = case.operand(boundaries.astype(numpy.float32 if case.type == "FLOAT32" else numpy.float16))
    # Some are equal to a boundary.
    x = floats(case, shape(case), ties=True) if name == "bucketize.Tensor" else case.one_of([-3.5, 0.25, 1.0])
    aten(case, name, x, boundaries, case.chance(0.5), case.chance(0.5), gradient=False)


def smaller(case, dims, axis):
    return [draw(case, 1, 5) if i == axis % len(dims) else draw(case, 1, dim + 1) for i, dim in enumerate(dims)]


@define("gather.default")
def gather(case, name):
    case.special = False
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    aten(case, name, floats(case, dims), axis, integers(case, smaller(case, dims, axis), 0, dims[axis]), check=close())
