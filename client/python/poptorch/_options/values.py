"""The base of Options and its groups: named values that can be read as attributes and frozen."""

import copy
import enum
from typing import Any, Dict, TypeVar

from .. import _errors

#: The class of the object whose setter returns it.
Self = TypeVar("Self", bound="OptionValues")


class OptionValues:
    """Values by name, each of the type of its default.

    Values are read as attributes (`options.replication_factor`), and assigned by the setters of
    the classes that derive from this one, by `set`, or as attributes.

    Private attributes have to be made before this class is initialised, so that a wrong name is
    seen.
    """

    def __init__(self, **values: Any) -> None:
        """
        Args:
            values: the names of the options and their defaults.
        """
        self._is_frozen = False
        self._values = values

    def set(self: Self, **values: Any) -> Self:
        """Assigns options that exist.

        Raises:
            AssertionError: there is no such option, or the value has another type.
            AttributeError: the options are frozen.
        """
        for name, value in values.items():
            self.checkIsFrozen()
            known = self._values
            assert name in known, _errors.INVALID_OPTION % (name, list(known))
            kind = type(known[name])
            if issubclass(kind, enum.IntEnum) and type(value) is int:
                value = kind(value)
            fits = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
            assert fits, _errors.UNEXPECTED_TYPE % (type(value), name, kind)
            known[name] = value
        return self

    def createOrSet(self: Self, **values: Any) -> Self:
        """Assigns options that may not exist yet, as those without a default."""
        self.checkIsFrozen()
        self._values.update(values)
        return self

    def exists(self, option: str) -> bool:
        """Whether an option has a value."""
        return option in self._values

    def deleteIfExists(self, option: str) -> None:
        """Makes an option without a default unset again."""
        self.checkIsFrozen()
        self._values.pop(option, None)

    def toDict(self) -> Dict[str, Any]:
        """The options by their internal names."""
        return dict(self._values)

    def update(self, other: Dict[str, Any]) -> Dict[str, Any]:
        """Adds the options to a dictionary, in which none of their names may be yet."""
        common = sorted(set(self._values) & set(other))
        assert not common, _errors.MERGE_CONFLICT % ", ".join(common)
        other.update(self._values)
        return other

    def checkIsFrozen(self) -> None:
        """Raises AttributeError if the options are in use by a model or a DataLoader."""
        if self._is_frozen:
            raise AttributeError(_errors.FROZEN)

    def _freeze(self) -> None:
        self._is_frozen = True
        for group in self._groups():
            group._freeze()

    def _unfreeze(self, unfreeze: bool = True) -> None:
        if unfreeze:
            self._is_frozen = False
            for group in self._groups():
                group._unfreeze()

    def _groups(self):
        return [value for value in self.__dict__.values() if hasattr(value, "_unfreeze")]

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            self.set(**{name: value})
            return
        declared = "_values" not in self.__dict__ or name in self.__dict__
        if not declared and not hasattr(type(self), name):
            raise AttributeError(_errors.INVALID_PRIVATE_ATTRIBUTE % (name, list(self.__dict__)))
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        # Only names that are no attribute and no method come here.
        values = self.__dict__.get("_values", {})
        if name in values:
            return values[name]
        raise AttributeError(_errors.INVALID_ATTRIBUTE % name)

    def __deepcopy__(self, memory: Dict[int, Any]) -> "OptionValues":
        duplicate = type(self).__new__(type(self))
        memory[id(self)] = duplicate
        duplicate.__dict__.update(copy.deepcopy(self.__dict__, memory))
        duplicate.__dict__["_is_frozen"] = False
        return duplicate

    def __repr__(self) -> str:
        lines = [f"{name}={value!r}" for name, value in self._values.items()]
        lines += [f"{name.strip('_')}={value!r}" for name, value in self._shown()]
        return f"{type(self).__name__}(" + ", ".join(lines) + ")"

    def _shown(self):
        """Further names and values of the representation."""
        return []
