"""Names of parameters and buffers on the device, where the optimiser has variables as well.

    fc1.weight                      most have the name of the program
    model/optimizer/fc1.weight      one that begins like a variable of the device's own
    Accl___fc1.weight               state of the optimiser: behind it the parameter's name there
"""

import copy
from typing import Any, Dict, Iterable, List

from .._capture.tape import Tape

# Velocities and moments, behind which the parameter's name stands.
_OF_PARAMETERS = ("Accl___", "Accl1___", "Accl2___", "Accl3___")
# What automatic loss scaling has made of the loss scale.
_LOSS_SCALE = "lossScaleUpdateFactor"
#: How the names of the optimiser's state begin: also those of the numbers of updates, and of what
#: automatic loss scaling has counted.
STATE = (*_OF_PARAMETERS, "optimizer/step", "optimizer/lossScale/", _LOSS_SCALE)
_MODEL = "model/"
_RESERVED = (
    *_OF_PARAMETERS,
    "AcclMax___",
    "optimizer/",
    "random/",
    "replica/",
    _LOSS_SCALE,
    _MODEL,
)


def on_device(name: str) -> str:
    """The device's name of a parameter or buffer. No two have the same one."""
    return _MODEL + name if name.startswith(_RESERVED) else name


def of_state(variable: str) -> str:
    """The name of state of the optimiser for the program, from the device's."""
    return _renamed(variable, lambda name: name[len(_MODEL) :] if name.startswith(_MODEL) else name)


def state_on_device(name: str) -> str:
    """The device's name of state of the optimiser."""
    return _renamed(name, on_device)


def _renamed(name: str, rename) -> str:
    for prefix in _OF_PARAMETERS:
        if name.startswith(prefix):
            return prefix + rename(name[len(prefix) :])
    return name


def groups_on_device(groups: Iterable[Iterable[str]]) -> List[List[str]]:
    """The same of the parameters of each group of an optimiser."""
    return [[on_device(name) for name in group] for group in groups]


def tape_on_device(tape: Tape) -> Tape:
    """The tape with the device's names of parameters and buffers."""
    renamed = copy.copy(tape)
    renamed.parameters = [(on_device(name), *rest) for name, *rest in tape.parameters]
    renamed.buffers = [(on_device(name), *rest) for name, *rest in tape.buffers]
    return renamed


def state_variables(variables: Dict[str, Any]) -> Dict[str, Any]:
    """The variables of the device that are the optimiser's state, as `of_state` names them."""
    return {of_state(name): v for name, v in variables.items() if name.startswith(STATE)}
