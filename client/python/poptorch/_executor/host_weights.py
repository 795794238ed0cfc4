"""The weights of a model: which side has newer ones, and how they get to the other."""

from typing import Any, Dict, List, Optional, Set, Tuple

import torch
from torch import nn

from .. import _errors
from .._logging import logger, native
from . import weights as _weights
from .core import call as core_call
from .device_names import on_device


class HostWeights:
    """The part of PoplarExecutor that moves parameters and buffers between host and device."""

    _model: Any
    _user_model: Any
    _core: Optional[Any]
    _state: Optional[_weights.Weights]
    _training: bool
    _on_device: Optional[_weights.Versions]
    _compiled_state: Dict[str, str]
    _kept: Dict[str, _weights.Mark]
    _written: frozenset

    def _tensors(self) -> List[Tuple[str, torch.Tensor]]:
        if not isinstance(self._model, nn.Module):
            return []
        return _weights.named_state(self._model)

    def _states(self) -> List[_weights.Weights]:
        """The states of the wrapped models whose tensors this one has."""
        return _weights.weights_of(tensor for _, tensor in self._tensors())

    def _versions(self) -> _weights.Versions:
        """What differs as soon as the host or a device has written the model's tensors."""
        return _weights.versions(self._tensors())

    def _upload(self) -> None:
        """Writes the weights to the device, unless it has them."""
        tensors = self._tensors()
        states = _weights.weights_of(tensor for _, tensor in tensors)
        for state in states:
            if state.newest_on() is not self:
                state.to_host()  # another model on these weights has trained
        before, now = self._on_device, _weights.versions(tensors)
        if now.same(before):
            return
        logger.debug("Implicit copyWeightsToDevice()")
        if self._state is not None:
            # The program may have put others in the place of tensors, or have destroyed another
            # model that had wrapped them. The device may have old values of those.
            for state in states:
                state.to_host()
            _weights.wrap(self._user_model, self._state)
        if self._training or before is None or before.states != now.states:
            self._write_weights()
            return
        # The device may have newer values of buffers that forward writes, which an upload of all
        # tensors would undo.
        self._write_weights({n for n, mark in now.marks.items() if mark != before.marks.get(n)})

    def _write_weights(self, names: Optional[Set[str]] = None) -> None:
        """Writes the host's tensors to the device.

        Args:
            names: of the tensors to write; by default all, except those of which the device has
                kept newer values.
        """
        for state in self._states():
            state.to_host()
        tensors = self._tensors()
        self._check_state(tensors)
        marks = self._versions().marks
        chosen = [
            (on_device(name), tensor)
            for name, tensor in tensors
            if (names is None or name in names) and self._kept.get(name) != marks[name]
        ]
        if chosen:
            native.debug("Writing weights from host to IPU memory.")
        memory = _weights.HostMemory(chosen)
        core_call(self._core.write_state, memory.entries)
        self._on_device = self._versions()
        self._kept = {}

    def _note_state(self) -> None:
        """Takes note of the parameters and buffers that the model is compiled with."""
        self._compiled_state = {name: _kind_of(tensor) for name, tensor in self._tensors()}

    def _check_state(self, tensors: List[Tuple[str, torch.Tensor]]) -> None:
        """Raises poptorch.Error if these are not the tensors that the model was compiled with."""
        given = {name: _kind_of(tensor) for name, tensor in tensors}
        for name, kind in self._compiled_state.items():
            if name not in given:
                raise _errors.py_error(_errors.STATE_CHANGED % (name, kind, "is gone"))
            if kind != given[name]:
                raise _errors.py_error(_errors.STATE_CHANGED % (name, kind, f"is {given[name]}"))
        for name in given:
            if name not in self._compiled_state:
                raise _errors.py_error(_errors.STATE_ADDED % name)

    def _keep_written(self) -> Dict[str, int]:
        """Bytes of the tensors whose values the model goes on with when it has IPUs again.

        Forward has written these tensors on the device, and the host keeps their old values.
        """
        before = self._on_device
        if self._training or self._states() or before is None:
            return {}
        now = self._versions().marks
        self._kept = {n: now[n] for n in self._written if now.get(n) == before.marks.get(n)}
        return {
            on_device(name): tensor.numel() * tensor.element_size()
            for name, tensor in self._tensors()
            if name in self._kept
        }

    def read_weights(
        self, replaced: bool = False, state: Optional[_weights.Weights] = None
    ) -> None:
        """Writes what the device has changed into the model's tensors.

        Args:
            state: that of the tensors to write; by default all are written. Of tensors of other
                states the device may have old values, as another model trains them, too.
            replaced: whether also into tensors that the program has put in the place of those
                whose values the device got.
        """
        before = self._on_device
        chosen = [
            (on_device(name), tensor)
            for name, tensor in self._tensors()
            if (name in self._written or (self._training and isinstance(tensor, nn.Parameter)))
            and (replaced or before is None or before.has(name, tensor))
            and (state is None or _weights.is_of(tensor, state))
        ]
        native.debug("Writing weights from IPU to host.")
        were_equal = self._versions().same(before)
        memory = _weights.HostMemory(chosen)
        core_call(self._core.read_state, memory.entries)
        memory.written()
        if were_equal:
            self._on_device = self._versions()

    def copyWeightsToHost(self) -> None:
        """Brings parameters and buffers from the device to the host.

        Raises:
            poptorch.Error: no IPUs are attached.
        """
        self._check_attached()
        self._check_state(self._tensors())
        with self._losing_device():
            if not self._bring_weights(implicit=False) or self._has_replaced():
                self.read_weights(replaced=True)

    def copyWeightsToHostIfNeeded(self) -> bool:
        """The same if the device has newer ones; whether it had."""
        return self._bring_weights(implicit=True)

    def _has_replaced(self) -> bool:
        """Whether the program has put others in the place of tensors that the device got."""
        before = self._on_device
        return before is not None and not all(before.has(*named) for named in self._tensors())

    def _bring_weights(self, implicit: bool) -> bool:
        stale = [state for state in self._states() if state.newest_on() is self]
        for state in stale:
            state.to_host(implicit)
        return bool(stale)

    def copyWeightsToDevice(self) -> None:
        """Writes the host's parameters and buffers to the device.

        Raises:
            poptorch.Error: no IPUs are attached.
        """
        self._check_attached()
        for state in self._states():
            state.host_is_newer()
        self._kept = {}
        with self._losing_device():
            self._write_weights()

    def load_state_dict(self, state_dict: Dict[str, Any], strict: bool = True) -> Any:
        """Sets the model's parameters and buffers, on the device as well if it is attached."""
        result = self._user_model.load_state_dict(state_dict, strict)
        if self.isAttachedToDevice():
            logger.debug("load_state_dict: implicit copyWeightsToDevice()")
            self.copyWeightsToDevice()
        return result

    def state_dict(self, *args, **kwargs) -> Dict[str, torch.Tensor]:
        """The model's state, with plain tensors."""
        self.copyWeightsToHostIfNeeded()
        return self._user_model.state_dict(*args, **kwargs)


def _kind_of(tensor: torch.Tensor) -> str:
    """Type and shape of a tensor in words."""
    return f"{tensor.dtype} {list(tensor.shape)}"
