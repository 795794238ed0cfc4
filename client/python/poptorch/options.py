"""Options of models and data loaders.

>>> opts = poptorch.Options()
>>> opts.deviceIterations(10).replicationFactor(2)
>>> opts.Training.gradientAccumulation(4)
>>> poptorch_model = poptorch.trainingModel(model, opts)

Setters return the object, so that calls can be chained. A model or DataLoader that is given
options freezes them; `clone()` is an unfrozen copy. Values can be read as attributes:
`deviceIterations(10)` makes `opts.device_iterations` 10.
"""

import copy
import json
import os
from typing import Any, Dict, List, Optional, Union

import torch

from . import _errors, enums
from ._executor.progress import CompilationProgressBar
from ._logging import logger
from ._options import json_text
from ._options.groups import (
    TensorLocationSettings,
    _DistributedOptions,
    _JitOptions,
    _PopartOptions,
    _PrecisionOptions,
    _TensorLocationOptions,
    _TrainingOptions,
    check_count,
    check_is,
)
from ._options.json_text import ConfigFileError
from ._options.strategies import (
    ParallelPhasedExecution,
    Phase,
    PipelinedExecution,
    SerialPhasedExecution,
    ShardedExecution,
    Stage,
    _ExecutionStrategy,
)
from ._options.values import OptionValues

__all__ = [
    "Attribute",
    "ConfigFileError",
    "Options",
    "ParallelPhasedExecution",
    "Phase",
    "PipelinedExecution",
    "SerialPhasedExecution",
    "ShardedExecution",
    "Stage",
    "TensorLocationSettings",
]


class Attribute:
    """Gives operators of forward attributes, as a context.

    >>> with poptorch.Attribute(__outline={"layer": "embedding"}):
    ...     y = self.layer(x)
    """

    _stack: List[Dict[str, Any]] = []

    def __init__(self, **attributes: Dict[str, str]) -> None:
        """
        Args:
            attributes: names and values. Inner contexts take precedence.
        """
        self._attributes = attributes

    def __enter__(self) -> "Attribute":
        Attribute._stack.append(self._attributes)
        return self

    def __exit__(self, type, value, traceback) -> None:  # pylint: disable=redefined-builtin
        Attribute._stack.pop()

    @staticmethod
    def current() -> Dict[str, Any]:
        """All attributes of the contexts that are open."""
        return {name: value for each in Attribute._stack for name, value in each.items()}


class Options(OptionValues):
    """The options of a model. `help(poptorch.Options)` lists the setters.

    Groups: `Training`, `Precision`, `Distributed`, `TensorLocations`, `Jit` and, for options of the
    compiler by their own names, `_Popart`.
    """

    def __init__(self) -> None:
        """Makes default options, and applies those of the environment.

        POPTORCH_CACHE_DIR is the directory of enableExecutableCaching; POPTORCH_DEFAULT_OPTIONS is
        JSON, as of from_json.
        """
        self._popart = _PopartOptions()
        self._jit = _JitOptions()
        self._precision = _PrecisionOptions(self._popart)
        self._training = _TrainingOptions(self._popart)
        self._distributed = _DistributedOptions()
        self._tensor_locations = _TensorLocationOptions()
        self._execution_strategy: _ExecutionStrategy = PipelinedExecution()
        self._module_namescope_enabled = True
        self._relax_optimizer_checks = False
        self._show_progress_bar = True
        super().__init__(
            replication_factor=1,
            input_group_size=1,
            input_group_type=enums.CommGroupType.Consecutive,
            broadcast_buffers=True,
            device_iterations=1,
            log_dir=".",
            max_repeat_logs=4,
            auto_round_num_ipus=False,
            anchored_tensors={},
            output_mode=enums.OutputMode.Default,
            output_return_period=1,
            connection_type=enums.ConnectionType.Always,
            sync_pattern=enums.SyncPattern.Full,
            available_memory_proportion={},
            source_location_excludes=[
                "install/poptorch",
                "site-packages/torch",
                "site-packages/poptorch",
            ],
        )
        cache = os.environ.get("POPTORCH_CACHE_DIR")
        if cache:
            logger.info(_errors.CACHE_DIR, cache)
            self.enableExecutableCaching(cache)
        try:
            self.from_json(os.environ.get("POPTORCH_DEFAULT_OPTIONS") or "{}")
        except (AssertionError, TypeError, ValueError) as error:
            raise type(error)(f"POPTORCH_DEFAULT_OPTIONS: {error}") from None

    # --- Groups.

    @property
    def TensorLocations(self) -> _TensorLocationOptions:
        """Where activations, weights, optimiser state and accumulators are kept."""
        return self._tensor_locations

    @property
    def Distributed(self) -> _DistributedOptions:
        """Which of several processes this one is."""
        return self._distributed

    @property
    def Jit(self) -> _JitOptions:
        """Deprecated."""
        return self._jit

    @property
    def Precision(self) -> _PrecisionOptions:
        """How numbers are rounded and summed."""
        return self._precision

    @property
    def Training(self) -> _TrainingOptions:
        """How gradients become one update."""
        return self._training

    @property
    def _Popart(self) -> _PopartOptions:
        return self._popart

    # --- Batches and outputs.

    def deviceIterations(self, device_iterations: int) -> "Options":
        """The number of times that the device runs the model in a call. Default: 1.

        A call takes batch size × device iterations × replicas × gradient accumulation rows.
        """
        check_count("deviceIterations", device_iterations)
        return self.set(device_iterations=device_iterations)

    def replicationFactor(self, replication_factor: int) -> "Options":
        """The number of copies of the model in this process, each with IPUs of its own."""
        check_count("replicationFactor", replication_factor)
        return self.set(replication_factor=replication_factor)

    def inputReplicaGrouping(
        self,
        input_group_size: int,
        input_group_type: enums.CommGroupType = enums.CommGroupType.Consecutive,
    ) -> "Options":
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

    def broadcastBuffers(self, broadcast_buffers: bool = True) -> "Options":
        """Whether all replicas have the same buffers. False lets each replica write its own."""
        return self.set(broadcast_buffers=broadcast_buffers)

    def outputMode(
        self, output_mode: enums.OutputMode, output_return_period: Optional[int] = None
    ) -> "Options":
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

    # --- Placement.

    def setExecutionStrategy(self, strategy: _ExecutionStrategy) -> "Options":
        """How the blocks of the model run: PipelinedExecution() by default."""
        check_is("strategy", strategy, _ExecutionStrategy, "an execution strategy")
        self.checkIsFrozen()
        self._execution_strategy = strategy
        return self

    def autoRoundNumIPUs(self, auto_round_num_ipus: bool = True) -> "Options":
        """Whether IPUs are rounded up to a power of two; the excess is reserved and idle."""
        return self.set(auto_round_num_ipus=auto_round_num_ipus)

    def setAvailableMemoryProportion(
        self, available_memory_proportion: Dict[str, float]
    ) -> "Options":
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

    def connectionType(self, connection_type: enums.ConnectionType) -> "Options":
        """When the model attaches to IPUs: before compilation (Always), after it, or never."""
        check_is("connection_type", connection_type, enums.ConnectionType, "a ConnectionType")
        return self.set(connection_type=connection_type)

    def useIpuModel(self, use_model: bool) -> "Options":
        """Whether the IPU Model runs the model, whatever POPTORCH_IPU_MODEL says."""
        check_is("use_model", use_model, bool, "True or False")
        return self.createOrSet(use_model=use_model)

    def useIpuId(self, ipu_id: int) -> "Options":
        """The device to attach to, by its number in `gc-info --list-devices`."""
        check_is("ipu_id", ipu_id, int, "an integer")
        if ipu_id < 0:
            raise ValueError(_errors.OUT_OF_RANGE % ("ipu_id", ipu_id, "at least 0"))
        return self.createOrSet(ipu_id=ipu_id)

    def useOfflineIpuTarget(self, ipu_version: int = 2) -> "Options":
        """Compiles without any device, as ConnectionType.Never.

        Args:
            ipu_version: 1 for Mk1, 2 for Mk2, 21 for Mk2 with 8-bit floats.
        """
        if ipu_version not in (1, 2, 21):
            raise ValueError(_errors.IPU_VERSION)
        self.connectionType(enums.ConnectionType.Never)
        return self.createOrSet(ipu_version=ipu_version)

    def syncPattern(self, sync_pattern: enums.SyncPattern) -> "Options":
        """How IPUs synchronise. It changes timing only."""
        check_is("sync_pattern", sync_pattern, enums.SyncPattern, "a SyncPattern")
        return self.set(sync_pattern=sync_pattern)

    # --- Numbers.

    def randomSeed(self, random_seed: int) -> "Options":
        """Seeds the device's random numbers, and torch's by torch.manual_seed."""
        check_is("random_seed", random_seed, int, "an integer")
        self.createOrSet(random_seed=random_seed)
        torch.manual_seed(random_seed)
        return self

    def enableSyntheticData(self, enabled: Union[bool, int]) -> "Options":
        """Runs without transfers between host and device; results have no meaning.

        Args:
            enabled: True for random inputs, or a mode: 0 off, 1 zeros, 2 random.
        """
        mode = 2 if enabled is True else int(enabled)
        if mode not in (0, 1, 2):
            allowed = "True, False or a mode from 0 to 2"
            raise ValueError(_errors.OUT_OF_RANGE % ("enableSyntheticData", enabled, allowed))
        self._popart.set("syntheticDataMode", mode)
        return self

    def enableStableNorm(self, enabled: bool) -> "Options":
        """Computes variances in two passes. Those of the virtual IPU always are."""
        check_is("enableStableNorm", enabled, bool, "True or False")
        self._popart.set("enableStableNorm", enabled)
        return self

    # --- Compilation, logs and profiles.

    def enableExecutableCaching(self, path: Optional[str]) -> "Options":
        """Keeps compiled models in a directory, which is never cleared; None keeps none."""
        if path is None:
            self._popart.set("enableEngineCaching", False)
            return self
        check_is("path", path, (str, os.PathLike), "a path or None")
        self._popart.set("cachePath", os.fspath(path)).set("enableEngineCaching", True)
        return self

    def modelName(self, name: str) -> "Options":
        """The sub-directory of profiles. Default: "training" or "inference"."""
        check_is("name", name, str, "a string")
        return self.createOrSet(model_name=name)

    def enableProfiling(self, profile_dir: Optional[str] = None) -> "Options":
        """Writes profiles of compilation and runs.

        Args:
            profile_dir: the directory; by default the current one. POPLAR_ENGINE_OPTIONS in the
                environment takes precedence.
        """
        profile = {
            "debug.allowOutOfMemory": "true",
            "autoReport.directory": os.fspath(profile_dir) if profile_dir else ".",
            "autoReport.all": "true",
        }
        environment = _engine_options_of_environment()
        overridden = {key: environment[key] for key in profile if key in environment}
        if any(profile[key] != value for key, value in overridden.items()):
            logger.warning(_errors.PROFILING_OVERRIDDEN)
        self._popart.add("engineOptions", {**profile, **overridden})
        return self

    def logCycleCount(self, log_cycle_count: bool) -> "Options":
        """Counts cycles, so that `cycleCount()` of the model can be called."""
        check_is("log_cycle_count", log_cycle_count, bool, "True or False")
        self._popart.set("instrumentWithHardwareCycleCounter", log_cycle_count)
        return self

    def logDir(self, log_dir: str) -> "Options":
        """The directory of log files. Default: the current one."""
        return self.set(log_dir=log_dir)

    def maxRepeatLogs(self, max_lines: Optional[int]) -> "Options":
        """How often one line of the log is repeated; None for no limit. Default: 4."""
        return self.set(max_repeat_logs=(1 << 64) - 1 if max_lines is None else max_lines)

    def showCompilationProgressBar(self, show: bool = True) -> "Options":
        """Whether compilation shows a progress bar on standard error. Default: True."""
        check_is("show", show, bool, "True or False")
        self.checkIsFrozen()
        self._show_progress_bar = show
        return self

    def disableModuleNamescope(self) -> "Options":
        """Leaves the paths of modules out of the names of operators."""
        self.checkIsFrozen()
        self._module_namescope_enabled = False
        return self

    def sourceLocationExcludes(self, excludes: List[str]) -> "Options":
        """Parts of file names whose lines are not the source of an operator."""
        return self.set(source_location_excludes=list(excludes))

    def appendToLocationExcludes(self, *excludes: str) -> "Options":
        """Adds to the list of sourceLocationExcludes."""
        return self.set(source_location_excludes=self.source_location_excludes + list(excludes))

    def relaxOptimizerAttributesChecks(self, relax: bool = True) -> "Options":
        """Whether attributes of an optimiser that the device does not know make no warning."""
        check_is("relax", relax, bool, "True or False")
        self.checkIsFrozen()
        self._relax_optimizer_checks = relax
        return self

    # --- As a whole.

    def from_json(self, string: str) -> "Options":
        """Calls setters by a JSON object such as {"Training.gradientAccumulation": 4}.

        A list holds several arguments; "OutputMode.All" stands for the member of that enum.
        """
        json_text.apply_json(self, string)
        return self

    def loadFromFile(self, filepath: str) -> "Options":
        """Calls the setters that a file lists, one a line, such as `deviceIterations(4)`.

        Raises:
            ConfigFileError: the file cannot be read, or a line is wrong.
        """
        self.checkIsFrozen()
        import poptorch  # pylint: disable=import-outside-toplevel

        json_text.apply_file(self, filepath, {"poptorch": poptorch, "torch": torch})
        return self

    def toDict(self) -> Dict[str, Any]:
        """All options by their internal names.

        Raises:
            AssertionError: the output mode is the default one, which depends on the model.
        """
        assert not self.defaultOutputMode(), _errors.NO_OUTPUT_MODE
        values = {**self._execution_strategy.backendOptions(), **self._popart.options}
        progress = CompilationProgressBar() if self._show_progress_bar else None
        values["compilation_progress_bar_fn"] = progress
        for part in (self._training, self._precision, self._distributed, self._tensor_locations):
            part.update(values)
        return self.update(values)

    def clone(self) -> "Options":
        """A copy that is not frozen."""
        return copy.deepcopy(self)

    def _shown(self):
        names = ("_execution_strategy", "_popart", "_precision", "_training", "_distributed")
        names += ("_tensor_locations", "_module_namescope_enabled", "_relax_optimizer_checks")
        return [(name, self.__dict__[name]) for name in names + ("_show_progress_bar",)]


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


def _engine_options_of_environment() -> Dict[str, str]:
    text = os.environ.get("POPLAR_ENGINE_OPTIONS") or "{}"
    try:
        options = json.loads(text)
    except ValueError:
        options = None
    if not isinstance(options, dict):
        raise ValueError(_errors.ENGINE_OPTIONS_SYNTAX % text)
    return options
