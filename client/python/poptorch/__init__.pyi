from typing import Any

from . import enums as enums, optim as optim, options as options
from ._blocks import (
    BeginBlock as BeginBlock,
    Block as Block,
    BlockFunction as BlockFunction,
    BlockId as BlockId,
    LegacyBeginBlockFn as LegacyBeginBlockFn,
    removeBlocks as removeBlocks,
)
from ._capture.losses import identity_loss as identity_loss
from ._custom_parsers import (
    ICustomArgParser as ICustomArgParser,
    registerCustomArgParser as registerCustomArgParser,
)
from ._data.accessor import AsynchronousDataAccessor as AsynchronousDataAccessor
from ._data.dataloader import DataLoader as DataLoader
from ._errors import (
    Error as Error,
    RecoverableError as RecoverableError,
    UnrecoverableError as UnrecoverableError,
)
from ._executor.hardware import (
    ipuHardwareIsAvailable as ipuHardwareIsAvailable,
    ipuHardwareVersion as ipuHardwareVersion,
)
from ._executor.model import (
    inferenceModel as inferenceModel,
    isRunningOnIpu as isRunningOnIpu,
    trainingModel as trainingModel,
)
from ._executor.poplar_executor import PoplarExecutor as PoplarExecutor
from ._logging import logger as logger, setLogLevel as setLogLevel
from ._printing import module_repr as module_repr, print as print
from .enums import (
    AutoStage as AutoStage,
    CommGroupType as CommGroupType,
    ConnectionType as ConnectionType,
    DataLoaderMode as DataLoaderMode,
    HalfFloatCastingBehavior as HalfFloatCastingBehavior,
    Liveness as Liveness,
    MatMulSerializationMode as MatMulSerializationMode,
    MeanReductionStrategy as MeanReductionStrategy,
    MultiConvPlanType as MultiConvPlanType,
    OutputMode as OutputMode,
    OverlapMode as OverlapMode,
    ReductionType as ReductionType,
    SharingStrategy as SharingStrategy,
    SyncPattern as SyncPattern,
    VariableRetrievalMode as VariableRetrievalMode,
)
from .options import (
    Attribute as Attribute,
    ConfigFileError as ConfigFileError,
    Options as Options,
    ParallelPhasedExecution as ParallelPhasedExecution,
    Phase as Phase,
    PipelinedExecution as PipelinedExecution,
    SerialPhasedExecution as SerialPhasedExecution,
    ShardedExecution as ShardedExecution,
    Stage as Stage,
    TensorLocationSettings as TensorLocationSettings,
)

__version__: str
poptorch_core: Any
