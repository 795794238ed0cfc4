"""The dispatch mode that sees every operator of a captured forward pass."""

from typing import List, Sequence

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import errors, shapes as _shapes
from .functionalise import SPLITS, Step, pieces
from .recorder import META, Recorder, is_device
from .signature import Signature, encode, encode_all, signature_of, tensors_of
from .tape import dtype_number

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
# Of float16 and float32 operands these compute in float32; PyTorch's kernels refuse them.
_PRODUCTS = frozenset(
    f"{name}.default" for name in "addbmm addmm addmv baddbmm bmm dot mm mv".split()
)


class Dispatch(TorchDispatchMode):
    """Runs operators on meta tensors, and records those that have to do with device tensors.

    Operators on other tensors alone run on the host, once.
    """

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        recorder = self._recorder
        kwargs = kwargs or {}
        if recorder.is_muted:
            return func(*args, **kwargs)
        signature = signature_of(func)
        tensors = tensors_of(args) + tensors_of(kwargs.values())
        known = [t for t in tensors if recorder.knows(t)]
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
        recorder = self._recorder
        if "rand" in func._schema.name:
            raise errors.not_on_device(tensors_of(args)[0])
        self._check_history(tensors_of(args))
        with recorder.muted():
            return recorder.constant(func(*args, **dict(kwargs, device=torch.device("cpu"))))

    def _record(self, func, signature: Signature, args, kwargs):
        recorder = self._recorder
        if signature.schema_name in _SAME:
            return self._same(func, args, kwargs)
        bound = signature.bound(args, kwargs)
        geometry = _GEOMETRY.get(signature.name)
        if geometry is not None:
            return self._reshape_in_place(func, geometry, args, kwargs, bound)
        if signature.name == _STRIDED:
            return self._strided(func, args, kwargs, bound)
        arguments = encode_all(signature, bound, recorder.use)
        keeps = {i: not recorder.stops(args[i]) for i, _ in signature.writes if i < len(args)}
        if signature.name in _PRODUCTS and _has_both_floats(bound):
            result = signature.call(self._widened(bound, arguments))
        else:
            result = self._run(func, signature, args, kwargs, bound)
        outputs = list(result) if isinstance(result, (tuple, list)) else [result]
        if recorder.instead is not None:
            name, arguments = recorder.instead
            values = self._values(outputs)
            recorder.emit(name, arguments, values)
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
        recorder = self._recorder
        base = signature.name.partition(".")[0]
        rule = _shapes.rule_of(signature.name)
        if rule is not None:
            return rule(*bound)
        if signature.name == "index.Tensor" and _has_mask(bound[1]):
            raise errors.data_dependent("aten::nonzero", recorder.here())
        if base in _shapes.DATA_DEPENDENT or signature.name in _shapes.DATA_DEPENDENT:
            raise errors.data_dependent(signature.schema_name, recorder.here())
        args = tuple(_on_meta(a) for a in args)
        kwargs = {name: _on_meta(a) for name, a in kwargs.items()}
        try:
            return func(*args, **kwargs)
        except NotImplementedError:
            recorder.refuse(signature.name, recorder.place())
            # The capture goes on, so that operators behind this one are named with it.
            is_plain = not (signature.writes or signature.outs or signature.is_view)
            with recorder.muted():
                result = _shapes.of_zeros(func, args, kwargs) if is_plain else None
            if result is None:
                recorder.raise_if_unsupported()
                raise
            return result

    def _views(self, args) -> bool:
        recorder = self._recorder
        return bool(args) and isinstance(args[0], torch.Tensor) and recorder.knows(args[0])

    def _values(self, outputs: list) -> List[int]:
        """New values of results; those without elements are left out."""
        recorder = self._recorder
        values = []
        for output in outputs:
            if not isinstance(output, torch.Tensor):
                raise errors.host_read("aten::item")
            values.append(recorder.new_value(output) if 0 not in output.shape else -1)
        return values

    def _bind_fresh(self, outputs: list, values: Sequence[int]) -> None:
        recorder = self._recorder
        for output, value in zip(outputs, values):
            recorder.bind(output, recorder.storage.fresh(value))

    def _plain(self, signature: Signature, bound: list, arguments: list, outputs: list) -> None:
        recorder = self._recorder
        values = self._values(outputs)
        written = []
        if signature.undeclared and bound[5]:  # batch normalisation that trains
            written = [i for i in signature.undeclared if bound[i] is not None]
        moved = [recorder.new_value(bound[i]) for i in written]
        if any(value >= 0 for value in values):
            recorder.emit(signature.name, arguments, values + moved)
        self._bind_fresh(outputs, values)
        for i, value in zip(written, moved):
            recorder.storage.write(recorder.view_of(bound[i]), value, False, True)

    def _same(self, func, args, kwargs):
        recorder = self._recorder
        source = args[0]
        result = func(*args, **kwargs)
        if func._schema.name in ("aten::detach", "aten::detach_"):
            recorder.bind(result, recorder.storage.detached(recorder.view_of(source)))
        elif result is not source:
            recorder.bind(result, recorder.view_of(source))
        return result

    def _view(self, signature: Signature, source, arguments: list, outputs: list) -> None:
        recorder = self._recorder
        view = recorder.view_of(source)
        dtype = dtype_number(outputs[0].dtype)
        if signature.name in SPLITS:
            steps = pieces(signature.name, arguments[1:], dtype, [o.shape for o in outputs])
        else:
            steps = [Step(signature.name, arguments[1:], dtype, outputs[0].shape)]
        for step, output in zip(steps, outputs):
            value = self._values([output])[0]
            if value >= 0:
                recorder.emit(step.operator, [arguments[0]] + step.arguments, [value])
            recorder.bind(output, recorder.storage.view(view, step, value))

    def _strided(self, func, args, kwargs, bound):
        """`as_strided` tells where elements lie in the storage, whatever view it is called on."""
        recorder = self._recorder
        result = func(*args, **kwargs)
        offset = bound[3] if bound[3] is not None else args[0].storage_offset()
        view = recorder.view_of(args[0])
        stop = recorder.stops(args[0])
        base = recorder.storage.base(view, stop)
        recorder.storage.read(view, stop)
        if args[0]._is_view() and not args[0]._base.is_contiguous() or not (
            args[0]._is_view() or args[0].is_contiguous()
        ):
            raise errors.strided()
        rest = [list(bound[1]), list(bound[2]), offset]
        step = Step(_STRIDED, rest, dtype_number(result.dtype), result.shape)
        value = recorder.new_value(result)
        recorder.emit(_STRIDED, [(base, stop)] + rest, [value])
        recorder.bind(result, recorder.storage.strided(view, step, value))
        return result

    def _reshape_in_place(self, func, operator: str, args, kwargs, bound):
        recorder = self._recorder
        tensor = args[0]
        if operator == _STRIDED:
            # Pooling so marks a memory format, by the strides of dimensions of one element.
            if not _same_elements(tensor, *bound[1:]):
                raise errors.strided()
            return func(*args, **kwargs)
        view = recorder.view_of(tensor)
        arguments = [encode(a, recorder.use) for a in bound]
        result = func(*args, **kwargs)
        step = Step(operator, arguments[1:], dtype_number(tensor.dtype), tensor.shape)
        value = recorder.new_value(tensor)
        recorder.emit(operator, arguments, [value])
        view.extend(step, value)
        return result

    def _write(self, signature: Signature, args, arguments: list, outputs: list, keeps) -> None:
        recorder = self._recorder
        flows = torch.is_grad_enabled()
        targets = [args[i] for i, _ in signature.writes]
        for target in targets:
            if isinstance(target, (list, tuple)):
                raise errors.unsupported({(signature.name,): recorder.here()})
            self._require(target)
        extra = outputs if outputs and outputs[0] is not targets[0] else []
        values = self._values(extra) + [recorder.new_value(target) for target in targets]
        recorder.emit(signature.name, arguments, values)
        self._bind_fresh(extra, values)
        for (i, _), target, value in zip(signature.writes, targets, values[len(extra) :]):
            recorder.storage.write(recorder.view_of(target), value, flows, keeps[i])

    def _require(self, target) -> None:
        recorder = self._recorder
        if not isinstance(target, torch.Tensor) or not recorder.knows(target):
            raise errors.not_on_device(target)

    def _widened(self, bound: list, arguments: list) -> list:
        """Operands of a product as float32, the values of which replace those of `arguments`."""
        widened = [_on_meta(argument) for argument in bound]
        for i, tensor in enumerate(widened):
            if isinstance(tensor, torch.Tensor) and tensor.dtype is torch.float16:
                widened[i] = torch.empty_like(tensor, dtype=torch.float32)
                value, stop = arguments[i]
                arguments[i] = (self._cast(value, widened[i], stop), stop)
        return widened

    def _cast(self, value: int, like: torch.Tensor, stop: bool = False) -> int:
        recorder = self._recorder
        cast = recorder.new_value(like)
        arguments = [(value, stop), dtype_number(like.dtype), None, None, None, False, None]
        recorder.emit("_to_copy.default", arguments, [cast])
        return cast

    def _write_out(self, signature: Signature, bound: list, arguments: list, kwargs) -> None:
        """`out=`: the plain operator, and a write of its result."""
        recorder = self._recorder
        flows = torch.is_grad_enabled()
        plain = signature.functional
        if plain is None:
            raise errors.unsupported({(signature.name,): recorder.here()})
        targets = [kwargs[name] for name in signature.outs]
        results = tensors_of([plain.call([_on_meta(a) for a in bound])])
        values = [recorder.new_value(result) for result in results]
        recorder.emit(plain.name, arguments, values)
        for target, result, value in zip(targets, results, values):
            self._require(target)
            if result.dtype != target.dtype:
                value = self._cast(value, target)
            view = recorder.view_of(target)
            shape = recorder.tape.values[recorder.storage.read(view, True)][1]
            if shape != tuple(target.shape):  # it was resized
                recorder.bind(target, recorder.storage.fresh(value))
            else:
                recorder.storage.write(view, value, flows, not recorder.stops(target))


def _on_meta(argument):
    """Numbers in host tensors are meta tensors to the meta kernels."""
    if isinstance(argument, torch.Tensor):
        if argument.device.type == "cpu":
            return torch.empty((), dtype=argument.dtype, device=META)
        return argument
    if isinstance(argument, (list, tuple)):
        return type(argument)(_on_meta(a) for a in argument)
    return argument


def _has_both_floats(arguments: list) -> bool:
    types = {tensor.dtype for tensor in tensors_of(arguments)}
    return {torch.float16, torch.float32} <= types


def _has_mask(indices) -> bool:
    return any(tensor.dtype is torch.bool for tensor in tensors_of(indices))


def _same_elements(tensor: torch.Tensor, dims, strides, offset) -> bool:
    """Whether `as_strided_` with these arguments leaves each element where it is."""
    if list(dims) != list(tensor.shape) or offset not in (None, tensor.storage_offset()):
        return False
    return all(d == 1 or a == b for d, a, b in zip(dims, strides, tensor.stride()))
