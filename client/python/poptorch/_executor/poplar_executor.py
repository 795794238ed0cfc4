"""Models on IPUs: captured and compiled by their first call, run by each."""

import os
import sys
import weakref
from typing import Any, Dict, List, Optional, Tuple

import torch
from torch import nn

from .. import _block_state, _errors, enums
from .._blocks import module_repr
from .._capture.capture import capture
from .._capture.structure import rebuild
from .._logging import logger, native
from .._ops.overlap import check_overlaps
from .._options.popart import validate
from . import core_options as _core_options, hooks, replica_groups, weights as _weights
from .anchors import AnchoredTensors, Anchors
from .args import ArgParser, Arguments, Description
from .attached_device import AttachedDevice
from .call import Call, output
from .core import call as core_call, core
from .counters import PerfCounters
from .device_names import tape_on_device
from .device_optimizer import DeviceOptimizer
from .hardware import uses_ipu_model
from .host_weights import HostWeights
from .prints import Prints
from .progress import CompilerProgress, timed
from .saving import Captured, SavedModels
from .segments import SegmentedModel
from .stream_limit import explained
from .tensor_names import TensorNames
from .wrapped_module import EXECUTOR, wrapped_class


class PoplarExecutor(HostWeights, AttachedDevice, PerfCounters, AnchoredTensors, SavedModels):
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
        self._process = os.getpid()
        self._core: Optional[Any] = None
        self._parser = ArgParser(model)
        self._captured: Optional[Captured] = None  # what the model was compiled from
        self._names: Optional[TensorNames] = None
        self._anchors: Optional[Anchors] = None
        self._prints: Optional[Prints] = None
        self._counters = None  # of the compiled model, once they were asked for
        self._on_device: Optional[_weights.Versions] = None  # of the weights there
        self._compiled_state: Dict[str, str] = {}  # types and shapes of parameters and buffers
        self._kept: Dict[str, _weights.Mark] = {}  # tensors with newer values in _other_state
        self._written: frozenset = frozenset()  # names of state that forward writes
        self._other_state: Dict[str, torch.Tensor] = {}  # of a device that was left
        self._rng_state: Optional[List[int]] = None  # the same, or for the next device
        self._state: Optional[_weights.Weights] = None
        self._has_run = False
        self._has_lost_device = False  # and has no other yet
        if training and isinstance(model, nn.Module):
            self._wrap()
        replica_groups.offer(model)

    # --- Wrapping.

    def _wrap(self) -> None:
        module = self._user_model
        if EXECUTOR in module.__dict__:
            raise RuntimeError(
                "Model has already been wrapped in 'poptorch.trainingModel'. Call model.destroy()"
                " on the model to unwrap before wrapping again."
            )
        self._state = _weights.Weights()
        _weights.wrap(module, self._state)
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
        if self._process != os.getpid():
            return  # the IPUs are those of the process that this one was forked from
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
        self._upload_all()
        return self._run(call)

    def _upload_all(self) -> None:
        """Gives the device the weights and the state of the optimiser that it has not."""
        with self._losing_device():
            self._upload()
            if self._training:
                self._device_optimizer.upload()

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
        grouped = self._groupings()
        strategy = self._options._execution_strategy
        with timed("Capture"), _block_state.capturing(strategy):
            tape, structure = capture(
                self._model,
                args,
                kwargs,
                supported=supported,
                training=self._training,
                grouped=grouped,
                excludes=self._options.source_location_excludes,
            )
        check_overlaps(tape, self._options)
        captured = Captured(tape, structure, description)
        with timed("Graph"):
            model, anchors = self._build(captured, uses_ipu_model(self._options))
        try:
            self._compile_core(model)
        except _errors.Error as error:
            raise explained(error, model, tape, self._options) from None
        self._install(captured, model, anchors)
        hooks.after_compilation()

    def _groupings(self) -> Dict[int, Tuple[int, bool]]:
        """The parameters with a value for each group of replicas."""
        norms = self._device_optimizer.norms() if self._training else ""
        return replica_groups.groupings(self, self._model, self._options, norms)

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
        progress = CompilerProgress(self._options._show_progress_bar)
        try:
            core_call(model.compile, progress)
        finally:
            progress.close()
        cache = _core_options.cache_directory(self._options)
        if cache:
            found = f"miss; {model.cache_miss}".rstrip("; ") if progress.has_steps else "hit"
            native.info("Executable cache %s: %s", cache, found)

    def _install(self, captured: Captured, model, anchors: Anchors) -> None:
        """Takes a compiled model."""
        anchors.compiled(model, captured.tape.values)
        self._core, self._captured, self._anchors = model, captured, anchors
        self._on_device, self._other_state, self._rng_state = None, {}, None
        self._counters, self._has_run, self._kept = None, False, {}
        self._note_state()
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

    def destroy(self) -> None:
        """Reads the weights back, frees the IPUs and forgets the compiled model.

        Raises:
            poptorch.RecoverableError: the IPUs have failed, so that their weights are lost. All
                else is done.
        """
        try:
            if self.isAttachedToDevice():
                self._leave_device()
        except _errors.RecoverableError:
            self._forget()
            raise
        self._forget()

    def _forget(self) -> None:
        """Forgets the compiled model, and gives the user's model its class back."""
        self._core = self._captured = self._names = self._anchors = self._counters = None
        self._other_state, self._rng_state, self._kept = {}, None, {}
        self._has_run = self._has_lost_device = False
        if self._training and isinstance(self._model, nn.Module):
            self._unwrap()

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
            try:
                self.detachFromDevice()
            except _errors.RecoverableError as error:
                logger.error("The IPUs of a run that was cancelled have failed: %s", error)
            raise
        except _errors.RecoverableError:
            self.lose_device()
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
        self._on_device = self._on_device.trained(self)

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
