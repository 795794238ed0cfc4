"""Every public name has a stub and a docstring."""

import ast
import importlib
import inspect
import pathlib
import types
import unittest

import poptorch

_MODULES = {"enums", "ops", "optim", "options", "profiling", "testing"}
_LAZY = {"AsynchronousDataAccessor", "poptorch_core"}
_STUBS = pathlib.Path(poptorch.__file__).with_suffix(".pyi")


def stubs():
    """The names in the stubs: {name: (module, name there)}; ("", "") if they only have a type."""
    found = {}
    for node in ast.parse(_STUBS.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.level:
            for alias in node.names:
                found[alias.asname] = ("." * node.level + (node.module or ""), alias.name)
        elif isinstance(node, ast.AnnAssign):
            found[node.target.id] = ("", "")
    return found


def public_names():
    """What programs can use: {name: value}."""
    names = {
        name: value
        for name, value in vars(poptorch).items()
        if not name.startswith("_")
        and (name in _MODULES or not isinstance(value, types.ModuleType))
    }
    names.update((name, getattr(poptorch, name)) for name in _LAZY)
    return names


def of_package(value) -> bool:
    """Whether a class or function is the package's own."""
    return getattr(value, "__module__", "").startswith("poptorch")


def classes():
    """The public classes of the package and of its modules, as (name, class)."""
    owners = [poptorch, poptorch.optim, poptorch.options, poptorch.enums]
    names = {
        f"{owner.__name__}.{name}": value
        for owner in owners
        for name, value in vars(owner).items()
        if not name.startswith("_") and inspect.isclass(value) and of_package(value)
    }
    names["poptorch.AsynchronousDataAccessor"] = poptorch.AsynchronousDataAccessor
    # Groups of options, which programs reach through poptorch.Options.
    for name in ("TensorLocations", "Distributed", "Precision", "Training"):
        names[f"poptorch.Options.{name}"] = type(getattr(poptorch.Options(), name))
    return sorted(names.items())


def members(owner: type):
    """The public methods and properties of a class that the package defines, as (name, member)."""
    for base in owner.__mro__:
        if not of_package(base):
            continue
        for name, member in vars(base).items():
            member = getattr(member, "__func__", member)
            if not name.startswith("_") and isinstance(member, (types.FunctionType, property)):
                yield name, member


class PrivateNamesTest(unittest.TestCase):
    def test_public_programs_find_the_executor(self):
        module = importlib.import_module("poptorch._poplar_executor")
        self.assertIs(module.PoplarExecutor, poptorch.PoplarExecutor)
        self.assertIs(poptorch.poptorch_core.Error, poptorch.Error)


class StubsTest(unittest.TestCase):
    def test_stubs_have_the_names_of_the_package(self):
        self.assertEqual(set(stubs()), set(public_names()) | {"__version__"})

    def test_stubs_say_where_names_come_from(self):
        for name, (module, original) in stubs().items():
            if module == ".":
                continue
            if module:
                source = __import__("poptorch" + module, fromlist=[original])
                self.assertIs(getattr(source, original), getattr(poptorch, name), name)

    def test_type_checkers_are_told_to_read_annotations(self):
        self.assertTrue(_STUBS.with_name("py.typed").exists())

    def test_methods_and_functions_say_their_types(self):
        functions = [
            (name, value)
            for name, value in public_names().items()
            if inspect.isfunction(value) and of_package(value)
        ]
        for owner_name, owner in classes():
            functions += [
                (f"{owner_name}.{name}", member.fget if isinstance(member, property) else member)
                for name, member in members(owner)
            ]
        self.assertGreater(len(functions), 50)
        for name, function in functions:
            signature = inspect.signature(function)
            untyped = [
                parameter.name
                for parameter in list(signature.parameters.values())
                if parameter.annotation is parameter.empty
                and parameter.name not in ("self", "cls")
                and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            ]
            self.assertEqual(untyped, [], name)
            self.assertIsNot(signature.return_annotation, signature.empty, name)


class HelpTest(unittest.TestCase):
    def test_functions_and_classes_have_docstrings(self):
        for name, value in public_names().items():
            if inspect.isroutine(value) or inspect.isclass(value) or name in _MODULES:
                text = value.__doc__ or ""
                self.assertRegex(text, r"^\S", name)

    def test_methods_and_properties_have_docstrings(self):
        for owner_name, owner in classes():
            self.assertRegex(inspect.getdoc(owner) or "", r"^\S", owner_name)
            for name, _ in members(owner):
                text = inspect.getdoc(getattr(owner, name)) or ""
                self.assertRegex(text, r"^\S", f"{owner_name}.{name}")


if __name__ == "__main__":
    unittest.main()
