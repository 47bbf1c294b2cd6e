"""Reads one mapping of an object field by field; every error names the field's path."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NoReturn, TypeVar

from kompakt_core.errors import InvalidInput
from kompakt_core.schema.words import shown

Choice = TypeVar("Choice", bound=StrEnum)
MISSING: Any = object()


class ObjectFields:
    """One mapping of an object. Reads are typed; `done` refuses fields that nobody read."""

    def __init__(self, value: object, path: str) -> None:
        self.path = path
        if not isinstance(value, Mapping):
            raise InvalidInput(f"{path}: expected an object, got {shown(value)}")
        self._values: Mapping[str, Any] = value
        self._read: set[str] = set()

    def where(self, name: str) -> str:
        """The full path of one of this mapping's fields."""
        return f"{self.path}.{name}" if self.path else name

    def refuse(self, name: str, problem: str) -> NoReturn:
        """Raise InvalidInput about one field of this mapping."""
        raise InvalidInput(f"{self.where(name)}: {problem}")

    def raw(self, name: str, default: Any = MISSING) -> Any:
        """The value as it stands; null counts as absent; an absent field without default is refused."""
        self._read.add(name)
        value = self._values.get(name)
        if value is not None:
            return value
        if default is MISSING:
            self.refuse(name, "is required")
        return default

    def text(self, name: str, default: Any = MISSING) -> Any:
        """A string."""
        value = self.raw(name, default)
        if value is not default and not isinstance(value, str):
            self.refuse(name, f"expected text, got {shown(value)}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """true or false."""
        value = self.raw(name, default)
        if not isinstance(value, bool):
            self.refuse(name, f"expected true or false, got {shown(value)}")
        return value

    def whole(self, name: str, default: Any = MISSING, *, low: int = 0, high: int = 1 << 62) -> Any:
        """An integer between `low` and `high`, both included."""
        value = self.raw(name, default)
        if value is default and value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self.refuse(name, f"expected a whole number, got {shown(value)}")
        if not low <= value <= high:
            self.refuse(name, f"must be between {low} and {high}, got {shown(value)}")
        return value

    def choice(self, name: str, choices: type[Choice], default: Choice) -> Choice:
        """One word of an enumeration."""
        value = self.raw(name, default)
        try:
            return choices(value)
        except ValueError:
            self.refuse(name, f"must be one of {', '.join(choices)}, got {shown(value)}")

    def items(self, name: str, *, high: int, low: int = 0) -> list[tuple[Any, str]]:
        """A list's items, each with its path; an absent list is empty."""
        value = self.raw(name, ())
        if isinstance(value, str) or not isinstance(value, Sequence):
            self.refuse(name, f"expected a list, got {shown(value)}")
        if not low <= len(value) <= high:
            self.refuse(name, f"must have {low} to {high} items, got {len(value)}")
        return [(item, f"{self.where(name)}[{i}]") for i, item in enumerate(value)]

    def texts(self, name: str, *, high: int) -> tuple[str, ...]:
        """A list of strings; an absent one is empty."""
        found = self.items(name, high=high)
        for item, path in found:
            if not isinstance(item, str):
                raise InvalidInput(f"{path}: expected text, got {shown(item)}")
        return tuple(item for item, _ in found)

    def names(self, *, high: int) -> list[str]:
        """This mapping's keys, where any are allowed."""
        if len(self._values) > high or not all(isinstance(name, str) for name in self._values):
            raise InvalidInput(f"{self.path}: expected at most {high} keys, each text")
        return list(self._values)

    def inner(self, name: str) -> "ObjectFields":
        """An object inside; absent reads like an empty one."""
        return ObjectFields(self.raw(name, {}), self.where(name))

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self._values.get(name) is not None

    def done(self) -> None:
        """Refuse fields that were never read: a misspelt field must not be ignored."""
        unknown = sorted(str(name) for name in self._values if name not in self._read)
        if unknown:
            raise InvalidInput(f"{self.where(unknown[0])}: unknown field; known here: {', '.join(sorted(self._read))}")
