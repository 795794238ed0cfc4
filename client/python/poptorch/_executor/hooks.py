"""Functions of the program that are called before and after a model is compiled."""

from collections import OrderedDict
from typing import Callable

from torch.utils.hooks import RemovableHandle

_before: "OrderedDict[int, Callable[[], None]]" = OrderedDict()
_after: "OrderedDict[int, Callable[[], None]]" = OrderedDict()


def _register(hooks: "OrderedDict[int, Callable[[], None]]", name: str, hook) -> RemovableHandle:
    if not callable(hook):
        raise RuntimeError(f"{name} hook must be callable")
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


def registerPreCompileHook(  # pylint: disable=invalid-name
    hook: Callable[[], None]
) -> RemovableHandle:
    """Lets a function be called before each model is compiled, after those registered earlier.

    Args:
        hook: takes no arguments.

    Returns:
        A handle whose `remove()` ends it.

    Raises:
        RuntimeError: the hook cannot be called.
    """
    return _register(_before, "Pre-compile", hook)


def registerPostCompileHook(  # pylint: disable=invalid-name
    hook: Callable[[], None]
) -> RemovableHandle:
    """Lets a function be called after each model was compiled: see registerPreCompileHook."""
    return _register(_after, "Post-compile", hook)


def before_compilation() -> None:
    """Calls the hooks of registerPreCompileHook."""
    for hook in list(_before.values()):
        hook()


def after_compilation() -> None:
    """Calls the hooks of registerPostCompileHook."""
    for hook in list(_after.values()):
        hook()
