"""What ipu_print_tensor prints, and results by output mode while something is printed."""

from typing import Any, Dict, List, Sequence

import torch

from .. import enums
from .._ops.printing import print_tensor
from .._ops.tensor_text import TextFormat


class Prints:
    """Prints the tensors of a model after each run.

    The device then returns the values of all micro-batches, so that all of them are printed, and
    results get the output mode of the options here. So it is with calls of the host.
    """

    def __init__(self, tape, options, core_options: Dict[str, Any]) -> None:
        """
        Args:
            tape: the captured model.
            options: poptorch.Options, with an output mode.
            core_options: those of the extension. Their output mode is changed.
        """
        self._prints = tape.prints
        self._takes_all = bool(tape.prints or tape.host_calls)
        self._first = len(tape.results) - len(tape.prints)  # of the results that are printed
        self._mode = options.output_mode
        self._period = options.output_return_period
        self._iterations = options.device_iterations
        self._steps = options.Training.gradient_accumulation
        self._replicas = options.replication_factor
        self._is_silent = bool(core_options["synthetic_data"])
        if self._takes_all:
            core_options["output_mode"] = "all"
            core_options.pop("output_period", None)

    def take(self, outputs: List[torch.Tensor], types: Sequence[tuple]) -> List[torch.Tensor]:
        """Prints some outputs of a run, and gives the others.

        Args:
            outputs: those of the device.
            types: (type, dimensions) of one micro-batch of each.
        """
        if not self._takes_all:
            return outputs
        # [device iteration, accumulation step, replica, of the micro-batch …]
        values = [
            output.reshape(self._iterations, self._steps, self._replicas, *dims)
            for output, (_, dims) in zip(outputs, types)
        ]
        end = self._first + len(self._prints)
        if not self._is_silent:
            self._print([each.flatten(0, 2) for each in values[self._first : end]])
        return [self._chosen(each) for each in values[: self._first] + values[end:]]

    def _print(self, printed: List[torch.Tensor]) -> None:
        for micro_batch in zip(*printed):
            for (_, title, text_format), tensor in zip(self._prints, micro_batch):
                print_tensor(title, tensor, TextFormat(*text_format))

    def _chosen(self, values: torch.Tensor) -> torch.Tensor:
        """The micro-batches that the output mode returns, as the rows of a result."""
        if self._mode == enums.OutputMode.Final:
            values = values[-1:, -1:]
        elif self._mode == enums.OutputMode.EveryN:
            values = values[self._period - 1 :: self._period]
        elif self._mode == enums.OutputMode.Sum:
            values = _summed(values.flatten(0, 1))[None, None]
        values = values.flatten(0, 2)
        if len(values) == 1:
            return values[0]
        return values.flatten(0, 1) if values.dim() > 1 else values


def _summed(values: torch.Tensor) -> torch.Tensor:
    """The sum along the first dimension, added in its order as the device does."""
    total = values[0].clone()
    for value in values[1:]:
        total += value
    return total
