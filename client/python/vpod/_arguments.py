"""Says in one line what is wrong with the arguments of a call.

pybind11 answers such a call with the signature in C++ and all arguments, and does not say which of them is wrong. The
functions of the extension are replaced by ones that find it out from the signature, when a call has failed. The names
of its classes are those by which programs know them: vpod.Tensor, and not vpod._vpod.Tensor.
"""

import functools
import inspect
import operator
import re
import types


# In errors about arguments: pybind11's, and that of a tensor which it takes for a list.
_OF_ARGUMENTS = ("incompatible", "a tensor has no len()")


def _plain(text):
    """A text without the name of the extension."""
    return text.replace("_vpod.", "")


def _is_integer(value):
    try:
        operator.index(value)
    except TypeError:
        return False
    return True


def _is_number(value):
    if isinstance(value, (str, bytes)):
        return False
    try:
        float(value)
    except TypeError:  # also of a tensor, which has no values
        return False
    except (OverflowError, ValueError):
        pass
    return True


# Types in pybind11's signatures: what they take, in words for one and for several, and whether a value is that.
_SIMPLE = {
    "bool": ("True or False", "bools", lambda value: hasattr(value, "__bool__") or value is None),
    "dict": ("a dict", "dicts", lambda value: isinstance(value, dict)),
    "float": ("a number", "numbers", _is_number),
    "int": ("an integer", "integers", _is_integer),
    "object": ("an object", "objects", lambda value: True),
    "str": ("a string", "strings", lambda value: isinstance(value, (str, bytes))),
}


def _split(text):
    """The parts between the commas that are in no brackets or quotes."""
    parts, depth = [""], 0
    for piece in re.findall(r"'[^']*'|.", text):
        depth += (piece in "[({<") - (piece in "])}>")
        if piece == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += piece
    return [part.strip() for part in parts if part.strip()]


def _inner(kind):
    """A kind such as List[int], and what is in its brackets."""
    outer, _, inner = kind.partition("[")
    return outer, _split(inner[:-1])


def _choices(kind):
    """The kinds of which one is to be given."""
    outer, inner = _inner(kind)
    if outer == "Optional":
        return [*_choices(inner[0]), "None"]
    return inner if outer == "Union" else [kind]


def _words(kind, several=False):
    outer, inner = _inner(kind)
    if outer in ("Optional", "Union"):
        words = [_words(each) for each in _choices(kind)]
        return f"{', '.join(words[:-1])} or {words[-1]}"
    if outer == "List":
        return f"{'sequences' if several else 'a sequence'} of {_words(inner[0], several=True)}"
    if outer == "Tuple":
        return f"{'tuples' if several else 'a tuple'} of {' and '.join(_words(each) for each in inner)}"
    if outer in _SIMPLE:
        return _SIMPLE[outer][several]
    if outer == "None":
        return outer
    return f"{_plain(outer)}s" if several else f"a {_plain(outer)}"


def _is_sequence(value):
    if not hasattr(value, "__getitem__") or isinstance(value, (str, bytes, dict)):
        return False
    try:
        len(value)
    except TypeError:
        return False
    return True


def _fault(name, value, kind, classes):
    """What is wrong with an argument of this kind; None if nothing is."""
    outer, inner = _inner(kind)
    if outer == "Optional" and _is_sequence(value):
        return _fault(name, value, inner[0], classes)
    if outer == "List" and _is_sequence(value):
        faults = (_fault(f"{name}[{i}]", each, inner[0], classes) for i, each in enumerate(value))
        return next(filter(None, faults), None)
    if outer == "Tuple" and _is_sequence(value) and len(value) == len(inner):
        faults = (_fault(f"{name}[{i}]", each, of, classes) for i, (each, of) in enumerate(zip(value, inner)))
        return next(filter(None, faults), None)
    if outer in ("Optional", "Union"):
        fits = (value is None and outer == "Optional") or any(_fault(name, value, each, classes) is None for each in inner)
    elif outer in _SIMPLE:
        fits = _SIMPLE[outer][2](value)
    else:
        fits = outer in classes and isinstance(value, classes[outer])
    if fits:
        return None
    is_one = outer == "List" and inner[0] in classes and isinstance(value, classes[inner[0]])
    return f"{name} is {type(value)}, must be {_words(kind)}{': put it into a list' if is_one else ''}"


def _parameters(signature):
    """The parameters of a function, with the kinds that they take as annotations."""
    kind, parameters = inspect.Parameter.POSITIONAL_OR_KEYWORD, []
    for part in _split(signature):
        name, _, rest = part.partition(":")
        annotation, _, default = rest.partition(" = ")
        annotation = annotation.strip()
        if part == "*":
            kind = inspect.Parameter.KEYWORD_ONLY
        elif part.startswith("**"):
            parameters.append(inspect.Parameter(part[2:], inspect.Parameter.VAR_KEYWORD))
        elif part.startswith("*"):
            parameters.append(inspect.Parameter(part[1:], inspect.Parameter.VAR_POSITIONAL))
        else:
            if default == "None" and annotation not in ("object", "") and not annotation.startswith("Optional"):
                annotation = f"Optional[{annotation}]"
            parameters.append(
                inspect.Parameter(name, kind, annotation=annotation, default=default or inspect.Parameter.empty))
    return parameters


def _explanation(name, parameters, classes, args, kwargs):
    """What is wrong with the arguments; None if they look right."""
    try:
        given = inspect.Signature(parameters).bind(*args, **kwargs).arguments
    except TypeError as error:
        return TypeError(f"{name}(): {error}")
    for parameter in parameters:
        rest = parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        if parameter.name not in given or rest:
            continue
        value = given[parameter.name]
        fault = _fault(parameter.name, value, parameter.annotation, classes)
        if fault is not None:
            return TypeError(f"{name}(): {fault}")
        if parameter.annotation == "int" and not -(2**31) <= operator.index(value) < 2**31:
            return ValueError(f"{name}(): {parameter.name} is {value}, which is out of range")
    return None


def _explained(function, name, classes):
    signature = re.match(r"\w+\((.*)\) -> ", (function.__doc__ or "").partition("\n")[0])
    if signature is None:
        return function
    parameters = _parameters(signature[1])

    @functools.wraps(function)
    def call(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            if not any(words in str(error) for words in _OF_ARGUMENTS):
                raise
            explanation = _explanation(name, parameters, classes, args, kwargs) or TypeError(_plain(str(error)))
        raise explanation

    call.__doc__ = _plain(function.__doc__)
    return call


def _refusal(name):
    def __init__(self, *args, **kwargs):
        raise TypeError(f"a {name} is not made by calling its class: functions and methods of vpod make it")

    return __init__


def explain(*modules):
    """Replaces the functions and methods of modules of the extension."""
    owners = [owner for module in modules for owner in vars(module).values() if isinstance(owner, type)]
    classes = {f"{owner.__module__}.{owner.__qualname__}": owner for owner in owners}
    for owner in (*modules, *owners):
        for name, member in list(vars(owner).items()):
            if callable(member) and not isinstance(member, type):
                setattr(owner, name, _explained(member, owner.__name__ if name == "__init__" else name, classes))
    for owner in owners:
        owner.__module__ = owner.__module__.replace("._vpod", "")
        # Of a class without a constructor, pybind11 has a slot that refuses in words of its own.
        without = isinstance(vars(owner).get("__init__"), types.WrapperDescriptorType)
        if without and not issubclass(owner, BaseException):
            owner.__init__ = _refusal(f"{owner.__module__}.{owner.__qualname__}")
