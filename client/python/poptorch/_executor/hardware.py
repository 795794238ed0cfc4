"""The IPUs that models of this process can attach to."""

import os

from .. import _errors
from .core import core

_MK2 = 2


def is_set(name: str) -> bool:
    """Whether a variable of the environment says yes."""
    return os.environ.get(name, "0") not in ("", "0")


def uses_ipu_model(options) -> bool:
    """Whether a model runs in this process and not on IPUs.

    Args:
        options: its poptorch.Options.
    """
    chosen = getattr(options, "use_model", None)
    return _environment_says_ipu_model() if chosen is None else chosen


def _environment_says_ipu_model() -> bool:
    return is_set("POPTORCH_IPU_MODEL") or is_set("POPTORCH_SMALL_IPU_MODEL")


def ipuHardwareIsAvailable(num_ipus: int = 1) -> bool:  # pylint: disable=invalid-name
    """Whether the active partition has so many IPUs, used or not.

    It has none for programs that the environment gives the IPU Model.
    """
    return not _environment_says_ipu_model() and core().active_ipus() >= num_ipus


def ipuHardwareVersion() -> int:  # pylint: disable=invalid-name
    """The generation of the IPUs: 2, as those of an IPU-M2000 and a Bow-2000.

    Raises:
        poptorch.Error: there are none.
    """
    if not ipuHardwareIsAvailable():
        raise _errors.cpp_error("No IPU hardware available on this system")
    return _MK2
