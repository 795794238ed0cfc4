"""Options as text: JSON of POPTORCH_DEFAULT_OPTIONS and files of setters."""

import ast
import json
import os
import re
from typing import Any, Callable

from .. import _errors, enums


class ConfigFileError(Exception):
    """A line of a file of options is wrong."""


_ENUM = re.compile(r"([A-Z]\w*)\.(\w+)")


def _argument(value: Any) -> Any:
    """A value of JSON; a string such as "OutputMode.All" becomes the member that it names."""
    match = _ENUM.fullmatch(value) if isinstance(value, str) else None
    if match and match[1] in enums.__all__:
        members = getattr(enums, match[1]).__members__
        if match[2] in members:
            return members[match[2]]
    return value


def _setter(options: Any, name: str) -> Callable:
    """The setter of a dotted name such as "Training.gradientAccumulation"."""
    found = options
    for part in name.split("."):
        if part.startswith("_") and part != "_Popart" or not hasattr(found, part):
            raise ValueError(_errors.JSON_SETTER % name)
        found = getattr(found, part)
    if not callable(found):
        raise ValueError(_errors.JSON_SETTER % name)
    return found


def apply_json(options: Any, text: str) -> None:
    """Calls setters as JSON says: {"dotted.setter": argument, or a list of several}.

    Raises:
        ValueError: the text is no such object, or names something that is not a setter.
    """
    try:
        calls = json.loads(text)
    except ValueError as error:
        raise ValueError(_errors.JSON_SYNTAX % error) from None
    if not isinstance(calls, dict):
        raise ValueError(_errors.JSON_SYNTAX % text)
    for name, value in calls.items():
        arguments = value if isinstance(value, list) else [value]
        _setter(options, name)(*map(_argument, arguments))


def _is_call_of_options(tree: ast.Expression) -> bool:
    """Whether an expression is options.setter(…) or options.Group.setter(…), maybe chained."""
    node = tree.body
    if not isinstance(node, ast.Call):
        return False
    while isinstance(node, (ast.Call, ast.Attribute)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return isinstance(node, ast.Name) and node.id == "options"


def _is_unfinished(message: str) -> bool:
    """Whether a SyntaxError says that a line ends too early."""
    return "was never closed" in message or "EOF" in message or "end of file" in message


def apply_file(options: Any, path: str, names: dict) -> None:
    """Calls the setters that a file lists, one a line, without "options." in front.

    Args:
        options: the Options.
        path: the file.
        names: what the arguments of setters may refer to, such as poptorch.
    Raises:
        ConfigFileError: a line is wrong. It is numbered among the lines with a setter.
    """
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigFileError(_errors.CONFIG_FILE % (path, reason)) from error
    statements = [line.strip() for line in lines]
    statements = [line for line in statements if line and not line.startswith("#")]
    for number, line in enumerate(statements, start=1):
        statement = f"options.{line}"
        try:
            tree = ast.parse(statement, mode="eval")
            if not _is_call_of_options(tree):
                raise ValueError(_errors.CONFIG_NO_CALL)
            eval(compile(tree, path, "eval"), {**names, "options": options})
        except Exception as error:  # pylint: disable=broad-except
            message = str(error)
            if isinstance(error, SyntaxError):
                message = error.msg
                message = "unexpected EOF while parsing" if _is_unfinished(message) else message
            where = (type(error).__name__, number, os.path.basename(path), message, statement)
            raise ConfigFileError(_errors.CONFIG_ERROR % where) from error
