"""Convolutions that belong together."""

from typing import Any, List, Optional, Sequence, Union

import torch

from .. import _errors, enums
from .._capture import recorder as _recorder
from .._logging import logger

_CONVOLUTION = "convolution.default"


class MultiConv:
    """Sets options of all convolutions of a part of forward, as a context.

    >>> with poptorch.MultiConv().availableMemoryProportions((0.8, 0.7)):
    ...     y = self.conv_a(x)
    ...     v = self.conv_b(u)

    The memory proportions and the types of partial results take effect. These IPUs compute
    convolutions one after the other, each on all tiles, so that the other options change nothing;
    a warning says so. Outside of captures the context does nothing.
    """

    def __init__(self) -> None:
        self._available_memory_proportions: Optional[Sequence[float]] = None
        self._partials_types: Optional[Sequence[torch.dtype]] = None
        self._ignored: List[str] = []

    def availableMemoryProportions(self, value: Union[float, Sequence[float]]) -> "MultiConv":
        """Sets the share of a tile's memory that each convolution may take while it is computed.

        Args:
            value: one number from 0 to 1 for all convolutions, or one for each.

        Raises:
            AssertionError: it is something else.
        """
        values = _each(value)
        assert (
            value is None
            or values
            and all(isinstance(share, float) and 0 <= share <= 1 for share in values)
        ), "Invalid available memory proportion! It must be a float from 0 to 1, or some of them"
        self._available_memory_proportions = values
        return self

    def partialsTypes(self, value: Union[torch.dtype, Sequence[torch.dtype]]) -> "MultiConv":
        """Sets the type of the partial results of float16 convolutions.

        Args:
            value: torch.float or torch.half for all convolutions, or one for each.

        Raises:
            ValueError: it is something else.
        """
        values = _each(value)
        if not values or any(each not in (torch.float32, torch.float16) for each in values):
            raise ValueError(_errors.MULTI_CONV_PARTIALS)
        self._partials_types = values
        return self

    def enableConvDithering(self, value: Union[bool, Sequence[bool]]) -> "MultiConv":
        """Places convolutions on the tiles at random. It changes nothing.

        Args:
            value: True or False for all convolutions, or one of them for each.

        Raises:
            ValueError: it is something else.
        """
        if value is not None and not all(isinstance(each, bool) for each in _each(value)):
            raise ValueError(_errors.MULTI_CONV_DITHERING)
        return self._ignore("enableConvDithering", value)

    def planType(self, value: enums.MultiConvPlanType) -> "MultiConv":
        """Says whether convolutions run at the same time. It changes nothing.

        Raises:
            AssertionError: it is no MultiConvPlanType.
        """
        assert value is None or isinstance(value, enums.MultiConvPlanType), "Invalid plan type!"
        return self._ignore("planType", value)

    def perConvReservedTiles(self, value: int) -> "MultiConv":
        """Sets how many tiles each convolution has at least. It changes nothing.

        Raises:
            AssertionError: it is no int.
        """
        assert isinstance(value, int), "perConvReservedTiles must be an integer"
        return self._ignore("perConvReservedTiles", value)

    def cycleBackOff(self, value: float) -> "MultiConv":
        """Sets how much longer the slowest convolution may take. It changes nothing.

        Raises:
            AssertionError: it is no float.
        """
        assert isinstance(value, float), "cycleBackOff must be a float"
        return self._ignore("cycleBackOff", value)

    def _ignore(self, name: str, value: Any) -> "MultiConv":
        if value is not None and name not in self._ignored:
            self._ignored.append(name)
        return self

    def __enter__(self) -> "MultiConv":
        recorder = _recorder.active()
        if recorder is not None:
            if recorder.multi_conv_start is not None:
                raise _errors.cpp_error(_errors.MULTI_CONV_NESTED)
            recorder.multi_conv_start = len(recorder.tape.records)
        return self

    def __exit__(self, type, value, traceback) -> None:  # pylint: disable=redefined-builtin
        recorder = _recorder.active()
        if recorder is None or recorder.multi_conv_start is None:
            return
        start, recorder.multi_conv_start = recorder.multi_conv_start, None
        if type is None:
            self._apply(recorder, start)

    def _apply(self, recorder: _recorder.Recorder, start: int) -> None:
        tape = recorder.tape
        convolutions = [
            outputs[0]
            for operator, _, outputs, *_ in tape.records[start:]
            if tape.operators[operator] == _CONVOLUTION
        ]
        if not convolutions:
            raise _errors.cpp_error(_errors.MULTI_CONV_EMPTY)
        if self._ignored:
            logger.warning(_errors.MULTI_CONV_IGNORED, ", ".join(self._ignored))
        shares = _shared_out("availableMemoryProportions", self._available_memory_proportions,
                             len(convolutions))  # fmt: skip
        for convolution, share in zip(convolutions, shares):
            recorder.mark_product(convolution, share)
        types = _shared_out("partialsTypes", self._partials_types, len(convolutions))
        for convolution, dtype in zip(convolutions, types):
            recorder.mark_partials(convolution, dtype)


def _each(value: Any) -> Optional[Sequence[Any]]:
    if value is None or isinstance(value, (list, tuple)):
        return value
    return (value,)


def _shared_out(name: str, values: Optional[Sequence[Any]], count: int) -> Sequence[Any]:
    """A value for each convolution; none if there are no values."""
    if values is None:
        return ()
    if len(values) == 1:
        return list(values) * count
    if len(values) != count:
        raise _errors.cpp_error(_errors.MULTI_CONV_COUNT % (name, len(values), count))
    return values
