"""The extension poptorch_core, which is loaded by the first model, and its errors."""

import importlib
import os
import re
import socket
from typing import Any, Sequence

from .. import _environment, _errors
from .._options.popart import validate

_PASSING = ("UNAVAILABLE", "ABORTED", "DEADLINE_EXCEEDED")

_extension = None


def core():
    """The extension.

    Raises:
        ImportError: it is not built, or its libraries cannot be loaded.
    """
    global _extension  # pylint: disable=global-statement
    if _extension is None:
        # A statement would ask the package for the attribute, which asks this function.
        try:
            poptorch_core = importlib.import_module("poptorch.poptorch_core")
        except ImportError as error:
            raise ImportError(str(_environment.extension_fault(error))) from None
        for each in (_errors.Error, _errors.RecoverableError, _errors.UnrecoverableError):
            setattr(poptorch_core, each.__name__, each)
        poptorch_core._validateOptions = validate
        _extension = poptorch_core
    return _extension


def call(function, *args) -> Any:
    """Calls a function of the extension, and raises its errors as poptorch's."""
    try:
        return function(*args)
    except core().StatusError as error:
        code, message = error.args
        raise _poptorch_error(code, message) from None


def load(model, *device, holders: Sequence[str] = ()) -> None:
    """Loads a compiled model. A program that `vpod plan` runs ends here: it has been compiled.

    Args:
        model: a poptorch_core.Model.
        device: the arguments of its `load`.
        holders: the names of the models of this process that have IPUs, for an error.
    """
    try:
        model.load(*device)
    except core().StatusError as error:
        code, message = error.args
        if code == "CANCELLED":
            raise SystemExit(0) from None
        if _is_held_by_this_process(message):
            who = f", {_named(holders)}" if holders else ""
            message = _errors.HELD_BY_THIS_PROCESS % (message.rstrip(". "), who)
        raise _poptorch_error(code, message) from None


def _is_held_by_this_process(message: str) -> bool:
    """Whether an agent's refusal says that this process has the IPUs already."""
    holder = re.search(r"in use by process (\d+) \(.*\)(?: of .*)? on ([^\s,]+), attached", message)
    return holder is not None and holder.groups() == (str(os.getpid()), socket.gethostname())


def _named(models: Sequence[str]) -> str:
    """Models in words, such as "models 'a' and 'b'"."""
    quoted = [f"'{name}'" for name in models]
    if len(quoted) == 1:
        return f"model {quoted[0]}"
    return f"models {', '.join(quoted[:-1])} and {quoted[-1]}"


def _poptorch_error(code: str, message: str) -> Exception:
    error = _errors.cpp_error(message)
    # A profile that cannot be written has a code of the same kind as IPUs that do not answer.
    passes = code in _PASSING and not message.startswith("the profile that ")
    return _errors.recoverable(error) if passes else error
