"""Makes values of objects as they are declared (`meta`). Every error names the field's path and says what would be right."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, Final, TypeVar

from msgspec import inspect

from kompakt_core.errors import InvalidInput
from kompakt_core.schema.meta import Declared, ValidationRule
from kompakt_core.schema.words import FieldError, Words, shown, together

Made = TypeVar("Made", bound=Declared)
Read = Callable[[Any, str], Any]
Extra = Mapping[str, Any]
_MOST_ITEMS: Final = 1 << 20
_MOST_ERRORS: Final = 100  # of one list or one object's names: a document may be long and all wrong


def read(kind: type[Made], value: object, path: str) -> Made:
    """The value that an object stands for. null counts as absent.

    Raises FieldError for fields that are missing, unknown, of a wrong type or out of their bounds, else for a broken rule.
    """
    if not isinstance(value, Mapping):
        raise kind.WORDS.wrong(path, kind.WORDS.expected_object, value)
    fields = _fields(kind)
    unknown = [] if kind.OPEN else sorted(str(name) for name in value if name not in fields)
    found, wrong = _values(kind, value, path, unknown)
    wrong += [_unknown(kind, fields, name, path) for name in unknown[:_MOST_ERRORS]]
    if wrong:
        raise together(wrong)
    made = kind(**found)
    _hold(kind.RULES, made, path)
    return made


def _unknown(kind: type[Declared], fields: Iterable[str], name: str, path: str) -> FieldError:
    """The error about a name that is none here, with the one that may be meant."""
    known = sorted(fields)
    meant = f"; did you mean {_alike(name, known)}?" if _alike(name, known) else ""
    return kind.WORDS.wrong(_join(path, name), kind.WORDS.unknown + meant, known=", ".join(known))


def _alike(name: str, known: Sequence[str]) -> str:
    """The name that is most alike, if any is."""
    return next(iter(get_close_matches(name, known, 1)), "")


@dataclass(frozen=True, slots=True)
class _FieldReader:
    name: str
    required: bool
    read: Read


@cache
def _fields(kind: type[Declared]) -> dict[str, _FieldReader]:
    """By written name."""
    known = inspect.type_info(kind)
    assert isinstance(known, inspect.StructType)
    return {f.encode_name: _FieldReader(f.name, f.required, _reader(f.type, kind.WORDS)) for f in known.fields}


def _values(
    kind: type[Declared], value: Mapping[str, Any], path: str, unknown: list[str]
) -> tuple[dict[str, Any], list[FieldError]]:
    """The fields that can be read, and an error for each of the others."""
    found, wrong = {}, list[FieldError]()
    for written, field in _fields(kind).items():
        raw, at = value.get(written), _join(path, written)
        if raw is None and field.required:
            typo = any(_alike(name, [written]) for name in unknown)  # then it is not missing
            wrong += [] if typo else [kind.WORDS.wrong(at, kind.WORDS.missing)]
        elif raw is not None:
            try:
                found[field.name] = field.read(raw, at)
            except FieldError as error:
                wrong += error.every
    return found, wrong


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path and name else path or name


def _hold(rules: Iterable[ValidationRule], value: object, path: str) -> None:
    for rule in rules:
        broken = rule.broken(value)
        if broken is not None:
            at, more = broken
            raise FieldError(_join(path, at), rule.sentence + more)


def _reader(node: inspect.Type, words: Words) -> Read:
    """How a value of this type is read."""
    if isinstance(node, inspect.UnionType):  # with null, which counts as absent
        return _reader(next(part for part in node.types if not isinstance(part, inspect.NoneType)), words)
    extra: Extra = {}
    if isinstance(node, inspect.Metadata):
        node, extra = node.type, getattr(node, "extra", None) or {}
    plain: Read = extra["read"] if "read" in extra else _READERS[type(node)](node, extra, words)
    return _worded(plain, extra["right"]) if "right" in extra else plain


def _worded(plain: Read, right: str) -> Read:
    """The same with one sentence for all that can be wrong."""

    def reading(value: Any, path: str) -> Any:
        try:
            return plain(value, path)
        except InvalidInput:
            raise FieldError(path, f"{right}, got {shown(value)}") from None

    return reading


def _text(node: inspect.StrType, extra: Extra, words: Words) -> Read:
    rules, low, high = extra.get("rules", ()), node.min_length or 0, node.max_length or _MOST_ITEMS

    def reading(value: Any, path: str) -> str:
        if not isinstance(value, str):
            raise words.wrong(path, words.expected_text, value, high=high)
        _hold(rules, value, path)
        if not low <= len(value) <= high:
            raise words.wrong(path, words.length, value, low=low, high=high, count=len(value))
        return value

    return reading


def _whole(node: inspect.IntType, extra: Extra, words: Words) -> Read:
    low, high = (-words.largest if node.ge is None else node.ge), (words.largest if node.le is None else node.le)

    def reading(value: Any, path: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise words.wrong(path, words.expected_whole, value)
        if not low <= value <= high:
            raise words.wrong(path, words.between, value, low=low, high=high)
        return value

    return reading


def _flag(node: inspect.BoolType, extra: Extra, words: Words) -> Read:
    def reading(value: Any, path: str) -> bool:
        if not isinstance(value, bool):
            raise words.wrong(path, words.expected_flag, value)
        return value

    return reading


def _choice(node: inspect.EnumType, extra: Extra, words: Words) -> Read:
    def reading(value: Any, path: str) -> Any:
        try:
            return node.cls(value)
        except ValueError:
            known = ", ".join(word.value for word in node.cls if word.value)
            raise words.wrong(path, words.choice, value, known=known) from None

    return reading


def _list(node: inspect.VarTupleType, extra: Extra, words: Words) -> Read:
    low, high, item = node.min_length or 0, node.max_length or _MOST_ITEMS, _reader(node.item_type, words)

    def reading(value: Any, path: str) -> tuple[Any, ...]:
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise words.wrong(path, words.expected_list, value)
        if not low <= len(value) <= high:
            raise words.wrong(path, words.items, value, low=low, high=high, count=len(value))
        found = _items(item, ((one, f"{path}[{i}]") for i, one in enumerate(value)))
        if "twice" in extra:
            _differ([getattr(one, extra["key"]) for one in found], path, extra["twice"])
        return found

    return reading


def _items(item: Read, raw: Iterable[tuple[Any, str]]) -> tuple[Any, ...]:
    """Each one read; raises FieldError for all that are wrong."""
    found, wrong = list[Any](), list[FieldError]()
    for one, path in raw:
        try:
            found.append(item(one, path))
        except FieldError as error:
            wrong += error.every
        if len(wrong) >= _MOST_ERRORS:
            break
    if wrong:
        raise together(wrong)
    return tuple(found)


def _differ(names: list[str], path: str, sentence: str) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise FieldError(path, sentence.format(twice[0]))


def _object(node: inspect.StructType, extra: Extra, words: Words) -> Read:
    kind: Any = node.cls
    return lambda value, path: read(kind, value, path)


def _mapping(node: inspect.DictType, extra: Extra, words: Words) -> Read:
    item: Read = (lambda value, path: value) if isinstance(node.value_type, inspect.AnyType) else _reader(node.value_type, words)

    def reading(value: Any, path: str) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise words.wrong(path, words.expected_object, value)
        return {key: item(one, _join(path, str(key))) for key, one in value.items()}

    return reading


_READERS: Final[dict[type[inspect.Type], Callable[[Any, Extra, Words], Read]]] = {
    inspect.StrType: _text,
    inspect.IntType: _whole,
    inspect.BoolType: _flag,
    inspect.EnumType: _choice,
    inspect.VarTupleType: _list,
    inspect.StructType: _object,
    inspect.DictType: _mapping,
}
