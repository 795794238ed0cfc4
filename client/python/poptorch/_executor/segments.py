"""Models that call functions on the host: programs of the IPUs, and the calls between them.

`split` divides a tape at its host calls. Each segment is a tape of its own, whose inputs and
results are also what segments hand on to later ones, through the host. `SegmentedModel` compiles
and runs them one after the other, in the place of a `poptorch_core.Model`.
"""

import copy
import ctypes
import pickle
from typing import Any, Dict, List, NamedTuple, Sequence, Set, Tuple

import torch

from .. import _errors
from .._capture.tape import Tape, dtype_number, dtype_of

_NARROW = {torch.int64: torch.int32, torch.float64: torch.float32}
_MARK = "#"  # between the name of a variable and the number of its segment


class Segment(NamedTuple):
    """A part of a tape between two host calls.

    Attributes:
        tape: its records and state, with `inputs` and `results` as inputs and results.
        inputs: values that it reads of what other segments, calls or the caller have made.
        results: values that others need.
    """

    tape: Tape
    inputs: List[int]
    results: List[int]


def _uses(argument: Any) -> Set[int]:
    if isinstance(argument, tuple):
        return {argument[0]}
    if isinstance(argument, list):
        return {value for element in argument for value in _uses(element)}
    return set()


def split(tape: Tape) -> List[Segment]:
    """Divides a tape at its host calls: one segment more than there are calls.

    Raises:
        poptorch.Error: a segment reads a buffer or parameter that another one writes.
    """
    ends = [record for record, *_ in tape.host_calls] + [len(tape.records)]
    records = [tape.records[a:b] for a, b in zip([0] + ends, ends)]
    made = [{value for record in part for value in record[2]} for part in records]
    read = [{value for record in part for value in _uses(record[1])} for part in records]
    state = tape.parameters + tape.buffers
    _check_writes(state, made, read)
    on_host = {value for _, value, _ in tape.inputs}
    finals = {final for _, value, final in tape.inputs if final != value}
    segments = []
    for number, part in enumerate(records):
        inputs = sorted(read[number] & on_host)
        called = {value for call in tape.host_calls[number:] for value in call[2]}
        asked = set().union(*read[number + 1 :], called, finals, tape.results)
        results = made[number] & asked
        # State and constants are nobody's results: they are read where they are asked for.
        direct = set(tape.results) | finals
        if number < len(tape.host_calls):
            direct = set(tape.host_calls[number][2])
            on_host |= set(tape.host_calls[number][3])
        everywhere = set().union(*made, on_host)
        results = sorted(results | (direct - everywhere))
        segments.append(_segment(tape, part, made[number], inputs, results))
        on_host |= set(results)
    return segments


def _check_writes(state: Sequence[tuple], made: List[Set[int]], read: List[Set[int]]) -> None:
    for name, value, final, *_ in state:
        if final == value:
            continue
        writers = [i for i, values in enumerate(made) if final in values]
        readers = [i for i, values in enumerate(read) if value in values]
        if len(writers) != 1 or set(readers) - set(writers):
            raise _errors.cpp_error(_errors.CPU_WRITES % name)


def _segment(
    tape: Tape, records: list, made: Set[int], inputs: List[int], results: List[int]
) -> Segment:
    part = copy.copy(tape)
    names = {value: name for name, value, _ in tape.inputs}
    part.records = records
    part.inputs = [(names.get(value, f"value {value}"), value, value) for value in inputs]
    part.results = results
    part.parameters = [(n, v, f if f in made else v, grad) for n, v, f, grad in tape.parameters]
    part.buffers = [(n, v, f if f in made else v) for n, v, f in tape.buffers]
    part.losses, part.checkpoints, part.recomputed = [], [], []
    return Segment(part, inputs, results)


def _tensor_at(address: int, size: int, dtype: torch.dtype) -> torch.Tensor:
    """A copy of memory of the caller."""
    return torch.frombuffer(bytearray(ctypes.string_at(address, size)), dtype=dtype)


class SegmentedModel:
    """A compiled model with host calls. Its methods are those of `poptorch_core.Model`.

    Each program is loaded on IPUs of its own. Variables other than parameters and buffers have the
    number of their program behind their names.
    """

    def __init__(self, make_model, tape: Tape, options: Dict[str, Any]) -> None:
        """
        Args:
            make_model: poptorch_core.Model.
            tape: with host calls.
            options: those of the extension, with the output mode "all".

        Raises:
            poptorch.Error: the tape or the options allow no host calls.
        """
        if options["input_group_size"] != 1:
            raise _errors.cpp_error(_errors.CPU_INPUT_GROUPS)
        if options["anchors"]:
            raise _errors.cpp_error(_errors.CPU_ANCHORS)
        self._tape, self._segments = tape, split(tape)
        self._state = {name for name, *_ in tape.parameters + tape.buffers}
        self._models: List[Any] = []
        for number, segment in enumerate(self._segments):
            names = {"report_name": f"{options['report_name']}_{number}"} if number else {}
            # What only hands on values needs no program.
            is_needed = bool(segment.results) or self._writes(segment)
            model = make_model(segment.tape, {**options, **names}, None) if is_needed else None
            self._models.append(model)
        self._first = next(model for model in self._models if model is not None)

    @staticmethod
    def _writes(segment: Segment) -> bool:
        state = segment.tape.parameters + segment.tape.buffers
        return any(value != final for _, value, final, *_ in state)

    def _each(self) -> List[Any]:
        return [model for model in self._models if model is not None]

    # --- Life cycle.

    def compile(self, progress=None) -> None:
        for model in self._each():
            model.compile(progress)

    def load(self, ipu_model: bool, device_id, wait: bool) -> None:
        if device_id is not None:
            raise _errors.cpp_error(_errors.CPU_DEVICE_ID)
        try:
            for model in self._each():
                model.load(ipu_model, None, wait)
        except BaseException:
            self.detach()
            raise

    def detach(self) -> None:
        for model in self._each():
            model.detach()

    @property
    def cache_miss(self) -> str:
        return next((each.cache_miss for each in self._each() if each.cache_miss), "")

    @property
    def is_compiled(self) -> bool:
        return all(model.is_compiled for model in self._each())

    @property
    def is_loaded(self) -> bool:
        return all(model.is_loaded for model in self._each())

    @property
    def ipus(self) -> int:
        return sum(model.ipus for model in self._each())

    def cycles(self) -> int:
        return sum(model.cycles() for model in self._each())

    def executable(self) -> bytes:
        return pickle.dumps([model.executable() for model in self._each()], protocol=4)

    def take_executable(self, executable: bytes) -> bool:
        parts, models = pickle.loads(executable), self._each()
        if len(parts) != len(models):
            return False
        return all([model.take_executable(part) for model, part in zip(models, parts)])

    def transfers(self) -> tuple:
        raise _errors.cpp_error(_errors.CPU_TRANSFERS)

    # --- State.

    def variables(self) -> Dict[str, tuple]:
        found = {}
        for number, model in enumerate(self._models):
            for name, about in model.variables().items() if model is not None else ():
                found[name if name in self._state else f"{name}{_MARK}{number}"] = about
        return found

    def write_state(self, entries: List[tuple]) -> None:
        for number, model in enumerate(self._models):
            if model is not None:
                model.write_state(self._entries_of(number, entries))

    def read_state(self, entries: List[tuple]) -> None:
        for number, model in enumerate(self._models):
            if model is not None:
                # What a program only reads is as it was written.
                written = self._written_by(number)
                chosen = self._entries_of(number, entries)
                model.read_state([e for e in chosen if e[0] not in self._state or e[0] in written])

    def _written_by(self, number: int) -> Set[str]:
        tape = self._segments[number].tape
        return {n for n, value, final, *_ in tape.parameters + tape.buffers if value != final}

    def _entries_of(self, number: int, entries: List[tuple]) -> List[tuple]:
        chosen = []
        for name, address, size in entries:
            if name in self._state:
                chosen.append((name, address, size))
                continue
            name, _, of_segment = name.rpartition(_MARK)
            if of_segment == str(number):
                chosen.append((name, address, size))
        return chosen

    # --- Runs.

    @property
    def output_copies(self) -> List[int]:
        return [self.input_copies] * len(self._outputs())

    @property
    def input_copies(self) -> int:
        return self._first.input_copies

    @property
    def written_inputs(self) -> List[int]:
        return [i for i, (_, value, final) in enumerate(self._tape.inputs) if value != final]

    def _outputs(self) -> List[int]:
        inputs = self._tape.inputs
        return self._tape.results + [inputs[i][2] for i in self.written_inputs]

    def input_types(self) -> List[Tuple[int, list]]:
        return [(self._tape.values[v][0], list(self._tape.values[v][1])) for _, v, _ in
                self._tape.inputs]  # fmt: skip

    def output_types(self) -> List[Tuple[int, list]]:
        types = []
        for value in self._outputs():
            number, dims = self._tape.values[value]
            dtype = dtype_of(number)
            types.append((dtype_number(_NARROW.get(dtype, dtype)), list(dims)))
        return types

    def run(self, inputs: List[Tuple[int, int]], outputs: List[Tuple[int, int]]) -> None:
        """Runs one batch; arguments are lists of (address, bytes)."""
        values: Dict[int, torch.Tensor] = {}  # [copies, dimensions of a micro-batch …]
        for (_, value, _), (address, size) in zip(self._tape.inputs, inputs):
            tensor = _tensor_at(address, size, self._dtype(value))
            values[value] = tensor.reshape(-1, *self._tape.values[value][1])
        for number, (segment, model) in enumerate(zip(self._segments, self._models)):
            if model is not None:
                self._run_segment(segment, model, values)
            if number < len(self._tape.host_calls):
                self._call_host(number, values)
        for value, (dtype, _), (address, size) in zip(
            self._outputs(), self.output_types(), outputs
        ):
            tensor = values[value].to(dtype_of(dtype)).contiguous()
            ctypes.memmove(address, tensor.data_ptr(), size)

    def _dtype(self, value: int) -> torch.dtype:
        return dtype_of(self._tape.values[value][0])

    def _run_segment(self, segment: Segment, model: Any, values: Dict[int, torch.Tensor]) -> None:
        given = [values[value].contiguous() for value in segment.inputs]
        taken = [
            torch.empty(self.input_copies, *dims, dtype=dtype_of(dtype))
            for dtype, dims in model.output_types()
        ]
        model.run(*([(t.data_ptr(), t.numel() * t.element_size()) for t in tensors]
                    for tensors in (given, taken)))  # fmt: skip
        for value, tensor in zip(segment.results, taken):
            values[value] = tensor.to(self._dtype(value))

    def _call_host(self, number: int, values: Dict[int, torch.Tensor]) -> None:
        _, _, arguments, results = self._tape.host_calls[number]
        function = self._tape.host_functions[number]
        made = [
            function.call([values[argument][i] for argument in arguments])
            for i in range(self.input_copies)
        ]
        for result, tensors in zip(results, zip(*made)):
            values[result] = torch.stack(tensors)
