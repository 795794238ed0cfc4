"""Options that say which rows a call takes, how replicas share them, and what a call returns."""

from typing import Optional

from .. import _errors, enums
from .._logging import logger
from .groups import check_count, check_is
from .values import OptionValues, Self


class BatchOptions(OptionValues):
    """The part of Options about batches and outputs."""

    def deviceIterations(self: Self, device_iterations: int) -> Self:
        """The number of times that the device runs the model in a call. Default: 1.

        A call takes batch size × device iterations × replicas × gradient accumulation rows.
        """
        check_count("deviceIterations", device_iterations)
        return self.set(device_iterations=device_iterations)

    def replicationFactor(self: Self, replication_factor: int) -> Self:
        """The number of copies of the model in this process, each with IPUs of its own."""
        check_count("replicationFactor", replication_factor)
        return self.set(replication_factor=replication_factor)

    def inputReplicaGrouping(
        self: Self,
        input_group_size: int,
        input_group_type: enums.CommGroupType = enums.CommGroupType.Consecutive,
    ) -> Self:
        """Lets the replicas of a group read the same inputs.

        Args:
            input_group_size: the number of replicas of a group, a factor of replicationFactor.
            input_group_type: which replicas form a group. NoGrouping means a size of 1.
        Raises:
            ValueError: groups of this size or type are not possible.
        """
        if input_group_type == enums.CommGroupType.All:
            raise ValueError(_errors.GROUP_TYPE_ALL)
        if input_group_type == enums.CommGroupType.NoGrouping:
            input_group_size, input_group_type = 1, enums.CommGroupType.Consecutive
        check_is("input_group_size", input_group_size, int, "an integer")
        check_count("input_group_size", input_group_size)
        if input_group_size > self.replication_factor:
            raise ValueError(_errors.GROUP_TOO_LARGE)
        if self.replication_factor % input_group_size:
            raise ValueError(_errors.GROUP_NO_FACTOR)
        return self.set(input_group_size=input_group_size, input_group_type=input_group_type)

    def broadcastBuffers(self: Self, broadcast_buffers: bool = True) -> Self:
        """Whether all replicas have the same buffers. False lets each replica write its own."""
        return self.set(broadcast_buffers=broadcast_buffers)

    def outputMode(
        self: Self, output_mode: enums.OutputMode, output_return_period: Optional[int] = None
    ) -> Self:
        """Which micro-batches' results a call returns.

        Args:
            output_mode: the mode. Default: Final for training, All for inference.
            output_return_period: N of EveryN; a factor of deviceIterations.
        """
        period = _checked_period(output_mode, output_return_period)
        return self.set(output_mode=output_mode, output_return_period=period)

    def defaultOutputMode(self) -> bool:
        """Whether outputMode was not called, or with OutputMode.Default."""
        return self.output_mode == enums.OutputMode.Default

    def anchorTensor(
        self,
        short_name: str,
        long_name: str,
        output_mode: Optional[enums.OutputMode] = None,
        output_return_period: Optional[int] = 1,
    ) -> None:
        """Lets `getAnchoredTensor(short_name)` of the model return a tensor of the last call.

        Args:
            short_name: a name to ask by.
            long_name: the tensor's name, one of `getTensorNames()` of the model.
            output_mode: which micro-batches' values to return; None for those of the outputs.
            output_return_period: N of EveryN.
        """
        check_is("short_name", short_name, str, "a string")
        check_is("long_name", long_name, str, "a string")
        self.checkIsFrozen()
        if output_mode is not None:
            period = output_return_period if output_mode == enums.OutputMode.EveryN else None
            output_return_period = _checked_period(output_mode, period)
        self.anchored_tensors[short_name] = [long_name, output_mode, output_return_period]


def _checked_period(mode: enums.OutputMode, period: Optional[int]) -> int:
    """The return period of an output mode."""
    check_is("output_mode", mode, enums.OutputMode, "a poptorch.OutputMode")
    if mode == enums.OutputMode.EveryN:
        fits = isinstance(period, int) and not isinstance(period, bool) and period > 0
        assert fits, _errors.EVERY_N_PERIOD
        return period
    if period is not None:
        logger.info(_errors.PERIOD_IGNORED, mode)
    return 1
