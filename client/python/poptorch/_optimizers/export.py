"""An optimiser for the extension, the log, and the entry "ipu_param" of state dictionaries."""

import math
from typing import Any, Dict, List, Optional, Sequence

import torch

from .._logging import native
from .values import Hyper, OptimizerValues

_LOG_NAMES = {"lr": "learning_rate"}
# Velocities times this number vanish beside the gradients that are added to them.
_LEAST_MOMENTUM = torch.finfo(torch.float32).tiny


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _shown(attributes: Dict[str, Hyper], prefix: str) -> List[str]:
    flat = []
    for name, (value, constant) in attributes.items():
        name = _LOG_NAMES.get(name, name)
        if name == "betas":
            flat += [("beta1", value[0], constant), ("beta2", value[1], constant)]
        else:
            flat.append((name, value, constant))
    return [
        f"{_camel(prefix + name)}={float(value):g}{' (const)' if constant else ''}"
        for name, value, constant in flat
    ]


def log_update(
    before: Optional[OptimizerValues], after: OptimizerValues, names: Sequence[Sequence[str]]
) -> None:
    """Logs what the device's optimiser becomes, unless it stays as it is.

    Args:
        before: the values that the device has, if any.
        after: the new ones.
        names: the names of the parameters of each group.
    """
    if before is not None and before == after:
        return
    graph = _shown(after.defaults, "default_") + _shown({"loss_scaling": after.loss_scaling}, "")
    for name, value in after.settings.items():
        if name.endswith("accum_type"):
            graph.append(f"{_camel(name)}={str(value).rpartition('.')[2]}")
    graph.append(f"useTfVariant={int(after.settings.get('use_tf_variant', False))}")
    graph.append(f"maxGradNorm={after.settings.get('max_grad_norm', math.inf):g}")
    native.debug("Updating graph optimizer with %s, %s", after.type_name, ", ".join(graph))
    for index, group in enumerate(after.groups):
        native.debug(
            "Updating group %d optimizer with %s, %s for (tensors affected %s)",
            index,
            after.type_name,
            ", ".join(_shown(group, "")),
            ", ".join(names[index]),
        )


def _momentum(kind: str, momentum: Hyper, is_compiled: bool) -> float:
    """The momentum for the device, which keeps velocities if that of the compilation is not 0.

    A momentum that can change is never compiled as 0. RMSprop with velocities takes no 0 later
    either, and SGD does.
    """
    if momentum.constant or momentum.value != 0 or (is_compiled and kind == "sgd"):
        return momentum.value
    return _LEAST_MOMENTUM


def core_dict(
    values: OptimizerValues, names: Sequence[Sequence[str]], is_compiled: bool = False
) -> Dict[str, Any]:
    """The optimiser for poptorch_core.Model.

    Args:
        values: what was read.
        names: the names of the parameters of each group.
        is_compiled: whether it is for a compiled model, and not for the compilation.
    """
    norm = values.settings.get("max_grad_norm", math.inf)
    groups = []
    for hypers, maximize, parameters in zip(values.groups, values.maximize, names):
        group: Dict[str, Any] = {name: hyper.value for name, hyper in hypers.items()}
        if "momentum" in hypers:
            group["momentum"] = _momentum(values.kind.name, hypers["momentum"], is_compiled)
        group["parameters"] = list(parameters)
        group["maximize"] = maximize
        group["centered"] = bool(values.settings.get("centered", False))
        group["constants"] = [name for name, hyper in hypers.items() if hyper.constant]
        groups.append(group)
    types = {torch.float32: "float", torch.float16: "half"}
    settings = {name: types.get(value, value) for name, value in values.settings.items()}
    return {
        **settings,
        "kind": values.kind.name,
        "groups": groups,
        "loss_scale": float(values.loss_scaling.value),
        "max_grad_norm": None if math.isinf(norm) else float(norm),
    }


def ipu_parameters(
    values: OptimizerValues, names: Sequence[Sequence[str]]
) -> Dict[str, torch.Tensor]:
    """The entry "ipu_param" of a state dictionary: scalars by the names that they have there.

    Args:
        values: what the device has.
        names: the names of the parameters of each group.
    """
    scale = float(values.loss_scaling.value)
    found = {"lossScaling_FLOAT": torch.tensor(scale)}
    for group, parameters in zip(values.groups, names):
        rate, decay = group["lr"].value, group["weight_decay"].value
        if values.kind.name == "sgd":
            rate *= 1 - group["dampening"].value
            scalars = {
                "scaledLearningRate0": rate / scale,
                "weightDecayScaleFactor0": 1 - rate * decay,
            }
        else:
            scalars = {"learningRate": rate, "weightDecay": decay}
        for name, value in scalars.items():
            for parameter in parameters:
                found[f"{name}___specific___{parameter}"] = torch.tensor(float(value))
    return found
