"""Runs a tape with real tensors and PyTorch's own operators, to compare it with the model."""

from typing import Dict, List, NamedTuple, Optional

import torch

from poptorch._capture.signature import OVERLOADS_IN_PLACE, UNDECLARED_WRITES
from poptorch._capture.tape import IDENTITY_LOSS, PASS_BY, REGION, Tape, dtype_of

_NAMES_IN_PYTORCH = {ours: theirs for theirs, ours in OVERLOADS_IN_PLACE.items()}
_RESHAPES = ("view.default", "_reshape_alias.default", "_unsafe_view.default")


class Replayed(NamedTuple):
    """What a tape computes."""

    results: List[torch.Tensor]
    gradients: Dict[str, Optional[torch.Tensor]]
    state: Dict[str, torch.Tensor]
    inputs: List[torch.Tensor]


def replay(tape: Tape, state: Dict[str, torch.Tensor], inputs, seed: int) -> Replayed:
    """Runs a tape forward, and backward from its last result if that has a gradient.

    Args:
        tape: the tape.
        state: parameters and buffers by name.
        inputs: the tensors of forward's arguments, in order.
        seed: of the random operators.
    """
    values: Dict[int, torch.Tensor] = {}
    for name, value, _, requires_grad in tape.parameters:
        values[value] = state[name].detach().clone().requires_grad_(requires_grad)
    for name, value, _ in tape.buffers:
        values[value] = state[name].detach().clone()
    for (_, value, _), tensor in zip(tape.inputs, inputs):
        values[value] = tensor.detach().clone()
    for value, data in tape.constants:
        dtype, dims = tape.values[value]
        copy = torch.empty(0, dtype=dtype_of(dtype))
        if data:
            copy = torch.frombuffer(bytearray(data), dtype=dtype_of(dtype))
        values[value] = copy.reshape(dims)
    parameters = {name: values[value] for name, value, *_ in tape.parameters}
    torch.manual_seed(seed)
    for record in tape.records:
        run_record(tape, record, values)
    _check_types(tape, values)
    loss = values[tape.results[-1]]
    if loss.requires_grad:
        loss.sum().backward()
    final = {name: values[end].detach() for name, _, end, *_ in tape.parameters + tape.buffers}
    return Replayed(
        [values[result].detach() for result in tape.results],
        {name: parameter.grad for name, parameter in parameters.items()},
        final,
        [values[end].detach() for _, _, end in tape.inputs],
    )


def undefined_uses(tape: Tape) -> List[int]:
    """Values that are read before anything on the tape makes them."""
    known = {value for _, value, *_ in tape.parameters + tape.buffers + tape.inputs}
    known.update(value for value, _ in tape.constants)
    missing: List[int] = []
    _define(tape.records, known, missing)
    finals = [final for _, _, final, *_ in tape.parameters + tape.buffers + tape.inputs]
    marked = [value for value, _ in tape.losses + tape.available_memory] + tape.checkpoints
    missing.extend(v for v in finals + marked + tape.results if v not in known)
    for _, cotangents, gradients, records in tape.regions:
        inside = known | set(cotangents) | {-1}
        _define(records, inside, missing)
        missing.extend(v for v in gradients if v not in inside)
    return missing


def _define(records: list, known: set, missing: List[int]) -> None:
    for record in records:
        missing.extend(value for value in _uses(record[1]) if value not in known)
        known.update(record[2])


def _uses(argument) -> List[int]:
    if isinstance(argument, tuple):
        return [argument[0]]
    if isinstance(argument, list):
        return [value for element in argument for value in _uses(element)]
    return []


def run_record(tape: Tape, record, values: Dict[int, torch.Tensor]) -> None:
    """Computes the outputs of one record."""
    operator, arguments, outputs = tape.operators[record[0]], record[1], record[2]
    arguments = [_argument(argument, values) for argument in arguments]
    if operator == PASS_BY:
        new, old = arguments
        results = [old + (new - old).detach()] if old.is_floating_point() else [new]
        results[0].data.copy_(new)
    elif operator == REGION:
        made, inputs, number = arguments
        results = _Region.apply(tape, number, values, len(made), *made, *inputs)
    elif operator == IDENTITY_LOSS:
        x, reduction = arguments
        results = [x.sum() if reduction == 0 else x.mean() if reduction == 1 else x.clone()]
    elif operator.startswith("as_strided"):
        results = [_strided(*arguments)]
    elif operator == "clone.default":  # the tape does not tell memory formats
        results = [arguments[0].clone(memory_format=torch.contiguous_format)]
    elif operator in _RESHAPES:
        results = [arguments[0].reshape(arguments[1])]
    else:
        results = _call(operator, arguments)
    for value, result in zip(outputs, results):
        if value >= 0:
            values[value] = result


class _Region(torch.autograd.Function):
    """Given values, whose gradients go through a region of the tape."""

    @staticmethod
    def forward(ctx, tape, number, values, count, *tensors):
        ctx.region, ctx.count = (tape, number, values), count
        return tuple(tensor.clone() for tensor in tensors[:count])

    @staticmethod
    def backward(ctx, *cotangents):
        tape, number, values = ctx.region
        _, holders, gradients, records = tape.regions[number]
        values = dict(values)
        values.update(zip(holders, cotangents))
        with torch.no_grad():
            for record in records:
                run_record(tape, record, values)
        found = (None if value < 0 else values[value] for value in gradients)
        return (None,) * (4 + ctx.count) + tuple(found)


def _argument(argument, values):
    if isinstance(argument, tuple):
        value, stop = argument
        return values[value].detach() if stop else values[value]
    if isinstance(argument, list):
        return [_argument(element, values) for element in argument]
    return argument


def _strided(x, *rest):
    """`as_strided` and `as_strided_scatter` of a contiguous tensor, by numbers of elements."""
    *written, dims, strides, offset = rest
    numbers = torch.arange(x.numel()).as_strided(dims, strides, offset)
    if not written:
        return x.reshape(-1)[numbers]
    return x.reshape(-1).index_put((numbers,), written[0]).reshape(x.shape)


def _call(operator: str, arguments: list) -> list:
    base, _, overload = _NAMES_IN_PYTORCH.get(operator, operator).partition(".")
    function = getattr(getattr(torch.ops.aten, base), overload)
    schema = function._schema.arguments
    positional, named = [], {}
    for declared, argument in zip(schema, arguments):
        if declared.alias_info is not None and declared.alias_info.is_write:
            argument = argument.clone()
        if "dtype" in declared.name and argument is not None:
            argument = dtype_of(argument)
        if declared.kwarg_only:
            named[declared.name] = argument
        else:
            positional.append(argument)
    statistics = []
    if operator == "native_batch_norm.default":
        positional[3:5] = [None if a is None else a.clone() for a in positional[3:5]]
        statistics = positional[3:5]
    before = [_copy(argument) for argument in positional]
    result = function(*positional, **named)
    _check_writes(operator, schema, before, positional)
    return (list(result) if isinstance(result, (tuple, list)) else [result]) + statistics


def _copy(argument):
    return argument.detach().clone() if isinstance(argument, torch.Tensor) else None


def _check_writes(operator: str, schema, before: list, after: list) -> None:
    """No operator writes an argument without saying so, except those of a list."""
    for i, (declared, old, new) in enumerate(zip(schema, before, after)):
        said = declared.alias_info is not None and declared.alias_info.is_write
        if old is None or said or i in UNDECLARED_WRITES.get(operator, ()):
            continue
        if not torch.equal(old.nan_to_num(), new.detach().nan_to_num()):
            raise AssertionError(f"{operator} writes its argument {declared.name}")


def _check_types(tape: Tape, values: Dict[int, torch.Tensor]) -> None:
    for value, tensor in values.items():
        dtype, dims = tape.values[value]
        if tensor.numel() == 0:  # a result that only the gradient on a GPU would need
            continue
        if (dtype_of(dtype), dims) != (tensor.dtype, tuple(tensor.shape)):
            raise AssertionError(
                f"value {value} is {dtype_of(dtype)} {dims} on the tape, but {tensor.dtype}"
                f" {tuple(tensor.shape)} in PyTorch"
            )
