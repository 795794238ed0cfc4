"""Functions that say how values are computed or kept. Each returns its argument."""

from typing import Sequence, Union

import torch

from .. import _errors
from .checks import capture_of, check_tensor


def nop(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor itself. The IPU computes nothing for it.

    Raises:
        poptorch.Error: the argument is no tensor.
    """
    check_tensor(tensor, "nop")
    return tensor


def recomputationCheckpoint(
    *tensors: Union[torch.Tensor, Sequence[torch.Tensor]]
) -> Union[torch.Tensor, Sequence[torch.Tensor]]:
    """Keeps values for the gradients where a model that trains computes others again.

    >>> x = poptorch.recomputationCheckpoint(self.layer(x))

    Which values are computed again is up to the option autoRecomputation; in a pipeline of several
    IPUs, by default all are. Checkpoints change memory and time, and no result.

    Args:
        tensors: tensors, or one list or tuple of them.

    Returns:
        The tensor; a tuple of several tensors; a list or tuple if the argument is one.

    Raises:
        ValueError: an argument is no tensor.
    """
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        return type(tensors[0])(_kept(tensor) for tensor in tensors[0])
    kept = tuple(_kept(tensor) for tensor in tensors)
    return kept[0] if len(kept) == 1 else kept


def _kept(tensor: torch.Tensor) -> torch.Tensor:
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(_errors.CHECKPOINT_TENSOR % type(tensor))
    recorder = capture_of(tensor)
    if recorder is not None:
        recorder.mark_checkpoint(tensor)
    return tensor


def set_available_memory(tensor: torch.Tensor, available_memory_proportion: float) -> torch.Tensor:
    """Limits the memory that a product or a convolution may take while it is computed.

    >>> x = poptorch.set_available_memory(self.conv(x), 0.2)

    Less memory takes more time and changes no result. A product that does not fit the share takes
    as little as it can.

    Args:
        tensor: the result of a convolution or of a matrix product, also seen through views, a
            concatenation or an added bias. Results of other operators stay as they are.
        available_memory_proportion: the share of the memory of a tile, 0 to 1.

    Returns:
        The tensor itself.

    Raises:
        poptorch.Error: the argument is no tensor, or the share is out of range.
    """
    check_tensor(tensor, "set_available_memory")
    is_number = isinstance(available_memory_proportion, (int, float))
    if not is_number or not 0 <= available_memory_proportion <= 1:
        raise _errors.py_error(_errors.AVAILABLE_MEMORY_RANGE % (available_memory_proportion,))
    recorder = capture_of(tensor)
    if recorder is not None:
        recorder.mark_available_memory(tensor, float(available_memory_proportion))
    return tensor
