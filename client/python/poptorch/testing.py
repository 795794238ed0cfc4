"""Comparison of results."""

from typing import Any

import torch

__all__ = ["allclose"]


def allclose(ref: Any, other: Any) -> bool:
    """Whether two results have the same structure, and close tensors by `torch.allclose`.

    Args:
        ref: the expected result: a tensor, or lists and tuples of tensors.
        other: the result.

    Raises:
        TypeError: an element of the expected result is neither.
    """
    if isinstance(ref, torch.Tensor):
        return (
            isinstance(other, torch.Tensor)
            and ref.shape == other.shape
            and torch.allclose(other, ref)
        )
    for kind in (tuple, list):
        if isinstance(ref, kind):
            return (
                isinstance(other, kind)
                and len(ref) == len(other)
                and all(allclose(*pair) for pair in zip(ref, other))
            )
    raise TypeError(f"{type(ref)} not supported: it must be a tensor, a list or a tuple")
