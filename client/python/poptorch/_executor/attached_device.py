"""What a model does with IPUs: it attaches to them, leaves them, and goes on where it was."""

import contextlib
import weakref
from typing import Any, Dict, Iterator, List, Optional

import torch

from .. import _errors, enums
from .._logging import logger, native
from . import weights as _weights
from .core import call as core_call, load
from .core_options import model_name
from .device_names import STATE, on_device, state_on_device, state_variables
from .device_optimizer import DeviceOptimizer
from .hardware import is_set, uses_ipu_model
from .instance import warn_of_job
from .random_state import check_random_state, random_state, set_random_state

_FROM_DEVICE = "Writing optimiser state tensors from IPU to host."
_TO_DEVICE = "Writing optimiser state tensors from host to IPU memory."
# The executors of this process that have attached to IPUs.
_attached: "weakref.WeakSet[AttachedDevice]" = weakref.WeakSet()


class AttachedDevice:
    """The part of PoplarExecutor that holds IPUs, and keeps the state of IPUs that it has left."""

    _core: Optional[Any]
    _options: Any
    _training: bool
    _device_optimizer: Optional[DeviceOptimizer]
    _on_device: Optional[_weights.Versions]
    _compiled_state: Dict[str, str]
    _kept: Dict[str, _weights.Mark]
    _has_lost_device: bool
    _other_state: Dict[str, torch.Tensor]
    _rng_state: Optional[List[int]]

    def _load(self) -> None:
        """Attaches to IPUs, and gives them what is kept of those before. All of it, or nothing."""
        device_id = getattr(self._options, "ipu_id", None)
        waits = is_set("POPTORCH_WAIT_FOR_IPU")
        self._on_device = None
        warn_of_job()
        try:
            load(self._core, uses_ipu_model(self._options), device_id, waits, holders=_holders())
            self._go_on()
        except _errors.Error as error:
            self._core.detach()
            if self._has_lost_device:  # whatever keeps the IPUs from coming back may pass
                raise _errors.recoverable(error) from None
            raise
        except BaseException:
            self._core.detach()
            raise
        self._has_lost_device = False
        self._other_state, self._rng_state = {}, None
        _attached.add(self)

    def _go_on(self) -> None:
        if hasattr(self._options, "random_seed") and self._rng_state is None:
            native.debug("Setting random seed to: %d", self._options.random_seed)
        if self._other_state:
            self._write_other_state()
        if self._rng_state is not None:
            set_random_state(self._core, self._rng_state)
        if self._training:
            self._device_optimizer.take()

    def isAttachedToDevice(self) -> bool:
        """Whether IPUs are held for the model."""
        return self._core is not None and self._core.is_loaded

    def attachToDevice(self) -> None:
        """Attaches a compiled model to IPUs and loads it.

        Raises:
            poptorch.Error: it is not compiled, or attached already.
            AssertionError: it is for no device.
        """
        self._check_compiled()
        assert self._options.connection_type != enums.ConnectionType.Never, (
            "Trying to attach to an offline device (ConnectionType.Never)"
        )
        if self._core.is_loaded:
            raise _errors.py_error("Device is already attached")
        self._load()

    def detachFromDevice(self) -> None:
        """Reads the weights back and gives the IPUs to other programs.

        Raises:
            poptorch.Error: no IPUs are attached.
        """
        self._check_attached()
        with self._losing_device():
            self._other_state = self._beside_weights(self._keep_written())
            self._rng_state = random_state(self._core)
        self._leave_device()

    def _leave_device(self) -> None:
        """Reads weights and the optimiser's state, and gives the IPUs to others."""
        with self._losing_device():
            self.copyWeightsToHostIfNeeded()
            if self._training:
                self._device_optimizer.leave()
        self._core.detach()
        native.debug("Detached from device")

    @contextlib.contextmanager
    def _losing_device(self) -> Iterator[None]:
        """A context in which the model leaves IPUs that fail."""
        try:
            yield
        except _errors.RecoverableError:
            self.lose_device()
            raise

    def lose_device(self) -> None:
        """Leaves IPUs that have failed. What they had is lost: the host's values are the newest."""
        if not self.isAttachedToDevice():
            return
        self._core.detach()
        self._has_lost_device = True
        self._other_state, self._rng_state, self._kept = {}, None, {}
        lost = [state.device_is_lost(self) for state in self._states()]
        if any(lost):
            logger.warning(_errors.WEIGHTS_LOST)

    def _check_compiled(self) -> None:
        if not self.isCompiled():
            raise _errors.py_error("Model has not been compiled or has been destroyed.")

    def _check_attached(self) -> None:
        self._check_compiled()
        if not self._core.is_loaded:
            raise _errors.py_error("Device is not attached")

    # --- State beside the weights.

    def _beside_weights(self, kept: Optional[Dict[str, int]] = None) -> Dict[str, torch.Tensor]:
        """What the device has beside weights: the optimiser's state, random numbers.

        Args:
            kept: bytes of the weights there that are wanted, too.
        """
        weights = {on_device(name) for name in self._compiled_state}
        sizes = {
            name: size
            for name, (_, _, size) in self._core.variables().items()
            if name not in weights
        }
        sizes.update(kept or {})
        found = {name: torch.empty(size, dtype=torch.uint8) for name, size in sizes.items()}
        # An optimiser with state of its own reads the newest one by itself, and says so.
        if self._training and not self._device_optimizer.is_behind:
            _log_optimizer(_FROM_DEVICE, found)
        core_call(self._core.read_state, _weights.HostMemory(found.items()).entries)
        return found

    def _write_other_state(self) -> None:
        _log_optimizer(_TO_DEVICE, self._other_state)
        memory = _weights.HostMemory(self._other_state.items())
        core_call(self._core.write_state, memory.entries)

    def _optimizer_state(self) -> Dict[str, torch.Tensor]:
        """The state of an optimiser of torch.optim by name; others have theirs themselves."""
        if not self._training or self._device_optimizer.has_own_state:
            return {}
        loaded = self._core.is_loaded
        return state_variables(self._beside_weights() if loaded else self._other_state)

    def _set_optimizer_state(self, state: Dict[str, torch.Tensor]) -> None:
        """Lets the device go on with what `_optimizer_state` returned."""
        known = self._core.variables()
        self._other_state = {
            state_on_device(name): tensor
            for name, tensor in state.items()
            if state_on_device(name) in known
        }
        if self._core.is_loaded and self._other_state:
            self._write_other_state()
            self._other_state = {}

    # --- Random numbers.

    @property
    def rng_state(self) -> List[int]:
        """The seed of random numbers, and how many micro-batches have drawn any.

        Without IPUs, it is the state with which the model goes on when it has some.

        Raises:
            poptorch.Error: the model is not compiled.
        """
        self._check_compiled()
        if self._core.is_loaded:
            return random_state(self._core)
        if self._rng_state is not None:
            return list(self._rng_state)
        return [getattr(self._options, "random_seed", 0) % 2**64, 0]

    @rng_state.setter
    def rng_state(self, state: List[int]) -> None:
        self._check_compiled()
        check_random_state(state)
        if self._core.is_loaded:
            set_random_state(self._core, state)
        else:
            self._rng_state = list(state)


def _holders() -> List[str]:
    """The names of the models of this process that have IPUs."""
    return sorted(
        model_name(each._options, each._training)
        for each in _attached
        if each.isAttachedToDevice()
    )


def _log_optimizer(line: str, variables: Dict[str, torch.Tensor]) -> None:
    """Logs a transfer, if state of the optimiser is among its variables."""
    if any(name.startswith(STATE) for name in variables):
        native.debug(line)
