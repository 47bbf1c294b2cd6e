"""How a field of our resources is declared: one place for its type, bounds, default, rules and what it does.

The parser (`reader`), the CustomResourceDefinitions and the reference pages (both `tools/crd`) are made from these declarations.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import msgspec

from kompakt_core.schema.words import WRITTEN, Words

# A field that may be absent and has no default: only what writes a status knows what belongs there.
ABSENT: Final[Any] = msgspec.UNSET
Broken = tuple[str, str] | None


def _by_the_api_server(value: Any) -> Broken:
    """A rule about a change: who sees one object alone cannot break it."""
    return None


@dataclass(frozen=True, slots=True)
class ValidationRule:
    """What no type can demand. API servers evaluate `cel`, the parser `broken`; both answer with `sentence`.

    `broken` returns None for a good value, else the path of the wrong field inside the value ("" for the value itself) and
    what the parser adds to the sentence.
    """

    cel: str
    sentence: str
    broken: Callable[[Any], Broken] = _by_the_api_server


def unless(good: Callable[[Any], bool], at: str = "") -> Callable[[Any], Broken]:
    """For `ValidationRule.broken`: the field `at` is wrong unless `good(value)`."""
    return lambda value: None if good(value) else (at, "")


class Declared(msgspec.Struct, frozen=True, rename="camel"):
    """An object of a resource, or a part of one. Fields are written in camelCase unless `name=` says otherwise.

    `RULES` hold for the object as a whole. An `OPEN` object may have fields that are not ours; in any other one they are refused.
    `FILLED`: the API server fills defaults in; else they are the reader's alone. `WORDS`: how its reader says what is wrong.
    """

    RULES: ClassVar[tuple[ValidationRule, ...]] = ()
    OPEN: ClassVar[bool] = False
    FILLED: ClassVar[bool] = True
    WORDS: ClassVar[Words] = WRITTEN


def about(
    description: str,
    *,
    example: Any = None,
    unit: str = "",
    low: int | None = None,
    high: int | None = None,
    shortest: int | None = None,
    longest: int | None = None,
    **extra: Any,
) -> msgspec.Meta:
    """What a field is: a sentence or two for people, an example, its unit, the least and the largest number, or how long a text
    or list is.

    `extra` may have:
    rules: of type ValidationRule; right: what a good value is, where the general words say too little; read: a function of value
    and path that makes the value, with schema: what the API server is told instead of the type; key: the field by which items of
    a list are told apart, with twice: what is said where two are the same; pattern, format: for the schema only.
    """
    told = {
        "ge": low,
        "le": high,
        "min_length": shortest,
        "max_length": longest,
        "examples": None if example is None else [example],
    }
    bounds: dict[str, Any] = {name: value for name, value in told.items() if value is not None}
    return msgspec.Meta(description=description, extra={**({"unit": unit} if unit else {}), **extra}, **bounds)


def moment(description: str) -> msgspec.Meta:
    """As `about`, for a moment: RFC 3339, UTC."""
    return about(description, example="2026-01-31T12:00:00Z", format="date-time")


def plain(value: Any) -> Any:
    """A value as dicts and lists by the names of attributes."""
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    return [plain(item) for item in value] if isinstance(value, tuple) else value
