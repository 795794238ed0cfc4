"""Functions of PyTorch that would bypass the tape, and what they do while a model is captured.

Some functions build tensors from Python data below the dispatcher, so that a device tensor would
lose its elements; some read elements; some refuse devices. They are replaced in PyTorch's modules
for as long as a capture lasts; `CaptureFunctions` catches the same functions where a program has
imported them by name before. In threads other than the capture's, all behave as ever.
"""

import contextlib
import functools
import inspect
import logging
from typing import Any, Callable, Dict

import torch
import torch.utils.checkpoint
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from . import errors, replacements, slots
from .losses import LOSS_FUNCTIONS
from .recorder import META, Recorder, active, is_device

_log = logging.getLogger("poptorch::python")

# Factories that make a device tensor if the program names no device, with a warning.
_FORCED = (
    "arange empty empty_strided eye full linspace logspace ones rand randint randn randperm range"
    " scalar_tensor tril_indices triu_indices zeros normal"
).split()
_LIKE = "empty_like full_like ones_like rand_like randint_like randn_like zeros_like".split()
_FROM_DATA = ("tensor", "as_tensor")

_FACTORIES: Dict[Any, str] = {getattr(torch, name): name for name in _FORCED + _LIKE}
_CONSTANTS: Dict[Any, str] = {getattr(torch, name): name for name in _FROM_DATA}
_REPLACED: Dict[Any, Callable] = {
    functional.cross_entropy: replacements.cross_entropy,
    torch.rrelu: replacements.rrelu,
    functional.rrelu: replacements.rrelu,
    functional.one_hot: replacements.one_hot,
    torch.repeat_interleave: replacements.repeat_interleave,
    torch.Tensor.repeat_interleave: replacements.repeat_interleave,
    torch._nested_tensor_from_mask_left_aligned: lambda *_: False,
    **{
        getattr(torch, f"conv{form}{rank}d"): replacements.widened(
            getattr(torch, f"conv{form}{rank}d")
        )
        for form in ("", "_transpose")
        for rank in (1, 2, 3)
    },
    **{
        getattr(owner, name): replacements.without_effect_in_inference(getattr(owner, name))
        for owner in (torch, functional)
        for name in (
            "dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout"
            " feature_alpha_dropout"
        ).split()
        if hasattr(owner, name)
    },
}
_IPU = torch.device("ipu:0")


def warn(text: str) -> None:
    """A warning of the package."""
    _log.warning(text)


def warn_once(recorder: Recorder, text: str) -> None:
    """A warning that a capture gives once."""
    if text not in recorder.warned:
        recorder.warned.add(text)
        warn(text)


def _on_device(name: str, function: Callable, args: tuple, kwargs: dict):
    """Calls a factory for a device tensor, which has the type of a host tensor.

    Where the type follows from numbers, PyTorch 1.13 gives tensors of META another one.
    """
    if kwargs.get("dtype") is None:
        if name == "arange":
            numbers = [*args, *(kwargs.get(key) for key in ("start", "end", "step"))]
            if any(isinstance(number, float) for number in numbers):
                kwargs = dict(kwargs, dtype=torch.get_default_dtype())
        elif name == "full":
            value = args[1] if len(args) > 1 else kwargs.get("fill_value")
            kwargs = dict(kwargs, dtype={bool: torch.bool, int: torch.int64}.get(type(value)))
    return function(*args, **dict(kwargs, device=META))


def _factory(recorder: Recorder, name: str, function: Callable, args: tuple, kwargs: dict):
    device = kwargs.get("device")
    if device is not None:
        if is_device(device):
            return _on_device(name, function, args, kwargs)
        return function(*args, **kwargs)
    of_tensor = any(isinstance(a, torch.Tensor) for a in args)
    if name == "normal" and (of_tensor or isinstance(kwargs.get("mean"), torch.Tensor)):
        return function(*args, **kwargs)
    if name in _LIKE and args and recorder.knows(args[0]):
        return function(*args, **kwargs)
    if kwargs.get("out") is not None:
        return function(*args, **kwargs)
    warn_once(recorder, errors.NO_DEVICE % name)
    return _on_device(name, function, args, kwargs)


def _constant(recorder: Recorder, name: str, function: Callable, args: tuple, kwargs: dict):
    device = kwargs.pop("device", None)
    if device is not None and not is_device(device):
        return function(*args, device=device, **kwargs)
    data = args[0] if args else kwargs.get("data")
    if isinstance(data, torch.Tensor) and recorder.knows(data):
        if kwargs.get("dtype") is not None:
            data = data.to(kwargs["dtype"])
        return data.detach().clone() if name == "tensor" else data
    if _holds_device_tensor(recorder, data):
        raise errors.host_read("aten::item")
    if device is None and name == "as_tensor" and isinstance(data, torch.Tensor):
        return function(*args, **kwargs)
    if device is None:
        warn_once(recorder, errors.NO_DEVICE % name)
    requires_grad = kwargs.pop("requires_grad", False)
    recorder.making_data = True
    try:
        host = function(*args, **kwargs)
    finally:
        recorder.making_data = False
    return recorder.constant(host, requires_grad)


def _holds_device_tensor(recorder: Recorder, data: Any) -> bool:
    if isinstance(data, (list, tuple)):
        return any(_holds_device_tensor(recorder, element) for element in data)
    return isinstance(data, torch.Tensor) and recorder.knows(data)


def redirect(recorder: Recorder, function: Callable, args: tuple, kwargs: dict):
    """Calls a function, or what replaces it while capturing."""
    if recorder.making_data:
        return function(*args, **kwargs)
    name = _FACTORIES.get(function)
    if name is not None:
        return _factory(recorder, name, function, args, dict(kwargs))
    name = _CONSTANTS.get(function)
    if name is not None:
        return _constant(recorder, name, function, args, dict(kwargs))
    replacement = _REPLACED.get(function)
    if replacement is not None:
        return replacement(*args, **kwargs)
    indexing = _INDEXING.get(function)
    if indexing is not None:
        return indexing(recorder, function, args, kwargs)
    return function(*args, **kwargs)


class CaptureFunctions(TorchFunctionMode):
    """Sees calls of torch functions: marks losses, and replaces functions under any name."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        recorder = self._recorder
        if recorder.unfinished:
            recorder.finish_calls()
        # A function of PyTorch that was found in its module may be the patch itself.
        func = getattr(func, "_patched", func)
        loss = LOSS_FUNCTIONS.get(func)
        recorder.functions.append(getattr(func, "__name__", ""))
        try:
            result = redirect(recorder, func, args, kwargs)
        finally:
            recorder.functions.pop()
        if loss is not None and isinstance(result, torch.Tensor) and recorder.knows(result):
            recorder.mark_loss(result, loss)
        return result


class Patches:
    """Replaces attributes, and puts back what was there."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replaces one attribute until the stack is left."""
        had = name in vars(owner)
        old = vars(owner).get(name)
        is_item = name in slots.METHODS and isinstance(owner, type)
        slot = slots.slot(owner, name) if is_item else None

        def restore() -> None:
            if had:
                setattr(owner, name, old)
            elif name in vars(owner):
                delattr(owner, name)
            if is_item:
                slots.set_slot(owner, name, slot)

        self._stack.callback(restore)
        setattr(owner, name, value)
        if is_item:
            slots.set_slot(owner, name, slot)

    def wrap(self, owner: Any, name: str, make: Callable) -> None:
        """Replaces a function or bound method by `make(recorder, old, args, kwargs)`."""
        old = getattr(owner, name)

        @functools.wraps(old)
        def wrapper(*args, **kwargs):
            recorder = active()
            if recorder is None:
                return old(*args, **kwargs)
            return make(recorder, old, args, kwargs)

        wrapper._patched = old
        static = inspect.ismethod(old) or inspect.isbuiltin(old) and isinstance(owner, type)
        self.set(owner, name, staticmethod(wrapper) if static else wrapper)


def _refuses(error: Callable[[], Exception]) -> Callable:
    def make(recorder, old, args, kwargs):
        if recorder.knows(args[0]):
            raise error()
        return old(*args, **kwargs)

    return make


def _to(recorder, old, args, kwargs):
    tensor, *rest = args
    rest = [META if isinstance(a, (str, torch.device)) and is_device(a) else a for a in rest]
    if is_device(kwargs.get("device")):
        kwargs = dict(kwargs, device=META)
    return old(tensor, *rest, **kwargs)


def _ipu(recorder, old, args, kwargs):
    return args[0].to(META)


def _new_tensor(recorder, old, args, kwargs):
    tensor, *rest = args
    if not recorder.knows(tensor):
        return old(*args, **kwargs)
    kwargs.setdefault("dtype", tensor.dtype)
    kwargs.setdefault("device", META)
    return _constant(recorder, "tensor", torch.tensor, tuple(rest), kwargs)


def _get_item(recorder, old, args, kwargs):
    tensor, index = args
    if not recorder.knows(tensor):
        return old(*args, **kwargs)
    return old(*replacements.selected(tensor, replacements.index(index)))


def _set_item(recorder, old, args, kwargs):
    tensor, index, value = args
    if not recorder.knows(tensor):
        return old(*args, **kwargs)
    return old(tensor, replacements.index(index), value)


_INDEXING = {torch.Tensor.__getitem__: _get_item, torch.Tensor.__setitem__: _set_item}


def _type(recorder, old, args, kwargs):
    """`Tensor.type`, whose names have no word for the device of meta tensors."""
    tensor, *rest = args
    dtype = rest[0] if rest else kwargs.get("dtype")
    if not recorder.knows(tensor):
        return old(*args, **kwargs)
    if dtype is None:
        return f"torch.ipu.{errors.type_name(tensor.dtype)}Tensor"
    if isinstance(dtype, str):
        dtype = errors.type_named(dtype)
    return tensor.to(dtype)


def _make_subclass(recorder, old, args, kwargs):
    """`nn.Parameter(tensor)`: a tensor that the dispatcher does not see."""
    result = old(*args, **kwargs)
    if recorder.knows(args[1]):
        recorder.same(result, args[1])
    return result


def _data_property(old) -> property:
    def write(tensor, value):
        recorder = active()
        if recorder is None or not recorder.knows(tensor):
            old.__set__(tensor, value)
        elif tensor.shape != value.shape or tensor.dtype != value.dtype:
            raise errors.other_data(tensor, value)
        else:
            with torch.no_grad():
                old.__get__(tensor).copy_(value)

    return property(old.__get__, write)


def _printed(recorder, old, args, kwargs):
    tensor = args[0]
    if not recorder.knows(tensor):
        return old(*args, **kwargs)
    return f"tensor(<unavailable>, device='{_IPU}', size={tuple(tensor.shape)})"


def _formatted(recorder, old, args, kwargs):
    tensor, *spec = args
    if recorder.knows(tensor) and spec and spec[0]:
        raise errors.host_read("aten::item")
    return old(*args, **kwargs)


def _checkpoint_function(recorder, old, args, kwargs):
    """`CheckpointFunction.apply`, which `checkpoint` calls under whatever name it is imported."""
    run, _, *rest = args
    return replacements.checkpoint(recorder, run, rest, kwargs)


def _device_property(old) -> property:
    def device(tensor):
        found = old.__get__(tensor)
        return _IPU if found.type == "meta" and active() is not None else found

    return property(device)


def apply(patches: Patches) -> None:
    """Patches PyTorch until the stack of `patches` is left."""
    for table in (_FACTORIES, _CONSTANTS, _REPLACED):
        for function in list(table):
            for owner in (torch, functional, torch.Tensor):
                name = getattr(function, "__name__", "")
                if vars(owner).get(name) is function or getattr(owner, name, None) is function:
                    patches.wrap(owner, name, redirect)
    tensor = torch.Tensor
    patches.wrap(tensor, "to", _to)
    if hasattr(tensor, "ipu"):
        patches.wrap(tensor, "ipu", _ipu)
    patches.wrap(tensor, "new_tensor", _new_tensor)
    for name in ("__getitem__", "__setitem__"):
        patches.wrap(tensor, name, redirect)
    patches.wrap(tensor, "type", _type)
    patches.wrap(tensor, "_make_subclass", _make_subclass)
    patches.wrap(tensor, "__repr__", _printed)
    patches.wrap(tensor, "__format__", _formatted)
    for name in ("numpy", "__array__"):
        patches.wrap(tensor, name, _refuses(lambda: errors.illegal_move(".numpy()")))
    for name in ("tolist", "item"):
        patches.wrap(tensor, name, _refuses(lambda: errors.host_read("aten::item")))
    patches.wrap(torch.utils.checkpoint.CheckpointFunction, "apply", _checkpoint_function)
    patches.wrap(torch.utils.checkpoint, "_checkpoint_without_reentrant", _checkpoint_function)
    patches.set(tensor, "data", _data_property(torch._C._TensorBase.data))
    patches.set(tensor, "device", _device_property(torch._C._TensorBase.device))
