"""Arguments of models: bound to forward's signature, flattened, and compared with the first ones.

    parser = ArgParser(module)
    first = parser.bind(args, kwargs)           # The first call: module.forward(*first.args, …).
    description = Description(first)            # Holds no tensors.
    ...
    tensors = description.tensors(parser.bind(args, kwargs))    # Later calls, checked.
"""

import inspect
from typing import Any, Callable, Dict, List, NamedTuple, Tuple, Union

import torch

from .. import _errors
from .._custom_parsers import parser_of
from .._logging import logger

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Arguments(NamedTuple):
    """The arguments of one call, with the defaults of those that were not given.

    Attributes:
        args: the positional ones.
        names: the names of `args`; those of *args are numbered, as in "args[0]".
        kwargs: the keyword-only ones, and those of **kwargs.
    """

    args: Tuple[Any, ...]
    names: Tuple[str, ...]
    kwargs: Dict[str, Any]


class NamedTensor(NamedTuple):
    """A tensor among arguments, and its place, such as "x", "x[0]" or "batch[labels]"."""

    name: str
    tensor: torch.Tensor


class ArgParser:
    """Binds arguments to the signature of a model."""

    def __init__(self, model: Union[torch.nn.Module, Callable]) -> None:
        """
        Args:
            model: a module, or a function in its place.
        Raises:
            TypeError: it is neither.
        """
        function = model.forward if isinstance(model, torch.nn.Module) else model
        if not callable(function):
            raise TypeError(_errors.NO_MODEL)
        parameters = _parameters(function)
        kinds = [parameter.kind for parameter in parameters]
        self._parameters = [p for p in parameters if p.kind not in _VARIADIC]
        self._varnames = [parameter.name for parameter in self._parameters]
        self._defaults = {p.name: p.default for p in self._parameters if p.default is not p.empty}
        variadic = {p.kind: p.name for p in parameters if p.kind in _VARIADIC}
        self._var_positional = variadic.get(inspect.Parameter.VAR_POSITIONAL)
        self._has_var_keyword = inspect.Parameter.VAR_KEYWORD in kinds
        self._keyword_only = {p.name for p in self._parameters if p.kind == p.KEYWORD_ONLY}
        self._warned_of_dictionaries = False

    def bind(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Arguments:
        """The arguments in the order of the signature.

        Raises:
            AssertionError: there are too many, one is unknown, or one is given twice.
            poptorch.Error: one is missing.
        """
        self._check_count(args, kwargs)
        positional = [name for name in self._varnames if name not in self._keyword_only]
        values: Dict[str, Any] = dict(zip(positional, args))
        for name in kwargs:
            assert name not in values, _errors.ARGUMENT_TWICE % name
        given = {**values, **kwargs}
        bound = {name: self._value(name, given) for name in self._varnames}
        self._warn_of_dictionaries([*args, *kwargs.values()])
        rest = args[len(positional) :]
        rest_names = [f"{self._var_positional}[{index}]" for index in range(len(rest))]
        keywords = {name: bound[name] for name in self._varnames if name in self._keyword_only}
        keywords.update({name: value for name, value in kwargs.items() if name not in bound})
        first = tuple(bound[name] for name in positional)
        return Arguments(first + tuple(rest), (*positional, *rest_names), keywords)

    def _check_count(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> None:
        names, count = self._varnames, len(args) + len(kwargs)
        variadic = self._var_positional is not None or self._has_var_keyword
        enough = variadic or count <= len(names)
        assert enough, _errors.TOO_MANY_ARGUMENTS % (names, len(names), count)
        places = len(names) - len(self._keyword_only)
        enough = self._var_positional is not None or len(args) <= places
        assert enough, _errors.TOO_MANY_ARGUMENTS % (names[:places], places, len(args))
        for name in kwargs:
            known = self._has_var_keyword or name in names
            assert known, _errors.UNKNOWN_ARGUMENT % (name, names)

    def _value(self, name: str, given: Dict[str, Any]) -> Any:
        if name in given:
            return given[name]
        if name not in self._defaults:
            raise _errors.py_error(_errors.ARGUMENT_MISSING % name)
        return self._defaults[name]

    def _warn_of_dictionaries(self, values: List[Any]) -> None:
        has_dictionary = any(isinstance(value, dict) for value in values)
        if has_dictionary and not self._warned_of_dictionaries:
            self._warned_of_dictionaries = True
            logger.warning(_errors.DICTIONARY_ARGUMENT)


def _parameters(function: Callable) -> List[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        # Builtin functions may have no signature.
        return [
            inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
            inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
        ]


class _Tensor:
    """A place of a tensor."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.dtype = tensor.dtype
        self.shape = tensor.shape

    def collect(self, name: str, value: Any, found: List[NamedTensor]) -> None:
        """Adds the tensors of a value, which must be as the first one was."""
        _check_type(name, torch.Tensor, value)
        if value.dtype != self.dtype:
            raise _mismatch(_errors.DTYPE_MISMATCH, name, self.dtype, value.dtype)
        if value.shape != self.shape:
            raise _mismatch(_errors.SHAPE_MISMATCH, name, self.shape, value.shape)
        found.append(NamedTensor(name, value))


class _Sequence:
    """A place of a list or tuple."""

    def __init__(self, values: Union[list, tuple]) -> None:
        self._type = type(values)
        self._places = [_place(value) for value in values]

    def collect(self, name: str, value: Any, found: List[NamedTensor]) -> None:
        """See _Tensor.collect."""
        _check_type(name, self._type, value)
        if len(value) != len(self._places):
            raise _mismatch(_errors.LENGTH_MISMATCH, name, len(self._places), len(value))
        for index, (place, element) in enumerate(zip(self._places, value)):
            place.collect(f"{name}[{index}]", element, found)


class _Dictionary:
    """A place of a dictionary. Later ones may have another order."""

    def __init__(self, values: dict) -> None:
        self._type = type(values)
        self._places = {key: _place(value) for key, value in values.items()}

    def collect(self, name: str, value: Any, found: List[NamedTensor]) -> None:
        """See _Tensor.collect."""
        _check_type(name, self._type, value)
        check_keys(name, self._places, value)
        for key, place in self._places.items():
            place.collect(f"{name}[{key}]", value[key], found)


class _Parsed:
    """A place of an object whose type has a parser."""

    def __init__(self, value: Any) -> None:
        self._type = type(value)
        self._places = [_Tensor(tensor) for tensor in parser_of(value).yieldTensors(value)]

    def collect(self, name: str, value: Any, found: List[NamedTensor]) -> None:
        """See _Tensor.collect."""
        _check_type(name, self._type, value)
        tensors = list(parser_of(value).yieldTensors(value))
        if len(tensors) != len(self._places):
            raise _mismatch(_errors.LENGTH_MISMATCH, name, len(self._places), len(tensors))
        for index, (place, tensor) in enumerate(zip(self._places, tensors)):
            place.collect(f"{name}[{index}]", tensor, found)


class _Constant:
    """A place of something else, whose value is part of the compiled model."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def collect(self, name: str, value: Any, found: List[NamedTensor]) -> None:
        """See _Tensor.collect."""
        _check_type(name, type(self._value), value)
        if value is not self._value and not _are_equal(value, self._value):
            raise _mismatch(_errors.VALUE_MISMATCH, name, self._value, value)


def _are_equal(first: Any, second: Any) -> bool:
    equal = first == second
    try:
        return bool(equal)
    except (TypeError, ValueError):  # numpy compares element by element.
        return bool(equal.all())


def _place(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return _Tensor(value)
    if parser_of(value) is not None:
        return _Parsed(value)
    if isinstance(value, dict):
        return _Dictionary(value)
    if isinstance(value, (list, tuple)):
        return _Sequence(value)
    return _Constant(value)


def _mismatch(text: str, *values: Any) -> _errors.Error:
    return _errors.py_error(text % values + _errors.INPUTS_CHANGED)


def _check_type(name: str, expected: type, value: Any) -> None:
    given = torch.Tensor if isinstance(value, torch.Tensor) else type(value)
    if given is not expected:
        raise _mismatch(_errors.TYPE_MISMATCH, name, expected, given)


def check_keys(name: str, expected: Dict[Any, Any], given: Dict[Any, Any]) -> None:
    """Raises poptorch.Error unless dictionaries have the same keys."""
    details = []
    for text, keys in (
        (_errors.UNEXPECTED_KEYS, [key for key in given if key not in expected]),
        (_errors.MISSING_KEYS, [key for key in expected if key not in given]),
    ):
        if keys:
            details.append(text % ", ".join(sorted(map(str, keys))))
    if details:
        raise _mismatch(_errors.KEYS_MISMATCH, name, ". ".join(details))


class Description:
    """What the arguments of the first call were: their structure, types and shapes, no tensors."""

    def __init__(self, arguments: Arguments) -> None:
        """
        Args:
            arguments: those of the call that the model is compiled for.
        """
        self._args = [_place(value) for value in arguments.args]
        self._kwargs = {name: _place(value) for name, value in arguments.kwargs.items()}
        self._warned_not_contiguous_input = False

    def tensors(self, arguments: Arguments) -> List[NamedTensor]:
        """The tensors of a call, in the order of the first one, each contiguous and detached.

        A tensor that is contiguous already is not copied.

        Raises:
            poptorch.Error: the arguments differ from the first ones in more than the elements of
                tensors.
        """
        if len(arguments.args) != len(self._args):
            counts = (len(self._args), len(arguments.args))
            raise _mismatch(_errors.POSITIONAL_MISMATCH, *counts)
        found: List[NamedTensor] = []
        for place, name, value in zip(self._args, arguments.names, arguments.args):
            place.collect(name, value, found)
        check_keys("the keyword arguments", self._kwargs, arguments.kwargs)
        for name, place in self._kwargs.items():
            place.collect(name, arguments.kwargs[name], found)
        return [NamedTensor(name, self._prepared(tensor)) for name, tensor in found]

    def _prepared(self, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_contiguous():
            if not self._warned_not_contiguous_input:
                self._warned_not_contiguous_input = True
                logger.warning(_errors.NOT_CONTIGUOUS)
            tensor = tensor.contiguous()
        return tensor.detach() if tensor.requires_grad else tensor


def with_tensors(value: Any, replace: Callable[[torch.Tensor], Any]) -> Any:
    """An argument or result with each tensor replaced, in the order of `Description.tensors`.

    Lists, tuples, named tuples, dictionaries and objects with a parser are rebuilt; everything
    else is returned as it is.
    """
    if isinstance(value, torch.Tensor):
        return replace(value)
    parser = parser_of(value)
    if parser is not None:
        return parser.reconstruct(value, iter([replace(t) for t in parser.yieldTensors(value)]))
    if isinstance(value, dict):
        duplicate = value.copy()  # Keeps what a derived class has besides its items.
        for key, element in value.items():
            duplicate[key] = with_tensors(element, replace)
        return duplicate
    if isinstance(value, (list, tuple)):
        elements = [with_tensors(element, replace) for element in value]
        return type(value)(*elements) if hasattr(value, "_fields") else type(value)(elements)
    return value

