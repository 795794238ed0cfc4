"""The executor under the name by which public programs import it."""

from ._executor.poplar_executor import PoplarExecutor

__all__ = ["PoplarExecutor"]
