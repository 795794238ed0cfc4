"""Parsers of argument types that programs define: how tensors are found in them and put back."""

import abc
from typing import Any, Dict, Iterator, Optional

import torch

from . import _errors


class ICustomArgParser(abc.ABC):
    """Tells PopTorch where the tensors of a type are.

    >>> class PairParser(poptorch.ICustomArgParser):
    ...     def yieldTensors(self, struct):
    ...         yield struct.first
    ...         yield struct.second
    ...     def reconstruct(self, original_structure, tensor_iterator):
    ...         return Pair(next(tensor_iterator), next(tensor_iterator))
    >>> poptorch.registerCustomArgParser(Pair, PairParser())
    """

    @abc.abstractmethod
    def yieldTensors(self, struct: Any) -> Iterator[torch.Tensor]:
        """The tensors of an object, always in the same order."""

    @abc.abstractmethod
    def reconstruct(self, original_structure: Any, tensor_iterator: Iterator[torch.Tensor]) -> Any:
        """A new object like another one, with other tensors.

        Args:
            original_structure: the other object.
            tensor_iterator: the new tensors, in the order of yieldTensors.
        """


#: The parsers by type.
custom_parsers: Dict[type, ICustomArgParser] = {}


def registerCustomArgParser(arg_data_type: type, arg_parser: Optional[ICustomArgParser]) -> None:
    """Lets objects of a type, and of classes derived from it, be arguments and results.

    Args:
        arg_data_type: the type.
        arg_parser: its parser; None removes the one that is registered.
    """
    if arg_parser is None:
        custom_parsers.pop(arg_data_type, None)
        return
    assert isinstance(arg_data_type, type), _errors.WRONG_TYPE % (
        "arg_data_type",
        arg_data_type,
        "a type",
    )
    assert isinstance(arg_parser, ICustomArgParser), _errors.NO_CUSTOM_PARSER
    custom_parsers[arg_data_type] = arg_parser


def parser_of(value: Any) -> Optional[ICustomArgParser]:
    """The parser of an object's type or of a class that it derives from; None without one."""
    if not custom_parsers:
        return None
    return next((custom_parsers[t] for t in type(value).__mro__ if t in custom_parsers), None)
