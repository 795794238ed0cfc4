"""Models on IPUs: captured and compiled by their first call, run by each."""

import sys
import weakref
from typing import Any, Dict, List, Optional, Tuple

import torch
from torch import nn

from .. import _block_state, _errors, enums
from .._blocks import module_repr
from .._capture.capture import capture
from .._capture.structure import rebuild
from .._logging import logger
from .._options.popart import validate
from . import core_options as _core_options, weights as _weights
from .args import ArgParser, Arguments, Description
from .call import Call, output
from .core import call as core_call, core, load
from .device_optimizer import DeviceOptimizer
from .hardware import is_set, uses_ipu_model
from .random_state import random_state, set_random_state
from .wrapped_module import EXECUTOR, wrapped_class


class PoplarExecutor:
    """A model that runs on IPUs. trainingModel and inferenceModel make one.

    Attributes that it has not are those of the model.
    """

    def __init__(self, model, options, training: bool, optimizer=None, user_model=None) -> None:
        """
        Args:
            model: the module, or another callable.
            options: poptorch.Options, which are frozen.
            training: whether calls train.
            optimizer: of a model that trains.
            user_model: the module that the user goes on using.
        """
        self._model = model
        self._user_model = model if user_model is None else user_model
        options._freeze()
        self._options = options.clone()
        if self._options.defaultOutputMode():
            mode = enums.OutputMode.Final if training else enums.OutputMode.All
            self._options.outputMode(mode)
        self._options._freeze()
        self._training = training
        self._device_optimizer = DeviceOptimizer(self._options, optimizer) if training else None
        self._core: Optional[Any] = None
        self._parser = ArgParser(model)
        self._description: Any = None  # of the arguments that the model was compiled for
        self._results: Any = None  # the structure of forward's result
        self._on_device: Optional[Tuple] = None  # versions of the weights there
        self._written: frozenset = frozenset()  # names of state that forward writes
        self._other_state: Dict[str, torch.Tensor] = {}  # of a device that was left
        self._state: Optional[_weights.Weights] = None
        self._has_run = False
        if training and isinstance(model, nn.Module):
            self._wrap()

    # --- Wrapping.

    def _wrap(self) -> None:
        module = self._model
        if EXECUTOR in module.__dict__:
            raise RuntimeError(
                "Model has already been wrapped in 'poptorch.trainingModel'. Call model.destroy()"
                " on the model to unwrap before wrapping again."
            )
        self._state = _weights.wrap(module)
        self._class = type(module)
        module.__class__ = wrapped_class(type(module))
        # The model does not keep IPUs from other programs once nobody has the executor.
        module.__dict__[EXECUTOR] = weakref.ref(self)

    def _unwrap(self) -> None:
        if self._state is None:
            return
        _weights.unwrap(self._model, self._state)
        del self._model.__dict__[EXECUTOR]
        self._model.__class__ = self._class
        self._state = None

    @property
    def model(self) -> Any:
        """The user's model."""
        return self._user_model

    @property
    def options(self) -> Any:
        """The options; they cannot be changed."""
        return self._options

    def __getattr__(self, name: str):
        if name in ("_model", "_user_model"):
            raise AttributeError(name)
        return getattr(self._user_model, name)

    def __repr__(self) -> str:
        name = type(self).__name__
        inner = self._user_model
        text = module_repr(inner) if isinstance(inner, nn.Module) else repr(inner)
        return f"{name}(\n  (model): " + text.replace("\n", "\n  ") + "\n)"

    def __del__(self) -> None:
        if "_core" not in self.__dict__ or sys.is_finalizing():
            return
        try:
            self.destroy()
        except Exception as error:  # pylint: disable=broad-except
            logger.error("The weights of a model are lost with its IPUs: %s", error)

    # --- Calls.

    def __call__(self, *args, **kwargs) -> Any:
        """Runs one combined batch.

        Args:
            args, kwargs: those of the model's forward, each tensor with the rows of all
                micro-batches of the call.

        Returns:
            What forward returns, of the micro-batches that the output mode says.
        """
        arguments = self._parser.bind(args, kwargs)
        if not self.isCompiled():
            self._compile(arguments)
        call = Call(arguments, self._description)
        if self._options.connection_type == enums.ConnectionType.Never:
            raise _errors.py_error(
                "Trying to run a model on an offline device (ConnectionType.Never): use"
                " model.compile(inputs) instead of model(inputs)"
            )
        if not self._core.is_loaded:
            self._load()
        self._upload()
        if self._training:
            self._device_optimizer.upload()
        return self._run(call)

    def compile(self, *args, **kwargs) -> None:
        """Captures and compiles the model for arguments like these, and attaches to IPUs.

        Args:
            args, kwargs: as for a call.
        """
        if self.isCompiled():
            logger.warning("Call to compile() ignored: model is already compiled")
            return
        self._compile(self._parser.bind(args, kwargs))
        if self._options.connection_type == enums.ConnectionType.Always:
            self._load()

    def isCompiled(self) -> bool:
        """Whether the model was compiled, and not destroyed since."""
        return self._core is not None and self._core.is_compiled

    def _compile(self, arguments: Arguments) -> None:
        validate(self._options.toDict())
        description = Description(arguments)
        call = Call(arguments, description)
        args, kwargs = call.micro_batch(self._options)
        extension = core()
        known = frozenset(extension.operators())
        # An operator in place is its sibling out of place.
        supported = lambda name: name in known or name.replace("_.", ".", 1) in known
        with _block_state.capturing(self._options._execution_strategy):
            tape, structure = capture(self._model, args, kwargs, supported=supported)
        self._note_writes(tape)
        optimizer = None
        if self._training:
            parameters = getattr(self._model, "named_parameters", dict)
            optimizer = self._device_optimizer.for_compilation(parameters())
        core_options = _core_options.model_options(self._options, self._training)
        core_options["allow_out_of_memory"] = uses_ipu_model(self._options)
        model = core_call(extension.Model, tape, core_options, optimizer)
        progress = self._progress()
        try:
            core_call(model.compile, progress)
        finally:
            if progress is not None:
                progress.bar.close()
        self._core, self._description, self._results = model, description, structure
        self._on_device, self._other_state = None, {}
        if self._training:
            self._device_optimizer.compiled(model)

    def _note_writes(self, tape) -> None:
        """Takes note of what forward writes.

        Raises:
            poptorch.Error: replicas would have different buffers, and are said to have the same.
        """
        state = list(tape.parameters) + list(tape.buffers)
        self._written = frozenset(name for name, value, final, *_ in state if value != final)
        options = self._options
        buffers = {name for name, *_ in tape.buffers}
        if options.replication_factor > 1 and options.broadcast_buffers and (
            self._written & buffers
        ):
            raise _errors.py_error(
                "PopTorch does not support broadcasting buffers. If your model is able to tolerate"
                " buffers becoming out of sync between replicas, you can disable buffer"
                " broadcasting using poptorch.Options.broadcastBuffers(False)."
            )

    def _progress(self) -> Optional["_Progress"]:
        return _Progress() if self._options._show_progress_bar else None

    # --- The device.

    def _load(self) -> None:
        device_id = getattr(self._options, "ipu_id", None)
        waits = is_set("POPTORCH_WAIT_FOR_IPU")
        load(self._core, uses_ipu_model(self._options), device_id, waits)
        self._on_device = None
        if self._other_state:
            memory = _weights.HostMemory(self._other_state.items())
            core_call(self._core.write_state, memory.entries)
            self._other_state = {}
        if self._training:
            self._device_optimizer.take()

    def isAttachedToDevice(self) -> bool:
        """Whether IPUs are held for the model."""
        return self._core is not None and self._core.is_loaded

    def attachToDevice(self) -> None:
        """Attaches a compiled model to IPUs and loads it.

        Raises:
            AssertionError: it is not compiled, attached already, or for no device.
        """
        self._check_compiled()
        assert self._options.connection_type != enums.ConnectionType.Never, (
            "Trying to attach to an offline device (ConnectionType.Never)"
        )
        assert not self._core.is_loaded, "Device is already attached"
        self._load()

    def detachFromDevice(self) -> None:
        """Reads the weights back and gives the IPUs to other programs.

        Raises:
            AssertionError: no IPUs are attached.
        """
        self._check_attached()
        self._read_other_state()
        self._leave_device()

    def _leave_device(self) -> None:
        """Reads weights and the optimiser's state, and gives the IPUs to others."""
        self.copyWeightsToHostIfNeeded()
        if self._training:
            self._device_optimizer.leave()
        self._core.detach()

    def destroy(self) -> None:
        """Reads the weights back, frees the IPUs and forgets the compiled model."""
        if self.isAttachedToDevice():
            self._leave_device()
        self._core = self._description = None
        self._other_state = {}
        self._has_run = False
        if self._training and isinstance(self._model, nn.Module):
            self._unwrap()

    def _check_compiled(self) -> None:
        if not self.isCompiled():
            raise _errors.py_error("Model has not been compiled or has been destroyed.")

    def _check_attached(self) -> None:
        self._check_compiled()
        assert self._core.is_loaded, "Device is not attached"

    # --- Weights.

    def _tensors(self) -> List[Tuple[str, torch.Tensor]]:
        if not isinstance(self._model, nn.Module):
            return []
        return _weights.named_state(self._model)

    def _states(self) -> List[_weights.Weights]:
        """The states of the wrapped models whose tensors this one has."""
        return _weights.weights_of(tensor for _, tensor in self._tensors())

    def _versions(self) -> Tuple:
        return tuple((id(state), state.version) for state in self._states())

    def _upload(self) -> None:
        """Writes the weights to the device, unless it has them."""
        for state in self._states():
            if state.newest_on() is not self:
                state.to_host()  # another model on these weights has trained
        if self._on_device != self._versions():
            self._write_weights()

    def _write_weights(self) -> None:
        for state in self._states():
            state.to_host()
        memory = _weights.HostMemory(self._tensors())
        core_call(self._core.write_state, memory.entries)
        self._on_device = self._versions()

    def read_weights(self) -> None:
        """Writes what the device has changed into the model's tensors."""
        chosen = [
            (name, tensor)
            for name, tensor in self._tensors()
            if name in self._written or (self._training and isinstance(tensor, nn.Parameter))
        ]
        memory = _weights.HostMemory(chosen)
        core_call(self._core.read_state, memory.entries)
        memory.written()

    def copyWeightsToHost(self) -> None:
        """Brings parameters and buffers from the device to the host.

        Raises:
            AssertionError: no IPUs are attached.
        """
        self._check_attached()
        if not self.copyWeightsToHostIfNeeded():
            self.read_weights()

    def copyWeightsToHostIfNeeded(self) -> bool:
        """The same if the device has newer ones; whether it had."""
        stale = [state for state in self._states() if state.newest_on() is self]
        for state in stale:
            state.to_host()
        return bool(stale)

    def copyWeightsToDevice(self) -> None:
        """Writes the host's parameters and buffers to the device.

        Raises:
            AssertionError: no IPUs are attached.
        """
        self._check_attached()
        for state in self._states():
            state.host_is_newer()
        self._write_weights()

    def load_state_dict(self, state_dict: Dict[str, Any], strict: bool = True) -> Any:
        """Sets the model's parameters and buffers, on the device as well if it is attached."""
        result = self._user_model.load_state_dict(state_dict, strict)
        if self.isAttachedToDevice():
            self.copyWeightsToDevice()
        return result

    def state_dict(self, *args, **kwargs) -> Dict[str, torch.Tensor]:
        """The model's state, with plain tensors."""
        self.copyWeightsToHostIfNeeded()
        return self._user_model.state_dict(*args, **kwargs)

    def _read_other_state(self) -> None:
        """Keeps what the device has beside weights: the optimiser's state, random numbers."""
        weights = {name for name, _ in self._tensors()}
        self._other_state = {
            name: torch.empty(size, dtype=torch.uint8)
            for name, (_, _, size) in self._core.variables().items()
            if name not in weights
        }
        memory = _weights.HostMemory(self._other_state.items())
        core_call(self._core.read_state, memory.entries)

    # --- Random numbers.

    @property
    def rng_state(self) -> List[int]:
        """The seed of random numbers, and how many micro-batches have drawn any.

        Raises:
            AssertionError: no IPUs are attached.
        """
        self._check_attached()
        return random_state(self._core)

    @rng_state.setter
    def rng_state(self, state: List[int]) -> None:
        self._check_attached()
        set_random_state(self._core, state)

    # --- Running.

    def _run(self, call: Call):
        inputs = call.memory()
        copies = self._core.output_copies
        outputs = [output(dtype, dims, copies) for dtype, dims in self._core.output_types()]
        memory = [
            [(tensor.data_ptr(), tensor.numel() * tensor.element_size()) for tensor in tensors]
            for tensors in (inputs, outputs)
        ]
        try:
            core_call(self._core.run, *memory)
        except KeyboardInterrupt:
            # The device takes no further run, and still has its variables.
            self._has_trained()
            self.detachFromDevice()
            raise
        except _errors.RecoverableError:
            self._core.detach()  # what it had is lost
            raise
        except _errors.Error:
            self._has_trained()
            raise
        self._has_trained()
        self._has_run = True
        written = self._core.written_inputs
        results = outputs[: len(outputs) - len(written)]
        final = self._options.output_mode == enums.OutputMode.Final
        call.write_back(zip(written, outputs[len(results) :]), final)
        return rebuild(self._results, results)

    def _has_trained(self) -> None:
        """The device has other weights than the host from now on, if it trains."""
        if not self._training:
            return
        self._device_optimizer.has_run()
        for state in self._states():
            state.device_is_newer(self)
        self._on_device = self._versions()

    def setOptimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Lets following calls use another optimiser of the same kind.

        Args:
            optimizer: it has the parameters of the one before, in as many groups.
        """
        if not self._training:
            raise _errors.py_error("An inference model has no optimizer")
        if self.isCompiled():
            self._device_optimizer.check(optimizer)
        self._device_optimizer.replace(optimizer)
        if self.isAttachedToDevice():
            self._device_optimizer.take()

    def cycleCount(self) -> int:
        """The cycles that the last call took on the IPUs.

        Raises:
            AssertionError: they are not counted, or there was no call.
        """
        popart = self._options._Popart.options
        if not popart.get("instrumentWithHardwareCycleCounter"):
            raise _errors.py_error(
                "Cycle count logging is disabled. Please set option logCycleCount to True to"
                " enable."
            )
        if not self._has_run:
            raise _errors.py_error(
                "Please run the model at least once before obtaining cycle count."
            )
        if uses_ipu_model(self._options):
            raise _errors.py_error("Cycle count logging is only supported on actual IPU hardware.")
        return self._core.cycles()


class _Progress:
    """Shows the steps of a compilation."""

    def __init__(self) -> None:
        from .progress import CompilationProgressBar  # pylint: disable=import-outside-toplevel

        self.bar = CompilationProgressBar()

    def __call__(self, step: str, done: int, total: int) -> None:
        self.bar(done * 100 // max(total, 1), 100)


