"""Options as the plain dictionary that the extension takes."""

from typing import Any, Dict

from .. import _errors, enums

_RECOMPUTATIONS = ("none", "standard", "norm-only", "pipeline", "all")
OUTPUT_MODES = {
    enums.OutputMode.All: "all",
    enums.OutputMode.Final: "final",
    enums.OutputMode.Sum: "sum",
    enums.OutputMode.EveryN: "every-n",
}
_OFF_CHIP = {
    "location_activation": "off_chip_activations",
    "location_weight": "off_chip_weights",
    "location_optimizer": "off_chip_optimizer_state",
    "location_accumulator": "off_chip_accumulators",
}


def model_options(options, training: bool) -> Dict[str, Any]:
    """The options of a model.

    Args:
        options: poptorch.Options, with an output mode.
        training: whether the model trains.

    Raises:
        poptorch.Error: the return period of EveryN does not fit the device iterations.
    """
    core = {
        "training": training,
        "name": "training" if training else "inference",
        "device_iterations": options.device_iterations,
        "gradient_accumulation": options.Training.gradient_accumulation,
        "replicas": options.replication_factor,
        "processes": options.Distributed.numProcesses,
        "input_group_size": options.input_group_size,
        "orthogonal_input_groups": options.input_group_type == enums.CommGroupType.Orthogonal,
        "schedule": _schedule(options),
        "round_ipus_up": options.auto_round_num_ipus,
        "loss_reduction": _reduction(options.Training),
        "memory_proportions": {
            ipu: share for ipu, share in options.available_memory_proportion.items() if share > 0
        },
    }
    _add_outputs(core, options)
    _add_locations(core, options)
    _add_popart(core, options._Popart.options)
    core["report_name"] = model_name(options, training)
    cache = cache_directory(options)
    if cache:
        core["cache_directory"] = cache
    if hasattr(options, "random_seed"):
        core["seed"] = options.random_seed % 2**64
    return core


def model_name(options, training: bool) -> str:
    """The name of a model in profiles and messages: that of the options, or what it does."""
    return getattr(options, "model_name", "training" if training else "inference")


def cache_directory(options) -> str:
    """The directory of the executable cache; "" if there is none."""
    popart = options._Popart.options
    return popart.get("cachePath", "") if popart.get("enableEngineCaching") else ""


def _schedule(options) -> str:
    mode = options._execution_strategy.backendOptions()["execution_mode"]
    return ("pipelined", "sharded", "phased")[mode]


def _reduction(training) -> str:
    if training.accumulation_and_replication_reduction_type == enums.ReductionType.Sum:
        return "sum"
    strategy = training.meanAccumulationAndReplicationReductionStrategy
    running = strategy == enums.MeanReductionStrategy.Running
    return "running-mean" if running else "mean"


def _add_outputs(core: Dict[str, Any], options) -> None:
    mode = options.output_mode
    core["output_mode"] = OUTPUT_MODES[mode]
    if mode == enums.OutputMode.EveryN:
        period = options.output_return_period
        if period > options.device_iterations:
            raise _errors.cpp_error("Return period must be <= to the number of batches per step")
        if options.device_iterations % period:
            raise _errors.cpp_error(
                "Return period must be a factor of the number of batches per step"
            )
        core["output_period"] = period


def _add_locations(core: Dict[str, Any], options) -> None:
    for location, name in _OFF_CHIP.items():
        settings = getattr(options.TensorLocations, location, None) or {}
        if "onChip" in settings:
            core[name] = not settings["onChip"]
    settings = getattr(options.TensorLocations, "location_optimizer", None) or {}
    if settings.get("useReplicatedTensorSharding"):
        core["tensor_shards"] = options.replication_factor


def _add_loss_scaling(core: Dict[str, Any], popart: Dict[str, Any]) -> None:
    def setting(name: str, default):
        return popart.get(f"automaticLossScalingSettings.{name}", default)

    if not core["training"] or not setting("enabled", False):
        return
    if setting("gradientTensorTrackingMethod", 0) != 0:
        raise _errors.cpp_error(_errors.GRADIENT_TRACKING)
    period = setting("updatePeriod", 1)
    if not 1 <= period <= 2**24:
        raise _errors.cpp_error(_errors.LOSS_SCALE_PERIOD % period)
    core["automatic_loss_scale"] = {
        "bin_edge": setting("binEdgeLocation", 0.125),
        "upper_proportion": setting("thresholdUpperCountProportion", 1e-7),
        "period": period,
    }


def _add_popart(core: Dict[str, Any], popart: Dict[str, Any]) -> None:
    if "autoRecomputation" in popart:
        core["recomputation"] = _RECOMPUTATIONS[popart["autoRecomputation"]]
    if "partialsTypeMatMuls" in popart:
        core["partials"] = popart["partialsTypeMatMuls"]
    core["synthetic_data"] = bool(popart.get("syntheticDataMode", 0))
    core["stochastic_rounding"] = bool(popart.get("enableStochasticRounding", False))
    _add_loss_scaling(core, popart)
    core["check_finite"] = bool(popart.get("enableFloatingPointChecks", False))
    engine = popart.get("engineOptions", {})
    core["engine_options"] = {name: str(value) for name, value in engine.items()}
