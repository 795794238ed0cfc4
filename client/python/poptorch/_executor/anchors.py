"""Anchored tensors: values of the last call beside the results of forward."""

import difflib
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from .. import _errors, enums
from .._capture.tape import dtype_of
from .._logging import native
from . import weights
from .core import call as core_call
from .core_options import OUTPUT_MODES
from .device_names import STATE, on_device, state_on_device
from .tensor_names import TensorNames

_SHOWN = {
    enums.OutputMode.All: "ALL",
    enums.OutputMode.EveryN: "EVERYN",
    enums.OutputMode.Final: "FINAL",
    enums.OutputMode.Sum: "Sum",
}


class _Anchor(NamedTuple):
    """What one call of anchorTensor asks for."""

    short_name: str
    long_name: str
    mode: enums.OutputMode
    period: int


def _asked_for(options) -> List[_Anchor]:
    anchors = []
    for short_name, (long_name, mode, period) in options.anchored_tensors.items():
        if mode is None:
            mode, period = options.output_mode, options.output_return_period
        anchors.append(_Anchor(short_name, long_name, mode, period or 1))
    return anchors


class Anchors:
    """The anchors of a model, and what they were in the last call.

    Values of the forward pass and gradients are outputs of the program. Updated parameters and the
    state of the optimiser are read after a call.
    """

    def __init__(
        self, options, names: TensorNames, scalars: Callable[[], Dict[str, torch.Tensor]]
    ) -> None:
        """
        Args:
            options: poptorch.Options.
            names: the tensors of the model.
            scalars: returns the hyper-parameters of the optimiser, by name.

        Raises:
            poptorch.Error: there is no tensor with the name that an anchor asks for, or it is not
                there as often as its output mode says.
        """
        self._options = options
        self._names = names
        self._values: Dict[str, torch.Tensor] = {}
        self._streams: List[Tuple[_Anchor, int, bool]] = []  # anchor, value, whether a gradient
        self._variables: List[Tuple[_Anchor, str]] = []
        self._variable_types: Dict[str, Tuple[torch.dtype, Tuple[int, ...]]] = {}
        self._scalars: List[_Anchor] = []
        self._read_scalars = scalars
        self._nothing: List[Tuple[_Anchor, int]] = []  # the period is longer than a call
        for anchor in _asked_for(options):
            period = anchor.period if anchor.mode == enums.OutputMode.EveryN else 1
            native.debug("Anchor %s %s/%d", anchor.long_name, _SHOWN[anchor.mode], period)
            self._add(anchor)

    def _add(self, anchor: _Anchor) -> None:
        name, names, scalars = anchor.long_name, self._names, self._read_scalars()
        is_gradient = name in names.gradients
        value = names.gradients.get(name, names.values.get(name))
        if value is not None:
            if anchor.mode == enums.OutputMode.EveryN and self._is_longer(anchor):
                self._nothing.append((anchor, value))
            else:
                self._streams.append((anchor, value, is_gradient))
        elif name in scalars:
            self._scalars.append(anchor)
        elif name in names.updated or name.startswith(STATE):
            self._check_mode(anchor)
            updated = names.updated.get(name)
            variable = state_on_device(name) if updated is None else on_device(updated)
            self._variables.append((anchor, variable))
        else:
            raise _unknown(anchor, [*names.all(), *scalars])

    def _is_longer(self, anchor: _Anchor) -> bool:
        iterations = self._options.device_iterations
        if anchor.period > iterations:
            return True
        if iterations % anchor.period:
            raise _errors.cpp_error(
                f"Anchor {anchor.short_name}: the return period is {anchor.period}, must be a"
                f" factor of the {iterations} device iterations"
            )
        return False

    def _check_mode(self, anchor: _Anchor) -> None:
        options = self._options
        once = options.device_iterations * options.Training.gradient_accumulation == 1
        if anchor.mode != enums.OutputMode.Final and not once:
            raise _errors.py_error(
                f"Anchor {anchor.short_name}: {anchor.long_name} is read after a call, so that its"
                " output mode must be poptorch.OutputMode.Final"
            )

    def streams(self) -> List[Tuple[int, bool, str, int]]:
        """The option "anchors" of poptorch_core.Model."""
        return [
            (
                value,
                is_gradient,
                OUTPUT_MODES[anchor.mode],
                anchor.period if anchor.mode == enums.OutputMode.EveryN else 1,
            )
            for anchor, value, is_gradient in self._streams
        ]

    def compiled(self, model, types: Sequence[Tuple[int, Sequence[int]]]) -> None:
        """Finds the state of the optimiser that a compiled model has.

        Args:
            model: a poptorch_core.Model.
            types: (ScalarType number, dimensions) of the values of the tape.
        """
        variables = model.variables()
        for anchor, name in self._variables:
            # Parameters are read in the type of the host.
            value = self._names.values.get(self._names.updated.get(anchor.long_name))
            if value is None and name not in variables:
                raise _unknown(anchor, list(variables))
            dtype, dims = variables[name][:2] if value is None else types[value]
            if name in variables:
                dims = variables[name][1]  # with the rows of all groups of replicas
            self._variable_types[name] = (dtype_of(dtype), tuple(dims))
        for anchor, value in self._nothing:
            dtype, dims = types[value]
            self._values[anchor.short_name] = torch.empty((0, *dims), dtype=dtype_of(dtype))

    @property
    def count(self) -> int:
        """How many outputs of the program the anchors are."""
        return len(self._streams)

    def take(self, model, outputs: Sequence[torch.Tensor]) -> None:
        """Takes the values of a call.

        Args:
            model: the poptorch_core.Model, which has run.
            outputs: those of the anchors, in the order of `streams`.
        """
        for (anchor, *_), values in zip(self._streams, outputs):
            self._values[anchor.short_name] = values
        if self._scalars:
            scalars = self._read_scalars()
            for anchor in self._scalars:
                self._values[anchor.short_name] = scalars[anchor.long_name]
        if self._variables:
            self._read_variables(model)

    def _read_variables(self, model) -> None:
        state = []
        for _, name in self._variables:
            dtype, dims = self._variable_types[name]
            state.append((name, torch.empty(dims, dtype=dtype)))
        core_call(model.read_state, weights.HostMemory(state).entries)
        for (anchor, _), (_, tensor) in zip(self._variables, state):
            self._values[anchor.short_name] = self._of_replicas(tensor)

    def _of_replicas(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same value from each replica, along dimension 0."""
        replicas = self._options.replication_factor
        if replicas == 1:
            return tensor
        return tensor.repeat(replicas, *[1] * max(tensor.dim() - 1, 0))

    def value(self, short_name: str) -> torch.Tensor:
        """See PoplarExecutor.getAnchoredTensor."""
        assert short_name in self._values, f"No tensor with name {short_name} found."
        return self._values[short_name]


def _unknown(anchor: _Anchor, known: Sequence[str]) -> _errors.Error:
    close = difflib.get_close_matches(anchor.long_name, known, n=3)
    hint = f", such as {', '.join(close)}" if close else ""
    return _errors.py_error(
        f"Anchor {anchor.short_name}: the model has no tensor {anchor.long_name}."
        f" getTensorNames() lists those it has{hint}"
    )


class AnchoredTensors:
    """The part of PoplarExecutor that shows tensors of the model by name."""

    _core: Optional[Any]
    _names: Optional[TensorNames]
    _anchors: Optional[Anchors]
    _device_optimizer: Any

    def getTensorNames(self) -> List[str]:
        """The names of all tensors of the compiled model, for Options.anchorTensor.

        Raises:
            AssertionError: the model is not compiled.
        """
        assert self._core is not None, "Model must be compiled before calling getTensorNames"
        optimizer = self._device_optimizer.tensor_names() if self._device_optimizer else []
        return [*self._names.all(), *optimizer]

    def getAnchoredTensor(self, short_name: str) -> torch.Tensor:
        """What a tensor was in the last call, for which Options.anchorTensor was called.

        Gradients are those of the loss times the loss scale, one for each micro-batch.

        Args:
            short_name: the name that was given to anchorTensor.

        Returns:
            The micro-batches that the anchor's output mode says, along dimension 0.

        Raises:
            AssertionError: there is no such anchor, or no call that has filled it.
        """
        assert self._anchors is not None, f"No tensor with name {short_name} found."
        return self._anchors.value(short_name)
