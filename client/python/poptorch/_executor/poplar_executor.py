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
from .._ops.overlap import check_overlaps
from .._options.popart import validate
from . import core_options as _core_options, hooks, weights as _weights
from .anchors import AnchoredTensors, Anchors
from .args import ArgParser, Arguments, Description
from .call import Call, output
from .core import call as core_call, core, load
from .counters import PerfCounters
from .device_names import on_device, tape_on_device
from .device_optimizer import DeviceOptimizer
from .hardware import is_set, uses_ipu_model
from .host_weights import HostWeights
from .prints import Prints
from .progress import CompilerProgress
from .random_state import check_random_state, random_state, set_random_state
from .saving import Captured, SavedModels
from .segments import SegmentedModel
from .tensor_names import TensorNames
from .wrapped_module import EXECUTOR, wrapped_class


class PoplarExecutor(HostWeights, PerfCounters, AnchoredTensors, SavedModels):
    """A model that runs on IPUs. trainingModel and inferenceModel make one.

    Attributes that it has not are those of the model.
    """

    def __init__(
        self,
        model,
        options,
        training: bool,
        poptorch_version: str = "",  # pylint: disable=unused-argument
        optimizer=None,
        user_model=None,
    ) -> None:
        """
        Args:
            model: the module whose forward is called, or another callable.
            options: poptorch.Options, which are frozen.
            training: whether calls train.
            poptorch_version: of PopTorch, as classes that derive from this one pass it on.
            optimizer: of a model that trains.
            user_model: the module that the user goes on using, if `model` is a copy of it.
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
        self._captured: Optional[Captured] = None  # what the model was compiled from
        self._names: Optional[TensorNames] = None
        self._anchors: Optional[Anchors] = None
        self._prints: Optional[Prints] = None
        self._counters = None  # of the compiled model, once they were asked for
        self._on_device: Optional[Tuple] = None  # versions of the weights there
        self._written: frozenset = frozenset()  # names of state that forward writes
        self._other_state: Dict[str, torch.Tensor] = {}  # of a device that was left
        self._rng_state: Optional[List[int]] = None  # the same, or for the next device
        self._state: Optional[_weights.Weights] = None
        self._has_run = False
        if training and isinstance(model, nn.Module):
            self._wrap()

    # --- Wrapping.

    def _wrap(self) -> None:
        module = self._user_model
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
        _weights.unwrap(self._user_model, self._state)
        del self._user_model.__dict__[EXECUTOR]
        self._user_model.__class__ = self._class
        self._state = None

    @property
    def model(self) -> Any:
        """The user's model."""
        return self._user_model

    @property
    def _executable(self):
        """None unless the model is compiled, as libraries ask for."""
        return self._core

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
        call = Call(arguments, self._captured.description)
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
            logger.warning("Call to compile() ignored: the executable is already compiled")
            return
        self._compile(self._parser.bind(args, kwargs))
        if self._options.connection_type == enums.ConnectionType.Always:
            self._load()

    def isCompiled(self) -> bool:
        """Whether the model was compiled, and not destroyed since."""
        return self._core is not None and self._core.is_compiled

    def _compile(self, arguments: Arguments) -> None:
        validate(self._options.toDict())
        offline = self._options.connection_type == enums.ConnectionType.Never
        if offline and uses_ipu_model(self._options):
            raise _errors.cpp_error(_errors.OFFLINE_IPU_MODEL)
        hooks.before_compilation()
        description = Description(arguments)
        call = Call(arguments, description)
        args, kwargs = call.micro_batch(self._options)
        known = frozenset(core().operators())
        # An operator in place is its sibling out of place.
        supported = lambda name: name in known or name.replace("_.", ".", 1) in known
        with _block_state.capturing(self._options._execution_strategy):
            tape, structure = capture(
                self._model, args, kwargs, supported=supported, training=self._training
            )
        check_overlaps(tape, self._options)
        captured = Captured(tape, structure, description)
        model, anchors = self._build(captured, uses_ipu_model(self._options))
        self._compile_core(model)
        self._install(captured, model, anchors)
        hooks.after_compilation()

    def _build(self, captured: Captured, allow_out_of_memory: bool) -> Tuple[Any, Anchors]:
        """The poptorch_core.Model of a captured model, not compiled, and its anchors."""
        tape = captured.tape
        self._note_writes(tape)
        optimizer, trained, scalars = None, set(), dict
        if self._training:
            parameters = getattr(self._model, "named_parameters", dict)
            optimizer = self._device_optimizer.for_compilation(parameters())
            trained = self._device_optimizer.parameter_names()
            scalars = self._device_optimizer.scalars
        self._names = TensorNames(tape, trained, self._options._module_namescope_enabled)
        anchors = Anchors(self._options, self._names, scalars)
        core_options = _core_options.model_options(self._options, self._training)
        core_options["allow_out_of_memory"] = allow_out_of_memory
        core_options["anchors"] = anchors.streams()
        self._prints = Prints(tape, self._options, core_options)
        named = tape_on_device(tape)
        if tape.host_calls:
            return core_call(SegmentedModel, core().Model, named, core_options), anchors
        return core_call(core().Model, named, core_options, optimizer), anchors

    def _compile_core(self, model) -> None:
        if not self._options._show_progress_bar:
            core_call(model.compile)
            return
        progress = CompilerProgress()
        try:
            core_call(model.compile, progress)
        finally:
            progress.close()

    def _install(self, captured: Captured, model, anchors: Anchors) -> None:
        """Takes a compiled model."""
        anchors.compiled(model, captured.tape.values)
        self._core, self._captured, self._anchors = model, captured, anchors
        self._on_device, self._other_state, self._rng_state = None, {}, None
        self._counters, self._has_run = None, False
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
        if self._rng_state is not None:
            set_random_state(self._core, self._rng_state)
            self._rng_state = None
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
        self._read_other_state()
        self._rng_state = random_state(self._core)
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
        self._core = self._captured = self._names = self._anchors = self._counters = None
        self._other_state, self._rng_state = {}, None
        self._has_run = False
        if self._training and isinstance(self._model, nn.Module):
            self._unwrap()

    def _check_compiled(self) -> None:
        if not self.isCompiled():
            raise _errors.py_error("Model has not been compiled or has been destroyed.")

    def _check_attached(self) -> None:
        self._check_compiled()
        if not self._core.is_loaded:
            raise _errors.py_error("Device is not attached")

    def _read_other_state(self) -> None:
        """Keeps what the device has beside weights: the optimiser's state, random numbers."""
        weights = {on_device(name) for name, _ in self._tensors()}
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

    # --- Running.

    def _run(self, call: Call):
        inputs = call.memory()
        types = zip(self._core.output_types(), self._core.output_copies)
        outputs = [output(dtype, dims, copies) for (dtype, dims), copies in types]
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
        self._log_cycles()
        written = self._core.written_inputs
        anchored = len(outputs) - self._anchors.count
        self._anchors.take(self._core, outputs[anchored:])
        outputs = self._prints.take(outputs[:anchored], self._core.output_types())
        count = len(outputs) - len(written)
        final = self._options.output_mode == enums.OutputMode.Final
        call.write_back(zip(written, outputs[count:]), final)
        results = outputs[:count]
        for result in results:
            result.backward = _refuse_backward
        return rebuild(self._captured.results, results)

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


def _refuse_backward(*_, **__) -> None:
    """Takes the place of a result's `backward()`."""
    raise _errors.py_error(_errors.BACKWARD)
