"""The classes that modules have while trainingModel wraps them."""

from typing import Dict

from torch import nn

#: The attribute of a wrapped module: a weak reference to its executor.
EXECUTOR = "_poptorch_executor"

_classes: Dict[type, type] = {}


def wrapped_class(base: type) -> type:
    """The class that a module has while it is wrapped."""
    if base not in _classes:

        def destroy(self) -> None:
            """Unwraps the model: see PoplarExecutor.destroy."""
            executor = self.__dict__[EXECUTOR]()
            if executor is not None:
                executor.destroy()

        def getstate(self):
            state = dict(self.__dict__)
            state.pop(EXECUTOR, None)
            return state

        def reduce(self, protocol):
            return _unpickled, (base,), getstate(self)

        members = {
            "destroy": destroy,
            "__reduce_ex__": reduce,
            "__module__": base.__module__,
            "__doc__": base.__doc__,
        }
        _classes[base] = type(f"Poptorch{base.__name__}", (base,), members)
    return _classes[base]


def _unpickled(base: type) -> nn.Module:
    return base.__new__(base)
