"""PyTorch models on virtual IPUs."""

from . import _environment

if _environment.runs_doctor():  # It says why the rest cannot be imported.
    from . import doctor

    raise SystemExit(doctor.main())
_environment.check()

from . import enums, ops, optim, options, profiling, testing
from ._blocks import BlockId
from ._custom_parsers import ICustomArgParser, registerCustomArgParser
from ._data.dataloader import DataLoader
from ._errors import Error, RecoverableError, UnrecoverableError
from ._executor.core import core as _core
from ._executor.hardware import ipuHardwareIsAvailable, ipuHardwareVersion
from ._executor.hooks import registerPostCompileHook, registerPreCompileHook
from ._executor.model import inferenceModel, isRunningOnIpu, load, trainingModel
from ._executor.poplar_executor import PoplarExecutor
from ._logging import install_hooks, logger, setLogLevel
from ._printing import module_repr, print
from .enums import *
from .ops import *
from .options import *

__version__ = "3.2.0"

install_hooks()
del install_hooks
if _environment.shadowing_libraries():  # Now, and not by the first model, the user is told.
    _core()


def __getattr__(name: str):
    # The extension is loaded when it is asked for.
    if name == "poptorch_core":
        return _core()
    if name == "AsynchronousDataAccessor":
        from ._data.accessor import (  # pylint: disable=import-outside-toplevel
            AsynchronousDataAccessor,
        )

        return AsynchronousDataAccessor
    raise AttributeError(f"module 'poptorch' has no attribute '{name}'")
