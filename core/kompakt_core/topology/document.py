"""YAML (and so JSON) as plain values that remember where they stood, so that an error can point at line and column.

A small subset on purpose: no tags, no anchors, and true, false, null and numbers only as JSON writes them. A text from
anywhere cannot make it recurse, swell or call anything.
"""

import re
from dataclasses import dataclass, field
from typing import Any, Final

from kompakt_core.errors import InvalidInput

MAX_TEXT: Final = 1 << 20  # what a ConfigMap can hold
MAX_DEPTH: Final = 12
_PRINTABLE: Final = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_INTEGER: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_DECIMAL: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})\.[0-9]{1,18}")
_WORDS: Final[dict[str, Any]] = {"true": True, "false": False, "null": None, "~": None, "": None}


@dataclass(frozen=True, slots=True)
class Document:
    """`value` is made of dicts, lists, strings, numbers, booleans and None; `places` has line and column of each path."""

    value: Any
    places: dict[str, tuple[int, int]]
    title: str

    def wrong(self, path: str, what: str) -> InvalidInput:
        """An error that points at a path such as machine.links[2].kind, or at what holds it."""
        while path and path not in self.places:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        line, column = self.places.get(path, (1, 1))
        return InvalidInput(f"{self.title}, line {line}, column {column}: {what}")


@dataclass(slots=True)
class _Open:
    """A list or object that is being read."""

    holder: Any
    path: str
    key: str | None = field(default=None)


def read_document(text: str, root: str, title: str) -> Document:
    """The value of a YAML text; paths begin with `root`, errors with `title`. Raises InvalidInput with line and column."""
    import yaml  # 15 ms to import and needed by few: not at start-up

    if len(text) > MAX_TEXT:
        raise InvalidInput(f"{title}: {len(text)} characters; at most {MAX_TEXT} are read")
    odd = _PRINTABLE.search(text)
    if odd:
        raise _at(title, *_place(text, odd.start()), f"the character {odd.group()!r} has no place in a text")
    reading = _Reading(root, title)
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            reading.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise _at(title, line, column, f"no YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise _at(title, 1, 1, f"no YAML: {error}") from None
    return Document(reading.value, reading.places, title)


def _place(text: str, position: int) -> tuple[int, int]:
    return text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)


def _at(title: str, line: int, column: int, what: str) -> InvalidInput:
    return InvalidInput(f"{title}, line {line}, column {column}: {what}")


class _Reading:
    """Takes YAML's events one by one and builds the value without recursion."""

    def __init__(self, root: str, title: str) -> None:
        self.value: Any = None
        self.places: dict[str, tuple[int, int]] = {}
        self._root = root
        self._title = title
        self._open: list[_Open] = []
        self._documents = 0

    def take(self, event: Any) -> None:
        """Raises InvalidInput for what the subset leaves out."""
        kind = type(event).__name__
        if kind == "DocumentStartEvent":
            self._documents += 1
            if self._documents > 1:
                raise self._wrong(event, "a second document; one is read")
        elif kind in ("MappingStartEvent", "SequenceStartEvent"):
            self._begin(event, {} if kind == "MappingStartEvent" else [])
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            self._open.pop()
        elif kind == "ScalarEvent":
            self._scalar(event)
        elif kind == "AliasEvent":
            raise self._wrong(event, "an alias (*name); write the value out")

    def _begin(self, event: Any, holder: Any) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise self._wrong(event, f"nested deeper than {MAX_DEPTH} levels")
        if self._awaits_key():
            raise self._wrong(event, "a list or an object as a key; keys are words")
        self._plain(event)
        path = self._put(event, holder)
        self._open.append(_Open(holder, path))

    def _scalar(self, event: Any) -> None:
        self._plain(event)
        if not self._awaits_key():
            self._put(event, _scalar(event.value) if event.implicit[0] else event.value)
            return
        top = self._open[-1]
        if event.value in top.holder:
            raise self._wrong(event, f"the key {event.value[:32]!r} appears twice")
        top.key = event.value

    def _plain(self, event: Any) -> None:
        if event.anchor or event.tag not in (None, "!"):
            raise self._wrong(event, "an anchor (&name) or a tag (!name); write plain values")

    def _awaits_key(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1].holder, dict) and self._open[-1].key is None

    def _put(self, event: Any, value: Any) -> str:
        path = self._root
        if not self._open:
            self.value = value
        elif (key := self._open[-1].key) is not None:
            top = self._open[-1]
            path = f"{top.path}.{key}"
            top.holder[key], top.key = value, None
        else:
            top = self._open[-1]
            path = f"{top.path}[{len(top.holder)}]"
            top.holder.append(value)
        self.places[path] = (event.start_mark.line + 1, event.start_mark.column + 1)
        return path

    def _wrong(self, event: Any, what: str) -> InvalidInput:
        return _at(self._title, event.start_mark.line + 1, event.start_mark.column + 1, what)


def _scalar(word: str) -> Any:
    """What a plain word means: as in JSON, so that neither `no` nor 1:20 turns into something else."""
    if word in _WORDS:
        return _WORDS[word]
    if _INTEGER.fullmatch(word):
        return int(word)
    return float(word) if _DECIMAL.fullmatch(word) else word
