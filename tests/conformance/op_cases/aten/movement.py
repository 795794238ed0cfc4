"""Joins, padding, shifts, and triangles of matrices."""

from ..checks import close, equal
from .harness import aten, axes_of, axis_of, define, draw, floats, shape


@define("cat.default")
def cat(case, name):
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    parts = []
    for _ in range(draw(case, 1, 4)):
        part = list(dims)
        part[axis] = draw(case, 1, 4)
        parts.append(floats(case, part))
    aten(case, name, parts, axis, check=equal)


@define("stack.default")
def stack(case, name):
    dims = shape(case)
    aten(case, name, [floats(case, dims) for _ in range(draw(case, 1, 4))], draw(case, -len(dims) - 1, len(dims) + 1), check=equal)


@define("constant_pad_nd.default")
def constant_pad(case, name):
    dims = [dim + 2 for dim in shape(case, 1)]
    widths = draw(case, -1, 3, 2 * draw(case, 1, len(dims) + 1))
    aten(case, name, floats(case, dims), widths, case.one_of([0, 1.5]), check=equal)


@define("roll.default")
def roll(case, name):
    dims = shape(case, 1)
    axes = axes_of(case, dims)
    shifts, axes = ([draw(case, -9, 9)], []) if case.chance(0.3) else (draw(case, -9, 9, len(axes)), axes)
    aten(case, name, floats(case, dims), shifts, axes, check=equal)


@define("triu.default", "tril.default")
def triangle(case, name):
    aten(case, name, floats(case, shape(case, 2)), draw(case, -3, 4), check=equal)


@define("flip.default")
def flip(case, name):
    dims = shape(case, 1)
    aten(case, name, floats(case, dims), axes_of(case, dims), check=equal)


@define("repeat.default")
def repeat(case, name):
    dims = draw(case, 1, 3, 5) if case.chance(0.3) else shape(case, 0, 2)
    aten(case, name, floats(case, dims), draw(case, 1, 3, len(dims) + draw(case, 0, 2)), check=close())
