"""The kinds of optimisers that the device has, and what it has to know of one."""

import math
from typing import Any, Dict, List, NamedTuple, Tuple

import torch

from .. import optim


class Hyper(NamedTuple):
    """The value of an attribute, and whether it must stay as it is."""

    value: Any
    constant: bool


class Kind(NamedTuple):
    """A kind of optimiser that the device has.

    Attributes:
        name: its name for the extension.
        torch_class: torch's class; poptorch.optim.LAMB itself for LAMB.
        group: the attributes of its groups that can be variable.
        settings: the attributes of the whole optimiser that are fixed, and their defaults.
    """

    name: str
    torch_class: type
    group: Tuple[str, ...]
    settings: Dict[str, Any]


_ADAPTIVE = {
    "accum_type": torch.float32,
    "first_order_momentum_accum_type": torch.float32,
    "second_order_momentum_accum_type": torch.float32,
}
_CLIPPED = {"max_grad_norm": math.inf}
KINDS = (
    Kind(
        "sgd",
        torch.optim.SGD,
        ("lr", "momentum", "dampening", "weight_decay", "nesterov"),
        {
            "use_combined_accum": False,
            "accum_type": torch.float32,
            "velocity_accum_type": torch.float32,
            **_CLIPPED,
        },
    ),
    Kind(
        "adamw",
        torch.optim.AdamW,
        ("lr", "betas", "eps", "weight_decay"),
        {"bias_correction": True, **_ADAPTIVE, **_CLIPPED},
    ),
    Kind(
        "adam",
        torch.optim.Adam,
        ("lr", "betas", "eps", "weight_decay"),
        {**_ADAPTIVE, **_CLIPPED},
    ),
    Kind(
        "rmsprop",
        torch.optim.RMSprop,
        ("lr", "alpha", "eps", "weight_decay", "momentum"),
        {"use_tf_variant": False, **_ADAPTIVE},
    ),
    Kind(
        "lamb",
        optim.LAMB,
        ("lr", "betas", "eps", "weight_decay", "max_weight_norm"),
        {"bias_correction": True, **_ADAPTIVE},
    ),
)

class OptimizerValues(NamedTuple):
    """What the device has to know of an optimiser.

    Attributes:
        kind: which one it is.
        type_name: the same for log lines, such as "SGD2".
        settings: the fixed attributes of the whole optimiser.
        loss_scaling: what the loss is multiplied by.
        defaults: the attributes of groups that do not set them.
        groups: the attributes of each group.
        maximize: whether each group maximises.
    """

    kind: Kind
    type_name: str
    settings: Dict[str, Any]
    loss_scaling: Hyper
    defaults: Dict[str, Hyper]
    groups: List[Dict[str, Hyper]]
    maximize: List[bool]
