"""Bounds that sources should keep in the next step, so that what is computed from them need not be kept.

A source is packed before anybody knows what else reads its result. So what its readers ask for is remembered by place, and holds
when the source is packed the next time.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary, ref

# Who asks for bounds, a layer or an operation, and in which slot it reads.
Asked = tuple[Any, str]
Readers = tuple[tuple[ref[Any], str], ...]
AGE: Final = 8  # optimizer steps after which a wish that nobody repeats is none


@dataclass(frozen=True)
class Wish:
    """readers: of the result; ratio: the source's bound over theirs; step: when it was made."""

    readers: Readers
    ratio: float
    step: int


class Wishes:
    """By who reads the source, and by what is computed from it. Of several models in a process each has its own."""

    def __init__(self) -> None:
        self._of: WeakKeyDictionary[Any, dict[str, dict[Any, Wish]]] = WeakKeyDictionary()

    def wish(self, source: Asked, result: Iterable[Asked], ratio: float, step: int) -> None:
        readers = tuple((ref(by), slot) for by, slot in result)
        self._by(source)[readers[0]] = Wish(readers, ratio, step)

    def forget(self, source: Asked, result: Asked) -> None:
        self._by(source).pop(_key(result), None)

    def bound(self, asked: Iterable[Asked], step: int, without: Asked | None = None) -> float:
        """The tightest that anybody wishes of a source with these readers; without: but for this result's sake."""
        left_out = None if without is None else _key(without)
        found = (pair for one in asked for pair in list(self._by(one).items()))
        return min((self._needed(wish, step) for result, wish in found if result != left_out), default=math.inf)

    def _by(self, source: Asked) -> dict[Any, Wish]:
        return self._of.setdefault(source[0], {}).setdefault(source[1], {})

    def _needed(self, wish: Wish, step: int) -> float:
        """What is computed from the result in turn has wishes of its own. A result's sources are older, so this ends."""
        if step - wish.step > AGE:
            return math.inf
        readers = [(by, slot) for one, slot in wish.readers if (by := one()) is not None]
        asked = min((by.bound or math.inf for by, _ in readers), default=math.inf)
        return wish.ratio * min(asked, self.bound(readers, step))


def _key(asked: Asked) -> tuple[ref[Any], str]:
    return ref(asked[0]), asked[1]
