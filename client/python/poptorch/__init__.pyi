from typing import Any

from . import (
    enums as enums,
    ops as ops,
    optim as optim,
    options as options,
    profiling as profiling,
    testing as testing,
)
from ._blocks import BlockId as BlockId
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
from ._executor.hooks import (
    registerPostCompileHook as registerPostCompileHook,
    registerPreCompileHook as registerPreCompileHook,
)
from ._executor.model import (
    inferenceModel as inferenceModel,
    isRunningOnIpu as isRunningOnIpu,
    load as load,
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
from .ops import (
    BeginBlock as BeginBlock,
    Block as Block,
    BlockFunction as BlockFunction,
    CPU as CPU,
    LegacyBeginBlockFn as LegacyBeginBlockFn,
    MultiConv as MultiConv,
    NameScope as NameScope,
    ctc_beam_search_decoder as ctc_beam_search_decoder,
    custom_op as custom_op,
    dynamic_slice as dynamic_slice,
    dynamic_update as dynamic_update,
    for_loop as for_loop,
    identity_loss as identity_loss,
    ipu_print_tensor as ipu_print_tensor,
    nop as nop,
    recomputationCheckpoint as recomputationCheckpoint,
    removeBlocks as removeBlocks,
    serializedMatMul as serializedMatMul,
    set_available_memory as set_available_memory,
    set_overlap_for_input as set_overlap_for_input,
    set_overlap_for_output as set_overlap_for_output,
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
