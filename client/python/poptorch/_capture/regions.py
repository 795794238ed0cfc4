"""Gradients that a program defines: `torch.autograd.Function` and hooks of tensors.

The backward function runs once, while forward is captured, on meta tensors that stand for the
gradients of its outputs, the *cotangents*. What it does is a **region**:

    (name, cotangents, gradients, records)

with values for the cotangents, and for the gradient of each input of the region (-1: none). Its
records look like the tape's and read any values of forward, of whatever place in the program, and
the cotangents. In the tape's records stands

    poptorch::region.default([uses of values], [uses of inputs], number of the region)

whose outputs equal the values, and pass their gradients to the inputs through the region.
"""

import contextlib
from typing import Callable, List, Optional, Tuple

import torch
from torch.autograd.function import BackwardCFunction
from torch.utils.hooks import RemovableHandle

from .patches import Patches
from .recorder import META, Recorder, active
from .tape import REGION

_Use = Optional[Tuple[int, bool]]


class _Call:
    """A call of an autograd function whose forward has run."""

    def __init__(self, regions, context, args, uses: List[_Use], outputs: tuple) -> None:
        self._regions, self.context, self.args = regions, context, args
        self.uses, self.outputs = uses, outputs

    def finish(self) -> bool:
        """Makes its region; False if PyTorch has not returned from the call yet."""
        return self._regions.finish(self)

    def gives(self, tensor: torch.Tensor) -> bool:
        """Whether the call has returned and this is one of its results."""
        return _among(tensor, self.outputs) and isinstance(tensor.grad_fn, type(self.context))


class Regions:
    """Makes regions while a recorder is active."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def watch(self, stack: contextlib.ExitStack, patches: Patches) -> None:
        """Sees calls of autograd functions, also by an `apply` that was taken from its class.

        PyTorch makes a context for each call, and then asks the class for `forward`.
        """

        def begin(context, *_):
            if active() is self._recorder and torch.is_grad_enabled():
                self._watch_forward(stack, context)

        patches.set(BackwardCFunction, "__init__", begin)
        patches.wrap(torch.Tensor, "register_hook", self._register_hook)

    def _watch_forward(self, stack: contextlib.ExitStack, context) -> None:
        function = context._forward_cls
        had = "forward" in vars(function)
        own, forward = vars(function).get("forward"), function.forward

        def restore() -> None:
            if had:
                function.forward = own
            elif "forward" in vars(function):
                del function.forward

        def watched(context, *args):
            restore()
            return self._forward(forward, context, args)

        stack.callback(restore)
        function.forward = staticmethod(watched)

    def _forward(self, forward: Callable, context, args: tuple):
        recorder = self._recorder
        recorder.finish_calls()
        with torch.enable_grad():
            uses = [
                recorder.use(a) if isinstance(a, torch.Tensor) and recorder.knows(a) else None
                for a in args
            ]
        result = forward(context, *args)
        dirty = getattr(context, "dirty_tensors", None) or ()
        outputs = result if isinstance(result, tuple) else (result,)
        # PyTorch would make views of inputs that are returned as they are.
        outputs = tuple(
            o.view_as(o) if _among(o, args) and not _among(o, dirty) else o for o in outputs
        )
        if any(use is not None and not use[1] for use in uses):
            recorder.unfinished.append(_Call(self, context, args, uses, outputs))
        return outputs if isinstance(result, tuple) else outputs[0]

    def finish(self, call: _Call) -> bool:
        """Runs the backward function; False if PyTorch has not returned from the call yet."""
        outputs = [o for o in call.outputs if isinstance(o, torch.Tensor) and o.requires_grad]
        node = next((o.grad_fn for o in outputs if o.grad_fn is not None), None)
        if not isinstance(node, type(call.context)):
            return False
        recorder = self._recorder
        values = [(recorder.data_of(output), True) for output in outputs]
        inputs = [(a, u) for a, u in zip(call.args, call.uses) if u is not None and not u[1]]
        cotangents: List[int] = []
        with recorder.region() as records, torch.no_grad():
            gradients = node.apply(*[self._cotangent(o, cotangents) for o in call.outputs])
            if not isinstance(gradients, tuple):
                gradients = (gradients,)
            pairs = zip(call.args, call.uses, gradients)
            gradients = [self._value(g, a) for a, u, g in pairs if u is not None and not u[1]]
        name = call.context._forward_cls.__name__
        made = self._add((name, cotangents, gradients, records), values, [u for _, u in inputs])
        for output, value in zip(outputs, made):
            if _among(output, call.args):
                recorder.storage.write(recorder.view_of(output), value, True, True)
            else:
                recorder.bind(output, recorder.storage.fresh(value))
        return True

    def _cotangent(self, output, cotangents: List[int]):
        recorder = self._recorder
        if not isinstance(output, torch.Tensor):
            return None
        if not output.requires_grad:
            return torch.zeros_like(output)
        with recorder.muted():
            tensor = torch.empty(output.shape, dtype=output.dtype, device=META)
        cotangents.append(recorder.add(tensor))
        return tensor

    def _value(self, gradient, of: torch.Tensor) -> int:
        if gradient is None:
            return -1
        if gradient.shape != of.shape:
            gradient = gradient.sum_to_size(of.shape)
        return self._recorder.data_of(gradient.to(of.dtype))

    def _add(self, region: tuple, values: list, uses: list) -> List[int]:
        recorder = self._recorder
        recorder.tape.regions.append(region)
        made = [recorder.tape.value_like(value) for value, _ in values]
        recorder.emit(REGION, [values, uses, len(recorder.tape.regions) - 1], made)
        return made

    def _register_hook(self, recorder: Recorder, old: Callable, args: tuple, kwargs: dict):
        tensor, hook = args
        if not recorder.knows(tensor) or not tensor.requires_grad or recorder.in_region:
            return old(*args, **kwargs)
        recorder.finish_calls()
        value = recorder.value_of(tensor)
        cotangents: List[int] = []
        with recorder.region() as records, torch.no_grad():
            cotangent = self._cotangent(tensor, cotangents)
            result = hook(cotangent)
            gradient = self._value(cotangent if result is None else result, tensor)
        if gradient != cotangents[0]:
            value, before = recorder.set_behind(value)
            name = getattr(hook, "__name__", "hook")
            recorder.tape.regions.append((name, cotangents, [gradient], records))
            number = len(recorder.tape.regions) - 1
            recorder.emit(REGION, [[(before, True)], [(before, False)], number], [value])
            recorder.tape.move_last_behind(before)
        return RemovableHandle(_Handles())


class _Handles(dict):
    """Hooks that a handle may remove: none, because the gradient is recorded already."""


def _among(tensor, tensors) -> bool:
    return isinstance(tensor, torch.Tensor) and any(tensor is other for other in tensors)
