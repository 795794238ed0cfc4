"""Softmax and losses."""

import numpy
import torch

from ..case import Value
from ..checks import close
from .harness import aten, axis_of, call, define, draw, floats, operator, perhaps, shape, want_gradients


def _number(case):
    return 6 if case.type == "FLOAT32" else 5


@define("_softmax.default", "_log_softmax.default")
def softmax(case, name):
    case.special = False
    dims = shape(case)
    # The sum over the line cancels: rows.softmax has the sizes of gradients in float16.
    aten(case, name, floats(case, dims), axis_of(case, dims), False, gradient=case.type == "FLOAT32")


@define("_softmax_backward_data.default", "_log_softmax_backward_data.default")
def softmax_backward(case, name):
    case.special = False
    dims = shape(case)
    axis = axis_of(case, dims)
    output = operator(name.replace("_backward_data", ""))(torch.tensor(case.random.uniform(-3, 3, dims)), axis, False)
    y = case.input(numpy.asarray(output.numpy(), numpy.float32 if case.type == "FLOAT32" else numpy.float16))
    aten(case, name, floats(case, dims), y, axis, _number(case), gradient=False)


def _labels(case, name):
    classes, n = draw(case, 2, 6), draw(case, 1, 5) if case.chance(0.8) else 5000  # weights beyond float16
    pixels = [draw(case, 1, 4), 2] if "2d" in name else []
    labels = case.random.integers(0, classes, [n, *pixels]).astype(numpy.int32)
    ignored = case.one_of([-100, 1])
    labels.flat[0] = 0  # so that one counts
    if "2d" not in name and case.chance(0.2):
        return [classes], labels[0], ignored, classes
    return [n, classes, *pixels], labels, ignored, classes


@define("nll_loss_forward.default", "nll_loss2d_forward.default")
def nll_loss(case, name):
    case.special = False
    dims, labels, ignored, classes = _labels(case, name)
    weight = perhaps(case, lambda: floats(case, [classes], 0.5, 2), 0.4)
    # The allowed errors of gradients take a derivative for each pair of elements: nll_loss_backward has the long ones.
    aten(case, name, floats(case, dims), case.operand(labels), weight, draw(case, 0, 3), ignored, check=close(2),
         gradient=labels.size < 100)


@define("nll_loss_backward.default", "nll_loss2d_backward.default")
def nll_loss_backward(case, name):
    case.special = False
    dims, labels, ignored, classes = _labels(case, name)
    weight = perhaps(case, lambda: floats(case, [classes], 0.5, 2), 0.4)
    reduction = draw(case, 0, 3)
    x = case.input(case.floats(case.type, dims))
    loss, total = operator(name.replace("backward", "forward"))(
        x.exact.detach(), torch.tensor(labels.astype(numpy.int64)), weight and weight.exact.detach(), reduction, ignored)
    dtype = numpy.float32 if case.type == "FLOAT32" else numpy.float16
    gradient = floats(case, list(loss.shape))
    aten(case, name, gradient, x, case.operand(labels), weight, reduction, ignored,
         case.input(numpy.asarray(total.numpy(), dtype)), gradient=False, check=close(2))


@define("mse_loss.default", "smooth_l1_loss.default", "huber_loss.default")
def loss(case, name):
    case.special = False
    dims = shape(case)
    extra = [] if name == "mse_loss.default" else [case.one_of([1.0, 0.5])]
    aten(case, name, floats(case, dims), floats(case, dims), draw(case, 0, 3), *extra)


@define("binary_cross_entropy.default")
def bce(case, name):
    case.special = False
    dims = shape(case)
    weight = perhaps(case, lambda: floats(case, dims, 0.5, 2), 0.4)
    aten(case, name, floats(case, dims, 0.05, 0.95), floats(case, dims, 0, 1), weight, draw(case, 0, 3), gradient=False)


@define("binary_cross_entropy_with_logits.default")
def bce_with_logits(case, name):
    case.special = False
    dims = shape(case)
    weight = perhaps(case, lambda: floats(case, dims, 0.5, 2), 0.4)
    aten(case, name, floats(case, dims), floats(case, dims, 0, 1), weight, None, draw(case, 0, 3), gradient=False)


def _scored(case, name, scores, *rest):
    """A loss whose gradient is compared for the scores alone: PyTorch has none for targets and weights."""
    losses = aten(case, name, scores, *rest, gradient=False, check=close(2))[0]
    others = {value.number: value.exact.detach() for value in rest if isinstance(value, Value)}
    want_gradients(case, losses, [scores], lambda x: call(name, [scores, *rest], {**others, scores.number: x})[0])


@define("soft_margin_loss.default")
def soft_margin(case, name):
    case.special = False
    dims = shape(case)
    signs = numpy.where(case.random.random(dims) < 0.5, -1, 1)
    target = case.operand(numpy.asarray(signs, numpy.float32 if case.type == "FLOAT32" else numpy.float16))
    _scored(case, name, floats(case, dims), target, draw(case, 0, 3))


@define("multi_margin_loss.default")
def multi_margin(case, name):
    case.special = False
    n, classes = draw(case, 1, 5), draw(case, 2, 6)
    labels = case.random.integers(0, classes, [n]).astype(numpy.int32)
    weight = perhaps(case, lambda: floats(case, [classes], 0.5, 2), 0.4)
    _scored(case, name, floats(case, [n, classes]), case.operand(labels), case.one_of([1, 2]), case.one_of([1, 0.5]), weight,
            draw(case, 0, 3))


@define("_ctc_loss.default", "_ctc_loss.Tensor")
def ctc(case, name):
    """PyTorch's gradient is that of the scores before a log-softmax, so that one is in the case. Targets may be too long
    for their inputs."""
    case.special, case.type = False, "FLOAT32"
    steps, n, classes, longest = draw(case, 2, 7), draw(case, 1, 4), draw(case, 2, 5), draw(case, 1, 4)
    blank, infinite = draw(case, 0, classes), case.chance(0.3)
    lengths = draw(case, 0, longest + 1, n - 1) + [longest]
    least = min(steps, 2 * longest + 1) if not infinite else 1
    inputs = draw(case, least, steps + 1, n) if least < steps else [steps] * n
    if not infinite:  # a repetition takes a step more
        lengths = [min(length, (steps + 1) // 2) for length in lengths]
        inputs = [steps] * n if any(2 * length > min(inputs) for length in lengths) else inputs
    labels = case.random.integers(0, classes - 1, [n, longest])
    labels = (labels + (labels >= blank)).astype(numpy.int32)
    if name == "_ctc_loss.default" and case.chance(0.4):
        labels = numpy.concatenate([row[:length] for row, length in zip(labels, lengths)])
    if name == "_ctc_loss.Tensor":
        inputs, lengths = (case.operand(numpy.array(numbers, numpy.int32)) for numbers in (inputs, lengths))
    scores = floats(case, [steps, n, classes])
    # With zero_infinity PyTorch zeroes infinite losses behind this operator, the device in it.
    rest = [case.operand(labels), inputs, lengths, blank, not infinite and case.chance(0.5)]
    logarithms = aten(case, "_log_softmax.default", scores, 2, False, gradient=False)[0]
    losses = aten(case, name, logarithms, *rest, gradient=False, wanted=[0])[0]

    def whole(x):
        exacts = {value.number: value.exact for value in rest + [inputs, lengths] if isinstance(value, Value)}
        exacts[logarithms.number] = torch.log_softmax(x, 2)
        return call(name, [logarithms, *rest], exacts)[0]

    if not infinite:
        want_gradients(case, losses, [scores], whole)
