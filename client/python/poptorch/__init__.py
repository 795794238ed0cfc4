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
from ._errors import Error, RecoverableError, UnrecoverableError
from ._hardware import ipuHardwareIsAvailable, ipuHardwareVersion
from ._logging import install_hooks, logger, setLogLevel
from ._printing import module_repr, print
from .enums import *
from .options import *

__version__ = "3.2.0"

install_hooks()
del install_hooks
