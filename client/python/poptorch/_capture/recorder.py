"""Writes the tape: which tensors are on the device, their values, and records of operators."""

import contextlib
import ctypes
import sys
import threading
from typing import Callable, Dict, List, Optional, Sequence, Tuple

import torch

from .. import _block_state
from . import errors
from .functionalise import Functionaliser, View
from .products import LEAST_SHARE, producer_of, products_of
from .tape import HELD, Tape, dtype_number

META = torch.device("meta")

_TORCH = torch.__file__.rpartition("/")[0] + "/"
# Files of the package that are private; a test beside them is a program.
_HERE = __file__.rpartition("/_capture/")[0] + "/_"

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


class Recorder:
    """Knows the device tensors of a capture and appends records to its tape.

    Device tensors are parameters, buffers, inputs, constants, and results of operators on them.
    All are meta tensors.
    """

    def __init__(
        self,
        tape: Tape,
        supported: Optional[Callable[[str], bool]] = None,
        is_training: bool = False,
        excludes: Sequence[str] = (),
    ) -> None:
        self.tape = tape
        self.is_training = is_training
        self.thread = threading.get_ident()
        self.scopes: List[str] = [""]
        self.modules: List[str] = [""]  # paths of the modules that are called
        # A context in which the module has its own parameters and buffers.
        self.originals: Callable = contextlib.nullcontext
        self.multi_conv_start: Optional[int] = None  # the first record of an open MultiConv
        self.functions: List[str] = []  # the names of the torch functions that are called
        self.making_data = False  # while a torch function makes a host tensor of Python data
        self.warned: set = set()  # texts
        self.leaves: set = set()  # ids of the tensors that may be leaves with a gradient
        self.unsupported: Dict[tuple, errors.Place] = {}
        self._supported = supported
        self._known: Dict[int, Tuple[torch.Tensor, View]] = {}
        self.storage = Functionaliser(tape, self._emit_of_storage, self._check_write)
        self.unfinished: list = []  # calls of autograd functions, see `regions`
        self.in_region = False
        self._region_start, self._main_values = 0, set()
        self._main_records: list = tape.records
        self._behind: Dict[int, int] = {}
        self.is_muted = False
        self.instead: Optional[Tuple[str, list]] = None
        self._excludes = excludes
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
        self.bind(tensor, self.storage.fresh(value))
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
        self.bind(tensor, self.storage.fresh(value))
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
        value = self.tape.constant(dtype, host.shape, data)
        self._main_values.add(value)
        return value

    def value_of(self, tensor: torch.Tensor) -> int:
        """The value of a tensor now, for a result or a mark."""
        return self.use(tensor)[0]

    def data_of(self, tensor: torch.Tensor) -> int:
        """The value of a device tensor's data now, without its gradient."""
        return self.storage.read(self.view_of(tensor), True)

    def stops(self, tensor: torch.Tensor) -> bool:
        if not tensor.requires_grad or not torch.is_grad_enabled():
            return True
        return tensor.is_leaf and id(tensor) not in self.leaves

    def use(self, tensor: torch.Tensor) -> Tuple[int, bool]:
        """A tensor as an argument: its value, and whether the gradient stops at this use."""
        stop = self.stops(tensor)
        if self.unfinished and not stop and any(call.gives(tensor) for call in self.unfinished):
            raise errors.early_use()
        known = self._known.get(id(tensor))
        if known is None:
            if tensor.device.type == "cpu" and tensor.dim() == 0:
                return self.constant_value(tensor), True
            if tensor.is_meta:
                raise errors.no_history(tensor)
            raise errors.not_on_device(tensor)
        if 0 in tensor.shape:
            raise errors.zero_sized(tensor.shape, self.here())
        return self.storage.read(known[1], stop), stop

    def same(self, tensor: torch.Tensor, source: torch.Tensor) -> None:
        """Makes a tensor a device tensor with the data of another, and a gradient of its own."""
        self.bind(tensor, self.storage.detached(self.view_of(source)))

    # --- Records.

    def emit(self, operator: str, arguments: list, outputs: Sequence[int]) -> None:
        """Appends a record at the current scope, line and block."""
        place = self.place()
        if not operator.startswith("poptorch::") and not self._is_supported(operator):
            self.refuse(operator, place)
        self.tape.record(
            operator, arguments, outputs, self.scopes[-1], place, _block_state.current()
        )

    def _emit_of_storage(self, operator: str, arguments: list, outputs: Sequence[int]) -> None:
        """What reads of views need: in a region, it is forward's if it depends on forward alone."""
        uses = [a for a in arguments if isinstance(a, tuple)]
        if not self.in_region or not all(self._is_main(value) for value, _ in uses):
            self.emit(operator, arguments, outputs)
            return
        self._main_values.update(outputs)
        of_region, self.tape.records = self.tape.records, self._main_records
        try:
            self.emit(operator, arguments, outputs)
        finally:
            self.tape.records = of_region

    def place(self) -> Optional[Tuple[str, int]]:
        """File and line of the program that is executed."""
        frame, of_program = sys._getframe(2), self._of_program
        while frame is not None:
            name = frame.f_code.co_filename
            known = of_program.get(name)
            if known is None:
                known = of_program[name] = self._is_of_program(name)
            if known:
                return name, frame.f_lineno
            frame = frame.f_back
        return None

    def _is_of_program(self, file: str) -> bool:
        if any(each in file for each in self._excludes):
            return False
        return file.endswith("_test.py") or not file.startswith((_TORCH, _HERE, "<frozen"))

    def _is_supported(self, operator: str) -> bool:
        known = self._checked.get(operator)
        if known is None:
            known = self._supported is None or self._supported(operator)
            self._checked[operator] = known
        return known

    def refuse(self, operator: str, place: Optional[Tuple[str, int]]) -> None:
        at = errors.Place(self.scopes[-1], place, self.functions[-1] if self.functions else "")
        self.unsupported.setdefault((operator, at.scope, place), at)

    def here(self) -> errors.Place:
        """The place of the operator that is called, for an error."""
        return errors.Place(self.scopes[-1], self.place(), "")

    def raise_if_unsupported(self) -> None:
        """Raises one error that lists all operators that cannot be compiled."""
        if self.unsupported:
            raise errors.unsupported(self.unsupported)

    @contextlib.contextmanager
    def muted(self):
        """Operators run, and nothing is recorded."""
        before, self.is_muted = self.is_muted, True
        try:
            yield
        finally:
            self.is_muted = before

    @contextlib.contextmanager
    def outside(self):
        """The program runs as without a capture, with its own parameters and buffers."""
        making_data, self.making_data = self.making_data, True
        with self.muted(), self.originals():
            activate(None)
            try:
                yield
            finally:
                activate(self)
                self.making_data = making_data

    @contextlib.contextmanager
    def recorded_as(self, operator: str, arguments: list):
        """The next operator is recorded with this name and these arguments."""
        self.instead = (operator, arguments)
        try:
            yield
        finally:
            self.instead = None

    # --- Regions.

    def finish_calls(self) -> None:
        """Makes regions of the autograd functions that were called; not within the dispatcher."""
        calls, self.unfinished = self.unfinished, []
        self.unfinished = [call for call in calls if not call.finish()]

    def _is_main(self, value: int) -> bool:
        return value < self._region_start or value in self._main_values

    def _check_write(self, value: int) -> None:
        if self.in_region and self._is_main(value):
            raise errors.backward_write()

    @contextlib.contextmanager
    def region(self):
        """Records go to a list of their own, which is given."""
        records: list = []
        self._main_records, self.tape.records = self.tape.records, records
        self._region_start, self._main_values = len(self.tape.values), set()
        self.in_region = True
        try:
            yield records
        finally:
            self.tape.records = self._main_records
            self.in_region = False

    def set_behind(self, value: int) -> Tuple[int, int]:
        """Lets the record that makes a value make another one, for a hook between the two.

        Returns:
            The value, or the one that an earlier hook has put before it; and the other one.
        """
        while value in self._behind:
            value = self._behind[value]
        before = self._behind[value] = self.tape.value_like(value)
        self.tape.rename_output(value, before)
        return value, before

    def entry(self, value: int, final: int) -> Tuple[int, int]:
        """First and final value of a tensor that is there before forward."""
        first = value
        while first in self._behind:
            first = self._behind[first]
        return first, first if final == value else final

    @contextlib.contextmanager
    def scope(self, path: str):
        """Operators belong to the part of the model with this path."""
        self.scopes.append(path)
        try:
            yield
        finally:
            self.scopes.pop()

    @contextlib.contextmanager
    def module(self, path: Optional[str]):
        """Operators belong to the module with this path; None: to the one there is.

        A name scope around the call of an inner module is a part of its scope: "layer.name.inner".
        """
        outer, scope = self.modules[-1], self.scopes[-1]
        if path is None:
            path, inner = outer, scope
        elif scope != outer and path.startswith(f"{outer}." if outer else ""):
            inner = f"{scope}.{path[len(outer):].lstrip('.')}".rstrip(".")
        else:
            inner = path
        self.modules.append(path)
        try:
            with self.scope(inner):
                yield
        finally:
            self.modules.pop()

    # --- Marks. They are of the forward pass: in a region they mean nothing.

    def mark_loss(self, tensor: torch.Tensor, name: str) -> None:
        """This tensor is the result of a loss function with this name."""
        if not self.in_region:
            self.tape.losses.append((self.value_of(tensor), name))

    def mark_checkpoint(self, tensor: torch.Tensor) -> None:
        """Recomputation keeps this tensor; inputs, parameters and the like are kept anyway."""
        value = self.value_of(tensor)
        if not self.in_region and producer_of(self.tape, value) is not None:
            self.tape.checkpoints.append(value)

    def mark_available_memory(self, tensor: torch.Tensor, share: float) -> None:
        """The products that make this tensor may use a share of the tile memory."""
        for value in products_of(self.tape, self.value_of(tensor)):
            self.mark_product(value, share)

    def mark_product(self, value: int, share: float) -> None:
        """The product or convolution with this result may use a share of the tile memory."""
        self.tape.available_memory.append((value, max(share, LEAST_SHARE)))

    def mark_partials(self, value: int, dtype: torch.dtype) -> None:
        """The convolution with this result has partial results of a type."""
        self.tape.partials.append((value, dtype_number(dtype)))
