"""The optimiser of a model: its attributes and its state, here and on the device."""

import weakref
from typing import Any, Dict, Iterable, List, Set, Tuple

import torch

from .. import optim
from .._capture import tape
from .._logging import native
from .._optimizers.attributes import OptimizerReader, check_changes
from .._optimizers.export import core_dict, ipu_parameters, log_update
from . import weights
from .core import call
from .device_names import groups_on_device, state_on_device, state_variables
from .replica_groups import norms_of


class DeviceOptimizer:
    """The optimiser of one model that trains.

    Those of poptorch.optim also have the device's state: they are told when it has changed, and
    read it when a program asks for it.
    """

    def __init__(self, options, optimizer: torch.optim.Optimizer) -> None:
        """
        Args:
            options: the poptorch.Options of the model.
            optimizer: of torch.optim or poptorch.optim.
        """
        self._optimizer = optimizer
        self._reader = OptimizerReader(options)
        self._names: Dict[int, str] = {}  # of parameters, by their identity
        self._model: Any = None  # a poptorch_core.Model
        self._compiled: Any = None  # the attributes that it was compiled with
        self._values: Any = None  # the attributes that it has

    # --- Attributes.

    def for_compilation(self, parameters: Iterable[Tuple[str, torch.Tensor]]) -> Dict[str, Any]:
        """The optimiser for the extension.

        Args:
            parameters: those of the model, with their names.
        """
        self._names = {id(parameter): name for name, parameter in parameters}
        self._compiled = self._reader.read(self._optimizer)
        return self._exported(self._compiled, is_compiled=False)

    def norms(self) -> str:
        """What of it takes norms over whole parameters, if anything."""
        return norms_of(self._reader.read(self._optimizer)) if self._optimizer else ""

    def compiled(self, model) -> None:
        """Takes note of the poptorch_core.Model that has the optimiser."""
        self._model = model

    def check(self, optimizer: torch.optim.Optimizer) -> None:
        """Raises poptorch.Error if the compiled model cannot go on with an optimiser."""
        check_changes(self._compiled, self._reader.read(optimizer, is_compiled=True))

    def replace(self, optimizer: torch.optim.Optimizer) -> None:
        """Takes another optimiser, which the device has after `take`."""
        if optimizer is not self._optimizer and isinstance(self._optimizer, optim.Optimizer):
            self._optimizer.connect(None)
        self._optimizer = optimizer

    def take(self) -> None:
        """Gives the attributes to the device, which is attached."""
        values = self._reader.read(self._optimizer, is_compiled=True)
        check_changes(self._compiled, values)
        call(self._model.set_hyper_parameters, self._exported(values, is_compiled=True))
        if self.has_own_state:
            read = weakref.WeakMethod(self._read_state)
            self._optimizer.connect(lambda: (read() or bool)())
            self._optimizer.host_state_is_dirty = not self._optimizer.ipu_state_is_dirty

    def _exported(self, values, is_compiled: bool) -> Dict[str, Any]:
        names = self._group_names()
        log_update(self._values, values, names)
        self._values = values
        exported = core_dict(values, groups_on_device(names), is_compiled)
        if values.loss_scaling == (1.0, True):
            exported["loss_scale"] = None  # nothing to scale, now and later
        return exported

    def _group_names(self) -> List[List[str]]:
        """The names of the parameters of each group."""
        groups = [group["params"] for group in self._optimizer.param_groups]
        return [[self._names[id(p)] for p in group if id(p) in self._names] for group in groups]

    def parameter_names(self) -> Set[str]:
        """The names of the parameters of the model that the optimiser has."""
        return {name for group in self._group_names() for name in group}

    def scalars(self) -> Dict[str, torch.Tensor]:
        """The hyper-parameters that the device has, under their names in "ipu_param"."""
        return ipu_parameters(self._values, self._group_names())

    def tensor_names(self) -> List[str]:
        """The names of the state of the compiled model's optimiser, and of its scalars."""
        return [*self._known_state(), *self.scalars()]

    # --- State.

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimiser of the program."""
        return self._optimizer

    @property
    def has_own_state(self) -> bool:
        """Whether the optimiser has the device's state, as those of poptorch.optim have it."""
        return isinstance(self._optimizer, optim.Optimizer)

    @property
    def is_behind(self) -> bool:
        """Whether the device has newer state than the optimiser that keeps it."""
        return self.has_own_state and self._optimizer.host_state_is_dirty

    def has_run(self) -> None:
        """The device has trained."""
        if self.has_own_state:
            self._optimizer.host_state_is_dirty = True

    def leave(self) -> None:
        """Reads the state of a device before it is left."""
        if self.is_behind:
            self._read_state()

    def upload(self) -> None:
        """Gives the device the state that was loaded into the optimiser.

        Raises:
            poptorch.Error: a tensor has another number of elements than the device's.
        """
        if not self.has_own_state or not self._optimizer.ipu_state_is_dirty:
            return
        state = self._optimizer.get_state_dict()["ipu_state"] or {}
        known = self._known_state()
        chosen = {
            name: tensor.to(known[name].dtype) for name, tensor in state.items() if name in known
        }
        native.debug("Writing optimiser state tensors from host to IPU memory.")
        call(self._model.write_state, _memory(chosen).entries)
        self._optimizer.ipu_state_is_dirty = False

    def _known_state(self) -> Dict[str, torch.Tensor]:
        """Memory for the device's state."""
        return {
            name: torch.empty(dims, dtype=tape.dtype_of(dtype))
            for name, (dtype, dims, _) in state_variables(self._model.variables()).items()
        }

    def _read_state(self) -> None:
        if not self._model.is_loaded:
            return
        state = self._known_state()
        native.debug("Writing optimiser state tensors from IPU to host.")
        call(self._model.read_state, _memory(state).entries)
        self._optimizer.take_device_state(state, self.scalars())


def _memory(state: Dict[str, torch.Tensor]) -> weights.HostMemory:
    """The memory of state of the optimiser, for the extension."""
    return weights.HostMemory([(state_on_device(name), each) for name, each in state.items()])
