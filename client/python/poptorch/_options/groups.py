"""The groups of Options: Training, Precision, Distributed, TensorLocations, Jit and _Popart."""

import copy
import os
from typing import Any, Dict, List, Optional, Set, Union

import torch

from .. import _errors, enums
from .._logging import logger
from .values import OptionValues


def check_is(name: str, value: object, kind: type, words: str) -> None:
    """Raises AssertionError if an argument has not the type that its setter documents."""
    fits = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    assert fits, _errors.WRONG_TYPE % (name, repr(value), words)


def check_count(name: str, value: int) -> None:
    """Raises ValueError if a number of things is below 1. The type is checked where it is set."""
    if isinstance(value, int) and value < 1:
        raise ValueError(_errors.OUT_OF_RANGE % (name, value, "at least 1"))


class _PopartOptions:
    """Options of the compiler by their own names. They are checked when a model is compiled.

    >>> opts._Popart.set("autoRecomputation", 3)
    """

    def __init__(self) -> None:
        self._is_frozen = False
        self.options: Dict[str, Any] = {
            "instrumentWithHardwareCycleCounter": False,
            "rearrangeAnchorsOnHost": False,
        }

    def checkIsFrozen(self) -> None:
        """Raises AttributeError if the options are in use by a model or a DataLoader."""
        if self._is_frozen:
            raise AttributeError(_errors.FROZEN)

    def set(
        self, key: str, value: Union[bool, int, float, str, List[str], Set[str], Dict[str, str]]
    ) -> "_PopartOptions":
        """Sets an option, such as "autoRecomputation" or "engineOptions"."""
        self.checkIsFrozen()
        if key == "logDir":
            logger.warning(_errors.LOG_DIR_IGNORED)
        else:
            self.options[key] = value
        return self

    def add(self, key: str, values: Dict[str, str]) -> "_PopartOptions":
        """Adds entries to an option that is a map, and leaves its other entries."""
        return self.set(key, {**self.options.get(key, {}), **values})

    def setEngineOptions(self, engine_options: Dict[str, str]) -> "_PopartOptions":
        """Sets the options of the engine, such as {"autoReport.directory": "profile"}."""
        return self.set("engineOptions", engine_options)

    def setPatterns(self, patterns: Dict[str, bool], level: int = 2) -> "_PopartOptions":
        """Switches transformations of the graph on or off.

        Args:
            patterns: the names of the transformations.
            level: what applies to all others: 0 none, 1 the least, 2 the default, 3 all.
        """
        check_is("level", level, int, "an integer")
        check_is("patterns", patterns, dict, "a dictionary of names and bools")
        return self.set("patterns_level", level).set("patterns", patterns)

    def _freeze(self) -> None:
        self._is_frozen = True

    def _unfreeze(self) -> None:
        self._is_frozen = False

    def __deepcopy__(self, memory: Dict[int, Any]) -> "_PopartOptions":
        duplicate = type(self)()
        memory[id(self)] = duplicate
        duplicate.options = copy.deepcopy(self.options, memory)
        return duplicate

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.options})"


class _JitOptions(OptionValues):
    """Deprecated: models are always captured by running them."""

    def traceModel(self, trace_model: bool) -> "_JitOptions":
        """Deprecated.

        Raises:
            ValueError: `trace_model` is true.
        """
        logger.warning(_errors.DEPRECATED_TRACE_MODEL)
        if trace_model:
            raise ValueError(_errors.TRACE_MODEL)
        return self


class _PrecisionOptions(OptionValues):
    """How numbers are rounded and summed.

    >>> opts.Precision.enableStochasticRounding(True).setPartialsType(torch.half)
    """

    def __init__(self, popart_options: _PopartOptions) -> None:
        """
        Args:
            popart_options: where the setters write.
        """
        self._popart_options = popart_options
        super().__init__()

    def enableStochasticRounding(self, enabled: bool) -> "_PrecisionOptions":
        """Rounds to half precision up or down at random, by how near the two neighbours are.

        Default: to the nearest, ties to even.
        """
        check_is("enableStochasticRounding", enabled, bool, "True or False")
        self.checkIsFrozen()
        self._popart_options.set("enableStochasticRounding", enabled)
        return self

    def enableFloatingPointExceptions(self, enabled: bool) -> "_PrecisionOptions":
        """Raises poptorch.Error on overflow, division by zero and results that are no number."""
        check_is("enableFloatingPointExceptions", enabled, bool, "True or False")
        self.checkIsFrozen()
        self._popart_options.set("enableFloatingPointChecks", enabled)
        return self

    def setPartialsType(self, dtype: torch.dtype) -> "_PrecisionOptions":
        """The type in which matrix products and convolutions of half tensors are summed.

        Args:
            dtype: torch.float, or torch.half, which takes less memory and is less exact.
        Raises:
            ValueError: another type.
        """
        names = {torch.float: "float", torch.half: "half"}
        if not isinstance(dtype, torch.dtype) or dtype not in names:
            raise ValueError(_errors.PARTIALS_TYPE)
        self.checkIsFrozen()
        self._popart_options.set("partialsTypeMatMuls", names[dtype])
        self._popart_options.add("convolutionOptions", {"partialsType": names[dtype]})
        return self

    def halfFloatCasting(
        self, half_float_casting: enums.HalfFloatCastingBehavior
    ) -> "_PrecisionOptions":
        """Deprecated: has no effect."""
        logger.warning(_errors.DEPRECATED_CASTING)
        return self

    def runningStatisticsAlwaysFloat(self, value: bool) -> "_PrecisionOptions":
        """Deprecated: has no effect."""
        if not isinstance(value, bool):
            raise ValueError(_errors.RUNNING_STATISTICS)
        logger.warning(_errors.DEPRECATED_STATISTICS)
        return self


class _TrainingOptions(OptionValues):
    """How gradients become one update.

    >>> opts.Training.gradientAccumulation(8)
    """

    def __init__(self, popart_options: _PopartOptions) -> None:
        """
        Args:
            popart_options: where some of the setters write.
        """
        self._popart_options = popart_options
        super().__init__(
            gradient_accumulation=1,
            accumulation_and_replication_reduction_type=enums.ReductionType.Mean,
            meanAccumulationAndReplicationReductionStrategy=enums.MeanReductionStrategy.Post,
        )

    def gradientAccumulation(self, gradient_accumulation: int) -> "_TrainingOptions":
        """The number of micro-batches of a replica whose gradients make one update.

        It multiplies the batch that a call of the model takes. A pipeline of F forward stages
        needs at least 2F − 1. Default: 1.
        """
        check_count("gradientAccumulation", gradient_accumulation)
        return self.set(gradient_accumulation=gradient_accumulation)

    def accumulationAndReplicationReductionType(
        self, reduction_type: enums.ReductionType
    ) -> "_TrainingOptions":
        """Whether an update uses the mean (default) or sum over micro-batches and replicas.

        Raises:
            ValueError: neither ReductionType.Mean nor ReductionType.Sum.
        """
        if reduction_type not in (enums.ReductionType.Mean, enums.ReductionType.Sum):
            raise ValueError(
                _errors.REDUCTION_TYPE % "accumulationAndReplicationReductionType"
            )
        return self.set(accumulation_and_replication_reduction_type=reduction_type)

    def setMeanAccumulationAndReplicationReductionStrategy(
        self, mean_reduction_strategy: enums.MeanReductionStrategy
    ) -> "_TrainingOptions":
        """When a mean is divided. Default: Post; Running if the accumulator is half."""
        strategy = mean_reduction_strategy
        return self.set(meanAccumulationAndReplicationReductionStrategy=strategy)

    def setAutomaticLossScaling(self, enabled: bool) -> "_TrainingOptions":
        """Halves or doubles the loss scale by how large the half-precision gradients are."""
        check_is("setAutomaticLossScaling", enabled, bool, "True or False")
        self.checkIsFrozen()
        self._popart_options.set("automaticLossScalingSettings.enabled", enabled)
        return self

    def setConvolutionDithering(self, enabled: bool) -> "_TrainingOptions":
        """Lets convolutions begin at different tiles. Accepted without effect."""
        check_is("setConvolutionDithering", enabled, bool, "True or False")
        self.checkIsFrozen()
        value = "true" if enabled else "false"
        self._popart_options.add("convolutionOptions", {"enableConvDithering": value})
        return self


def _environment_integer(name: str, default: int) -> int:
    text = os.environ.get(name)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        raise ValueError(_errors.ENVIRONMENT_INTEGER % (name, text)) from None


class _DistributedOptions(OptionValues):
    """Which of several processes, each with replicas of its own, this one is.

    By default the variables of Open MPI's mpirun tell.
    """

    def __init__(self) -> None:
        """Reads OMPI_COMM_WORLD_SIZE and OMPI_COMM_WORLD_RANK from the environment."""
        super().__init__(num_distributed_processes=1, distributed_process_id=0)
        self.setEnvVarNames("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")

    def disable(self) -> "_DistributedOptions":
        """This process is the only one, whatever the environment says."""
        return self.set(num_distributed_processes=1, distributed_process_id=0)

    def setEnvVarNames(self, var_num_processes: str, var_process_id: str) -> "_DistributedOptions":
        """Reads the number of processes and this one's number from the environment."""
        return self.configureProcessId(
            _environment_integer(var_process_id, 0), _environment_integer(var_num_processes, 1)
        )

    def configureProcessId(self, process_id: int, num_processes: int) -> "_DistributedOptions":
        """Says which process this one is.

        Args:
            process_id: between 0 and num_processes − 1.
            num_processes: the number of processes.
        """
        check_count("num_processes", num_processes)
        integers = isinstance(process_id, int) and isinstance(num_processes, int)
        if integers and not 0 <= process_id < num_processes:
            allowed = f"between 0 and {num_processes - 1}"
            raise ValueError(_errors.OUT_OF_RANGE % ("process_id", process_id, allowed))
        return self.set(distributed_process_id=process_id, num_distributed_processes=num_processes)

    @property
    def processId(self) -> int:
        """The number of this process."""
        return self.distributed_process_id

    @property
    def numProcesses(self) -> int:
        """The number of processes."""
        return self.num_distributed_processes


class TensorLocationSettings(OptionValues):
    """Where tensors of one kind are kept.

    >>> location = poptorch.TensorLocationSettings().useOnChipStorage(False)
    >>> opts.TensorLocations.setOptimizerLocation(location)
    """

    def __init__(self) -> None:
        """Leaves all to the execution strategy."""
        super().__init__()

    def minElementsForOffChip(self, min_elements: int) -> "TensorLocationSettings":
        """The least number of elements of a tensor that is kept in streaming memory.

        Accepted without effect: the size of a tensor does not matter.
        """
        check_is("minElementsForOffChip", min_elements, int, "an integer")
        return self.createOrSet(minElementsForOffChip=min_elements)

    def minElementsForReplicatedTensorSharding(self, min_elements: int) -> "TensorLocationSettings":
        """The least number of elements of a tensor that is shared out over replicas.

        Accepted without effect: the size of a tensor does not matter.
        """
        check_is("minElementsForReplicatedTensorSharding", min_elements, int, "an integer")
        return self.createOrSet(minElementsForReplicatedTensorSharding=min_elements)

    def useOnChipStorage(self, use: Optional[bool] = True) -> "TensorLocationSettings":
        """Whether the tensors are kept on the IPU rather than in streaming memory.

        Args:
            use: None leaves the choice to the execution strategy.
        """
        if use is None:
            self.deleteIfExists("onChip")
            return self
        check_is("useOnChipStorage", use, bool, "True, False or None")
        return self.createOrSet(onChip=int(use))

    def useReplicatedTensorSharding(self, use: bool = True) -> "TensorLocationSettings":
        """Whether each replica keeps a part of the tensor only.

        It has an effect on the optimiser's state alone: see setOptimizerLocation.
        """
        check_is("useReplicatedTensorSharding", use, bool, "True or False")
        return self.createOrSet(useReplicatedTensorSharding=int(use))

    def useIOTilesToLoad(self, use: bool = True) -> "TensorLocationSettings":
        """Whether the tensors are loaded through IO tiles. Accepted without effect."""
        check_is("useIOTilesToLoad", use, bool, "True or False")
        return self.createOrSet(useIOTilesToLoad=int(use))

    def useIOTilesToStore(self, use: bool = True) -> "TensorLocationSettings":
        """Whether the tensors are kept on IO tiles on the IPU. Accepted without effect."""
        check_is("useIOTilesToStore", use, bool, "True or False")
        return self.createOrSet(useIOTilesToStore=int(use))


class _TensorLocationOptions(OptionValues):
    """Where activations, weights, optimiser state and accumulators are kept."""

    def numIOTiles(self, num_tiles: int) -> "_TensorLocationOptions":
        """Says how many tiles of each IPU are for transfers, which overlaps ask for.

        It has no further effect: all tiles compute.

        Args:
            num_tiles: an even number from 32 to 192. By default there are none.
        """
        check_is("numIOTiles", num_tiles, int, "an integer")
        assert 32 <= num_tiles <= 192 and num_tiles % 2 == 0, _errors.IO_TILES
        return self.createOrSet(numIOTiles=num_tiles)

    def setActivationLocation(self, location: TensorLocationSettings) -> "_TensorLocationOptions":
        """Where activations are kept."""
        return self._set_location("location_activation", location)

    def setWeightLocation(self, location: TensorLocationSettings) -> "_TensorLocationOptions":
        """Where parameters are kept."""
        return self._set_location("location_weight", location)

    def setOptimizerLocation(self, location: TensorLocationSettings) -> "_TensorLocationOptions":
        """Where the optimiser's state is kept."""
        return self._set_location("location_optimizer", location)

    def setAccumulatorLocation(self, location: TensorLocationSettings) -> "_TensorLocationOptions":
        """Where the accumulators of gradients are kept."""
        return self._set_location("location_accumulator", location)

    def _set_location(self, name: str, location: TensorLocationSettings):
        check_is(name, location, TensorLocationSettings, "a poptorch.TensorLocationSettings")
        return self.createOrSet(**{name: location.toDict()})
