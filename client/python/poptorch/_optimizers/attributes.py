"""Reads the attributes of an optimiser for the device: which may change, and which did.

    reader = OptimizerReader(options)
    values = reader.read(optimizer)                 # Checks it, and warns.
    core.Model(tape, …, core_dict(values, names))   # names: the parameters' names of each group.
    ...
    changed = reader.read(optimizer, is_compiled=True)
    check_changes(values, changed)
"""

import functools
import inspect
import math
import numbers
from typing import Any, Dict, Optional, Set, Tuple

import torch

from .. import _errors, enums, optim
from .._logging import logger
from .values import KINDS, Hyper, Kind, OptimizerValues

_SUPPORTED = "SGD, Adam, AdamW, RMSprop, LAMB"
# Attributes of torch's groups without meaning for the device.
_WITHOUT_EFFECT = {"amsgrad", "capturable", "differentiable", "foreach", "fused", "maximize"}
# Attributes of torch's optimisers that are never variable.
_ALWAYS_CONSTANT = ("betas", "alpha", "nesterov")
# Attributes of the optimisers of poptorch.optim that are no hyper-parameters.
_OWN = {"host_state_is_dirty", "ipu_state_is_dirty", "loss_scaling", "variable_attrs"}


def _kind_of(optimizer: torch.optim.Optimizer) -> Kind:
    for kind in KINDS:
        if isinstance(optimizer, kind.torch_class):
            return kind
    raise AssertionError(_errors.UNSUPPORTED_OPTIMIZER % _SUPPORTED)


def _check_number(name: str, value: Any) -> None:
    assert isinstance(value, numbers.Number), _errors.EXPECTED_NUMBER % (name, value)


def _checked(name: str, value: Any) -> Any:
    """The value of a group's attribute.

    Raises:
        AssertionError: it is no number, or no pair of numbers.
    """
    assert value is not None, _errors.GROUP_MISSING % name
    if name != "betas":
        _check_number(name, value)
        return value
    assert isinstance(value, (tuple, list)), _errors.BETAS_PAIR
    assert len(value) == 2, _errors.EXPECTED_PAIR % (name, value)
    for index, each in enumerate(value):
        _check_number(f"betas[{index}]", each)
    return tuple(value)


def _settings(kind: Kind, optimizer: torch.optim.Optimizer) -> Dict[str, Any]:
    """The fixed attributes of an optimiser.

    Raises:
        ValueError: one has a value that the device does not have.
    """
    settings = {name: getattr(optimizer, name, value) for name, value in kind.settings.items()}
    for name, value in settings.items():
        if name.endswith("accum_type") and value not in (torch.float16, torch.float32):
            raise ValueError(_errors.ACCUMULATION_TYPE % (name, value))
        if name == "max_grad_norm":
            _check_number(name, value)
            if math.isnan(value):
                raise ValueError(_errors.NOT_NAN % name)
    if kind.name != "rmsprop" and getattr(optimizer, "use_tf_variant", False):
        raise ValueError(_errors.ONLY_RMSPROP % "use_tf_variant")
    if kind.name == "rmsprop":
        settings["centered"] = _centered(optimizer)
    return settings


def _centered(optimizer: torch.optim.Optimizer) -> bool:
    values = [group["centered"] for group in optimizer.param_groups]
    for index, value in enumerate(values):
        assert value == values[0], _errors.CENTERED % (values[0], index, value)
    return values[0]


def _maximize(kind: Kind, group: Dict[str, Any]) -> bool:
    maximize = bool(group.get("maximize", False))
    if maximize and kind.name in ("rmsprop", "lamb"):
        raise ValueError(_errors.MAXIMIZE % kind.torch_class.__name__)
    return maximize


@functools.lru_cache(maxsize=None)
def _defaults_of(torch_class: type) -> Dict[str, Any]:
    """The defaults of a constructor by name."""
    parameters = inspect.signature(torch_class.__init__).parameters
    return {name: each.default for name, each in parameters.items()}


class _Constancy:
    """Tells which attributes of an optimiser are constant."""

    def __init__(self, kind: Kind, optimizer: torch.optim.Optimizer) -> None:
        self._variable = getattr(optimizer, "variable_attrs", None)
        self._defaults = {} if self._variable is not None else _defaults_of(kind.torch_class)

    def is_constant(self, name: str, value: Any) -> bool:
        """Whether an attribute must keep this value."""
        if self._variable is not None:
            return self._variable.isConstant(name)
        if name == "lr":
            return False
        default = 1.0 if name == "loss_scaling" else self._defaults.get(name)
        return name in _ALWAYS_CONSTANT or value == default


class OptimizerReader:
    """Reads the optimisers of one model."""

    def __init__(self, options: Any) -> None:
        """
        Args:
            options: the poptorch.Options of the model.
        """
        self._options = options
        self._known_of_optimizer: Optional[Set[str]] = None
        self._known_of_groups: Set[str] = set()
        self._reported: Set[Tuple[int, str]] = set()
        self._warned: Set[type] = set()

    def read(
        self, optimizer: torch.optim.Optimizer, is_compiled: bool = False
    ) -> OptimizerValues:
        """The attributes of an optimiser.

        Attributes that the device does not know are ignored; those that appear after the first
        call are logged once.

        Args:
            optimizer: the optimiser.
            is_compiled: whether the model has been compiled, so that options cannot change.
        Raises:
            AssertionError: the class or an attribute is not supported.
            ValueError: an attribute has a value that the device, or a compiled model, cannot have.
        """
        assert isinstance(optimizer, torch.optim.Optimizer), (
            _errors.UNSUPPORTED_OPTIMIZER % _SUPPORTED
        )
        kind = _kind_of(optimizer)
        self._warn_of_subclass(kind, type(optimizer))
        if any(group.get("amsgrad") for group in optimizer.param_groups):
            raise ValueError(_errors.AMSGRAD)
        settings = _settings(kind, optimizer)
        self._adapt_options(settings, is_compiled)
        self._track(kind, optimizer, settings)
        return self._values(kind, optimizer, settings)

    def _values(self, kind, optimizer, settings) -> OptimizerValues:
        constancy = _Constancy(kind, optimizer)
        scale = getattr(optimizer, "loss_scaling", 1.0)
        _check_number("loss_scaling", scale)
        scaling_is_constant = constancy.is_constant("loss_scaling", scale)
        automatic = self._options._popart.options.get("automaticLossScalingSettings.enabled")
        loss_scaling = Hyper(scale, scaling_is_constant and not automatic)
        names = kind.group
        if settings.get("use_combined_accum"):
            names += ("velocity_scaling",)

        def hypers(attributes: Dict[str, Any]) -> Dict[str, Hyper]:
            # The separate variant of SGD scales velocities as gradients.
            found = {"velocity_scaling": loss_scaling} if kind.name == "sgd" else {}
            for name in names:
                value = _checked(name, attributes.get(name, optimizer.defaults.get(name)))
                found[name] = Hyper(value, constancy.is_constant(name, value))
            return found

        groups = optimizer.param_groups
        for group in groups:
            assert isinstance(group, dict), _errors.GROUP_NO_DICT % "The attributes"
        # torch keeps a marker in the place of a learning rate that each group has to give.
        first = groups[0] if groups else {}
        lacking = {name: first.get(name) for name in names if not _has(optimizer.defaults, name)}
        return OptimizerValues(
            kind,
            _type_name(kind, settings),
            settings,
            loss_scaling,
            hypers({**optimizer.defaults, **lacking}),
            [hypers(group) for group in groups],
            [_maximize(kind, group) for group in groups],
        )

    def _warn_of_subclass(self, kind: Kind, given: type) -> None:
        expected = (kind.torch_class, getattr(optim, kind.torch_class.__name__))
        if given not in expected and given not in self._warned:
            self._warned.add(given)
            logger.warning(
                _errors.SUBCLASSED_OPTIMIZER, given.__name__, kind.torch_class.__name__
            )

    def _adapt_options(self, settings: Dict[str, Any], is_compiled: bool) -> None:
        """Half accumulators hold running means, except those of the combined SGD."""
        if settings["accum_type"] != torch.float16 or settings.get("use_combined_accum"):
            return
        running = enums.MeanReductionStrategy.Running
        training = self._options.Training
        if training.meanAccumulationAndReplicationReductionStrategy == running:
            return
        if is_compiled:
            raise ValueError(_errors.RUNNING_NEEDED)
        was_frozen = self._options._is_frozen
        self._options._unfreeze()
        training.setMeanAccumulationAndReplicationReductionStrategy(running)
        if was_frozen:
            self._options._freeze()

    def _track(self, kind: Kind, optimizer: torch.optim.Optimizer, settings) -> None:
        known = {"velocity_scaling"} if settings.get("use_combined_accum") else set()
        known |= {"params", *kind.group, "centered"} | _WITHOUT_EFFECT | self._known_of_groups
        present = [set(group) for group in optimizer.param_groups]
        if self._known_of_optimizer is None:
            self._known_of_optimizer = set(optimizer.__dict__)
            self._known_of_groups = set().union(*present)
            return
        extra = set(optimizer.__dict__) - self._known_of_optimizer - set(kind.settings) - _OWN
        self._report(-1, kind, extra)
        for index, group in enumerate(present):
            self._report(index, kind, group - known)

    def _report(self, group: int, kind: Kind, names: Set[str]) -> None:
        """Logs attributes of a group, or of the optimiser if `group` is −1, once."""
        shown = sorted(name for name in names if not name.startswith("_"))
        shown = [name for name in shown if (group, name) not in self._reported]
        if not shown:
            return
        self._reported |= {(group, name) for name in shown}
        log = logger.debug if self._options._relax_optimizer_checks else logger.warning
        name = kind.torch_class.__name__
        if group < 0:
            log(_errors.UNEXPECTED_OPTIMIZER_ATTRIBUTE, name, shown)
        else:
            log(_errors.UNEXPECTED_GROUP_ATTRIBUTE, group, name, shown)


def _has(defaults: Dict[str, Any], name: str) -> bool:
    return isinstance(defaults.get(name), (numbers.Number, tuple, list))


def _type_name(kind: Kind, settings: Dict[str, Any]) -> str:
    if kind.name == "sgd":
        return "SGD1" if settings["use_combined_accum"] else "SGD2"
    name = kind.name.upper()
    if settings.get("centered"):
        name += "_CENTERED"
    return name if settings.get("bias_correction", True) else f"{name}_NO_BIAS"


def check_changes(before: OptimizerValues, after: OptimizerValues) -> None:
    """Checks that a compiled model can go on with other values.

    Args:
        before: the values that the model was compiled with.
        after: the new ones.
    Raises:
        Error: the kind, the groups, a fixed attribute or a constant has changed.
    """
    fixed = [("type", before.type_name, after.type_name)]
    fixed.append(("number of groups", len(before.groups), len(after.groups)))
    fixed += [(name, value, after.settings.get(name)) for name, value in before.settings.items()]
    fixed.append(("maximize", before.maximize, after.maximize))
    for name, old, new in fixed:
        if old != new:
            raise _errors.cpp_error(_errors.FIXED_CHANGED % (name, old, new))
    scalings = [{"loss_scaling": values.loss_scaling} for values in (before, after)]
    _check_constants("the optimizer", *scalings)
    for index, (old, new) in enumerate(zip(before.groups, after.groups)):
        _check_constants(f"group {index}", old, new)


def _check_constants(where: str, before: Dict[str, Hyper], after: Dict[str, Hyper]) -> None:
    for name, (value, constant) in before.items():
        if constant and after[name].value != value:
            arguments = (name, where, value, after[name].value, name)
            raise _errors.cpp_error(_errors.CONSTANT_CHANGED % arguments)
