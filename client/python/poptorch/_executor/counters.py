"""Performance counters: when the last call moved its inputs and outputs, and how long it took.

Times are those of the IPUs' virtual clock. They follow from the compiled program by the model of
time, so that equal calls have equal counters; replicas are alike.
"""

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from .. import _errors
from .._logging import native
from .core import call as core_call
from .hardware import uses_ipu_model

Counters = Dict[str, List[List[float]]]
Latency = Tuple[float, float, float]

_KEYS = ("input", "input_complete", "output", "output_complete")


class PerfCounters:
    """The part of PoplarExecutor that measures calls."""

    _core: Optional[Any]
    _options: Any
    _has_run: bool
    _counters: Optional[Counters]

    def getPerfCounters(self) -> Counters:
        """When the last call moved each input and each result, in seconds since it began.

        Returns:
            "input" and "output": when the IPU asked to read an input, or to write a result;
            "input_complete" and "output_complete": when that was done. Each is a list by tensor of
            lists by micro-batch, in the order of dimension 0 of the arguments. They are [[]] before
            the first call, and empty for each tensor with synthetic data, which is not moved.
        """
        if self._core is None or not self._has_run:
            return {key: [[]] for key in _KEYS}
        if self._counters is None:
            self._counters = self._read_counters()
        return {key: [list(times) for times in of] for key, of in self._counters.items()}

    def _read_counters(self) -> Counters:
        inputs, outputs = core_call(self._core.transfers)
        synthetic = bool(self._options._Popart.options.get("syntheticDataMode", 0))
        replicas = 0 if synthetic else self._options.replication_factor

        def times(tensors: Sequence[Sequence[Tuple[float, float]]], end: int) -> List[List[float]]:
            return [[each[end] for each in of for _ in range(replicas)] for of in tensors] or [[]]

        values = (times(inputs, 0), times(inputs, 1), times(outputs, 0), times(outputs, 1))
        return dict(zip(_KEYS, values))

    def getHostIpuLatency(self) -> Latency:
        """From the request of the first input of a micro-batch to the arrival of the last one.

        Returns:
            The least, the greatest and the mean of the last call, in seconds; zeros if nothing was
            moved.
        """
        return self._latency("input", min, "input_complete", max)

    def getComputeLatency(self) -> Latency:
        """From the arrival of the last input to when the last result is ready.

        Returns:
            As for getHostIpuLatency.
        """
        return self._latency("input_complete", max, "output", max)

    def getIpuHostLatency(self) -> Latency:
        """From when the first result is ready to the arrival of the last one at the host.

        Returns:
            As for getHostIpuLatency.
        """
        return self._latency("output", min, "output_complete", max)

    def getLatency(self) -> Latency:
        """From the request of the first input to the arrival of the last result at the host.

        Returns:
            As for getHostIpuLatency.
        """
        return self._latency("input", min, "output_complete", max)

    def _latency(self, first: str, of_first: Callable, last: str, of_last: Callable) -> Latency:
        counters = self.getPerfCounters()
        replicas = self._options.replication_factor

        def of_steps(key: str, choose: Callable) -> List[float]:
            """One time for each micro-batch of the first replica: the others are like it."""
            moved = [times[::replicas] for times in counters[key] if times]
            return [choose(step) for step in zip(*moved)]

        begins, ends = of_steps(first, of_first), of_steps(last, of_last)
        if not begins or not ends:
            return (0.0, 0.0, 0.0)
        # A result may be of several micro-batches: it begins with the first of them.
        share = len(begins) // len(ends)
        spans = [
            end - min(begins[index * share : (index + 1) * share]) for index, end in enumerate(ends)
        ]
        return (min(spans), max(spans), sum(spans) / len(spans))

    def cycleCount(self) -> int:
        """The cycles that the last call took on the IPUs.

        Raises:
            poptorch.Error: they are not counted, or there was no call.
        """
        if not self._counts_cycles():
            raise _errors.py_error(
                "Cycle count logging is disabled. Please set option logCycleCount to True to"
                " enable."
            )
        if not self._has_run:
            raise _errors.py_error(
                "Please run the model at least once before obtaining cycle count."
            )
        if uses_ipu_model(self._options):
            raise _errors.py_error("Cycle count logging is only supported on actual IPU hardware.")
        return self._core.cycles()

    def _counts_cycles(self) -> bool:
        return bool(self._options._Popart.options.get("instrumentWithHardwareCycleCounter"))

    def _log_cycles(self) -> None:
        if self._counts_cycles() and not uses_ipu_model(self._options):
            native.debug("Total number of IPU cycles: %d", self._core.cycles())
