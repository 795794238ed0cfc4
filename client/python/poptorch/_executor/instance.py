"""Whether this process is an instance of a job of poprun, without the program's knowledge."""

import os
import sys

from .. import _errors
from .._logging import logger

_PREFIX = "POPDIST_"
_has_warned = False


def _is_initialised() -> bool:
    """Whether the program has called popdist.init()."""
    popdist = sys.modules.get("popdist")
    return bool(getattr(popdist, "isBackendInitialized", bool)())


def warn_of_job() -> None:
    """Warns, once, if the variables of poprun are set and popdist.init() was never called."""
    global _has_warned  # pylint: disable=global-statement
    names = sorted(name for name in os.environ if name.startswith(_PREFIX))
    if _has_warned or not names or _is_initialised():
        return
    _has_warned = True
    logger.warning(_errors.JOB_NOT_INITIALISED, ", ".join(names))
