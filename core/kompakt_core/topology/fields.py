"""Fields of a JSON object from outside, read one by one with their types and ranges checked."""

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any, Final, TypeVar

from kompakt_core.schema.words import FieldError, kind_of

MAX_NUMBER: Final = 1 << 53  # JSON readers in other languages keep integers exactly up to here
Word = TypeVar("Word", bound=StrEnum)


class Fields:
    """A JSON object being read: each getter checks type and range and names the field's path when it is wrong."""

    def __init__(self, value: object, path: str) -> None:
        if not isinstance(value, Mapping):
            raise FieldError(path, f"expected an object, found {kind_of(value)}")
        self.value: Mapping[str, Any] = value
        self.path = path

    def wrong(self, name: str, what: str) -> FieldError:
        """An error about the field `name`."""
        return FieldError(f"{self.path}.{name}", what)

    def only(self, names: Collection[str]) -> None:
        """Raises FieldError for any other field than these."""
        for name in self.value:
            if name not in names:
                raise self.wrong(str(name)[:64], f"is no field; known are {', '.join(names)}")

    def text(self, name: str, default: str | None = None, limit: int = 256) -> str:
        """A string of at most `limit` characters."""
        found = self._get(name, default)
        if not isinstance(found, str) or len(found) > limit:
            raise self.wrong(name, f"expected a string of at most {limit} characters, found {kind_of(found)}")
        return found

    def number(self, name: str, default: int | None = None, low: int = 0) -> int:
        """An integer from `low` to 2^53."""
        found = self._get(name, default)
        if isinstance(found, bool) or not isinstance(found, int):
            raise self.wrong(name, f"expected an integer, found {kind_of(found)}")
        if not low <= found <= MAX_NUMBER:
            raise self.wrong(name, f"must be from {low} to 2^53")
        return found

    def flag(self, name: str) -> bool:
        """true or false; absent = false."""
        found = self._get(name, False)
        if not isinstance(found, bool):
            raise self.wrong(name, f"expected true or false, found {kind_of(found)}")
        return found

    def word(self, name: str, kind: type[Word], default: str | None = None) -> Word:
        """One of the words of an enumeration."""
        found = self._get(name, default)
        if not isinstance(found, str) or found not in {word.value for word in kind}:
            raise self.wrong(name, f"must be one of {', '.join(filter(None, kind))}")
        return kind(found)

    def child(self, name: str) -> "Fields":
        """An object."""
        return Fields(self._get(name, None), f"{self.path}.{name}")

    def values(self, name: str, limit: int) -> list[Any]:
        """A list of at most `limit` values of any kind; absent = empty."""
        found = self._get(name, [])
        if not isinstance(found, list | tuple):
            raise self.wrong(name, f"expected a list, found {kind_of(found)}")
        if len(found) > limit:
            raise self.wrong(name, f"{len(found)} entries; at most {limit} are allowed")
        return list(found)

    def items(self, name: str, limit: int, *, required: bool = True) -> list["Fields"]:
        """A list of at most `limit` objects."""
        if required:
            self._get(name, None)
        found = self.values(name, limit)
        return [Fields(item, f"{self.path}.{name}[{position}]") for position, item in enumerate(found)]

    def _get(self, name: str, default: object) -> object:
        found = self.value.get(name, default)
        if found is None:
            raise self.wrong(name, "is missing")
        return found
