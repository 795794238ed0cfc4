"""Diagonals of matrices, and matrices of which a diagonal is given."""

import torch

from ..checks import equal
from .creation import kind_of, made
from .harness import aten, define, draw, floats, shape


def _plane(case, dims):
    return [int(axis) - case.one_of([0, len(dims)]) for axis in case.random.permutation(len(dims))[:2]]


@define("diagonal.default")
def diagonal(case, name):
    dims = shape(case, 2)
    aten(case, name, floats(case, dims), draw(case, -4, 5), *_plane(case, dims), check=equal)


@define("diagonal_scatter.default")
def diagonal_scatter(case, name):
    dims = shape(case, 2)
    offset, plane = draw(case, -4, 5), _plane(case, dims)
    part = list(torch.empty(dims).diagonal(offset, *plane).shape)
    aten(case, name, floats(case, dims), floats(case, part), offset, *plane, check=equal)


@define("diag.default")
def diag(case, name):
    dims = shape(case, 1, 2)
    # A diagonal outside a matrix ends PyTorch's kernel with an overflow.
    least, end = (1 - dims[0], dims[1]) if len(dims) == 2 else (-4, 5)
    aten(case, name, floats(case, dims), draw(case, least, end), check=equal)


@define("diag_embed.default")
def diag_embed(case, name):
    dims = shape(case, 1)
    aten(case, name, floats(case, dims), draw(case, -3, 4), *_plane(case, [*dims, 1]), check=equal)


@define("eye.default", "eye.m")
def eye(case, name):
    made(case, name, *draw(case, 1, 6, 1 if name == "eye.default" else 2), kind=kind_of(case))
