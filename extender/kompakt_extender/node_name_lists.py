"""Lists of node names as JSON: the longest part of what kube-scheduler posts, and nearly always of names it posted before."""

import sys
from contextlib import suppress
from types import GenericAlias
from typing import Any, Final, Literal

import msgspec

_PLAIN: Final = msgspec.json.Decoder(list[str])
_LITERAL: Final[Any] = Literal


class NameReader:
    """Reads lists of names; names that came before come out as the interned strings that the caches hold.

    To look up 5,000 fresh strings, each to be hashed and compared, takes longer than to read them. msgspec finds a member of a
    Literal by its bytes, without making a string of them, so the names seen so far are made one; that takes 3 us a name and is
    done again only after more and more lists with new names. The last list is kept whole: prioritize is asked for the names
    that filter has just let pass.
    """

    LEAST = 256  # shorter lists are read quickly enough
    MOST = 20_000  # names kept; beyond, those of the last list alone
    PATIENCE = 256  # lists with new names before they are learnt, at most

    def __init__(self) -> None:
        self._raw, self._names = b"[]", list[str]()
        self._seen: dict[str, None] = {}
        self._known: msgspec.json.Decoder[list[str]] | None = None
        self._missed, self._patience = 0, 4

    def decode(self, raw: bytes) -> list[str]:
        """The names, not to be changed. Raises msgspec.DecodeError for anything but a JSON list of strings."""
        if raw != self._raw:
            self._raw, self._names = raw, self._fresh(raw)
        return self._names

    def _fresh(self, raw: bytes) -> list[str]:
        if self._known is not None:
            with suppress(msgspec.ValidationError):
                return self._known.decode(raw)
        names = _PLAIN.decode(raw)
        if self.LEAST <= len(names) <= self.MOST:
            self._meet(names)
        return names

    def _meet(self, names: list[str]) -> None:
        self._seen.update(dict.fromkeys(map(sys.intern, names)))
        if len(self._seen) > self.MOST:
            self._seen = dict.fromkeys(map(sys.intern, names))
        self._missed += 1
        if self._missed >= self._patience:
            self._known = msgspec.json.Decoder(GenericAlias(list, (_LITERAL[tuple(self._seen)],)))
            self._missed, self._patience = 0, min(self._patience * 2, self.PATIENCE)
