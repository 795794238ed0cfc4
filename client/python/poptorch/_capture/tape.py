"""The record of one forward pass, as plain Python data.

A tape is what a captured model is to the graph builder. It holds numbers, names, tuples and lists
only, so that it can be compared, hashed and walked without PyTorch. Values are numbered in the
order in which they appear; each is written once.
"""

from typing import Dict, List, Optional, Sequence, Tuple

import torch

Use = Tuple[int, bool]  # the value, and whether the gradient stops at this use

_DTYPES = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.complex32: 8,
    torch.complex64: 9,
    torch.complex128: 10,
    torch.bool: 11,
    torch.qint8: 12,
    torch.quint8: 13,
    torch.qint32: 14,
    torch.bfloat16: 15,
}
_DTYPE_OF_NUMBER = {number: dtype for dtype, number in _DTYPES.items()}

FLOATING = frozenset(_DTYPES[d] for d in (torch.float16, torch.float32, torch.float64))
HELD = frozenset(range(8)) | {11}  # the element types that a tape can hold

PASS_BY = "poptorch::pass_by.default"
REGION = "poptorch::region.default"
IDENTITY_LOSS = "poptorch::identity_loss.default"


def dtype_number(dtype: torch.dtype) -> int:
    """PyTorch's ScalarType number of an element type."""
    return _DTYPES[dtype]


def dtype_of(number: int) -> torch.dtype:
    """The element type with this ScalarType number."""
    return _DTYPE_OF_NUMBER[number]


class Interned:
    """A list in which each element is once, with the index of each."""

    def __init__(self) -> None:
        self.items: list = []
        self._index: dict = {}

    def __call__(self, item) -> int:
        index = self._index.get(item)
        if index is None:
            index = self._index[item] = len(self.items)
            self.items.append(item)
        return index


class Tape:
    """One forward pass.

    Attributes:
        operators: names such as "add.Tensor"; pseudo-operators begin with "poptorch::".
        values: (ScalarType number, dimensions) of every value.
        records: (operator, arguments, outputs, scope, line, block) in program order. The first,
            fourth and fifth are indices; block is one, too, or -1. Arguments follow the operator's
            schema: a tuple (value, stop) is a use of a value, other arguments are None, bool, int,
            float, str or a list. An output that nothing can read is -1.
        scopes: paths of modules, "" for the captured module itself.
        lines: "model.py:12", or "" where no line of the program is known.
        blocks: what `_block_state.current` returned.
        parameters: (name, value, final value, whether it requires a gradient).
        groupings: (number of the parameter, groups of replicas, whether they are orthogonal) of
            parameters that have a value for each group; `values` has the shape of one.
        buffers, inputs: (name, value, final value). The final value of an input that forward
            wrote into is copied back to the caller.
        constants: (value, bytes), contiguous and little-endian.
        results: values, flattened in the structure of what forward returned; behind them those of
            `prints`.
        losses: (value, name of the loss function) in program order.
        checkpoints: values that recomputation keeps.
        available_memory: (value, share of the tile memory that its producer may use).
        partials: (result of a convolution, ScalarType number of its partial results).
        overlaps: (value, the same value behind the mark, whether it is an input, OverlapMode) of
            set_overlap_for_input and set_overlap_for_output.
        prints: (value, title, TextFormat as a tuple) of ipu_print_tensor.
        recomputed: (first record, end) of the spans of torch.utils.checkpoint.
        regions: gradient regions, see `_regions`.
        host_calls: (how many records come before, name, values of arguments, values of results) of
            poptorch.CPU.
        host_functions: what these call, see `host.HostFunction`. They tell no tapes apart.
    """

    groupings: Sequence[Tuple[int, int, bool]] = ()  # of tapes in files of earlier versions

    def __init__(self) -> None:
        self._operator, self._scope = Interned(), Interned()
        self._line, self._block = Interned(), Interned()
        self._constant: Dict[tuple, int] = {}
        self.operators: List[str] = self._operator.items
        self.values: List[Tuple[int, Tuple[int, ...]]] = []
        self.records: List[tuple] = []
        self.scopes: List[str] = self._scope.items
        self._places: List[Tuple[str, int]] = self._line.items
        self.blocks: List[tuple] = self._block.items
        self.parameters: List[Tuple[str, int, int, bool]] = []
        self.groupings = []
        self.buffers: List[Tuple[str, int, int]] = []
        self.inputs: List[Tuple[str, int, int]] = []
        self.constants: List[Tuple[int, bytes]] = []
        self.results: List[int] = []
        self.losses: List[Tuple[int, str]] = []
        self.checkpoints: List[int] = []
        self.available_memory: List[Tuple[int, float]] = []
        self.partials: List[Tuple[int, int]] = []
        self.overlaps: List[Tuple[int, int, bool, str]] = []
        self.prints: List[Tuple[int, str, tuple]] = []
        self.recomputed: List[Tuple[int, int]] = []
        self.regions: List[tuple] = []
        self.host_calls: List[Tuple[int, str, List[int], List[int]]] = []
        self.host_functions: list = []

    @property
    def lines(self) -> List[str]:
        """Places in the program's source, without the folders."""
        return [f"{name.rpartition('/')[2]}:{line}" if name else "" for name, line in self._places]

    def new_value(self, dtype: int, dims: Sequence[int]) -> int:
        """A new value, which the caller gives to a record, or to a parameter and so on."""
        self.values.append((dtype, tuple(dims)))
        return len(self.values) - 1

    def value_like(self, value: int) -> int:
        """A new value of the type and shape of another one."""
        self.values.append(self.values[value])
        return len(self.values) - 1

    def record(
        self,
        operator: str,
        arguments: list,
        outputs: Sequence[int],
        scope: str,
        place: Optional[Tuple[str, int]],
        block: Optional[tuple],
    ) -> None:
        """Appends an operator; `place` is its file and line."""
        self.records.append(
            (
                self._operator(operator),
                arguments,
                tuple(outputs),
                self._scope(scope),
                self._line(place or ("", 0)),
                -1 if block is None else self._block(block),
            )
        )

    def rename_output(self, value: int, new: int) -> bool:
        """Gives the output of a record another number; False if no record has this output."""
        for i in range(len(self.records) - 1, -1, -1):
            outputs = self.records[i][2]
            if value in outputs:
                outputs = tuple(new if output == value else output for output in outputs)
                self.records[i] = self.records[i][:2] + (outputs,) + self.records[i][3:]
                return True
        return False

    def move_last_behind(self, value: int) -> None:
        """Moves the last record behind the one that has this output, or to the beginning."""
        last, at = self.records.pop(), 0
        for i, record in enumerate(self.records):
            if value in record[2]:
                at = i + 1
        self.records.insert(at, last)
        moved = lambda i: i + 1 if i >= at else i
        self.recomputed = [(moved(a), moved(b)) for a, b in self.recomputed]

    def constant(self, dtype: int, dims: Sequence[int], data: bytes) -> int:
        """The value of a constant; equal constants are one value."""
        key = (dtype, tuple(dims), data)
        value = self._constant.get(key)
        if value is None:
            value = self._constant[key] = self.new_value(dtype, dims)
            self.constants.append((value, data))
        return value

    def plain(self) -> tuple:
        """Everything that tells one tape from another, for comparison and for cache keys."""
        return (
            self.operators, self.values, self.records, self.scopes, self.lines, self.blocks,
            self.parameters, self.groupings, self.buffers, self.inputs, self.constants,
            self.results, self.losses, self.checkpoints, self.available_memory, self.partials, self.overlaps, self.prints,
            self.recomputed, self.regions, self.host_calls,
        )  # fmt: skip
