"""Exceptions of PopTorch, and the texts of all errors that its Python files raise.

The classes are here, so that the package can be imported without its extension; the extension
raises these very classes.
"""

from typing import Optional

# --- Classes.


class Error(Exception):
    """Something went wrong while a model was captured, compiled or run.

    Attributes:
        message: what went wrong, without the place.
        type: the kind of error, such as "poptorch_py_error" or "poptorch_cpp_error".
        location: the steps that were under way, the innermost one first, a line each.
    """

    message: str = ""
    type: str = ""
    location: str = ""

    def __init__(
        self,
        text: str = "",
        *,
        message: Optional[str] = None,
        type: str = "",  # pylint: disable=redefined-builtin
        location: str = "",
    ) -> None:
        super().__init__(text)
        self.message = text if message is None else message
        self.type = type
        self.location = location

    def __reduce__(self):
        if globals().get(type(self).__name__) is type(self):
            return _restored, (type(self).__name__, self.args, self.__dict__)
        return super().__reduce__()


class RecoverableError(Error):
    """An error of the system after which the program can go on, once the IPUs are reset.

    Attributes:
        recovery_action: "IPU_RESET", "PARTITION_RESET" (also its IPU-Links) or "FULL_RESET"
            (power cycle).
    """

    recovery_action: str = ""

    def __init__(self, text: str = "", *, recovery_action: str = "", **fields: str) -> None:
        super().__init__(text, **fields)
        self.recovery_action = recovery_action


class UnrecoverableError(Error):
    """An error of the system after which no reset helps."""


# Programs know the classes by the module that raises them.
for _class in (Error, RecoverableError, UnrecoverableError):
    _class.__module__ = "poptorch.poptorch_core"


def _restored(name, args, fields):
    """The unpickled error of a class of this file, which needs no extension."""
    error = globals()[name](*args)
    error.__dict__.update(fields)
    return error


def py_error(text: str) -> Error:
    """An error of the Python layer: its text begins with 'poptorch_py_error'."""
    return Error(f"'poptorch_py_error': {text}", message=text, type="poptorch_py_error")


def cpp_error(text: str) -> Error:
    """An error that the original raises from its native layer."""
    return Error(text, type="poptorch_cpp_error")


