"""How long to wait before the next try: twice as long each time, with jitter, and never before the server said."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

JITTER: Final = 0.5  # of a pause is random: clients that failed together must not come back together


@dataclass(frozen=True, slots=True)
class Backoff:
    """The pause after the n-th failure in a row lies between (1 - JITTER) and 1 times `first` * 2^(n-1), at most `longest`."""

    first: float = 0.2
    longest: float = 10.0

    def seconds(self, failures: int, at_least: float = 0.0, random: Callable[[], float] = random.random) -> float:
        """The pause after so many failures in a row."""
        whole: float = min(self.first * 2.0 ** min(max(failures - 1, 0), 32), self.longest)
        return max(whole * (1 - JITTER * random()), at_least)
