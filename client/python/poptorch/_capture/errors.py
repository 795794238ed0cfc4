"""Errors of the capture, with their texts."""

from typing import List, NamedTuple, Optional, Tuple

import torch

from .._errors import NESTED_CAPTURE, Error, cpp_error, py_error

_NAMES = {
    "torch.float32": "Float", "torch.float64": "Double", "torch.float16": "Half",
    "torch.bfloat16": "BFloat16", "torch.int64": "Long", "torch.int32": "Int",
    "torch.int16": "Short", "torch.int8": "Char", "torch.uint8": "Byte", "torch.bool": "Bool",
}  # fmt: skip

HOST_READ = (
    "%s is only supported in eager mode, but was intercepted in a static graph. This means an IPU"
    " to CPU copy was triggered before the end of the graph, for example by calling"
    " tensor.item(). Please ensure that any such copies are removed."
)
ILLEGAL_MOVE = (
    "Illegal move to CPU (via `%s`) when using the dispatcher. Instead, return this output as an"
    " IPU tensor."
)
NOT_ON_DEVICE = (
    "Expected an IPU tensor but got tensor(device=%s, shape=%s, dtype=%s). Constant tensors should"
    ' be moved explicitly to the IPU, via cpu_tensor.to("ipu").'
)
UNSUPPORTED = (
    "Unsupported ops found in compiled model: [%s]. Not all operations are supported yet by"
    " Graphcore's PyTorch compiler. If you believe any of these should be, please report this"
    " message to support@graphcore.ai."
)
DATA_DEPENDENT = (
    "Operations using %s are unsupported because the output shape is determined by the tensor"
    " values. The IPU cannot support dynamic output shapes."
)
ZERO_SIZED = "Zero-sized tensors are unsupported (Got shape %s)"
EMPTY = "Your compiled model is empty"
ONE_HOT = "OneHot num classes must be specified and must be constant."
REASSIGNED = (
    "%s %s is reassigned within the model when calling the forward method. This is not supported."
    " Consider using self.%s.copy_(src) to copy data from a source tensor, where src is the name of"
    " the source tensor."
)
REMOVED = "%s %s is removed from the model when calling the forward method."
INPUT_REQUIRES_GRAD = (
    "An input tensor to an IPU model can not have requires_grad set to True, however input %d"
    " does: %s\nYou can set requires_grad=True from within the model as an alternative, and return"
    " gradients as outputs to your model, if required."
)
INPUT_DETACHED = (
    "Input tensor has requires_grad=True set. This tensor will be detached because backward pass"
    " via inputs is not supported."
)
NO_DEVICE = "No device set in torch.%s(): forcing to IPU"
HOST_RESULT = "Output expected to be on the IPU but is on %s"
BACKWARD_HOOKS = "Backward hooks of modules have no effect in a compiled model"


class Place(NamedTuple):
    """Where an operator is called: module path, (file, line), and the torch function, if known."""

    scope: str
    place: Optional[Tuple[str, int]]
    function: str

    def __str__(self) -> str:
        module = f"module '{self.scope}'" if self.scope else "the model"
        return f"{module} at {self.place[0]}:{self.place[1]}" if self.place else module


def type_name(dtype) -> str:
    """The name of a type as PyTorch's C++ has it, such as "Float"."""
    return _NAMES.get(str(dtype), str(dtype))


def type_named(name: str):
    """The element type of a name such as "torch.FloatTensor"."""
    word = name.rpartition(".")[2].removesuffix("Tensor")
    for dtype, known in _NAMES.items():
        if known == word:
            return getattr(torch, dtype.rpartition(".")[2])
    raise ValueError(f"invalid type: '{name}'")


def other_data(tensor, value) -> Error:
    """`tensor.data = value` with another type or shape."""
    return cpp_error(
        f"A tensor of shape {list(tensor.shape)} and type {tensor.dtype} cannot take data of shape"
        f" {list(value.shape)} and type {value.dtype} while the model is captured."
    )


def host_read(name: str) -> Error:
    """An element of a device tensor is asked for."""
    return cpp_error(HOST_READ % ("aten::item" if name == "aten::_local_scalar_dense" else name))


def illegal_move(how: str) -> Error:
    """A device tensor is copied to the host."""
    return cpp_error(ILLEGAL_MOVE % how)


def not_on_device(tensor) -> Error:
    """A host tensor meets device tensors."""
    return cpp_error(
        NOT_ON_DEVICE % (tensor.device, list(tensor.shape), type_name(tensor.dtype))
    )


def no_history(tensor) -> Error:
    """A tensor without data that no recorded operator made: its elements would be invented."""
    return cpp_error(
        f"Internal error: a device tensor of shape {list(tensor.shape)} and type {tensor.dtype}"
        " was made by no operator of the model, so its elements are not known."
    )


def zero_sized(shape, place: Place) -> Error:
    """An operator reads a tensor without elements."""
    return cpp_error(f"{ZERO_SIZED % list(shape)}. It is used in {place}.")


def unsupported_type(dtype, name: str = "") -> Error:
    """A tensor's element type has no counterpart on the device.

    Args:
        dtype: its type.
        name: its name, if it is an input.
    """
    whose = f" of the input {name}" if name else ""
    return cpp_error(f"Unsupported tensor type {dtype}{whose}: the IPU has no such type.")


def strided() -> Error:
    """A storage whose elements lie in another order than that of the tensor's dimensions."""
    return cpp_error("as_strided is only supported on tensors that are contiguous in memory.")


def backward_write() -> Error:
    """A backward function writes into what forward has made."""
    return cpp_error(
        "A backward function writes into a tensor of forward, which is not supported."
    )


def host_call_trains(name: str) -> Error:
    """A model that trains calls a function on the host."""
    return cpp_error(
        f"poptorch.CPU('{name}') is in a model that trains: functions on the host are only"
        " supported in inference."
    )


def host_result(name: str, tensor) -> Error:
    """A function on the host gives something that the device cannot take."""
    what = (
        "no tensor"
        if tensor is None
        else f"a tensor of shape {list(tensor.shape)} on {tensor.device}"
    )
    return cpp_error(
        f"poptorch.CPU('{name}') returned {what}, must return tensors with elements on the host."
    )


def host_results(name: str, found, expected) -> Error:
    """A function on the host gives other tensors than while the model was captured."""
    words = lambda types: ", ".join(f"{dtype} of shape {list(shape)}" for dtype, shape in types)
    return py_error(
        f"poptorch.CPU('{name}') returned {words(found)}, must return {words(expected)}, as when"
        " the model was compiled."
    )


def early_use() -> Error:
    """The result of an autograd function meets an operator that no torch function has called."""
    return cpp_error(
        "The result of a torch.autograd.Function is passed to a scripted function, which is not"
        " supported."
    )


def data_dependent(name: str, where: Place) -> Error:
    """The shape of a result depends on elements."""
    return cpp_error(DATA_DEPENDENT % name + f" It is called in {where}.")


def listed(operators: dict) -> List[Tuple[str, Place]]:
    """Names of operators, such as "aten::erfc", and where they are called.

    Args:
        operators: (operator, …) -> Place.
    """
    found = []
    for (operator, *_), where in operators.items():
        space, _, base = operator.rpartition("::")
        found.append((f"{space or 'aten'}::{base.partition('.')[0]}", where))
    return found


def unsupported(operators: dict) -> Error:
    """All operators that cannot be compiled; the error has them as `operators`, as `listed`."""
    calls = listed(operators)
    lines = [
        f"\n  {name}{f' (by {where.function})' if where.function else ''} in {where}"
        for name, where in calls
    ]
    error = cpp_error(UNSUPPORTED % ", ".join(dict.fromkeys(n for n, _ in calls)) + "".join(lines))
    error.operators = calls
    return error


def reassigned(kind: str, name: str) -> Error:
    """forward gave a buffer or parameter another tensor."""
    return py_error(REASSIGNED % (kind, name, name))


def removed(kind: str, name: str) -> Error:
    """forward deleted a buffer or parameter."""
    return py_error(REMOVED % (kind, name))
