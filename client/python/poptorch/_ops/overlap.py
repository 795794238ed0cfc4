"""Transfers between host and IPUs at the same time as computation."""

from typing import Any, Set

import torch

from .. import _errors, enums
from .._capture.structure import map_structure
from .._capture.tape import Tape
from .._logging import logger
from .checks import capture_of, check_tensor


def set_overlap_for_input(input_tensors: Any, mode: enums.OverlapMode) -> Any:
    """Says that inputs of the model are sent while the IPUs compute.

    >>> x = poptorch.set_overlap_for_input(x, poptorch.OverlapMode.OverlapAccumulationLoop)

    It belongs at the beginning of forward; operators have to use what it returns. It needs IO tiles
    (`options.TensorLocations.numIOTiles`) and no pipeline. The time of a run is the same without
    it: a warning says so.

    Args:
        input_tensors: a tensor, or lists, tuples and dictionaries of tensors.
        mode: the loop of whose turns a transfer overlaps with the one before.

    Returns:
        The same structure of the same values.

    Raises:
        poptorch.Error: an element is no tensor. When the model is compiled: a tensor is no input,
            another operator uses it as well, or the options do not allow it.
    """
    return _marked(input_tensors, mode, is_input=True)


def set_overlap_for_output(output_tensors: Any, mode: enums.OverlapMode) -> Any:
    """Says that results of the model are sent back while the IPUs compute.

    >>> return poptorch.set_overlap_for_output(y, poptorch.OverlapMode.OverlapAccumulationLoop)

    It belongs at the end of forward, which has to return what it returns. It needs the output mode
    All or Sum and what `set_overlap_for_input` needs. The time of a run is the same without it: a
    warning says so.

    Args:
        output_tensors: a tensor, or lists, tuples and dictionaries of tensors.
        mode: the loop of whose turns a transfer overlaps with the next one.

    Returns:
        The same structure of the same values.

    Raises:
        poptorch.Error: an element is no tensor. When the model is compiled: a tensor is no result,
            it is returned twice, or the options do not allow it.
    """
    return _marked(output_tensors, mode, is_input=False)


def _marked(tensors: Any, mode: enums.OverlapMode, is_input: bool) -> Any:
    if not isinstance(mode, enums.OverlapMode):
        raise _errors.py_error(_errors.OVERLAP_MODE % (mode,))

    def mark(tensor: torch.Tensor) -> torch.Tensor:
        recorder = capture_of(tensor)
        if recorder is None:
            return tensor
        # A value of its own tells its uses from those of the argument.
        before = recorder.value_of(tensor)
        copy = tensor.clone()
        recorder.tape.overlaps.append((before, recorder.value_of(copy), is_input, mode.value))
        return copy

    _check_elements(tensors, "set_overlap_for_input" if is_input else "set_overlap_for_output")
    return map_structure(tensors, mark, torch.Tensor)


def _check_elements(structure: Any, what: str) -> None:
    if isinstance(structure, (list, tuple, dict)):
        elements = structure.values() if isinstance(structure, dict) else structure
        for element in elements:
            _check_elements(element, what)
    else:
        check_tensor(structure, what)


def check_overlaps(tape: Tape, options) -> None:
    """Checks what set_overlap_for_input and set_overlap_for_output have marked.

    Args:
        tape: the captured model.
        options: poptorch.Options, with an output mode.

    Raises:
        poptorch.Error: a mark is at a wrong place, or the options do not allow overlaps.
    """
    for mark in tape.overlaps:
        if mark[2]:
            _check_input(tape, mark)
    for mark in tape.overlaps:
        if not mark[2]:
            _check_output(tape, mark)
    overlaps = [mark for mark in tape.overlaps if mark[3] != enums.OverlapMode.NoOverlap.value]
    if not overlaps:
        return
    if options._execution_strategy.backendOptions()["execution_mode"] == 0:
        raise _errors.cpp_error(_errors.OVERLAP_PIPELINED)
    if not options.TensorLocations.toDict().get("numIOTiles"):
        raise _errors.cpp_error(_errors.OVERLAP_IO_TILES)
    modes = (enums.OutputMode.All, enums.OutputMode.Sum)
    if options.output_mode not in modes and any(not mark[2] for mark in overlaps):
        raise _errors.cpp_error(_errors.OVERLAP_OUTPUT_MODE)
    logger.warning(_errors.OVERLAP_NO_EFFECT)


def _check_input(tape: Tape, mark: tuple) -> None:
    before, after, *_ = mark
    inputs = [value for _, value, _ in tape.inputs]
    if before not in inputs:
        raise _errors.cpp_error(_errors.OVERLAP_NO_INPUT)
    for _, arguments, outputs, *_ in tape.records:
        if before in _values_in(arguments) and after not in outputs:
            raise _errors.cpp_error(_errors.OVERLAP_NOT_ALONE % inputs.index(before))


def _values_in(argument: Any) -> Set[int]:
    if isinstance(argument, tuple):
        return {argument[0]}
    if isinstance(argument, list):
        return {value for element in argument for value in _values_in(element)}
    return set()


def _check_output(tape: Tape, mark: tuple) -> None:
    before, after, *_ = mark
    if after not in tape.results:
        raise _errors.cpp_error(_errors.OVERLAP_NO_OUTPUT)
    same = {before, after} | {mark[1] for mark in tape.overlaps if mark[0] == before}
    if sum(result in same for result in tape.results) > 1:
        raise _errors.cpp_error(_errors.OVERLAP_RETURNED_TWICE)
