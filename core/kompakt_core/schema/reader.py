"""Makes values of objects as they are declared (`meta`). Every error names the field's path and says what would be right."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeVar

from msgspec import inspect

from kompakt_core.errors import InvalidInput
from kompakt_core.schema.fields import ObjectFields, shown
from kompakt_core.schema.meta import Declared, ValidationRule

Made = TypeVar("Made", bound=Declared)
Read = Callable[[Any, str], Any]
_LARGEST: Final = 1 << 62
_MOST_ITEMS: Final = 1 << 20


def read(kind: type[Made], value: object, path: str) -> Made:
    """The value that an object stands for. null counts as absent.

    Raises InvalidInput for a field that is missing, unknown, of a wrong type or out of its bounds, and for a broken rule.
    """
    fields = ObjectFields(value, path)
    found = {}
    for one in _fields(kind):
        raw = fields.raw(one.written) if one.required else fields.raw(one.written, None)
        if raw is not None:
            found[one.name] = one.read(raw, fields.where(one.written))
    if not kind.OPEN:
        fields.done()
    made = kind(**found)
    _hold(kind.RULES, made, path)
    return made


@dataclass(frozen=True, slots=True)
class _FieldReader:
    name: str
    written: str
    required: bool
    read: Read


@cache
def _fields(kind: type[Declared]) -> tuple[_FieldReader, ...]:
    known = inspect.type_info(kind)
    assert isinstance(known, inspect.StructType)
    return tuple(_FieldReader(field.name, field.encode_name, field.required, _reader(field.type)) for field in known.fields)


def _hold(rules: Iterable[ValidationRule], value: object, path: str) -> None:
    for rule in rules:
        broken = rule.broken(value)
        if broken is not None:
            at, more = broken
            raise InvalidInput(f"{path}{'.' if path and at else ''}{at}: {rule.sentence}{more}")


def _reader(node: inspect.Type) -> Read:
    """How a value of this type is read."""
    if isinstance(node, inspect.UnionType):  # with null, which counts as absent
        return _reader(next(part for part in node.types if not isinstance(part, inspect.NoneType)))
    extra: Mapping[str, Any] = {}
    if isinstance(node, inspect.Metadata):
        node, extra = node.type, getattr(node, "extra", None) or {}
    plain: Read = extra["read"] if "read" in extra else _READERS[type(node)](node, extra)
    if "right" not in extra:
        return plain
    return _worded(plain, extra["right"])


def _worded(plain: Read, right: str) -> Read:
    """The same with one sentence for all that can be wrong."""

    def reading(value: Any, path: str) -> Any:
        try:
            return plain(value, path)
        except InvalidInput:
            raise InvalidInput(f"{path}: {right}, got {shown(value)}") from None

    return reading


def _text(node: inspect.StrType, extra: Mapping[str, Any]) -> Read:
    rules, low, high = extra.get("rules", ()), node.min_length or 0, node.max_length or _MOST_ITEMS

    def reading(value: Any, path: str) -> str:
        if not isinstance(value, str):
            raise InvalidInput(f"{path}: expected text, got {shown(value)}")
        _hold(rules, value, path)
        if not low <= len(value) <= high:
            raise InvalidInput(f"{path}: must have {low} to {high} characters, got {shown(value)}")
        return value

    return reading


def _whole(node: inspect.IntType, extra: Mapping[str, Any]) -> Read:
    low, high = (-_LARGEST if node.ge is None else node.ge), (_LARGEST if node.le is None else node.le)

    def reading(value: Any, path: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidInput(f"{path}: expected a whole number, got {shown(value)}")
        if not low <= value <= high:
            raise InvalidInput(f"{path}: must be between {low} and {high}, got {shown(value)}")
        return value

    return reading


def _flag(node: inspect.BoolType, extra: Mapping[str, Any]) -> Read:
    def reading(value: Any, path: str) -> bool:
        if not isinstance(value, bool):
            raise InvalidInput(f"{path}: expected true or false, got {shown(value)}")
        return value

    return reading


def _choice(node: inspect.EnumType, extra: Mapping[str, Any]) -> Read:
    def reading(value: Any, path: str) -> Any:
        try:
            return node.cls(value)
        except ValueError:
            raise InvalidInput(f"{path}: must be one of {', '.join(node.cls)}, got {shown(value)}") from None

    return reading


def _list(node: inspect.VarTupleType, extra: Mapping[str, Any]) -> Read:
    low, high, item = node.min_length or 0, node.max_length or _MOST_ITEMS, _reader(node.item_type)

    def reading(value: Any, path: str) -> tuple[Any, ...]:
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise InvalidInput(f"{path}: expected a list, got {shown(value)}")
        if not low <= len(value) <= high:
            raise InvalidInput(f"{path}: must have {low} to {high} items, got {len(value)}")
        found = tuple(item(one, f"{path}[{i}]") for i, one in enumerate(value))
        if "twice" in extra:
            _differ([getattr(one, extra["key"]) for one in found], path, extra["twice"])
        return found

    return reading


def _differ(names: list[str], path: str, sentence: str) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidInput(f"{path}: {sentence.format(twice[0])}")


def _object(node: inspect.StructType, extra: Mapping[str, Any]) -> Read:
    kind: Any = node.cls
    return lambda value, path: read(kind, value, path)


def _mapping(node: inspect.DictType, extra: Mapping[str, Any]) -> Read:
    def reading(value: Any, path: str) -> Mapping[str, Any]:
        ObjectFields(value, path)
        found: Mapping[str, Any] = value
        return found

    return reading


_READERS: Final[dict[type[inspect.Type], Callable[[Any, Mapping[str, Any]], Read]]] = {
    inspect.StrType: _text,
    inspect.IntType: _whole,
    inspect.BoolType: _flag,
    inspect.EnumType: _choice,
    inspect.VarTupleType: _list,
    inspect.StructType: _object,
    inspect.DictType: _mapping,
}
