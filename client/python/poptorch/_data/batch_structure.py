"""Batches as flat lists of tensors, and back.

A loader's batch is a tensor, a list, tuple, named tuple or dictionary of batches, or an object
whose type has a parser (`poptorch.registerCustomArgParser`).
"""

from typing import Any, Iterator, List, Sequence

import torch

from .._custom_parsers import parser_of


def tensors_of(batch: Any) -> Iterator[torch.Tensor]:
    """The tensors of a batch in a fixed order; what is not a tensor is passed over."""
    parser = parser_of(batch)
    if parser is not None:
        yield from parser.yieldTensors(batch)
    elif isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, dict):
        for value in batch.values():
            yield from tensors_of(value)
    elif isinstance(batch, (list, tuple)):
        for value in batch:
            yield from tensors_of(value)


def with_tensors(batch: Any, tensors: Iterator[torch.Tensor]) -> Any:
    """A batch of the same structure, with other tensors in the order of `tensors_of`."""
    parser = parser_of(batch)
    if parser is not None:
        return parser.reconstruct(batch, tensors)
    if isinstance(batch, torch.Tensor):
        return next(tensors)
    if isinstance(batch, dict):
        copy = batch.copy()  # It keeps what a derived class has beside its items.
        for key, value in batch.items():
            copy[key] = with_tensors(value, tensors)
        return copy
    if isinstance(batch, (list, tuple)):
        values = [with_tensors(value, tensors) for value in batch]
        if hasattr(batch, "_fields"):
            return type(batch)(*values)
        return type(batch)(values)
    return batch


def concatenated(batches: Sequence[Any]) -> Any:
    """One batch of the rows of several, which have the same structure."""
    flat: List[List[torch.Tensor]] = [list(tensors_of(batch)) for batch in batches]
    return with_tensors(batches[0], iter([torch.cat(column) for column in zip(*flat)]))
