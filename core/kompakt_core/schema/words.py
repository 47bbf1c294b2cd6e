"""The sentences of a reader's errors: what is wrong, where, and what would be right."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from kompakt_core.errors import InvalidInput


class FieldError(InvalidInput):
    """A field is wrong; `path` says which, such as spec.links[2].kind. `every`: this error and those of other fields."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path}: {what}")
        self.path = path
        self.every: tuple[FieldError, ...] = (self,)


def together(errors: Sequence[FieldError]) -> FieldError:
    """The first of them, which knows the others: who wrote a document wants to mend it once."""
    first = errors[0]
    first.every = tuple(errors)
    return first


def shown(value: object) -> str:
    """A value for an error message, cut to a readable length."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def kind_of(value: object) -> str:
    """What a JSON value is, for messages."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "an integer", float: "a decimal number"}
    return "null" if value is None else names.get(type(value), type(value).__name__)


@dataclass(frozen=True, slots=True)
class Words:
    """A sentence for each thing that can be wrong; it may name value, kind, low, high, count, known. `largest`: of numbers."""

    expected_object: str
    missing: str
    expected_text: str
    length: str
    expected_flag: str
    expected_whole: str
    between: str
    choice: str
    expected_list: str
    items: str
    unknown: str
    largest: int

    def wrong(self, path: str, sentence: str, value: Any = None, **more: Any) -> FieldError:
        """The error about one field."""
        high = "2^53" if more.get("high") == 1 << 53 else more.get("high")
        return FieldError(path, sentence.format(**{**more, "high": high}, value=shown(value), kind=kind_of(value)))


# For what people write: the value is shown.
WRITTEN: Final = Words(
    expected_object="expected an object, got {value}",
    missing="is required",
    expected_text="expected text, got {value}",
    length="must have {low} to {high} characters, got {value}",
    expected_flag="expected true or false, got {value}",
    expected_whole="expected a whole number, got {value}",
    between="must be between {low} and {high}, got {value}",
    choice="must be one of {known}, got {value}",
    expected_list="expected a list, got {value}",
    items="must have {low} to {high} items, got {count}",
    unknown="unknown field; known here: {known}",
    largest=1 << 62,
)
# For what programs report: the value may be anything and long.
REPORTED: Final = Words(
    expected_object="expected an object, found {kind}",
    missing="is missing",
    expected_text="expected a string of at most {high} characters, found {kind}",
    length="expected a string of {low} to {high} characters, found {count}",
    expected_flag="expected true or false, found {kind}",
    expected_whole="expected an integer, found {kind}",
    between="must be from {low} to {high}",
    choice="must be one of {known}",
    expected_list="expected a list, found {kind}",
    items="{count} entries; at most {high} are allowed",
    unknown="is no field; known are {known}",
    largest=1 << 53,  # JSON readers in other languages keep integers exactly up to here
)
