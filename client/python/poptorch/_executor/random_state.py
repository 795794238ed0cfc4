"""The state of random numbers on the device: a seed, and a count of micro-batches."""

from typing import Any, List

import torch

from .._logging import native
from . import weights
from .core import call

# Variables of each IPU that draws random numbers, and their bytes.
_SEED, _COUNTER = "random/seed", "random/counter"
_BYTES = {_SEED: 8, _COUNTER: 4}


def _variables(model: Any, prefix: str) -> List[str]:
    return sorted(name for name in model.variables() if name.startswith(prefix))


def _read(model: Any, prefix: str) -> int:
    names = _variables(model, prefix)[:1]
    memory = torch.zeros(_BYTES[prefix], dtype=torch.uint8)
    if names:
        entries = weights.HostMemory([(names[0], memory)]).entries
        call(model.read_state, entries)
    return int.from_bytes(bytes(memory.tolist()), "little")


def _write(model: Any, prefix: str, value: int) -> None:
    data = (value % 256 ** _BYTES[prefix]).to_bytes(_BYTES[prefix], "little")
    memory = torch.tensor(list(data), dtype=torch.uint8)
    chosen = [(name, memory) for name in _variables(model, prefix)]
    call(model.write_state, weights.HostMemory(chosen).entries)


def random_state(model: Any) -> List[int]:
    """Seed and count; zeros of a model that draws nothing.

    Args:
        model: a loaded poptorch_core.Model.
    """
    native.debug("Reading random seed")
    native.debug("Reading RNG state")
    return [_read(model, _SEED), _read(model, _COUNTER)]


def check_random_state(state: List[int]) -> None:
    """Raises ValueError unless this can be the state of random numbers."""
    if len(state) != 2:
        raise ValueError(f"The state of random numbers has {len(state)} numbers, must have 2")


def set_random_state(model: Any, state: List[int]) -> None:
    """Goes on from a state that `random_state` returned.

    Raises:
        ValueError: it is none.
    """
    check_random_state(state)
    native.debug("Setting random seed to: %d", state[0])
    native.debug("Setting RNG state")
    _write(model, _SEED, state[0])
    _write(model, _COUNTER, state[1])
