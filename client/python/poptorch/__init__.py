"""PyTorch models on virtual IPUs."""

from . import enums, options
from ._blocks import (
    BeginBlock,
    Block,
    BlockFunction,
    BlockId,
    LegacyBeginBlockFn,
    module_repr,
    removeBlocks,
)
from ._errors import Error, RecoverableError, UnrecoverableError
from ._logging import logger, setLogLevel
from .enums import *
from .options import *

__version__ = "3.2.0"
