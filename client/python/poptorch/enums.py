"""Enumerations of the options and annotations.

Members that the device reads are integers, so that `OutputMode.All == 2` holds and options can be
written down as plain numbers. They print by name, as in `OutputMode.All`.
"""

import enum

__all__ = [
    "AutoStage",
    "CommGroupType",
    "ConnectionType",
    "DataLoaderMode",
    "HalfFloatCastingBehavior",
    "Liveness",
    "MatMulSerializationMode",
    "MeanReductionStrategy",
    "MultiConvPlanType",
    "OutputMode",
    "OverlapMode",
    "ReductionType",
    "SharingStrategy",
    "SyncPattern",
    "VariableRetrievalMode",
]


class _NamedInteger(enum.IntEnum):
    """An integer that prints as `Class.Member` with every supported version of Python."""

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class OutputMode(_NamedInteger):
    """Which micro-batches' results a call of a model returns."""

    #: The last micro-batch of each replica: the default of training.
    Final = 0
    #: Every N-th device iteration; N is the return period.
    EveryN = 1
    #: All micro-batches: the default of inference.
    All = 2
    #: One sum over device iterations and gradient accumulation for each replica.
    Sum = 3
    #: Final for training, All for inference.
    Default = 4


class ConnectionType(_NamedInteger):
    """When a model attaches to IPUs."""

    #: Before it is compiled.
    Always = 0
    #: After it is compiled, so that no IPU waits for the compiler.
    OnDemand = 1
    #: Never: the model can be compiled, saved and loaded elsewhere.
    Never = 2


class ReductionType(_NamedInteger):
    """How gradients of micro-batches and replicas are combined."""

    Sum = 0
    Mean = 1
    #: Gradients are left as they are. No option accepts it.
    NoReduction = 2


class MeanReductionStrategy(_NamedInteger):
    """When the division of a mean over micro-batches takes place."""

    #: The accumulator always holds the mean of the micro-batches so far: it suits half precision.
    Running = 0
    #: The accumulator holds a sum, which is divided once, before the update.
    Post = 1
    #: Deprecated: the loss is divided by the replicas, the accumulator by the micro-batches.
    PostAndLoss = 2


class SyncPattern(_NamedInteger):
    """How IPUs synchronise. It changes timing only, never results."""

    Full = 0
    SinglePipeline = 1
    ReplicaAndLadder = 2


class DataLoaderMode(_NamedInteger):
    """Where a DataLoader assembles its batches."""

    #: In the calling process, when the batch is asked for.
    Sync = 0
    #: In a process of its own, ahead of time.
    Async = 1
    #: As Async; workers load single items, and that process assembles them.
    AsyncRebatched = 2


class SharingStrategy(_NamedInteger):
    """How the data set reaches the process of an asynchronous loader."""

    SharedMemory = 0
    FileSystem = 1
    Fork = 2
    ForkServer = 3


class Liveness(_NamedInteger):
    """When tensors of SerialPhasedExecution leave the IPU for streaming memory."""

    #: They stay on the IPU.
    AlwaysLive = 0
    #: They leave after the last forward phase and return before the first backward phase.
    OffChipAfterFwd = 1
    #: As OffChipAfterFwd, and the copies do not overlap with computation.
    OffChipAfterFwdNoOverlap = 2
    #: They leave after each phase.
    OffChipAfterEachPhase = 3


class CommGroupType(_NamedInteger):
    """How replicas form groups. R is the number of replicas, g the size of a group."""

    #: One group of all replicas.
    All = 0
    #: {0 … g−1}, {g … 2g−1}, …
    Consecutive = 1
    #: {0, m, 2m, …}, {1, m+1, …}, … with m = R / g.
    Orthogonal = 2
    #: Each replica is a group of its own.
    NoGrouping = 3


class VariableRetrievalMode(_NamedInteger):
    """Which replicas a variable of groups is read back from."""

    #: From the first replica of each group.
    OnePerGroup = 0
    #: From each replica.
    AllReplicas = 2


class AutoStage(_NamedInteger):
    """How blocks become stages if the execution strategy does not list them."""

    #: The stage of a block has the number of the block's IPU.
    SameAsIpu = 0
    #: Each new block gets the next stage, counting from 1; what precedes all blocks is stage 0.
    AutoIncrement = 1


class MultiConvPlanType(_NamedInteger):
    """Whether the convolutions of a MultiConv run at once or one after the other."""

    Parallel = 0
    Serial = 1


class MatMulSerializationMode(enum.Enum):
    """The dimension along which serializedMatMul is split."""

    InputChannels = "input_channels"
    ReducingDim = "reducing_dim"
    OutputChannels = "output_channels"
    Disabled = "none"


class OverlapMode(enum.Enum):
    """The loop in which a transfer between host and IPU overlaps with computation."""

    NoOverlap = "no_overlap"
    OverlapAccumulationLoop = "overlap_accumulation_loop"
    OverlapDeviceIterationLoop = "overlap_device_iteration_loop"


class HalfFloatCastingBehavior(_NamedInteger):
    """Deprecated: operators of half and float32 inputs compute in float32, as in PyTorch."""

    FloatDowncastToHalf = 0
    HalfUpcastToFloat = 1
    Default = 2
