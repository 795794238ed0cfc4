"""Tensors as text, as ipu_print_tensor writes them.

A row is a line, with its numbers in brackets. The brackets around rows are lines of their own, and
what is in them is indented by a blank:

    title: {
     {1.4962566 1.7682219}
     {1.0884774 1.1320305}
    }
"""

import math
import struct
from typing import Any, Callable, List, NamedTuple, Optional

import torch

FLOAT_FORMATS = ("auto", "fixed", "scientific", "none")

# Numbers beyond these ratios are written with an exponent by the format "auto", as NumPy does.
_LARGEST_RATIO = 1000.0
_SMALLEST, _LARGEST = 1e-4, 1e8

_STRUCT_CODES = {torch.float16: "e", torch.float32: "f", torch.float64: "d"}


class TextFormat(NamedTuple):
    """The arguments of ipu_print_tensor that say how a tensor looks.

    Attributes:
        summarise_threshold: tensors of more elements are shortened; 0: none is.
        edge_items: how many elements at the beginning and at the end of a dimension remain.
        max_line_width: longer lines are broken between elements; 0: none is.
        digits: of a number, before and behind the point together; 0: as many as tell it from other
            numbers of its type, without alignment.
        float_format: one of FLOAT_FORMATS.
        separator, open_bracket, close_bracket: around elements.
    """

    summarise_threshold: int = 1000
    edge_items: int = 3
    max_line_width: int = 80
    digits: int = 4
    float_format: str = "auto"
    separator: str = ", "
    open_bracket: str = "("
    close_bracket: str = ")"


def tensor_text(title: str, tensor: torch.Tensor, text_format: TextFormat) -> str:
    """The text of a tensor, without a newline at the end.

    Args:
        title: what is written before the tensor, with a colon; empty: nothing.
        tensor: on the host, of any type and shape.
        text_format: how it looks.
    """
    prefix = f"{title}: " if title else ""
    tensor = tensor.detach()
    is_short = 0 < text_format.summarise_threshold < tensor.numel()
    shown = _shown(tensor, text_format.edge_items) if is_short else tensor
    words = _words(shown, text_format)
    if tensor.dim() == 0:
        return prefix + words[0]
    return prefix + _Writer(text_format, tensor.shape, is_short, words).text()


def _shown(tensor: torch.Tensor, edge: int) -> torch.Tensor:
    """The elements that are left when each dimension is shortened."""
    for dim, size in enumerate(tensor.shape):
        if size > 2 * edge:
            ends = (tensor.narrow(dim, 0, edge), tensor.narrow(dim, size - edge, edge))
            tensor = torch.cat(ends, dim)
    return tensor


class _Writer:
    """Puts words in brackets."""

    def __init__(self, text_format: TextFormat, shape, is_short: bool, words: List[str]) -> None:
        self._format, self._shape, self._is_short = text_format, list(shape), is_short
        self._words = iter(words)

    def text(self) -> str:
        return "\n".join(self._lines(0))

    def _elements(self, dim: int) -> List[Optional[int]]:
        """The numbers of the elements that are written, with None in the place of left-out ones."""
        size, edge = self._shape[dim], self._format.edge_items
        if not self._is_short or size <= 2 * edge:
            return list(range(size))
        return [*range(edge), None, *range(size - edge, size)]

    def _lines(self, dim: int) -> List[str]:
        elements, indent = self._elements(dim), " " * dim
        if dim == len(self._shape) - 1:
            return self._row(
                indent, [next(self._words) if e is not None else "..." for e in elements]
            )
        lines = [indent + self._format.open_bracket]
        for element in elements:
            lines += [f"{indent} ..."] if element is None else self._lines(dim + 1)
        return lines + [indent + self._format.close_bracket]

    def _row(self, indent: str, words: List[str]) -> List[str]:
        """One row; what is too long goes on in lines that are indented by two more blanks."""
        width, separator = self._format.max_line_width, self._format.separator
        lines, line = [], indent + self._format.open_bracket
        for number, word in enumerate(words):
            is_last = number == len(words) - 1
            end = self._format.close_bracket if is_last else separator
            is_begun = line.strip() not in ("", self._format.open_bracket.strip())
            if width and is_begun and len(line) + len(word) + len(end.rstrip()) > width:
                lines.append(line.rstrip())
                line = indent + "  "
            line += word + end
        if not words:
            line += self._format.close_bracket
        return lines + [line]


def _words(tensor: torch.Tensor, text_format: TextFormat) -> List[str]:
    """Each element as text, all of the same length if they are aligned."""
    numbers = tensor.flatten().tolist()
    if not tensor.is_floating_point():
        return _aligned([str(int(number)) for number in numbers], text_format.digits > 0)
    write = _float_writer(numbers, tensor.dtype, text_format)
    is_aligned = text_format.digits > 0 and text_format.float_format != "none"
    return _aligned([write(number) for number in numbers], is_aligned)


def _aligned(words: List[str], is_aligned: bool) -> List[str]:
    width = max(map(len, words), default=0) if is_aligned else 0
    return [word.rjust(width) for word in words]


def _float_writer(
    numbers: List[float], dtype: torch.dtype, text_format: TextFormat
) -> Callable[[float], str]:
    digits, style = text_format.digits, text_format.float_format
    finite = [abs(number) for number in numbers if math.isfinite(number)]
    if digits == 0:
        return lambda number: _shortest(number, dtype)
    if style == "none":
        return lambda number: f"{number:.{digits}g}"
    if style == "scientific" or style == "auto" and _needs_exponent(finite):
        return lambda number: f"{number:.{digits - 1}e}"
    before_point = len(str(int(max(finite, default=0.0))))
    behind_point = max(digits - before_point, 0)
    return lambda number: f"{number:.{behind_point}f}"


def _needs_exponent(finite: List[float]) -> bool:
    positive = [number for number in finite if number > 0]
    if not positive:
        return False
    least, most = min(positive), max(positive)
    return most >= _LARGEST or least < _SMALLEST or most / least > _LARGEST_RATIO


def _shortest(number: float, dtype: torch.dtype) -> str:
    """The shortest text that stands for the number among those of its type."""
    if not math.isfinite(number):
        return str(number)
    code = _STRUCT_CODES.get(dtype, "f")
    for digits in range(1, 18):
        text = f"{number:.{digits}g}"
        if struct.unpack(code, struct.pack(code, float(text)))[0] == number:
            return text
    return repr(number)


def checked_format(**values: Any) -> TextFormat:
    """A format of these values.

    Raises:
        ValueError: a value is out of range; the error names it.
    """
    text_format = TextFormat(**values)
    for name in ("summarise_threshold", "edge_items", "max_line_width", "digits"):
        value = values[name]
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ValueError(f"{name} is {value!r}, must be an integer of 0 or more")
    for name in ("separator", "open_bracket", "close_bracket"):
        if not isinstance(values[name], str):
            raise ValueError(f"{name} is {values[name]!r}, must be a string")
    if text_format.float_format not in FLOAT_FORMATS:
        raise ValueError(
            f"float_format is {text_format.float_format!r}, must be one of"
            f" {', '.join(FLOAT_FORMATS)}"
        )
    return text_format
