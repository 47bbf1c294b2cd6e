"""How much processor time each namespace may still have for something that any tenant can ask for."""

from collections.abc import Callable
from typing import Final

MOST_KNOWN: Final = 4096  # namespaces; one that is not known has spent nothing


class TimeBudget:
    """`most` seconds at first, `rate` seconds more in every second, up to `most` again. A debt is paid back the same way."""

    def __init__(self, most: float, rate: float, clock: Callable[[], float]) -> None:
        self._most, self._rate, self._clock = most, rate, clock
        self._left: dict[str, tuple[float, float]] = {}  # seconds, and when that was so; the one changed last stands last

    def left(self, namespace: str) -> float:
        """Seconds; below 0 where one call took more than there was."""
        left, then = self._left.get(namespace, (self._most, self._clock()))
        return min(self._most, left + self._rate * (self._clock() - then))

    def spend(self, namespace: str, seconds: float) -> None:
        """So much was used."""
        left = self.left(namespace) - seconds
        self._left.pop(namespace, None)
        self._left[namespace] = left, self._clock()
        if len(self._left) > MOST_KNOWN:
            del self._left[next(iter(self._left))]
