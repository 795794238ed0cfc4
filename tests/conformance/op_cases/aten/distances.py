"""Norms of vectors, and what is made of them."""

from ..checks import close
from .harness import DEVICE, aten, axes_of, define, draw, floats, shape


@define("norm.ScalarOpt_dim")
def norm(case, name):
    case.special = False
    dims = shape(case, 1)
    aten(case, name, floats(case, dims), case.one_of([None, 2, 1, 3.0, float("inf")]), axes_of(case, dims), case.chance(0.5))


@define("norm.Scalar")
def norm_of_all(case, name):
    case.special = False
    aten(case, name, floats(case, shape(case)), case.one_of([2, 1, 3.0]))


@define("linalg_vector_norm.default")
def vector_norm(case, name):
    case.special = False
    dims = shape(case, 1)
    number = case.one_of([None, 6])
    aten(case, name, floats(case, dims), case.one_of([2, 1, 3.0, float("inf")]), axes_of(case, dims), case.chance(0.5),
         number, types=[DEVICE[number]] if number else None)


@define("_cdist_forward.default")
def distances(case, name):
    case.special = False
    front, rows, others, columns = case.one_of([[], [2]]), *draw(case, 1, 5, 3)
    p = case.one_of([2, 1, 3.0, float("inf"), 0])
    aten(case, name, floats(case, front + [rows, columns]), floats(case, front + [others, columns]), float(p), None,
         gradient=p != 0, check=close(2))


@define("renorm.default")
def renorm(case, name):
    case.special = False
    # The norm of one element cancels in its gradient.
    dims = [dim + 1 for dim in shape(case, 2)]
    aten(case, name, floats(case, dims), case.one_of([2, 1, 3.0]), draw(case, 0, len(dims)), case.one_of([0.5, 4.0]),
         check=close(2))


@define("_weight_norm_interface.default")
def weight_norm(case, name):
    case.special = False
    dims = shape(case, 2)
    axis = case.one_of([0, len(dims) - 1])
    kept = [dim if i == axis else 1 for i, dim in enumerate(dims)]
    aten(case, name, floats(case, dims), floats(case, kept), axis, check=close(2))
