"""Parameters and buffers of a module, and the meta tensors that stand for them in a capture."""

import contextlib
from typing import Any, Dict, List, Tuple

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from . import errors
from .recorder import Recorder

_TABLES = ("_parameters", "_buffers")
_OWN = frozenset(_TABLES + ("_modules",))
_DEPTH = 4  # of lists, tuples and dictionaries that are searched for parameters


class Twins:
    """Exchanges parameters and buffers until the stack is left.

    A tensor has one twin, however many modules and lists it is in, so that ties stay ties.
    """

    def __init__(
        self,
        stack: contextlib.ExitStack,
        module,
        recorder: Recorder,
        grouped: Dict[int, Tuple[int, bool]],
    ) -> None:
        """
        Args:
            stack: ends the exchange.
            module: whose tensors are exchanged.
            recorder: of the capture.
            grouped: see `capture`. The twin of such a parameter has the shape of one row.
        """
        self._recorder = recorder
        self._grouped = grouped
        self._twins: Dict[int, torch.Tensor] = {}
        self._state: List[tuple] = []
        self._modules: List[Tuple[str, nn.Module]] = []
        self._before: List[Tuple[dict, dict]] = []  # dictionaries, and what was exchanged in them
        recorder.originals = self.originals
        if not isinstance(module, nn.Module):
            return
        self._modules = list(module.named_modules())
        for path, part in self._modules:
            for kind, table in zip(_TABLES, (part._parameters, part._buffers)):
                self._add_table(f"{path}." if path else "", kind, table)
        for path, part in self._modules:
            self._exchange(stack, part)

    def _add_table(self, prefix: str, kind: str, table: dict) -> None:
        for name, tensor in table.items():
            if tensor is None or id(tensor) in self._twins:
                continue
            shape = tensor.shape[1:] if id(tensor) in self._grouped else tensor.shape
            twin = torch.empty(shape, dtype=tensor.dtype, device="meta")
            if kind == "_parameters":
                twin = nn.Parameter(twin, requires_grad=tensor.requires_grad)
                twin.__dict__.update(tensor.__dict__)
                self._recorder.leaves.add(id(twin))
            self._twins[id(tensor)] = twin
            value = self._recorder.add(twin)
            grouping = self._grouped.get(id(tensor))
            self._state.append((kind, prefix + name, table, name, twin, value, grouping))

    def _exchange(self, stack: contextlib.ExitStack, part: nn.Module) -> None:
        for table in (part._parameters, part._buffers):
            before = dict(table)
            stack.callback(_restore_table, table, before)
            self._before.append((table, {n: t for n, t in before.items() if t is not None}))
            for name, tensor in before.items():
                if tensor is not None:
                    table[name] = self._twins[id(tensor)]
        attributes = part.__dict__
        before = dict(attributes)
        stack.callback(_restore_attributes, attributes, before)
        for name, value in before.items():
            if name not in _OWN and self._holds(value, 0):
                attributes[name] = self._exchanged(value)
                self._before.append((attributes, {name: value}))

    @contextlib.contextmanager
    def originals(self):
        """The module has its own parameters and buffers for a while."""
        now = [
            (owner, {name: owner[name] for name in before if name in owner})
            for owner, before in self._before
        ]
        for owner, before in self._before:
            owner.update(before)
        try:
            yield
        finally:
            for owner, twins in now:
                owner.update(twins)

    def _holds(self, value: Any, depth: int) -> bool:
        if isinstance(value, torch.Tensor):
            return id(value) in self._twins
        if depth == _DEPTH:
            return False
        if type(value) in (list, tuple):
            return any(self._holds(element, depth + 1) for element in value)
        if type(value) is dict:
            return any(self._holds(element, depth + 1) for element in value.values())
        return False

    def _exchanged(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._twins.get(id(value), value)
        if type(value) in (list, tuple):
            return type(value)(self._exchanged(element) for element in value)
        if type(value) is dict:
            return {key: self._exchanged(element) for key, element in value.items()}
        return value

    def finish(self) -> None:
        """Writes parameters and buffers with their final values to the tape.

        Raises:
            poptorch.Error: forward has reassigned or removed one.
        """
        exempt = {
            id(table)
            for _, part in self._modules
            if isinstance(part, _NormBase)
            for table in (part._parameters, part._buffers)
        }
        tape, recorder = self._recorder.tape, self._recorder
        for kind, path, table, name, twin, value, grouping in self._state:
            word = "Buffer" if kind == "_buffers" else "Parameter"
            now = table.get(name)
            if now is None:
                raise errors.removed(word, path)
            if now is not twin and id(table) not in exempt:
                raise errors.reassigned(word, path)
            value, final = recorder.entry(value, recorder.data_of(now))
            if kind == "_buffers":
                tape.buffers.append((path, value, final))
            else:
                if grouping is not None:
                    tape.groupings.append((len(tape.parameters), *grouping))
                tape.parameters.append((path, value, final, twin.requires_grad))


def _restore_table(table: dict, before: dict) -> None:
    table.clear()
    table.update(before)


def _restore_attributes(attributes: dict, before: dict) -> None:
    """Puts back attributes that hold tensors of the capture; others are the program's own."""
    for name, value in list(attributes.items()):
        if _on_meta(value, 0) and name not in _OWN:
            if name in before:
                attributes[name] = before[name]
            else:
                del attributes[name]
    for name, value in before.items():
        if name not in attributes and isinstance(value, torch.Tensor):
            attributes[name] = value


def _on_meta(value: Any, depth: int) -> bool:
    if isinstance(value, torch.Tensor):
        return value.is_meta
    if depth == _DEPTH:
        return False
    if isinstance(value, (list, tuple)):
        return any(_on_meta(element, depth + 1) for element in value)
    if isinstance(value, dict):
        return any(_on_meta(element, depth + 1) for element in value.values())
    return False
