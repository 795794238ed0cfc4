"""Activations and their gradients."""

from ..checks import equal
from .harness import aten, axis_of, define, floats, shape


@define("sigmoid_backward.default", "tanh_backward.default")
def backward_of_output(case, name):
    case.special = False
    dims = shape(case)
    aten(case, name, floats(case, dims), floats(case, dims, 0.05, 0.95))


@define("silu_backward.default", "hardsigmoid_backward.default", "hardswish_backward.default")
def backward_of_input(case, name):
    """At 3 the vector code of PyTorch's hard swish has another slope than its scalar code."""
    case.special = False
    dims = shape(case)
    aten(case, name, floats(case, dims), floats(case, dims, -5, 5, ties=name.startswith("hardsigmoid")), gradient=False)


@define("hardtanh.default", "hardtanh_.default")
def hardtanh(case, name):
    aten(case, name, floats(case, shape(case), -3, 8, ties=case.chance(0.5)), case.one_of([-1, 0]), case.one_of([1, 6]), check=equal)


@define("hardtanh_backward.default")
def hardtanh_backward(case, name):
    case.special = False
    dims = shape(case)
    aten(case, name, floats(case, dims), floats(case, dims, -3, 8, ties=True), 0, 6, gradient=False)


@define("threshold.default")
def threshold(case, name):
    aten(case, name, floats(case, shape(case), ties=True), 1, -0.5, check=equal)


@define("threshold_backward.default")
def threshold_backward(case, name):
    case.special = False
    dims = shape(case)
    aten(case, name, floats(case, dims), floats(case, dims, ties=True), 0, check=equal, gradient=False)


@define("gelu.default")
def gelu(case, name):
    aten(case, name, floats(case, shape(case)), case.one_of(["none", "tanh"]))


@define("gelu_backward.default")
def gelu_backward(case, name):
    case.special = False
    dims = shape(case)
    aten(case, name, floats(case, dims), floats(case, dims), case.one_of(["none", "tanh"]), gradient=False)


@define("leaky_relu.default")
def leaky_relu(case, name):
    aten(case, name, floats(case, shape(case), ties=case.chance(0.5)), case.one_of([0.01, 0.25]))


@define("leaky_relu_backward.default")
def leaky_relu_backward(case, name):
    case.special = False
    dims = shape(case)
    aten(case, name, floats(case, dims), floats(case, dims, ties=True), 0.25, False, gradient=False)


@define("elu.default")
def elu(case, name):
    case.special = False
    aten(case, name, floats(case, shape(case)), *case.one_of([[], [1.5], [1.6, 1.05, 0.5]]))


@define("softplus.default")
def softplus(case, name):
    case.special = False
    aten(case, name, floats(case, shape(case), -8, 8), *case.one_of([[], [2, 10]]))


@define("prelu.default")
def prelu(case, name):
    case.special = False
    dims = shape(case, 2)
    aten(case, name, floats(case, dims), floats(case, [case.one_of([1, dims[1]])]))


@define("celu.default")
def celu(case, name):
    case.special = False
    aten(case, name, floats(case, shape(case)), *case.one_of([[], [1.5], [0.25]]))


@define("glu.default")
def glu(case, name):
    case.special = False
    dims = shape(case, 1)
    axis = axis_of(case, dims)
    dims[axis] *= 2
    aten(case, name, floats(case, dims), axis)


@define("hardshrink.default", "softshrink.default")
def shrink(case, name):
    case.special = False
    limit = case.one_of([[], [1], [0.25]])
    aten(case, name, floats(case, shape(case), ties=case.chance(0.5)), *limit)


@define("log_sigmoid_forward.default")
def log_sigmoid(case, name):
    aten(case, name, floats(case, shape(case), -8, 8))
