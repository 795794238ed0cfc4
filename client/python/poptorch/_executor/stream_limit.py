"""Says what to change if the inputs and results of a call are too large for the device."""

import math
import re
from typing import Any, Sequence, Tuple

import torch

from .. import _errors
from .._capture.tape import Tape, dtype_of

# What the compiler says of the first stream that does not fit.
_REFUSAL = re.compile(
    r"streams of one run exceed (\d+) bytes in all: '([^']+)' moves (\d+) bytes (\d+) times?"
)
_INPUT, _RESULT = re.compile(r"input(\d+)$"), re.compile(r"output(\d+)$")
_NARROW = {torch.int64: 4, torch.float64: 4}


def explained(error: _errors.Error, model: Any, tape: Tape, options: Any) -> _errors.Error:
    """The error of a compilation in words of the program, if it is about streams.

    Args:
        error: what the compilation raised.
        model: the poptorch_core.Model.
        tape: what it was made of.
        options: its poptorch.Options.
    """
    refusal = _REFUSAL.search(error.message)
    if refusal is None:
        return error
    limit, stream, size, times = refusal.groups()
    iterations = options.device_iterations
    most = int(limit) // max(_bytes_of_iteration(model, options), 1)
    remedy = _errors.SMALLER_BATCHES
    if 1 <= most < iterations:
        remedy = _errors.FEWER_ITERATIONS % (iterations, most)
    if _RESULT.match(stream):
        remedy += _errors.FEWER_RESULTS
    micro_batches = "1 micro-batch" if times == "1" else f"{times} micro-batches"
    arguments = (int(limit), _described(stream, tape), int(size), micro_batches, remedy)
    return _errors.cpp_error(_errors.STREAMS_TOO_LARGE % arguments)


def _described(stream: str, tape: Tape) -> str:
    number = _INPUT.match(stream)
    if number and not tape.host_calls:  # the program of a part has other inputs
        return f"input '{tape.inputs[int(number[1])][0]}'"
    number = _RESULT.match(stream)
    if number and not tape.host_calls:
        return f"result {number[1]} of forward"
    return f"'{stream}'"


def _bytes_of_iteration(model: Any, options: Any) -> int:
    """What one device iteration of a replica adds to the streams."""
    of_iteration = model.input_copies * options.input_group_size
    total = sum(map(_bytes, model.input_types())) * (of_iteration // options.replication_factor)
    for result, copies in zip(model.output_types(), model.output_copies):
        if copies >= options.device_iterations * options.replication_factor:
            total += _bytes(result) * (copies // options.replication_factor)
    return total // options.device_iterations


def _bytes(described: Tuple[int, Sequence[int]]) -> int:
    """The bytes of one micro-batch on the device."""
    dtype = dtype_of(described[0])
    size = _NARROW.get(dtype, torch.empty(0, dtype=dtype).element_size())
    return size * math.prod(described[1])
