"""Checks the options of a model before it is compiled, and logs them.

The names of the compiler's options and their types are those of PopART 3.2's SessionOptions
(popart/sessionoptions.hpp). Few of them act on virtual IPUs; the others are accepted, so that
programs which set them run.
"""

import numbers
from typing import Any, Dict

from .. import _errors
from .._logging import native

_BOOLS = """
    aliasZeroCopy automaticLossScalingSettings.enabled
    batchSerializationSettings.concatOnExecutionPhaseChange
    batchSerializationSettings.concatOnPipelineStageChange
    batchSerializationSettings.concatOnVirtualGraphChange compileEngine constantWeights
    decomposeGradSum delayVarUpdates disableGradAccumulationTensorStreams
    disableOptimizerStateTensorStreams dotOpNames enableDistributedReplicatedGraphs
    enableEngineCaching enableExplicitIR enableExplicitMainLoops enableFloatingPointChecks
    enableFullyConnectedPass enableGradientAccumulation enableInplaceAmbiguityChecking
    enableLoadAndOffloadRNGState enableMergeExchange enableNonStableSoftmax enableOutlining
    enableOutliningCopyCostPruning enablePipelining enablePrefetchDatastreams
    enableReplicatedGraphs enableSerializedMatmuls enableStableNorm enableStochasticRounding
    enableSupportedDataTypeCasting ensureFp32LossScaleTensor explicitRecomputation
    exportPoplarComputationGraph exportPoplarVertexGraph groupHostSync
    groupNormStridedChannelGrouping instrumentWithHardwareCycleCounter opxAliasChecking
    opxModifyChecking rearrangeAnchorsOnHost rearrangeStreamsOnHost
    replicatedCollectivesSettings.mergeAllReduceCollectives
    replicatedCollectivesSettings.mergeReduceScatterCollectives
    replicatedCollectivesSettings.prepareScheduleForMergingCollectives
    scheduleNonWeightUpdateGradientConsumersEarly separateCallOpPdfs strictOpVersions
    useHostCopyOps
""".split()

_INTEGERS = """
    accumulateOuterFragmentSettings.schedule accumulationAndReplicationReductionType
    accumulationFactor autoRecomputation autodiffSettings.stitchStrategy
    automaticLossScalingSettings.gradientTensorTrackingMethod
    automaticLossScalingSettings.updatePeriod batchSerializationSettings.batchSchedule
    batchSerializationSettings.factor batchSerializationSettings.method
    batchSerializationSettings.transformContext compilationProgressTotal defaultBufferingDepth
    defaultPrefetchBufferingDepth executionPhaseSettings.phases executionPhaseSettings.stages
    finalDotOp firstDotOp globalReplicaOffset globalReplicationFactor looseThresholdAtPeak
    meanAccumulationAndReplicationReductionStrategy mergeVarUpdate mergeVarUpdateMemThreshold
    numIOTiles patterns_level subgraphCopyingStrategy swapLimitScheduler syntheticDataMode
    transitiveClosureOptimizationThreshold virtualGraphMode
""".split()

_NUMBERS = """
    automaticLossScalingSettings.binEdgeLocation
    automaticLossScalingSettings.thresholdUpperCountProportion outlineSequenceBreakCost
    outlineThreshold timeLimitScheduler
""".split()

_STRINGS = """
    cachePath customCodeletCompileFlags kahnTieBreaker partialsTypeMatMuls saveInitializersToFile
    serializedPoprithmsShiftGraphsDir
""".split()

_LISTS = """
    accumulateOuterFragmentSettings.excludedVirtualGraphs
    automaticLossScalingSettings.toTrackTensors customCodelets dotChecks hardwareInstrumentations
""".split()

_MAPS = """
    convolutionOptions engineOptions gclOptions lstmOptions matmulOptions patterns reportOptions
""".split()

# Options of poptorch.Options, whose setters have checked them.
_CHECKED = set(
    """
    accumulation_and_replication_reduction_type anchored_tensors auto_round_num_ipus
    available_memory_proportion broadcast_buffers compilation_progress_bar_fn connection_type
    device_iterations distributed_process_id execution_mode gradient_accumulation input_group_size
    input_group_type ipu_id ipu_version location_accumulator location_activation location_optimizer
    location_weight log_dir max_repeat_logs meanAccumulationAndReplicationReductionStrategy
    model_name num_distributed_processes output_mode output_return_period random_seed
    replication_factor separate_backward_phase serial_phases_execution source_location_excludes
    sync_pattern tensors_liveness use_model
    """.split()
)

# By the type of a value: its name in messages, and the options that take it.
_KINDS = (
    (bool, "bool", set(_BOOLS)),
    (numbers.Integral, "integer", set(_INTEGERS + _NUMBERS)),
    (numbers.Real, "float", set(_NUMBERS)),
    (str, "string", set(_STRINGS)),
    ((list, tuple, set, frozenset), "list", set(_LISTS)),
    (dict, "map", set(_MAPS)),
)


def _text(value: Any) -> str:
    """A value as the log shows it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, numbers.Integral):
        return str(int(value))
    return str(value)


def _check(name: str, value: Any) -> None:
    for types, words, known in _KINDS:
        if isinstance(value, types):
            if name not in known and name not in _CHECKED:
                raise _errors.cpp_error(_errors.UNKNOWN_POPART_OPTION % (words, name))
            return
    if name not in _CHECKED:
        kind = type(value)
        raise _errors.cpp_error(_errors.UNKNOWN_POPART_TYPE % (kind.__qualname__, name))


def _log(name: str, value: Any) -> None:
    if isinstance(value, dict):
        for key, each in value.items():
            native.debug("poptorch.Options set %s[%s] to %s", name, key, _text(each))
    elif isinstance(value, (list, tuple, set, frozenset)):
        for each in sorted(value, key=str) if isinstance(value, (set, frozenset)) else value:
            native.debug("poptorch.Options added %s to %s", _text(each), name)
    elif value is not None and not callable(value):
        native.debug("poptorch.Options set %s to value %s", name, _text(value))


def validate(options: Dict[str, Any]) -> None:
    """Checks the names and types of options, and logs each at level DEBUG.

    Args:
        options: what `poptorch.Options.toDict()` returned.
    Raises:
        poptorch.Error: the compiler has no option of this name and type.
    """
    for name, value in options.items():
        _check(name, value)
        _log(name, value)
