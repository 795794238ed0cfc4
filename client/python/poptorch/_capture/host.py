"""Functions that forward calls on the host, between operators of the device."""

from typing import Any, Callable, List, NamedTuple, Tuple

import torch

from . import errors
from .recorder import META, Recorder
from .structure import flatten, rebuild


class HostFunction(NamedTuple):
    """What is called, and how tensors are handed over.

    Attributes:
        name: for messages.
        function: the program's.
        arguments: (args, kwargs), with leaves in the places of tensors.
        results: (type, shape) of each tensor among the results.
    """

    name: str
    function: Callable
    arguments: Any
    results: Tuple[Tuple[torch.dtype, Tuple[int, ...]], ...]

    def call(self, tensors: List[torch.Tensor]) -> List[torch.Tensor]:
        """Calls the function.

        Args:
            tensors: those of its arguments, on the host.

        Returns:
            The tensors of its results.

        Raises:
            poptorch.Error: they are others than while the model was captured.
        """
        args, kwargs = rebuild(self.arguments, tensors)
        with torch.no_grad():
            made, _ = flatten(self.function(*args, **kwargs))
        found = tuple((tensor.dtype, tuple(tensor.shape)) for tensor in made)
        if found != self.results:
            raise errors.host_results(self.name, found, self.results)
        return made


def call_on_host(recorder: Recorder, name: str, function: Callable, args: tuple, kwargs: dict):
    """Records a call of a function on the host.

    The function is called once, with zeros, for the types and shapes of its results.

    Args:
        recorder: of the capture.
        name: of the call, for messages.
        function: its results are tensors of the host, also nested ones.
        args, kwargs: of the call; tensors among them are of the device.

    Returns:
        The results, on the device.

    Raises:
        poptorch.Error: the model trains, or a result is no tensor of the host.
    """
    if recorder.is_training or recorder.in_region:
        raise errors.host_call_trains(name)
    tensors, arguments = flatten((args, kwargs))
    values = [recorder.value_of(tensor) for tensor in tensors]
    with recorder.outside(), torch.no_grad():
        zeros = [torch.zeros(t.shape, dtype=t.dtype, device="cpu") for t in tensors]
        host_args, host_kwargs = rebuild(arguments, zeros)
        made, structure = flatten(function(*host_args, **host_kwargs))
    results, outputs = [], []
    for tensor in made:
        if tensor.device.type != "cpu" or 0 in tensor.shape:
            raise errors.host_result(name, tensor)
        with recorder.muted():
            result = torch.empty(tensor.shape, dtype=tensor.dtype, device=META)
        outputs.append(recorder.add(result))
        results.append(result)
    if not results:
        raise errors.host_result(name, None)
    tape = recorder.tape
    tape.host_calls.append((len(tape.records), name, values, outputs))
    types = tuple((tensor.dtype, tuple(tensor.shape)) for tensor in made)
    tape.host_functions.append(HostFunction(name, function, arguments, types))
    return rebuild(structure, results)
