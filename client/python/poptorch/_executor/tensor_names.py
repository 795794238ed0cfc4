"""The names of the tensors of a model: what getTensorNames lists and anchorTensor takes.

    input, input/1, …         the tensors among the arguments of forward
    fc1.weight                parameters and buffers
    fc1/Gemm:0                what an operator in the module fc1 gives: the name that ONNX has for
                              it, if any, and the number of the output; Gemm:0/1 is that of the
                              second such operator there
    loss                      the loss that is trained
    Gradient___fc1.weight     the gradient of the loss by a tensor
    UpdatedVar___fc1.weight   a parameter after its update
"""

from typing import Any, Dict, Iterable, Iterator, List, Set, Tuple

from .._capture.tape import FLOATING, Tape

GRADIENT = "Gradient___"
UPDATED = "UpdatedVar___"

# The names of operators that are not those of ATen in camel case.
_OPERATORS = {
    "_log_softmax": "LogSoftmax",
    "_reshape_alias": "Reshape",
    "_softmax": "Softmax",
    "_to_copy": "Cast",
    "_unsafe_view": "Reshape",
    "addmm": "Gemm",
    "avg_pool2d": "AveragePool",
    "bmm": "MatMul",
    "cat": "Concat",
    "clone": "Identity",
    "constant_pad_nd": "Pad",
    "convolution": "Conv",
    "embedding": "Gather",
    "index_select": "Gather",
    "max_pool2d_with_indices": "MaxPool",
    "mean": "ReduceMean",
    "mm": "MatMul",
    "native_batch_norm": "BatchNormalization",
    "native_group_norm": "GroupNormalization",
    "native_layer_norm": "LayerNormalization",
    "nll_loss_forward": "Nll",
    "permute": "Transpose",
    "sum": "ReduceSum",
    "t": "Transpose",
    "transpose": "Transpose",
    "view": "Reshape",
}


def _operator_name(operator: str) -> str:
    """The name of "convolution.default" is Conv, that of "leaky_relu.default" LeakyRelu."""
    base = operator.rpartition("::")[2].partition(".")[0]
    known = _OPERATORS.get(base)
    return known or "".join(part.capitalize() for part in base.split("_"))


def _uses(arguments: Iterable[Any]) -> Iterator[Tuple[int, bool]]:
    for argument in arguments:
        if isinstance(argument, tuple):
            yield argument
        elif isinstance(argument, list):
            yield from (each for each in argument if isinstance(each, tuple))


class TensorNames:
    """The names of the tensors of one captured model.

    Attributes:
        values: the values of the tape, by name.
        gradients: the values by which there are gradients, by the names of the gradients.
        updated: the names of trained parameters, by the names of their updated values.
    """

    def __init__(self, tape: Tape, trained: Set[str], with_modules: bool = True) -> None:
        """
        Args:
            tape: the model.
            trained: the names of the parameters that the optimiser has; none in inference.
            with_modules: whether names of operators begin with those of their modules.
        """
        self.values: Dict[str, int] = {}
        for index, (_, value, *_) in enumerate(tape.inputs):
            self.values[f"input/{index}" if index else "input"] = value
        for name, value, *_ in [*tape.parameters, *tape.buffers]:
            self.values[name] = value
        if tape.losses:
            self.values.setdefault("loss", tape.losses[-1][0])
        self._name_operators(tape, with_modules)
        parameters = {
            name: value
            for name, value, _, requires_grad in tape.parameters
            if requires_grad and name in trained
        }
        differentiable = _differentiable(tape, set(parameters.values()))
        self.gradients = {
            GRADIENT + name: value for name, value in self.values.items() if value in differentiable
        }
        self.updated = {
            UPDATED + name: name for name, value in parameters.items() if value in differentiable
        }

    def _name_operators(self, tape: Tape, with_modules: bool) -> None:
        counts: Dict[str, int] = {}
        for operator, _, outputs, scope, *_ in tape.records:
            name = _operator_name(tape.operators[operator])
            path = tape.scopes[scope].replace(".", "/")
            if with_modules and path:
                name = f"{path}/{name}"
            for index, value in enumerate(outputs):
                if value < 0:
                    continue
                full = f"{name}:{index}"
                earlier = counts[full] = counts.get(full, -1) + 1
                self.values[f"{full}/{earlier}" if earlier else full] = value

    def all(self) -> List[str]:
        """All names, those of the forward pass first."""
        return [*self.values, *self.gradients, *self.updated]


def _differentiable(tape: Tape, parameters: Set[int]) -> Set[int]:
    """Values that depend on parameters, and on which a loss depends, by way of gradients."""
    dependent = set(parameters)
    for _, arguments, outputs, *_ in tape.records:
        if any(value in dependent and not stop for value, stop in _uses(arguments)):
            dependent.update(outputs)
    needed = {value for value, _ in tape.losses}
    for _, arguments, outputs, *_ in reversed(tape.records):
        if needed.intersection(outputs):
            needed.update(value for value, stop in _uses(arguments) if not stop)
    return {
        value for value in dependent & needed if value >= 0 and tape.values[value][0] in FLOATING
    }
