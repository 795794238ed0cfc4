"""The dispatch mode that writes the tape while forward runs on meta tensors."""

import contextlib
import ctypes
import sys
import threading
from typing import Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import _block_state, _capture_errors as errors, _shapes
from ._functionalise import SPLITS, Functionaliser, Step, View, pieces
from ._signature import Signature, encode, signature_of, tensors_of
from ._tape import HELD, Tape, dtype_number

META = torch.device("meta")

_READS = frozenset(
    "aten::_local_scalar_dense aten::item aten::is_nonzero aten::equal aten::allclose".split()
)
# The result is the first argument itself: no record, but a gradient of its own after `detach`.
_SAME = frozenset("aten::alias aten::lift_fresh aten::lift aten::detach aten::detach_".split())
# These change which view a tensor is, and no element: operator -> the view operator.
_GEOMETRY = {
    "t_.default": "t.default",
    "transpose_.default": "transpose.int",
    "squeeze_.default": "squeeze.default",
    "squeeze_.dim": "squeeze.dim",
    "unsqueeze_.default": "unsqueeze.default",
    "as_strided_.default": "as_strided.default",
}
_STRIDED = "as_strided.default"
_TORCH = torch.__file__.rpartition("/")[0] + "/"
_HERE = __file__.rpartition("/")[0] + "/_"

_active: Optional["Recorder"] = None


def active() -> Optional["Recorder"]:
    """The recorder of this thread's capture, or None."""
    recorder = _active
    if recorder is None or recorder.thread != threading.get_ident():
        return None
    return recorder


def activate(recorder: Optional["Recorder"]) -> None:
    """Sets or clears the recorder; captures hold a lock of the process."""
    global _active
    _active = recorder


def is_device(device) -> bool:
    """Whether a device, or its name, is the IPU's."""
    if device is None or isinstance(device, int):
        return False
    return torch.device(device).type in ("ipu", "meta")


class Recorder(TorchDispatchMode):
    """Records every operator on device tensors.

    A device tensor is one that the recorder knows: parameters, buffers, inputs, constants, and
    results of operators on them. Operators on other tensors alone run on the host.
    """

    def __init__(self, tape: Tape, supported: Optional[Callable[[str], bool]] = None) -> None:
        super().__init__()
        self.tape = tape
        self.thread = threading.get_ident()
        self.scopes: List[str] = [""]
        self.functions: List[str] = []  # the names of the torch functions that are called
        self.making_data = False  # while a torch function makes a host tensor of Python data
        self.warned: set = set()  # the factories that a warning was about
        self.leaves: set = set()  # ids of the tensors that may be leaves with a gradient
        self.unsupported: Dict[tuple, errors.Place] = {}
        self._supported = supported
        self._known: Dict[int, Tuple[torch.Tensor, View]] = {}
        self._storage = Functionaliser(tape, self.emit)
        self._muted = False
        self._instead: Optional[Tuple[str, list]] = None
        self._of_program: Dict[str, bool] = {}
        self._checked: Dict[str, bool] = {}

    # --- Tensors and values.

    def knows(self, tensor: torch.Tensor) -> bool:
        """Whether this is a device tensor."""
        return id(tensor) in self._known

    def view_of(self, tensor: torch.Tensor) -> View:
        """The storage and chain of a device tensor."""
        return self._known[id(tensor)][1]

    def bind(self, tensor: torch.Tensor, view: View) -> None:
        """Makes a tensor a device tensor, and keeps it alive, since its id is its name."""
        self._known[id(tensor)] = (tensor, view)

    def add(self, tensor: torch.Tensor) -> int:
        """Makes a meta tensor a device tensor with a new value."""
        value = self.new_value(tensor)
        self.bind(tensor, self._storage.fresh(value))
        return value

    def new_value(self, tensor: torch.Tensor) -> int:
        """A new value of a tensor's type and shape."""
        dtype = dtype_number(tensor.dtype)
        if dtype not in HELD:
            raise errors.unsupported_type(tensor.dtype)
        return self.tape.new_value(dtype, tensor.shape)

    def constant(self, host: torch.Tensor, requires_grad: bool = False) -> torch.Tensor:
        """A device tensor with the elements of a host tensor."""
        with self.muted():
            value = self.constant_value(host)
            tensor = torch.empty(host.shape, dtype=host.dtype, device=META)
        self.bind(tensor, self._storage.fresh(value))
        return tensor.requires_grad_() if requires_grad else tensor

    def constant_value(self, host: torch.Tensor) -> int:
        """The value that holds the elements of a host tensor."""
        dtype = dtype_number(host.dtype)
        if dtype not in HELD:
            raise errors.unsupported_type(host.dtype)
        if host.is_meta:
            raise errors.no_history(host)
        with self.muted():
            host = host.detach().contiguous()
            data = ctypes.string_at(host.data_ptr(), host.numel() * host.element_size())
        return self.tape.constant(dtype, host.shape, data)

    def value_of(self, tensor: torch.Tensor) -> int:
        """The value of a tensor now, for a result or a mark."""
        return self.use(tensor)[0]

    def data_of(self, tensor: torch.Tensor) -> int:
        """The value of a device tensor's data now, without its gradient."""
        return self._storage.read(self.view_of(tensor), True)

    def _stops(self, tensor: torch.Tensor) -> bool:
        if not tensor.requires_grad or not torch.is_grad_enabled():
            return True
        return tensor.is_leaf and id(tensor) not in self.leaves

    def use(self, tensor: torch.Tensor) -> Tuple[int, bool]:
        """A tensor as an argument: its value, and whether the gradient stops at this use."""
        known = self._known.get(id(tensor))
        if known is None:
            if tensor.device.type == "cpu" and tensor.dim() == 0:
                return self.constant_value(tensor), True
            if tensor.is_meta:
                raise errors.no_history(tensor)
            raise errors.not_on_device(tensor)
        if 0 in tensor.shape:
            raise errors.zero_sized(tensor.shape)
        stop = self._stops(tensor)
        return self._storage.read(known[1], stop), stop

    # --- Records.

    def emit(self, operator: str, arguments: list, outputs: Sequence[int]) -> None:
        """Appends a record at the current scope, line and block."""
        place = self.place()
        if not operator.startswith("poptorch::") and not self._is_supported(operator):
            self._refuse(operator, place)
        self.tape.record(
            operator, arguments, outputs, self.scopes[-1], place, _block_state.current()
        )

    def place(self) -> Optional[Tuple[str, int]]:
        """File and line of the program that is executed."""
        frame, of_program = sys._getframe(2), self._of_program
        while frame is not None:
            name = frame.f_code.co_filename
            known = of_program.get(name)
            if known is None:
                known = not name.startswith((_TORCH, _HERE, "<frozen"))
                of_program[name] = known
            if known:
                return name, frame.f_lineno
            frame = frame.f_back
        return None

    def _is_supported(self, operator: str) -> bool:
        known = self._checked.get(operator)
        if known is None:
            known = self._supported is None or self._supported(operator)
            self._checked[operator] = known
        return known

    def _refuse(self, operator: str, place: Optional[Tuple[str, int]]) -> None:
        at = errors.Place(self.scopes[-1], place, self.functions[-1] if self.functions else "")
        self.unsupported.setdefault((operator, at.scope, place), at)

    def raise_if_unsupported(self) -> None:
        """Raises one error that lists all operators that cannot be compiled."""
        if self.unsupported:
            raise errors.unsupported(self.unsupported)

    @contextlib.contextmanager
    def muted(self):
        """Operators run, and nothing is recorded."""
        before, self._muted = self._muted, True
        try:
            yield
        finally:
            self._muted = before

    @contextlib.contextmanager
    def recorded_as(self, operator: str, arguments: list):
        """The next operator is recorded with this name and these arguments."""
        self._instead = (operator, arguments)
        try:
            yield
        finally:
            self._instead = None

    # --- Dispatch.

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self._muted:
            return func(*args, **kwargs)
        signature = signature_of(func)
        tensors = tensors_of(args) + tensors_of(kwargs.values())
        known = [t for t in tensors if id(t) in self._known]
        device = kwargs.get("device")
        if device is not None:
            if device.type == "ipu":
                kwargs = dict(kwargs, device=META)
            if known and device.type == "cpu":
                raise errors.illegal_move('.to("cpu")')
        if not known and (device is None or not is_device(device)):
            self._check_history(tensors)
            return func(*args, **kwargs)
        if signature.schema_name in _READS:
            raise errors.host_read(signature.schema_name)
        if not known and tensors:
            return self._move(func, args, kwargs)
        return self._record(func, signature, args, kwargs)

    @staticmethod
    def _check_history(tensors: List[torch.Tensor]) -> None:
        for tensor in tensors:
            if tensor.is_meta:
                raise errors.no_history(tensor)

    def _move(self, func, args, kwargs):
        """An operator on host tensors with a result on the device: it is a constant."""
        if "rand" in func._schema.name:
            raise errors.not_on_device(tensors_of(args)[0])
        self._check_history(tensors_of(args))
        with self.muted():
            return self.constant(func(*args, **dict(kwargs, device=torch.device("cpu"))))

    def _record(self, func, signature: Signature, args, kwargs):
        if signature.schema_name in _SAME:
            return self._same(func, args, kwargs)
        bound = signature.bound(args, kwargs)
        geometry = _GEOMETRY.get(signature.name)
        if geometry is not None:
            return self._reshape_in_place(func, geometry, args, kwargs, bound)
        if signature.name == _STRIDED:
            return self._strided(func, args, kwargs, bound)
        arguments = [encode(a, self.use) for a in bound]
        keeps = {i: not self._stops(args[i]) for i, _ in signature.writes if i < len(args)}
        result = self._run(func, signature, args, kwargs, bound)
        outputs = list(result) if isinstance(result, (tuple, list)) else [result]
        if self._instead is not None:
            name, arguments = self._instead
            values = self._values(outputs)
            self.emit(name, arguments, values)
            self._bind_fresh(outputs, values)
        elif signature.outs:
            self._write_out(signature, bound, arguments, kwargs)
        elif signature.writes:
            self._write(signature, args, arguments, outputs, keeps)
        elif signature.is_view and self._views(args):
            self._view(signature, args[0], arguments, outputs)
        else:
            self._plain(signature, bound, arguments, outputs)
        return result

    def _run(self, func, signature: Signature, args, kwargs, bound):
        """The operator on meta tensors: types and shapes."""
        base = signature.name.partition(".")[0]
        rule = _shapes.rule_of(signature.name)
        if rule is not None:
            return rule(*bound)
        if base in _shapes.DATA_DEPENDENT or signature.name in _shapes.DATA_DEPENDENT:
            raise errors.data_dependent(signature.schema_name, self._here())
        args = tuple(_on_meta(a) for a in args)
        kwargs = {name: _on_meta(a) for name, a in kwargs.items()}
        try:
            return func(*args, **kwargs)
        except NotImplementedError:
            self._refuse(signature.name, self.place())
            self.raise_if_unsupported()
            raise

    def _views(self, args) -> bool:
        return bool(args) and isinstance(args[0], torch.Tensor) and self.knows(args[0])

    def _here(self) -> errors.Place:
        return errors.Place(self.scopes[-1], self.place(), "")

    def _values(self, outputs: list) -> List[int]:
        """New values of results; those without elements are left out."""
        values = []
        for output in outputs:
            if not isinstance(output, torch.Tensor):
                raise errors.host_read("aten::item")
            values.append(self.new_value(output) if 0 not in output.shape else -1)
        return values

    def _bind_fresh(self, outputs: list, values: Sequence[int]) -> None:
        for output, value in zip(outputs, values):
            self.bind(output, self._storage.fresh(value))

    def _plain(self, signature: Signature, bound: list, arguments: list, outputs: list) -> None:
        values = self._values(outputs)
        written = []
        if signature.undeclared and bound[5]:  # batch normalisation that trains
            written = [i for i in signature.undeclared if bound[i] is not None]
        moved = [self.new_value(bound[i]) for i in written]
        if any(value >= 0 for value in values):
            self.emit(signature.name, arguments, values + moved)
        self._bind_fresh(outputs, values)
        for i, value in zip(written, moved):
            self._storage.write(self.view_of(bound[i]), value, False, True)

    def _same(self, func, args, kwargs):
        source = args[0]
        result = func(*args, **kwargs)
        if func._schema.name in ("aten::detach", "aten::detach_"):
            self.bind(result, self._storage.detached(self.view_of(source)))
        elif result is not source:
            self.bind(result, self.view_of(source))
        return result

    def _view(self, signature: Signature, source, arguments: list, outputs: list) -> None:
        view = self.view_of(source)
        dtype = dtype_number(outputs[0].dtype)
        if signature.name in SPLITS:
            steps = pieces(signature.name, arguments[1:], dtype, [o.shape for o in outputs])
        else:
            steps = [Step(signature.name, arguments[1:], dtype, outputs[0].shape)]
        for step, output in zip(steps, outputs):
            value = self._values([output])[0]
            if value >= 0:
                self.emit(step.operator, [arguments[0]] + step.arguments, [value])
            self.bind(output, self._storage.view(view, step, value))

    def _strided(self, func, args, kwargs, bound):
        """`as_strided` tells where elements lie in the storage, whatever view it is called on."""
        result = func(*args, **kwargs)
        offset = bound[3] if bound[3] is not None else args[0].storage_offset()
        view = self.view_of(args[0])
        stop = self._stops(args[0])
        base = self._storage.base(view, stop)
        self._storage.read(view, stop)
        if args[0]._is_view() and not args[0]._base.is_contiguous() or not (
            args[0]._is_view() or args[0].is_contiguous()
        ):
            raise errors.strided()
        rest = [list(bound[1]), list(bound[2]), offset]
        step = Step(_STRIDED, rest, dtype_number(result.dtype), result.shape)
        value = self.new_value(result)
        self.emit(_STRIDED, [(base, stop)] + rest, [value])
        self.bind(result, self._storage.strided(view, step, value))
        return result

    def _reshape_in_place(self, func, operator: str, args, kwargs, bound):
        if operator == _STRIDED:
            raise errors.strided()
        tensor = args[0]
        view = self.view_of(tensor)
        arguments = [encode(a, self.use) for a in bound]
        result = func(*args, **kwargs)
        step = Step(operator, arguments[1:], dtype_number(tensor.dtype), tensor.shape)
        value = self.new_value(tensor)
        self.emit(operator, arguments, [value])
        view.extend(step, value)
        return result

    def _write(self, signature: Signature, args, arguments: list, outputs: list, keeps) -> None:
        flows = torch.is_grad_enabled()
        targets = [args[i] for i, _ in signature.writes]
        for target in targets:
            if isinstance(target, (list, tuple)):
                raise errors.unsupported({(signature.name,): self._here()})
            self._require(target)
        extra = outputs if outputs and outputs[0] is not targets[0] else []
        values = self._values(extra) + [self.new_value(target) for target in targets]
        self.emit(signature.name, arguments, values)
        self._bind_fresh(extra, values)
        for (i, _), target, value in zip(signature.writes, targets, values[len(extra) :]):
            self._storage.write(self.view_of(target), value, flows, keeps[i])

    def _require(self, target) -> None:
        if not isinstance(target, torch.Tensor) or not self.knows(target):
            raise errors.not_on_device(target)

    def _cast(self, value: int, like: torch.Tensor) -> int:
        cast = self.new_value(like)
        arguments = [(value, False), dtype_number(like.dtype), None, None, None, False, None]
        self.emit("_to_copy.default", arguments, [cast])
        return cast

    def _write_out(self, signature: Signature, bound: list, arguments: list, kwargs) -> None:
        """`out=`: the plain operator, and a write of its result."""
        flows = torch.is_grad_enabled()
        plain = signature.functional
        if plain is None:
            raise errors.unsupported({(signature.name,): self._here()})
        targets = [kwargs[name] for name in signature.outs]
        results = tensors_of([plain.call([_on_meta(a) for a in bound])])
        values = [self.new_value(result) for result in results]
        self.emit(plain.name, arguments, values)
        for target, result, value in zip(targets, results, values):
            self._require(target)
            if result.dtype != target.dtype:
                value = self._cast(value, target)
            view = self.view_of(target)
            shape = self.tape.values[self._storage.read(view, True)][1]
            if shape != tuple(target.shape):  # it was resized
                self.bind(target, self._storage.fresh(value))
            else:
                self._storage.write(view, value, flows, not self._stops(target))


def _on_meta(argument):
    """Numbers in host tensors are meta tensors to the meta kernels."""
    if isinstance(argument, torch.Tensor):
        if argument.device.type == "cpu":
            return torch.empty((), dtype=argument.dtype, device=META)
        return argument
    if isinstance(argument, (list, tuple)):
        return type(argument)(_on_meta(a) for a in argument)
    return argument
