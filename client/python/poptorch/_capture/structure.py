"""Nested arguments and results: their tensors in order, and the structure around them."""

from typing import Any, Callable, List, Tuple

import torch


class Leaf:
    """The place of a tensor in a structure."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index

    def __eq__(self, other) -> bool:
        return isinstance(other, Leaf) and other.index == self.index

    def __repr__(self) -> str:
        return f"Leaf({self.index})"


def map_structure(structure: Any, leaf: Callable[[Any], Any], kind: type) -> Any:
    """Applies a function to the elements of this type; other elements are kept.

    Lists, tuples, named tuples and dictionaries, also of classes derived from these, are followed.
    """
    if isinstance(structure, kind):
        return leaf(structure)
    again = lambda element: map_structure(element, leaf, kind)
    if isinstance(structure, tuple):
        elements = [again(element) for element in structure]
        if hasattr(structure, "_fields"):
            return type(structure)(*elements)
        return type(structure)(elements)
    if isinstance(structure, list):
        return type(structure)([again(element) for element in structure])
    if isinstance(structure, dict):
        return _dictionary(structure, again)
    return structure


def _dictionary(structure: dict, again: Callable[[Any], Any]) -> dict:
    pairs = [(key, again(value)) for key, value in structure.items()]
    if type(structure) is dict:
        return dict(pairs)
    copy = structure.copy()
    for key, value in pairs:
        copy[key] = value
    return copy


def flatten(structure: Any) -> Tuple[List[torch.Tensor], Any]:
    """The tensors of a structure in order, and the structure with leaves in their place."""
    tensors: List[torch.Tensor] = []

    def leaf(tensor: torch.Tensor) -> Leaf:
        tensors.append(tensor)
        return Leaf(len(tensors) - 1)

    return tensors, map_structure(structure, leaf, torch.Tensor)


def rebuild(structure: Any, tensors: List[Any]) -> Any:
    """The inverse of `flatten`: the structure with these tensors."""
    return map_structure(structure, lambda leaf: tensors[leaf.index], Leaf)
