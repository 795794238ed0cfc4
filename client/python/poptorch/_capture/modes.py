"""PyTorch's stacks of modes, put back to where they were.

A `with` statement is not enough: Control-C can arrive between its body and the exit of the mode, or
while PyTorch has a mode popped for a moment.
"""

import contextlib
from typing import Callable

from torch import overrides
from torch.utils import _python_dispatch as dispatch


def enter(stack: contextlib.ExitStack, function_mode, dispatch_mode) -> Callable[[], None]:
    """Enters two modes and returns what leaves them; the stack leaves them in any case."""
    functions = overrides._get_current_function_mode_stack()
    operators = dispatch._get_current_dispatch_mode_stack()

    def leave() -> None:
        count, clear = dispatch._len_torch_dispatch_stack, dispatch._set_torch_dispatch_mode
        _restore(dispatch, count, clear, operators)
        count, clear = overrides._len_torch_function_stack, overrides._set_torch_function_mode
        _restore(overrides, count, clear, functions)

    stack.callback(leave)
    function_mode.__enter__()
    dispatch_mode.__enter__()
    return leave


def _restore(owner, count, clear, before: list) -> None:
    while count() > len(before):
        owner._pop_mode()
    for mode in before[count() :]:
        owner._push_mode(mode)
    if not before:  # a mode may be set although the stack is empty
        clear(None)
