"""Loops of a fixed number of turns."""

from typing import Callable, List

import torch

from .. import _errors
from .._capture import recorder as _recorder


def for_loop(
    count: int, body: Callable[..., List[torch.Tensor]], inputs: List[torch.Tensor]
) -> List[torch.Tensor]:
    """Calls a function several times, each time with the results of the time before.

    >>> x, y = poptorch.for_loop(10, lambda x, y: (x + y, y), [x, y])

    On the IPU the turns are operators one after the other, so that a program grows with their
    number. Only inference models have loops.

    Args:
        count: the number of turns, 0 or more.
        body: it takes the tensors and returns as many of the same types and shapes: a list, a
            tuple or one tensor. Tensors are passed by value: what body writes into its arguments
            changes nothing outside.
        inputs: a list of tensors, the arguments of the first turn.

    Returns:
        A list of the results of the last turn.

    Raises:
        ValueError: an argument is wrong, or body returns other tensors than it takes.
        poptorch.Error: the model trains.
    """
    if not isinstance(inputs, list):
        raise ValueError(_errors.LOOP_LIST)
    for index, tensor in enumerate(inputs):
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(_errors.LOOP_TENSOR % index)
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise ValueError(_errors.LOOP_COUNT % (count,))
    recorder = _recorder.active()
    if recorder is not None and recorder.is_training:
        raise _errors.cpp_error(_errors.LOOP_TRAINING)
    tensors = [tensor.clone() for tensor in inputs]
    for _ in range(count):
        tensors = [tensor.clone() for tensor in _turn(body, tensors)]
    return tensors


def _turn(body: Callable, tensors: List[torch.Tensor]) -> List[torch.Tensor]:
    # Before body runs: it may resize what it is given.
    expected = [(tensor.dtype, list(tensor.shape)) for tensor in tensors]
    results = body(*tensors)
    results = list(results) if isinstance(results, (list, tuple)) else [results]
    if len(results) != len(expected):
        raise ValueError(_errors.LOOP_RESULTS % (len(results), len(expected)))
    for index, (result, (dtype, shape)) in enumerate(zip(results, expected)):
        if not isinstance(result, torch.Tensor):
            raise ValueError(_errors.LOOP_RESULT % (index, type(result)))
        if result.dtype != dtype or list(result.shape) != shape:
            raise ValueError(
                _errors.LOOP_SHAPE % (index, result.dtype, list(result.shape), dtype, shape)
            )
    return results
