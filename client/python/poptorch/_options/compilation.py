"""Options that say what is kept and reported of a compilation and of runs."""

import json
import os
from typing import Any, Dict, List, Optional

from .. import _errors
from .._logging import logger
from .groups import check_is
from .values import OptionValues, Self


class CompilationOptions(OptionValues):
    """The part of Options about compilation, logs and profiles."""

    _popart: Any

    def enableExecutableCaching(self: Self, path: Optional[str]) -> Self:
        """Keeps compiled models in a directory, which is never cleared; None keeps none."""
        if path is None:
            self._popart.set("enableEngineCaching", False)
            return self
        check_is("path", path, (str, os.PathLike), "a path or None")
        self._popart.set("cachePath", os.fspath(path)).set("enableEngineCaching", True)
        return self

    def modelName(self: Self, name: str) -> Self:
        """The sub-directory of profiles. Default: "training" or "inference"."""
        check_is("name", name, str, "a string")
        return self.createOrSet(model_name=name)

    def enableProfiling(self: Self, profile_dir: Optional[str] = None) -> Self:
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

    def logCycleCount(self: Self, log_cycle_count: bool) -> Self:
        """Counts cycles, so that `cycleCount()` of the model can be called."""
        check_is("log_cycle_count", log_cycle_count, bool, "True or False")
        self._popart.set("instrumentWithHardwareCycleCounter", log_cycle_count)
        return self

    def logDir(self: Self, log_dir: str) -> Self:
        """The directory of log files. Accepted without effect: POPTORCH_LOG_DEST names a file."""
        return self.set(log_dir=log_dir)

    def maxRepeatLogs(self: Self, max_lines: Optional[int]) -> Self:
        """How often a line of the log is repeated; None: no limit. Accepted without effect."""
        return self.set(max_repeat_logs=(1 << 64) - 1 if max_lines is None else max_lines)

    def showCompilationProgressBar(self: Self, show: bool = True) -> Self:
        """Whether compilation shows a progress bar on standard error. Default: True."""
        check_is("show", show, bool, "True or False")
        self.checkIsFrozen()
        self._show_progress_bar = show
        return self

    def disableModuleNamescope(self: Self) -> Self:
        """Leaves the paths of modules out of the names of operators."""
        self.checkIsFrozen()
        self._module_namescope_enabled = False
        return self

    def sourceLocationExcludes(self: Self, excludes: List[str]) -> Self:
        """Parts of file names whose lines are not the source of an operator."""
        return self.set(source_location_excludes=list(excludes))

    def appendToLocationExcludes(self: Self, *excludes: str) -> Self:
        """Adds to the list of sourceLocationExcludes."""
        return self.set(source_location_excludes=self.source_location_excludes + list(excludes))

    def relaxOptimizerAttributesChecks(self: Self, relax: bool = True) -> Self:
        """Whether attributes of an optimiser that the device does not know make no warning."""
        check_is("relax", relax, bool, "True or False")
        self.checkIsFrozen()
        self._relax_optimizer_checks = relax
        return self


def _engine_options_of_environment() -> Dict[str, str]:
    text = os.environ.get("POPLAR_ENGINE_OPTIONS") or "{}"
    try:
        options = json.loads(text)
    except ValueError:
        options = None
    if not isinstance(options, dict):
        raise ValueError(_errors.ENGINE_OPTIONS_SYNTAX % text)
    return options
