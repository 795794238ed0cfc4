"""Functions of PyTorch in other words, for which meta tensors are no obstacle."""

import torch

from . import errors
from .recorder import META, active


def one_hot(tensor, num_classes=-1):
    """`torch.nn.functional.one_hot`, whose kernel reads elements."""
    recorder = active()
    if recorder is None or not recorder.knows(tensor):
        return torch._C._nn.one_hot(tensor, num_classes)
    if not isinstance(num_classes, int) or num_classes <= 0:
        raise errors.cpp_error(errors.ONE_HOT)
    classes = torch.arange(num_classes, device=META)
    return (tensor.unsqueeze(-1) == classes).to(torch.int64)


def rrelu(input, lower=1.0 / 8, upper=1.0 / 3, training=False, inplace=False):
    """`torch.nn.functional.rrelu`, whose random slopes do not pass the dispatcher."""
    if training:
        slopes = torch.empty_like(input).uniform_(lower, upper)
        result = torch.where(input >= 0, input, input * slopes)
    else:
        result = torch.nn.functional.leaky_relu(input, (lower + upper) / 2)
    return input.copy_(result) if inplace else result


def repeat_interleave(input, repeats, dim=None, *, output_size=None):
    """`torch.repeat_interleave` by a number, whose kernel makes a tensor of the number."""
    recorder = active()
    if isinstance(repeats, torch.Tensor) or recorder is None or not recorder.knows(input):
        # With a tensor of repeats, the dispatcher refuses it.
        return torch._C._VariableFunctions.repeat_interleave(input, repeats, dim)
    if dim is None:
        input, dim = input.flatten(), 0
    dim %= input.dim()
    shape = list(input.shape)
    wide = shape[: dim + 1] + [repeats] + shape[dim + 1 :]
    result = input.unsqueeze(dim + 1).expand(wide)
    return result.reshape(shape[:dim] + [shape[dim] * repeats] + shape[dim + 1 :])


_cross_entropy = torch.nn.functional.cross_entropy


def cross_entropy(
    input,
    target,
    weight=None,
    size_average=None,
    ignore_index=-100,
    reduce=None,
    reduction="mean",
    label_smoothing=0.0,
):
    """`torch.nn.functional.cross_entropy`, which selects by a mask when it smooths labels."""
    recorder = active()
    if (
        label_smoothing == 0.0
        or size_average is not None
        or reduce is not None
        or target.is_floating_point()
        or recorder is None
        or not recorder.knows(input)
    ):
        return _cross_entropy(
            input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing
        )
    functional = torch.nn.functional
    axis = 1 if input.dim() > 1 else 0
    classes = input.shape[axis]
    scores = functional.log_softmax(input, axis)
    of_label = functional.nll_loss(
        scores, target, weight, ignore_index=ignore_index, reduction=reduction
    )
    ignored = target == ignore_index
    if weight is None:
        weights = (~ignored).to(scores.dtype)
    else:
        scores = scores * weight.view([-1] + [1] * (input.dim() - 1 - axis))
        weights = weight[target.masked_fill(ignored, 0)].masked_fill(ignored, 0)
    smooth = -scores.sum(axis).masked_fill(ignored, 0)
    if reduction == "mean":
        smooth = smooth.sum() / weights.sum()
    elif reduction == "sum":
        smooth = smooth.sum()
    share = label_smoothing / classes
    return (1.0 - label_smoothing) * of_label + share * smooth


def index(item):
    """An index whose lists are constants: PyTorch would make tensors without elements of them."""
    if isinstance(item, tuple):
        return tuple(_element(element) for element in item)
    if isinstance(item, list) and _is_tuple(item):
        return tuple(_element(element) for element in item)
    return _element(item)


def selected(tensor, item):
    """A tensor and an index without device tensors of one number, which PyTorch would read.

    Each is an `index_select` of its dimension; negative numbers count from the end.
    """
    items = item if isinstance(item, tuple) else (item,)
    if not any(_is_number(element) for element in items):
        return tensor, item
    taken = [_dimensions(element) for element in items]
    items, dim = list(items), 0
    for i, element in enumerate(items):
        if element is Ellipsis:
            dim = tensor.dim() - sum(taken[i + 1 :])
            continue
        if _is_number(element):
            place = element.remainder(tensor.shape[dim]).reshape(1)
            tensor, items[i] = tensor.index_select(dim, place), 0
        dim += taken[i]
    return tensor, tuple(items)


def _is_number(element) -> bool:
    return (
        isinstance(element, torch.Tensor)
        and element.is_meta
        and element.dim() == 0
        and not element.is_floating_point()
        and element.dtype is not torch.bool
    )


def _dimensions(element) -> int:
    """How many dimensions an element of an index takes."""
    if element is None or element is Ellipsis or isinstance(element, bool):
        return 0
    if isinstance(element, torch.Tensor) and element.dtype is torch.bool:
        return element.dim()
    return 1


def _element(element):
    if isinstance(element, list) and element and all(isinstance(e, bool) for e in element):
        element = [i for i, chosen in enumerate(element) if chosen]
    if isinstance(element, (list, range)):
        return torch.tensor(list(element), device=META)
    return element


def _is_tuple(item: list) -> bool:
    """PyTorch takes a short list that holds more than numbers as a tuple."""
    return len(item) < 32 and any(
        element is None
        or element is Ellipsis
        or isinstance(element, (slice, torch.Tensor, list, tuple))
        for element in item
    )


def checkpoint(recorder, run, args: tuple, kwargs: dict):
    """A span of `torch.utils.checkpoint`: it runs once, and is marked for recomputation."""
    first = len(recorder.tape.records)
    result = run(*args, **kwargs)
    recorder.tape.recomputed.append((first, len(recorder.tape.records)))
    return result


def widened(convolution):
    """A convolution that computes in float32 if operands are float16 and float32.

    PyTorch compares the types of operands before the dispatcher sees them.
    """

    def replacement(*operands, **named):
        given = [*operands, *named.values()]
        types = {each.dtype for each in given if isinstance(each, torch.Tensor)}
        if types != {torch.float16, torch.float32}:
            return convolution(*operands, **named)
        wide = [_float32(each) for each in operands]
        return convolution(*wide, **{name: _float32(each) for name, each in named.items()})

    return replacement


def _float32(operand):
    return operand.float() if isinstance(operand, torch.Tensor) else operand


def without_effect_in_inference(function):
    """The replacement of a dropout: inference leaves it out even if the module is in training mode.

    Source: PopART replaces a dropout of a session that does not train by an identity.
    """

    def replacement(x, *args, **kwargs):
        return function(x, *args, **kwargs) if active().is_training else x

    return replacement
