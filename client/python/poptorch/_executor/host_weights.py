"""The weights of a model: which side has newer ones, and how they get to the other."""

from typing import Any, Dict, List, Optional, Tuple

import torch
from torch import nn

from .._logging import logger, native
from . import weights as _weights
from .core import call as core_call
from .device_names import on_device


class HostWeights:
    """The part of PoplarExecutor that moves parameters and buffers between host and device."""

    _model: Any
    _user_model: Any
    _core: Optional[Any]
    _training: bool
    _on_device: Optional[Tuple]
    _written: frozenset

    def _tensors(self) -> List[Tuple[str, torch.Tensor]]:
        if not isinstance(self._model, nn.Module):
            return []
        return _weights.named_state(self._model)

    def _states(self) -> List[_weights.Weights]:
        """The states of the wrapped models whose tensors this one has."""
        return _weights.weights_of(tensor for _, tensor in self._tensors())

    def _versions(self) -> Tuple:
        """What differs as soon as the host or a device has written a wrapped tensor."""
        tensors = [tensor for _, tensor in self._tensors()]
        states = _weights.weights_of(tensors)
        return (*((id(state), state.version) for state in states), *_weights.edits(tensors))

    def _upload(self) -> None:
        """Writes the weights to the device, unless it has them."""
        for state in self._states():
            if state.newest_on() is not self:
                state.to_host()  # another model on these weights has trained
        if self._on_device != self._versions():
            logger.debug("Implicit copyWeightsToDevice()")
            self._write_weights()

    def _write_weights(self) -> None:
        for state in self._states():
            state.to_host()
        tensors = [(on_device(name), tensor) for name, tensor in self._tensors()]
        if tensors:
            native.debug("Writing weights from host to IPU memory.")
        memory = _weights.HostMemory(tensors)
        core_call(self._core.write_state, memory.entries)
        self._on_device = self._versions()

    def read_weights(self) -> None:
        """Writes what the device has changed into the model's tensors."""
        chosen = [
            (on_device(name), tensor)
            for name, tensor in self._tensors()
            if name in self._written or (self._training and isinstance(tensor, nn.Parameter))
        ]
        native.debug("Writing weights from IPU to host.")
        were_equal = self._on_device == self._versions()
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
        if not self._bring_weights(implicit=False):
            self.read_weights()

    def copyWeightsToHostIfNeeded(self) -> bool:
        """The same if the device has newer ones; whether it had."""
        return self._bring_weights(implicit=True)

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
