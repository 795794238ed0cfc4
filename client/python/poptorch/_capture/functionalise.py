"""Storage on the tape: tensors that are written and viewed become values that are written once.

A tensor of PyTorch is a view of a *storage*. Several tensors can view one storage, and each sees
what is written through the others. Here a storage has a current value, and each tensor is the chain
of view operators that leads from the storage to it. A read of a tensor whose storage was written
since applies the chain to the current value; a write computes the new value of the storage by
going back through the chain.

Data and gradient can part: what is written under `no_grad`, or through `detach()` or `.data`,
changes data, but not how the gradient flows. Therefore tensors that are tied by differentiable
views form a *group*, which has its own value: the storage's data, with the group's gradient. A
group that others wrote into takes their data by `poptorch::pass_by(new, old)`, when it is read with
gradient the next time.
"""

from typing import Callable, Dict, List, Optional, Sequence, Tuple

from .._errors import cpp_error
from .tape import PASS_BY, Tape

Emit = Callable[[str, list, Sequence[int]], None]

_RESHAPING = frozenset(
    "view.default _unsafe_view.default _reshape_alias.default unsqueeze.default squeeze.default"
    " squeeze.dim".split()
)
_SCATTERS = {
    "slice.Tensor": "slice_scatter.default",
    "select.int": "select_scatter.default",
    "diagonal.default": "diagonal_scatter.default",
    "as_strided.default": "as_strided_scatter.default",
}


class Step:
    """One view operator of a chain: its name, its arguments behind the tensor, and the result."""

    __slots__ = ("operator", "arguments", "dtype", "dims")

    def __init__(self, operator: str, arguments: list, dtype: int, dims: Sequence[int]) -> None:
        self.operator, self.arguments = operator, arguments
        self.dtype, self.dims = dtype, tuple(dims)


class Storage:
    """What tensors share: the value of the data, and how often it was written."""

    __slots__ = ("data", "writes")

    def __init__(self, value: int) -> None:
        self.data, self.writes = value, 0


class Group:
    """Tensors of a storage between which gradients flow."""

    __slots__ = ("storage", "value", "writes")

    def __init__(self, storage: Storage) -> None:
        self.storage, self.value, self.writes = storage, storage.data, storage.writes


class View:
    """A tensor: its group, and the chain that leads from the storage to it."""

    __slots__ = ("group", "chain", "_base", "_value")

    def __init__(self, group: Group, chain: Tuple[Step, ...], base: int, value: int) -> None:
        self.group, self.chain = group, chain
        self._base, self._value = base, value  # of the last read

    def cached(self, base: int) -> Optional[int]:
        """The tensor's value if it was read from this value of the storage."""
        return self._value if self._base == base else None

    @property
    def base(self) -> int:
        """The value of the storage at the last read."""
        return self._base

    def keep(self, base: int, value: int) -> int:
        """Remembers what the tensor is in this value of the storage."""
        self._base, self._value = base, value
        return value

    def extend(self, step: Step, value: int) -> None:
        """Makes the tensor a further view of itself, as `transpose_` does."""
        self.chain += (step,)
        self._value = value


class Functionaliser:
    """Reads and writes of views; the records that they need go to `emit`."""

    def __init__(self, tape: Tape, emit: Emit, may_write: Callable[[int], None]) -> None:
        """`may_write` raises if the storage with this value must not be written."""
        self._tape, self._emit, self._may_write = tape, emit, may_write
        self._applied: Dict[Tuple[int, int, bool], int] = {}

    def fresh(self, value: int) -> View:
        """A tensor with a storage of its own."""
        return View(Group(Storage(value)), (), value, value)

    def view(self, source: View, step: Step, value: int) -> View:
        """A view of a tensor: `value` is what `step` made of the tensor at its last read."""
        return View(source.group, source.chain + (step,), source.base, value)

    def strided(self, source: View, step: Step, value: int) -> View:
        """A view of a tensor's storage by `as_strided`, which looks past the tensor's chain."""
        return View(source.group, (step,), source.base, value)

    def detached(self, source: View) -> View:
        """The same data, with a gradient of its own."""
        value = self.read(source, True)
        group = Group(source.group.storage)
        return View(group, source.chain, group.value, value)

    def base(self, view: View, stop: bool) -> int:
        """The value of a tensor's storage; its gradient is the group's unless `stop`."""
        group, storage = view.group, view.group.storage
        if group.writes == storage.writes:
            return group.value
        if stop:
            return storage.data
        value = self._tape.value_like(storage.data)
        self._emit(PASS_BY, [(storage.data, True), (group.value, False)], (value,))
        group.value, group.writes = value, storage.writes
        return value

    def read(self, view: View, stop: bool) -> int:
        """The value of a tensor now, for a use through which the gradient flows unless `stop`."""
        base = self.base(view, stop)
        value = view.cached(base)
        if value is not None:
            return value
        return view.keep(base, self._along(base, view.chain)[-1])

    def write(self, view: View, value: int, flows: bool, keeps: bool) -> None:
        """Gives a tensor a new value, and its storage the part that it views.

        Args:
            view: the written tensor.
            value: its new value, of the same type and shape.
            flows: the gradient flows through the write, because it is enabled.
            keeps: the gradient of the storage before the write goes on to what it was.
        """
        group, storage = view.group, view.group.storage
        self._may_write(storage.data)
        new = value
        if view.chain:
            base = self.base(view, not (flows and keeps))
            before = self._along(base, view.chain[:-1], not keeps)
            for step, whole in zip(reversed(view.chain), reversed(before)):
                new = self._put_back(step, whole, new, flows, keeps)
        storage.data, storage.writes = new, storage.writes + 1
        if flows:
            group.value, group.writes = new, storage.writes
        view.keep(new, value)

    def _along(self, base: int, chain: Sequence[Step], stop: bool = False) -> List[int]:
        """The values from the storage along a chain."""
        values = [base]
        for step in chain:
            key = (values[-1], id(step), stop)
            value = self._applied.get(key)
            if value is None:
                value = self._applied[key] = self._tape.new_value(step.dtype, step.dims)
                self._emit(step.operator, [(values[-1], stop)] + step.arguments, (value,))
            values.append(value)
        return values

    def _put_back(self, step: Step, whole: int, part: int, flows: bool, keeps: bool) -> int:
        """The value of `whole` once `part` is what `step` sees of it."""
        dims = self._tape.values[whole][1]
        use = (part, not flows)
        if step.operator in _RESHAPING or (
            step.operator == "expand.default" and _count(dims) == _count(step.dims)
        ):
            return self._inverse("view.default", use, [list(dims)], whole)
        if step.operator == "t.default":
            return self._inverse("t.default", use, [], whole)
        if step.operator == "transpose.int":
            return self._inverse("transpose.int", use, step.arguments, whole)
        if step.operator == "permute.default":
            order = [d % len(dims) for d in step.arguments[0]]
            back = [order.index(d) for d in range(len(dims))]
            return self._inverse("permute.default", use, [back], whole)
        scatter = _SCATTERS.get(step.operator)
        if scatter is None:
            what = "an expanded tensor" if step.operator == "expand.default" else step.operator
            raise cpp_error(f"In-place modification of a view by {what} is not supported.")
        value = self._tape.value_like(whole)
        self._emit(scatter, [(whole, not (flows and keeps)), use] + step.arguments, (value,))
        return value

    def _inverse(self, operator: str, use: Tuple[int, bool], arguments: list, whole: int) -> int:
        if operator == "view.default" and self._tape.values[use[0]] == self._tape.values[whole]:
            return use[0]
        value = self._tape.value_like(whole)
        self._emit(operator, [use] + arguments, (value,))
        return value


def _count(dims: Sequence[int]) -> int:
    count = 1
    for dim in dims:
        count *= dim
    return count


SPLITS = frozenset(("split.Tensor", "split_with_sizes.default", "unbind.int"))


def pieces(operator: str, arguments: list, dtype: int, results: Sequence[Sequence[int]]):
    """What an operator of `SPLITS` gives, as steps of one view each."""
    if operator == "unbind.int":
        dim = arguments[0]
        return [Step("select.int", [dim, i], dtype, dims) for i, dims in enumerate(results)]
    dim, start, steps = arguments[1], 0, []
    for dims in results:
        end = start + dims[dim]
        steps.append(Step("slice.Tensor", [dim, start, end, 1], dtype, dims))
        start = end
    return steps
