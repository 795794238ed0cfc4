"""Options and optimisers as the plain dictionaries that the extension takes."""

import math
from typing import Any, Dict, List

import torch

from . import _errors, enums
from ._strategies import PipelinedExecution, ShardedExecution

_RECOMPUTATIONS = ("none", "standard", "norm-only", "pipeline", "all")
_OUTPUT_MODES = {
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


def output_mode(options, training: bool) -> enums.OutputMode:
    """The mode of a model whose options may leave it open."""
    mode = options.output_mode
    if mode != enums.OutputMode.Default:
        return mode
    return enums.OutputMode.Final if training else enums.OutputMode.All


def model_options(options, training: bool) -> Dict[str, Any]:
    """The options of a model.

    Args:
        options: poptorch.Options.
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
    _add_outputs(core, options, training)
    _add_locations(core, options)
    _add_popart(core, options._Popart.options)
    if hasattr(options, "random_seed"):
        core["seed"] = options.random_seed % 2**64
    return core


def _schedule(options) -> str:
    strategy = options._execution_strategy
    if isinstance(strategy, PipelinedExecution):
        return "pipelined"
    return "sharded" if isinstance(strategy, ShardedExecution) else "phased"


def _reduction(training) -> str:
    if training.accumulation_and_replication_reduction_type == enums.ReductionType.Sum:
        return "sum"
    strategy = training.meanAccumulationAndReplicationReductionStrategy
    running = strategy == enums.MeanReductionStrategy.Running
    return "running-mean" if running else "mean"


def _add_outputs(core: Dict[str, Any], options, training: bool) -> None:
    mode = output_mode(options, training)
    core["output_mode"] = _OUTPUT_MODES[mode]
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


def _add_popart(core: Dict[str, Any], popart: Dict[str, Any]) -> None:
    if "autoRecomputation" in popart:
        core["recomputation"] = _RECOMPUTATIONS[popart["autoRecomputation"]]
    if "partialsTypeMatMuls" in popart:
        core["partials"] = popart["partialsTypeMatMuls"]
    core["synthetic_data"] = bool(popart.get("syntheticDataMode", 0))
    core["stochastic_rounding"] = bool(popart.get("enableStochasticRounding", False))
    core["check_finite"] = bool(popart.get("enableFloatingPointChecks", False))
    if popart.get("enableEngineCaching") and popart.get("cachePath"):
        core["cache_directory"] = popart["cachePath"]


# --- Optimisers.

_ATTRIBUTES = {
    "sgd": ("lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize"),
    "adam": ("lr", "betas", "eps", "weight_decay", "maximize"),
    "adamw": ("lr", "betas", "eps", "weight_decay", "maximize"),
    "rmsprop": ("lr", "alpha", "eps", "weight_decay", "momentum", "centered"),
    "lamb": ("lr", "betas", "eps", "weight_decay"),
}


def _kind(optimizer: torch.optim.Optimizer) -> str:
    for kind, base in (
        ("sgd", torch.optim.SGD),
        ("adamw", torch.optim.AdamW),
        ("adam", torch.optim.Adam),
        ("rmsprop", torch.optim.RMSprop),
    ):
        if isinstance(optimizer, base):
            return kind
    if type(optimizer).__name__ == "LAMB":
        return "lamb"
    raise ValueError(
        "Unsupported optimizer type. Types supported ['SGD', 'Adam', 'AdamW', 'RMSprop', 'LAMB']"
        f", but got {type(optimizer).__name__}"
    )


def optimizer_options(optimizer: torch.optim.Optimizer, names: Dict[int, str]) -> Dict[str, Any]:
    """An optimiser's hyper-parameters.

    Args:
        optimizer: of torch.optim or poptorch.optim.
        names: the names of the model's parameters by their identity.

    Raises:
        ValueError: the optimiser is of a kind that the device does not have.
    """
    kind = _kind(optimizer)
    groups: List[Dict[str, Any]] = []
    for group in optimizer.param_groups:
        if group.get("amsgrad"):
            raise ValueError("Only non-amsgrad Adam/AdamW optimizers are supported.")
        values = {name: _number(group[name]) for name in _ATTRIBUTES[kind] if name in group}
        values.setdefault("maximize", False)
        parameters = [names[id(p)] for p in group["params"] if id(p) in names]
        groups.append({"parameters": parameters, **values})
    norm = getattr(optimizer, "max_grad_norm", None)
    loss_scale = getattr(optimizer, "loss_scaling", None)
    return {
        "kind": kind,
        "groups": groups,
        "loss_scale": None if loss_scale is None else float(loss_scale),
        "max_grad_norm": None if norm is None or math.isinf(norm) else float(norm),
    }


def _number(value: Any) -> Any:
    """A number of Python for one of torch."""
    return value.item() if isinstance(value, torch.Tensor) else value
