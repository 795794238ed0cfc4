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


@define("reflection_pad1d.default", "reflection_pad2d.default", "reflection_pad3d.default", "replication_pad1d.default",
        "replication_pad2d.default", "replication_pad3d.default")
def repeating_pad(case, name):
    rank = int(name.split(".")[0][-2])
    dims = draw(case, 1, 3, 2)[case.one_of([0, 1]) :] + draw(case, 2, 5, rank)
    most = min(dims[-rank:]) if name.startswith("reflection") else 4
    widths = draw(case, 0, most, 2 * rank)
    aten(case, name, floats(case, dims), widths, check=close())


@define("rot90.default")
def rot90(case, name):
    dims = shape(case, 2)
    plane = [int(axis) for axis in case.random.permutation(len(dims))[:2]]
    aten(case, name, floats(case, dims), draw(case, -5, 6), plane, check=equal)


@define("pixel_shuffle.default", "pixel_unshuffle.default")
def pixel_shuffle(case, name):
    factor, before = draw(case, 1, 4), draw(case, 1, 3, draw(case, 0, 3))
    dims = draw(case, 1, 3, 3)
    if name == "pixel_shuffle.default":
        dims[0] *= factor * factor
    else:
        dims[1:] = [dim * factor for dim in dims[1:]]
    aten(case, name, floats(case, before + dims), factor, check=equal)


@define("channel_shuffle.default", "native_channel_shuffle.default")
def channel_shuffle(case, name):
    groups = draw(case, 1, 4)
    dims = [draw(case, 1, 3), groups * draw(case, 1, 4), *draw(case, 1, 4, draw(case, 1, 4))]
    aten(case, name, floats(case, dims), groups, check=equal)
