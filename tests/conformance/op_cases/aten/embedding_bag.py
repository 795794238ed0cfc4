"""Bags of rows of an embedding."""

import numpy

from ..checks import close
from .harness import aten, define, draw, floats


@define("_embedding_bag.default", "_embedding_bag_forward_only.default")
def embedding_bag(case, name):
    case.special = False
    rows, columns, count, bags = draw(case, 2, 7), draw(case, 1, 5), draw(case, 1, 9), draw(case, 1, 5)
    mode, has_end = draw(case, 0, 3), case.chance(0.3)
    indices = case.random.integers(0, rows, [count]).astype(numpy.int32)
    offsets = numpy.sort(case.random.integers(0, count + 1, [bags])).astype(numpy.int32)
    offsets[0] = 0
    if has_end:
        offsets = numpy.append(offsets, numpy.int32(count))
    weights = floats(case, [count]) if mode == 0 and case.chance(0.5) else None
    padding = draw(case, 0, rows) if case.chance(0.4) else -1
    # Equal elements would share a maximum: those of a column are different.
    table = case.random.permutation(rows * columns).reshape([rows, columns]) / 8 - 2
    table = case.operand(table.astype(numpy.float32 if case.type == "FLOAT32" else numpy.float16))
    aten(case, name, table, case.operand(indices), case.operand(offsets), False, mode, False, weights, has_end, padding,
         wanted=[0], check=close(2), gradient=name == "_embedding_bag.default")
