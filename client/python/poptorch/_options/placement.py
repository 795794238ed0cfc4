"""Options that say which IPUs a model runs on, and how it is divided among them."""

from typing import Dict

from .. import _errors, enums
from .groups import check_is
from .strategies import _ExecutionStrategy
from .values import OptionValues, Self


class PlacementOptions(OptionValues):
    """The part of Options about IPUs."""

    def setExecutionStrategy(self: Self, strategy: _ExecutionStrategy) -> Self:
        """How the blocks of the model run: PipelinedExecution() by default."""
        check_is("strategy", strategy, _ExecutionStrategy, "an execution strategy")
        self.checkIsFrozen()
        self._execution_strategy = strategy
        return self

    def autoRoundNumIPUs(self: Self, auto_round_num_ipus: bool = True) -> Self:
        """Whether IPUs are rounded up to a power of two; the excess is reserved and idle."""
        return self.set(auto_round_num_ipus=auto_round_num_ipus)

    def setAvailableMemoryProportion(
        self: Self, available_memory_proportion: Dict[str, float]
    ) -> Self:
        """The share of each IPU's memory that temporary data of products may take.

        Args:
            available_memory_proportion: such as {"IPU0": 0.5, "IPU1": 0.2}. Default: 0.6.
        """
        given = available_memory_proportion
        assert isinstance(given, dict), _errors.MEMORY_PROPORTION % (given,)
        for key, value in given.items():
            fits = isinstance(key, str) and key.startswith("IPU") and key[3:].isdecimal()
            fits = fits and isinstance(value, (int, float)) and 0 <= value <= 1
            assert fits, _errors.MEMORY_PROPORTION % {key: value}
        proportions = {int(key[3:]): float(value) for key, value in given.items()}
        return self.set(available_memory_proportion=proportions)

    def connectionType(self: Self, connection_type: enums.ConnectionType) -> Self:
        """When the model attaches to IPUs: before compilation (Always), after it, or never."""
        check_is("connection_type", connection_type, enums.ConnectionType, "a ConnectionType")
        return self.set(connection_type=connection_type)

    def useIpuModel(self: Self, use_model: bool) -> Self:
        """Whether the IPU Model runs the model, whatever POPTORCH_IPU_MODEL says."""
        check_is("use_model", use_model, bool, "True or False")
        return self.createOrSet(use_model=use_model)

    def useIpuId(self: Self, ipu_id: int) -> Self:
        """The device to attach to, by its number in `gc-info --list-devices`."""
        check_is("ipu_id", ipu_id, int, "an integer")
        if ipu_id < 0:
            raise ValueError(_errors.OUT_OF_RANGE % ("ipu_id", ipu_id, "at least 0"))
        return self.createOrSet(ipu_id=ipu_id)

    def useOfflineIpuTarget(self: Self, ipu_version: int = 2) -> Self:
        """Compiles without any device, as ConnectionType.Never.

        Args:
            ipu_version: 1 for Mk1, 2 for Mk2, 21 for Mk2 with 8-bit floats. All of them compile
                for Mk2.
        """
        if ipu_version not in (1, 2, 21):
            raise ValueError(_errors.IPU_VERSION)
        self.connectionType(enums.ConnectionType.Never)
        return self.createOrSet(ipu_version=ipu_version)

    def syncPattern(self: Self, sync_pattern: enums.SyncPattern) -> Self:
        """How IPUs synchronise. Accepted without effect."""
        check_is("sync_pattern", sync_pattern, enums.SyncPattern, "a SyncPattern")
        return self.set(sync_pattern=sync_pattern)
