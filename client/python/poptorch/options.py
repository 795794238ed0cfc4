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
import os
from typing import Any, Dict, List, Union

import torch

from . import _errors, enums
from ._executor.progress import CompilationProgressBar
from ._logging import logger
from ._options import json_text
from ._options.batches import BatchOptions
from ._options.compilation import CompilationOptions
from ._options.groups import (
    TensorLocationSettings,
    _DistributedOptions,
    _JitOptions,
    _PopartOptions,
    _PrecisionOptions,
    _TensorLocationOptions,
    _TrainingOptions,
    check_is,
)
from ._options.json_text import ConfigFileError
from ._options.placement import PlacementOptions
from ._options.strategies import (
    ParallelPhasedExecution,
    Phase,
    PipelinedExecution,
    SerialPhasedExecution,
    ShardedExecution,
    Stage,
    _ExecutionStrategy,
)

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


class Options(BatchOptions, PlacementOptions, CompilationOptions):
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

    # --- Numbers.

    def randomSeed(self, random_seed: int) -> "Options":
        """Seeds the device's random numbers, and torch's by torch.manual_seed.

        Args:
            random_seed: what torch.manual_seed takes, from -2**63 to 2**64 - 1.
        """
        check_is("random_seed", random_seed, int, "an integer")
        if not -(2**63) <= random_seed < 2**64:
            raise ValueError(
                f"random_seed is {random_seed}, must be between {-(2**63)} and {2**64 - 1}"
            )
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
