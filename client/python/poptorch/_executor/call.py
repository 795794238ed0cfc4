"""The arguments of one call, and memory for its results."""

from typing import Any, Dict, List, Sequence, Tuple

import torch

from .._capture import tape
from .._data.batch_sizes import micro_batch_size
from .args import Arguments, Description, with_tensors


class Call:
    """The arguments of one call."""

    def __init__(self, arguments: Arguments, description: Description) -> None:
        """
        Args:
            arguments: bound to forward's signature.
            description: that of the first call, which these must be like.
        """
        self._arguments = arguments
        self._inputs = description.tensors(arguments)

    def micro_batch(self, options) -> Tuple[tuple, Dict[str, Any]]:
        """The arguments of one micro-batch, for forward.

        Raises:
            AssertionError: the rows of a tensor cannot be shared out.
        """
        narrowed = iter([_narrowed(*each, options) for each in self._inputs])
        replace = lambda tensor: next(narrowed).requires_grad_(tensor.requires_grad)
        args = tuple(with_tensors(value, replace) for value in self._arguments.args)
        kwargs = self._arguments.kwargs
        return args, {name: with_tensors(value, replace) for name, value in kwargs.items()}

    def memory(self) -> List[torch.Tensor]:
        """Contiguous tensors of the types and shapes that were compiled for."""
        return [tensor for _, tensor in self._inputs]

    def write_back(self, written, final: bool) -> None:
        """Copies what forward wrote into its arguments to the caller's tensors.

        Args:
            written: (number of the input, its values).
            final: whether the values are those of the last micro-batch of each replica.
        """
        callers: List[torch.Tensor] = []
        for value in [*self._arguments.args, *self._arguments.kwargs.values()]:
            with_tensors(value, lambda tensor: callers.append(tensor) or tensor)
        for index, values in written:
            tensor = callers[index]
            with torch.no_grad():
                if values.shape == tensor.shape:
                    tensor.copy_(values)
                elif final:
                    tensor[tensor.shape[0] - values.shape[0] :].copy_(values)


def _narrowed(name: str, tensor: torch.Tensor, options) -> torch.Tensor:
    rows = micro_batch_size(options, name, tensor.shape[0] if tensor.dim() else 1)
    return tensor.narrow(0, 0, rows) if tensor.dim() else tensor.detach()


def output(dtype: int, dims: Sequence[int], copies: int) -> torch.Tensor:
    """Memory for a result.

    Args:
        dtype: PyTorch's number of its type.
        dims: of one micro-batch.
        copies: the number of micro-batches.
    """
    shape = list(dims)
    if copies > 1:
        shape = [copies * shape[0], *shape[1:]] if shape else [copies]
    return torch.empty(shape, dtype=tape.dtype_of(dtype))
