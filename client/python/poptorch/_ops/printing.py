"""Prints tensors while a model runs."""

import sys

import torch

from .. import _errors
from .._capture import recorder as _recorder
from .._logging import logger
from .checks import capture_of, check_tensor
from .tensor_text import TextFormat, checked_format, tensor_text


def ipu_print_tensor(
    tensor: torch.Tensor,
    title: str = "",
    print_gradient: bool = True,
    summarise_threshold: int = 1000,
    edge_items: int = 3,
    max_line_width: int = 80,
    digits: int = 4,
    float_format: str = "auto",
    separator: str = ", ",
    open_bracket: str = "(",
    close_bracket: str = ")",
) -> torch.Tensor:
    """Prints a tensor on standard error each time the model computes it.

    >>> x = poptorch.ipu_print_tensor(self.layer(x), "activations")

    Values come from the device with the results: a call of the model prints them when it has ended,
    those of all micro-batches in turn, and of each by replica. With synthetic data nothing is
    printed. Outside of captures a tensor is printed at once.

    Args:
        tensor: of any type and shape.
        title: is printed before the tensor, and, with "_gradient", before its gradient.
        print_gradient: whether backward prints the gradient as well. Models on IPUs do not print
            gradients: a warning says so if they train.
        summarise_threshold: tensors of more elements are shortened; 0: none is.
        edge_items: how many elements at both ends of a dimension remain then.
        max_line_width: longer lines are broken; 0: none is.
        digits: of each number, without the exponent; 0: no alignment.
        float_format: "auto", "fixed", "scientific", or "none", with which each element has a format
            of its own.
        separator: between elements.
        open_bracket, close_bracket: around rows.

    Returns:
        The tensor itself.

    Raises:
        poptorch.Error: the argument is no tensor, or is of a backward function.
        ValueError: another argument is out of range; the error names it.
    """
    check_tensor(tensor, "ipu_print_tensor")
    text_format = checked_format(
        summarise_threshold=summarise_threshold, edge_items=edge_items,
        max_line_width=max_line_width, digits=digits, float_format=float_format,
        separator=separator, open_bracket=open_bracket, close_bracket=close_bracket,
    )  # fmt: skip
    recorder = capture_of(tensor)
    if recorder is None:
        return _print_now(tensor, str(title), bool(print_gradient), text_format)
    _mark(recorder, tensor, str(title), text_format)
    if print_gradient and recorder.is_training and not recorder.stops(tensor):
        logger.warning(_errors.PRINT_GRADIENT, title)
    return tensor


def print_tensor(title: str, tensor: torch.Tensor, text_format: TextFormat) -> None:
    """Writes a tensor of the host to standard error."""
    sys.stderr.write(tensor_text(title, tensor, text_format) + "\n")
    sys.stderr.flush()


def _print_now(
    tensor: torch.Tensor, title: str, print_gradient: bool, text_format: TextFormat
) -> torch.Tensor:
    print_tensor(title, tensor, text_format)
    if print_gradient and tensor.requires_grad:
        of_gradient = f"{title}_gradient" if title else "gradient"
        tensor.register_hook(lambda gradient: print_tensor(of_gradient, gradient, text_format))
    return tensor


def _mark(
    recorder: _recorder.Recorder, tensor: torch.Tensor, title: str, text_format: TextFormat
) -> None:
    if recorder.in_region:
        raise _errors.cpp_error(_errors.PRINT_IN_BACKWARD)
    recorder.tape.prints.append((recorder.value_of(tensor), title, tuple(text_format)))
