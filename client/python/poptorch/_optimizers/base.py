"""What all optimisers of poptorch.optim have: variable attributes and state on the device."""

import math
from typing import Any, Callable, Dict, Iterable, List, Optional

import torch

from .. import _errors
from .._logging import logger


class VariableAttributes:
    """Which attributes of an optimiser may change after the model has been compiled.

    Attributes that are passed to the constructor, and the learning rate, are variable; all others
    are constant, which takes less memory and time.
    """

    def __init__(self, variable_attributes: List[str], allowed_attributes: List[str]) -> None:
        """
        Args:
            variable_attributes: the attributes that are variable at first.
            allowed_attributes: all that can be.
        """
        self._variable_attributes = variable_attributes
        self._allowed_attributes = allowed_attributes

    def isConstant(self, attr: str) -> bool:
        """Whether an attribute must keep its value."""
        return attr not in self._variable_attributes

    def markAsConstant(self, attr: str) -> None:
        """Makes an attribute constant, before the model is compiled."""
        self._check(attr)
        self._variable_attributes = [each for each in self._variable_attributes if each != attr]

    def markAsVariable(self, attr: str) -> None:
        """Makes an attribute variable, before the model is compiled."""
        self._check(attr)
        if self.isConstant(attr):
            self._variable_attributes.append(attr)

    def _check(self, attr: str) -> None:
        allowed = self._allowed_attributes
        assert attr in allowed, _errors.UNKNOWN_ATTRIBUTE % (attr, allowed)


class Optimizer:
    """The base of the optimisers of this module: their attributes and their state on the device.

    Attributes:
        variable_attrs: which attributes may change after compilation.
        ipu_state_is_dirty: the state here is newer than that on the device, if any.
        host_state_is_dirty: the state on the device is newer than that here.
    """

    variable_attrs: VariableAttributes

    def __init__(self) -> None:
        self._state_dict: Dict[str, Any] = {"ipu_state": None, "ipu_param": None}
        self.ipu_state_is_dirty = False
        self.host_state_is_dirty = False
        self._read_from_device: Optional[Callable[[], None]] = None

    def state_dict(self) -> Dict[str, Any]:
        """torch's dictionary with the entries "ipu_state" and "ipu_param".

        They are dictionaries of tensors by name once a model has been compiled with the optimiser,
        and None before.
        """
        if self._read_from_device is not None and self.host_state_is_dirty:
            self._read_from_device()
        elif self.has_state():
            logger.debug("Using cached optimiser state dict")
        return self.get_state_dict()

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Takes a dictionary of `state_dict()`. The device gets it at the next call of the model.

        Raises:
            RuntimeError: the dictionary is empty, or is that of an optimiser that was never used
                with PopTorch.
        """
        self._check_state(state)
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.detach()  # brings the weights that the state here belongs to
        torch.optim.Optimizer.load_state_dict(self, state)
        self.set_state_dict(state)

    def get_state_dict(self) -> Dict[str, Any]:
        """As `state_dict`, without reading from the device."""
        return {**self._state_dict, **torch.optim.Optimizer.state_dict(self)}

    def set_state_dict(self, state: Dict[str, Any]) -> None:
        """Takes the entries "ipu_state" and "ipu_param" of a dictionary."""
        self._check_state(state)
        self._state_dict = {key: state[key] for key in ("ipu_state", "ipu_param")}
        self.ipu_state_is_dirty = True
        self.host_state_is_dirty = False

    def has_state(self) -> bool:
        """Whether there is state of the device here."""
        return all(self._state_dict[key] is not None for key in ("ipu_state", "ipu_param"))

    def connect(self, read_from_device: Optional[Callable[[], None]]) -> None:
        """Lets a model provide the state.

        Args:
            read_from_device: calls `take_device_state`; None ends the connection.
        """
        self._read_from_device = read_from_device

    def take_device_state(
        self, ipu_state: Dict[str, torch.Tensor], ipu_param: Dict[str, torch.Tensor]
    ) -> None:
        """Replaces the state here by what the device has."""
        self._state_dict = {"ipu_state": ipu_state, "ipu_param": ipu_param}
        self.host_state_is_dirty = False
        self.ipu_state_is_dirty = False

    @staticmethod
    def _check_state(state: Dict[str, Any]) -> None:
        if not state:
            raise RuntimeError(_errors.EMPTY_STATE)
        if "ipu_state" not in state or "ipu_param" not in state:
            raise RuntimeError(_errors.FOREIGN_STATE)

    def _construct(
        self, parent: type, params: Iterable, arguments: Dict[str, Any], own: Dict[str, Any]
    ) -> None:
        """Initialises the optimiser of torch, and the attributes that torch's has not.

        Args:
            parent: torch's class.
            params: the parameters or groups.
            arguments: torch's arguments by name, None for those that were not given.
            own: as `arguments`, of the variable attributes that only the device has.
        """
        Optimizer.__init__(self)
        given = {name: value for name, value in arguments.items() if value is not None}
        parent.__init__(self, params, **given)
        passed = [name for name in {**given, **own} if {**given, **own}[name] is not None]
        allowed = [*arguments, *own]
        self.variable_attrs = VariableAttributes(sorted({"lr", *passed}), allowed)

    def _set_types(self, **types: Optional[torch.dtype]) -> None:
        for name, dtype in types.items():
            dtype = torch.float32 if dtype is None else dtype
            assert dtype in (torch.float16, torch.float32), _errors.ACCUMULATION_TYPES
            setattr(self, name, dtype)

    def _set_max_grad_norm(self, value: Optional[float]) -> None:
        self.max_grad_norm = math.inf if value is None else value
        if isinstance(value, float) and math.isnan(value):
            raise ValueError(_errors.GRADIENT_NORM_NAN)

    def __getstate__(self) -> Dict[str, Any]:
        # A scheduler replaces `step` by one that is bound to this very object.
        left_out = ("step", "_read_from_device")
        state = {name: value for name, value in self.__dict__.items() if name not in left_out}
        return {**state, "_read_from_device": None}
