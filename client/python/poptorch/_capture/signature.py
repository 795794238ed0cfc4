"""What the schema of an operator says: arguments and their order, writes and views."""

from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

from .._errors import py_error
from .tape import dtype_number

# Operators that write arguments without their schema saying so: operator -> arguments.
UNDECLARED_WRITES = {"native_batch_norm.default": (3, 4)}

_WITHOUT_MEANING = (torch.device, torch.layout, torch.memory_format, torch.Generator)

# Operators in place whose overload has another name than the same one out of place. On the tape
# they have that one, so that the name without the underscore is an operator.
OVERLOADS_IN_PLACE = {
    "floor_divide_.Tensor": "floor_divide_.default",
    "pow_.Scalar": "pow_.Tensor_Scalar",
    "pow_.Tensor": "pow_.Tensor_Tensor",
}
# Overloads that differ from others by a generator alone, such as rand.generator.
_WITHOUT_GENERATOR = {"generator": "default", "low_generator": "low"}


class Signature:
    """The schema of one overload.

    Attributes:
        function: the OpOverload.
        name: as on the tape, "add.Tensor"; with its namespace if that is not aten.
        schema_name: "aten::add".
        writes: (index, name) of the arguments that the operator writes.
        outs: those of `writes` that are results only (`out=`).
        is_view: the result shares the first argument's storage.
        generator: the index of the generator in an overload that is there for it, or None.
        functional: the overload without `out=` if there are `outs`.
    """

    def __init__(self, function) -> None:
        schema = function._schema
        self.function = function
        namespace, _, base = schema.name.partition("::")
        self.schema_name = schema.name
        overload = function._overloadname or "default"
        name = (base if namespace == "aten" else schema.name) + "." + overload
        self.name = OVERLOADS_IN_PLACE.get(name, name)
        self.arguments = [
            (a.name, a.kwarg_only, a.default_value) for a in schema.arguments if not a.is_out
        ]
        self.generator = None  # the index of an argument that the tape leaves out
        plain = _WITHOUT_GENERATOR.get(overload)
        if plain is not None and namespace == "aten":
            self.name = f"{base}.{plain}"
            self.generator = [name for name, *_ in self.arguments].index("generator")
        written = lambda a: a.alias_info is not None and a.alias_info.is_write
        self.writes = [(i, a.name) for i, a in enumerate(schema.arguments) if written(a)]
        self.outs = [a.name for a in schema.arguments if a.is_out]
        self.undeclared = UNDECLARED_WRITES.get(self.name, ())
        self.is_view = any(
            r.alias_info is not None and not r.alias_info.is_write for r in schema.returns
        )
        self.functional = _functional(function) if self.outs else None

    def bound(self, args: tuple, kwargs: dict) -> list:
        """Arguments in the schema's order, defaults filled, without `out=`."""
        count = len(args)
        return [
            args[i] if not kwarg_only and i < count else kwargs.get(name, default)
            for i, (name, kwarg_only, default) in enumerate(self.arguments)
        ]

    def call(self, bound: list):
        """Calls the operator with arguments in the schema's order."""
        named = {
            name: argument
            for (name, kwarg_only, _), argument in zip(self.arguments, bound)
            if kwarg_only
        }
        return self.function(*bound[: len(bound) - len(named)], **named)


def _functional(function) -> Optional["Signature"]:
    packet = getattr(torch.ops.aten, function._schema.name.partition("::")[2])
    wanted = [(a.name, str(a.type)) for a in function._schema.arguments if not a.is_out]
    for overload in packet.overloads():
        other = getattr(packet, overload)
        arguments = other._schema.arguments
        if [(a.name, str(a.type)) for a in arguments][: len(wanted)] == wanted and not any(
            a.alias_info is not None and a.alias_info.is_write for a in arguments
        ):
            return signature_of(other)
    return None


_SIGNATURES: Dict[Any, Signature] = {}


def signature_of(function) -> Signature:
    """The signature of an OpOverload."""
    signature = _SIGNATURES.get(function)
    if signature is None:
        signature = _SIGNATURES[function] = Signature(function)
    return signature


def tensors_of(arguments) -> List[torch.Tensor]:
    """The tensors among arguments, those in lists as well."""
    found: List[torch.Tensor] = []
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            found.append(argument)
        elif isinstance(argument, (list, tuple)):
            found.extend(tensors_of(argument))
    return found


def encode_all(signature: Signature, bound: list, use) -> list:
    """Arguments in the schema's order, as they stand on the tape."""
    return [encode(a, use) for i, a in enumerate(bound) if i != signature.generator]


def encode(argument, use: Callable[[torch.Tensor], Tuple[int, bool]]):
    """An argument as it stands on the tape; `use` tells the number of a tensor."""
    if isinstance(argument, torch.Tensor):
        return use(argument)
    if argument is None or isinstance(argument, (bool, int, float, str)):
        return argument
    if isinstance(argument, (list, tuple)):
        return [encode(element, use) for element in argument]
    if isinstance(argument, torch.dtype):
        return dtype_number(argument)
    if isinstance(argument, _WITHOUT_MEANING):
        return None
    raise py_error(f"An operator has an argument of the unsupported type {type(argument).__name__}")
