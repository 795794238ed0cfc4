"""Trace points for PopVision, which `libpvti` writes if PVTI_OPTIONS is set."""

import contextlib
import importlib
import os
from typing import Any, ContextManager, Dict

from ._logging import logger

__all__ = ["Channel"]

_channels: Dict[str, Any] = {}


def _pvti():
    """The module that writes traces, or None if there are none to write."""
    if os.environ.get("PVTI_OPTIONS") is None:
        return None
    try:
        return importlib.import_module("libpvti")
    except ImportError as error:
        logger.info("Tracepoints disabled: libpvti cannot be imported: %s", error)
        return None


class Channel:
    """A named group of trace points. Without PVTI_OPTIONS or libpvti it does nothing.

    >>> channel = poptorch.profiling.Channel("MyApp")
    >>> with channel.tracepoint("load"):
    ...     batch = next(batches)
    >>> channel.instrument(loader, "__next__")
    """

    def __init__(self, name: str) -> None:
        """
        Args:
            name: of the channel; channels of one name are the same one.
        """
        self._name = name
        self._module = _pvti()
        self._channel = None
        if self._module is not None:
            if name not in _channels:
                _channels[name] = self._module.createTraceChannel(name)
            self._channel = _channels[name]

    def instrument(self, obj: Any, *methods: str) -> Any:
        """Traces each call of methods of an object.

        Args:
            obj: the object.
            methods: their names.

        Returns:
            The object.
        """
        if self._module is not None:
            self._module.instrument(obj, list(methods), self._channel)
        return obj

    def tracepoint(self, name: str) -> ContextManager:
        """A context that is traced as `channel.name`.

        Args:
            name: of the trace point.
        """
        if self._module is None:
            return contextlib.nullcontext()
        return self._module.Tracepoint(self._channel, f"{self._name}.{name}")
