"""Log lines of PopTorch: `[HH:MM:SS.mmm] [logger] [level] message`.

There are two loggers, as in the original. `logger` is that of the Python layer; its lines also go
to handlers of the root logger. `native` is that of the layer below: its lines go straight to the
process's standard error, or to POPTORCH_LOG_DEST. The levels of both follow POPTORCH_LOG_LEVEL and
`setLogLevel`.
"""

import faulthandler
import logging
import os
import sys
import traceback
from typing import Callable, Dict, Union

from . import _errors

TRACE = 5
_OFF = logging.CRITICAL + 1

_LEVELS: Dict[str, int] = {
    "DEBUG": logging.DEBUG,
    "ERR": logging.ERROR,
    "INFO": logging.INFO,
    "OFF": _OFF,
    "TRACE": TRACE,
    "WARN": logging.WARNING,
}
# Finer levels of the original, which show its intermediate graphs, too.
_ALIASES = {"TRACE_ALL": "TRACE", "DEBUG_IR": "DEBUG"}
_NUMBERS = {0: "TRACE", 1: "DEBUG", 2: "INFO", 3: "WARN", 4: "ERR", 6: "OFF"}

_WORDS = {
    TRACE: "trace",
    logging.DEBUG: "debug",
    logging.INFO: "info",
    logging.WARNING: "warning",
    logging.ERROR: "error",
    logging.CRITICAL: "critical",
}
_COLOURS = {
    TRACE: "\033[37m",
    logging.DEBUG: "\033[36m",
    logging.INFO: "\033[32m",
    logging.WARNING: "\033[33m\033[1m",
    logging.ERROR: "\033[31m\033[1m",
    logging.CRITICAL: "\033[1m\033[41m",
}
_RESET = "\033[m"


class _Formatter(logging.Formatter):
    """Formats a record as one line; the level is coloured if `is_terminal` says so."""

    def __init__(self, is_terminal: Callable[[], bool]) -> None:
        super().__init__("[%(asctime)s.%(msecs)03d] [%(name)s] [%(word)s] %(message)s", "%H:%M:%S")
        self._is_terminal = is_terminal

    def format(self, record: logging.LogRecord) -> str:
        word = _WORDS.get(record.levelno, record.levelname.lower())
        if self._is_terminal() and record.levelno in _COLOURS:
            word = f"{_COLOURS[record.levelno]}{word}{_RESET}"
        record.word = word
        return super().format(record)


class _StandardError(logging.StreamHandler):
    """Writes to what `sys.stderr` is at the time, as programs and tests exchange it."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self.setFormatter(_Formatter(lambda: getattr(self.stream, "isatty", bool)()))

    @property
    def stream(self):
        return sys.stderr


class _Descriptor(logging.Handler):
    """Writes to a file descriptor, whatever `sys.stderr` is."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self.setFormatter(_Formatter(lambda: os.isatty(descriptor)))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            os.write(self._descriptor, (self.format(record) + "\n").encode("utf-8", "replace"))
        except OSError:
            pass  # A closed standard error must not end the program.


def _handler_of_native() -> logging.Handler:
    destination = os.environ.get("POPTORCH_LOG_DEST", "stderr")
    if destination in ("", "stderr"):
        return _Descriptor(2)
    if destination == "stdout":
        return _Descriptor(1)
    try:
        handler = logging.FileHandler(destination)
    except OSError as error:
        raise ValueError(_errors.LOG_DESTINATION % (destination, error.strerror)) from None
    handler.setFormatter(_Formatter(lambda: False))
    return handler


logging.addLevelName(TRACE, "TRACE")
#: The logger of the Python layer.
logger = logging.getLogger("poptorch::python")
#: The logger of the layer below.
native = logging.getLogger("poptorch:cpp")


def setLogLevel(level: Union[str, int]) -> None:
    """Sets the level from which on log lines appear.

    Args:
        level: "TRACE", "DEBUG", "INFO", "WARN", "ERR" or "OFF", or 0 for TRACE to 4 for ERR and 6
            for OFF.
    """
    if isinstance(level, int) and not isinstance(level, bool):
        if level not in _NUMBERS:
            raise ValueError(_errors.LEVEL_INTEGER)
        level = _NUMBERS[level]
    number = _LEVELS.get(_ALIASES.get(level, level)) if isinstance(level, str) else None
    if number is None:
        raise ValueError(_errors.LEVEL_NAME % (level,))
    logger.setLevel(number)
    native.setLevel(number)


def setPopartLogLevel(level: str) -> None:
    """Sets the level of PopART's log lines. Accepted without effect: there is no PopART.

    Args:
        level: "TRACE", "DEBUG", "INFO", "WARN", "ERR" or "OFF".
    """
    if not isinstance(level, str) or level not in _LEVELS:
        raise ValueError(_errors.LEVEL_ONE_OF % ", ".join(_LEVELS))


def _log_uncaught(error_type, error, where) -> None:
    """Logs an exception that ends the program, its last line first."""
    if issubclass(error_type, KeyboardInterrupt) or not logger.isEnabledFor(logging.CRITICAL):
        sys.__excepthook__(error_type, error, where)
        return
    lines = traceback.format_exception(error_type, error, where)
    logger.critical("%s\n%s", lines[-1].rstrip("\n"), "".join(lines))


def install_hooks() -> None:
    """Makes crashes and uncaught exceptions of the program visible in the log."""
    sys.excepthook = _log_uncaught
    if not faulthandler.is_enabled():
        try:
            faulthandler.enable()
        except (AttributeError, OSError, ValueError):
            pass  # Standard error is no file, as in notebooks.


def _initialise() -> None:
    if not logger.handlers:
        logger.addHandler(_StandardError())
        native.addHandler(_handler_of_native())
        native.propagate = False
    try:
        setLogLevel(os.environ.get("POPTORCH_LOG_LEVEL") or "WARN")
    except ValueError as error:
        raise ValueError(f"POPTORCH_LOG_LEVEL: {error}") from None


_initialise()
