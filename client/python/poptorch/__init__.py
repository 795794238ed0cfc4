"""PyTorch models on virtual IPUs."""

from . import enums, optim, options
from ._blocks import (
    BeginBlock,
    Block,
    BlockFunction,
    BlockId,
    LegacyBeginBlockFn,
    removeBlocks,
)
from ._custom_parsers import ICustomArgParser, registerCustomArgParser
from ._dataloader import DataLoader
from ._errors import Error, RecoverableError, UnrecoverableError
from ._hardware import ipuHardwareIsAvailable, ipuHardwareVersion
from ._logging import install_hooks, logger, setLogLevel
from ._losses import identity_loss
from ._model import inferenceModel, isRunningOnIpu, trainingModel
from ._poplar_executor import PoplarExecutor
from ._printing import module_repr, print
from .enums import *
from .options import *

__version__ = "3.2.0"

install_hooks()
del install_hooks


def __getattr__(name: str):
    # The extension is loaded when it is asked for.
    if name == "poptorch_core":
        from ._core import core  # pylint: disable=import-outside-toplevel

        return core()
    if name == "AsynchronousDataAccessor":
        from ._accessor import (  # pylint: disable=import-outside-toplevel
            AsynchronousDataAccessor,
        )

        return AsynchronousDataAccessor
    raise AttributeError(f"module 'poptorch' has no attribute '{name}'")
