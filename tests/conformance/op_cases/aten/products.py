"""Products of matrices, and convolutions."""

import torch

from ..checks import close
from .harness import aten, axis_of, define, draw, floats, operator, shape


@define("mm.default", "bmm.default", "mv.default", "dot.default")
def product(case, name):
    n, k, m, batch = draw(case, 1, 6, 4)
    left, right = {"mm.default": ([n, k], [k, m]), "bmm.default": ([batch, n, k], [batch, k, m]), "mv.default": ([n, k], [k]),
                   "dot.default": ([k], [k])}[name]
    aten(case, name, floats(case, left), floats(case, right))


@define("addmm.default", "baddbmm.default")
def added_matrices(case, name):
    n, k, m, batch = draw(case, 1, 6, 4)
    front = [batch] if name == "baddbmm.default" else []
    bias = case.one_of([[m], [1, m], [n, m]])
    # PyTorch's baddbmm reads what it has not written where beta is 0.
    factors = case.one_of([[], [0.5, 2], [0.5, 1] if front else [0, 1]])
    case.special = False
    aten(case, name, floats(case, bias), floats(case, front + [n, k]), floats(case, front + [k, m]), *factors, check=close(3))


@define("addmv.default")
def added_vectors(case, name):
    case.special = False
    n, k = draw(case, 1, 6, 2)
    factors = case.one_of([[], [0.5, 2], [0, 1]])
    aten(case, name, floats(case, [n]), floats(case, [n, k]), floats(case, [k]), *factors, check=close(3))


@define("addbmm.default")
def added_batches(case, name):
    case.special = False
    n, k, m, batch = draw(case, 1, 6, 4)
    bias = case.one_of([[m], [1, m], [n, m]])
    factors = case.one_of([[], [0.5, 2], [0.5, 1]])
    aten(case, name, floats(case, bias), floats(case, [batch, n, k]), floats(case, [batch, k, m]), *factors, check=close(3))


@define("_trilinear.default")
def trilinear(case, name):
    """That of a bilinear layer, or a sum of other products."""
    case.special = False
    n, a, b, outputs = draw(case, 1, 5, 4)
    if case.chance(0.7):
        aten(case, name, floats(case, [n, a]), floats(case, [outputs, a, b]), floats(case, [n, b]), [1, 3], [0], [1, 2], [2, 3],
             check=close(2))
    else:
        aten(case, name, floats(case, [n, a]), floats(case, [n, a]), floats(case, [a, b]), [2], [2], [0], [1], check=close(2))


@define("linalg_cross.default")
def cross(case, name):
    case.special = False
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    dims[axis] = 3
    other = [dim if dim == 3 or case.chance(0.7) else 1 for dim in dims]
    aten(case, name, floats(case, dims), floats(case, other), axis)


@define("linear.default")
def linear(case, name):
    n, k, m = draw(case, 1, 6, 3)
    dims = case.one_of([[n, k], [2, n, k]])
    aten(case, name, floats(case, dims), floats(case, [m, k]), *([floats(case, [m])] if case.chance(0.6) else []), check=close(2))


def _geometry(case):
    rank = case.one_of([1, 2, 2, 3])
    transposed = case.chance(0.3)
    groups = case.one_of([1, 1, 2])
    kernel, stride = draw(case, 1, 4, rank), draw(case, 1, 3, rank)
    dilation = draw(case, 1, 3, rank) if case.chance(0.3) else [1] * rank
    extents = [d * (k - 1) + 1 for d, k in zip(dilation, kernel)]
    # Beyond the window's extent only where the convolution is not transposed.
    padding = [draw(case, 0, extent if transposed else extent + 1) for extent in extents]
    output_padding = [draw(case, 0, s) for s in stride] if transposed else [0] * rank
    image = [max(1, extent - 2 * p) + draw(case, 0, 4 if rank < 3 else 2) for extent, p in zip(extents, padding)]
    if transposed:
        image = [max(1, -(-(2 * p - extent + 1) // s) + 1) + draw(case, 0, 2)
                 for extent, p, s in zip(extents, padding, stride)]
    inputs, outputs = groups * draw(case, 1, 3), groups * draw(case, 1, 3)
    weights = [inputs, outputs // groups] if transposed else [outputs, inputs // groups]
    case.words.append(f"image {image} kernel {kernel} stride {stride} padding {padding} dilation {dilation} groups {groups} "
                      f"transposed {transposed} {output_padding}")
    return ([draw(case, 1, 3), inputs, *image], weights + kernel, outputs,
            [stride, padding, dilation, transposed, output_padding, groups])


@define("convolution.default")
def convolution(case, name):
    case.special = False
    image, weights, outputs, geometry = _geometry(case)
    bias = floats(case, [outputs]) if case.chance(0.5) else None
    aten(case, name, floats(case, image), floats(case, weights), bias, *geometry, check=close(2))


@define("convolution_backward.default")
def convolution_backward(case, name):
    case.special = False
    image, weights, outputs, geometry = _geometry(case)
    result = operator("convolution.default")(torch.zeros(image), torch.zeros(weights), None, *geometry).shape
    mask = case.one_of([[True, True, True], [False, True, False], [True, True, False]])
    aten(case, name, floats(case, list(result)), floats(case, image), floats(case, weights), [outputs], *geometry, mask,
         check=close(1), gradient=False)
