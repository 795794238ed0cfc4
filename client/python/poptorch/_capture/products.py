"""Where a value on a tape comes from: its record, and the products behind views of them."""

from typing import List, Optional

from .tape import Tape

# What a product is given as little memory as possible by: shares are above 0.
LEAST_SHARE = 2.0**-20

_PRODUCTS = frozenset("addbmm addmm addmv baddbmm bmm convolution dot linear mm mv".split())
# Operators whose result has elements of the first argument, elsewhere or in another type.
_VIEWS = frozenset(
    "_reshape_alias _to_copy _unsafe_view alias as_strided cat clone contiguous expand permute"
    " reshape slice squeeze t transpose unsqueeze view".split()
)
_SUMS = frozenset(("add.Tensor", "add_.Tensor"))


def producer_of(tape: Tape, value: int) -> Optional[tuple]:
    """The record with this output, or None for inputs, parameters, buffers and constants."""
    for record in reversed(tape.records):
        if value in record[2]:
            return record
    return None


def products_of(tape: Tape, value: int) -> List[int]:
    """The results of products and convolutions that a value consists of.

    Views, concatenations, an added bias, and sums of products alone are looked through.
    """
    record = producer_of(tape, value)
    if record is None:
        return []
    operator, arguments = tape.operators[record[0]], record[1]
    base = operator.partition(".")[0].rstrip("_")
    if base in _PRODUCTS:
        return [value]
    if operator in _SUMS:
        return _summed(tape, *arguments[:2])
    if base not in _VIEWS:
        return []
    parts = arguments[0] if isinstance(arguments[0], list) else [arguments[0]]
    return [product for part, _ in parts for product in products_of(tape, part)]


def _summed(tape: Tape, first, second) -> List[int]:
    if not isinstance(first, tuple) or not isinstance(second, tuple):
        return []
    products, others = products_of(tape, first[0]), products_of(tape, second[0])
    is_bias = len(tape.values[second[0]][1]) <= 1
    return products + others if others or is_bias else []
