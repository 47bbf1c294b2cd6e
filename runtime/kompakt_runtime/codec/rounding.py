"""Seeds for unbiased rounding of what stays the same from step to step: rounded to nearest it would have the same error in each.

The error model adds errors of steps as if they were independent. Rounding by another seed each time makes them so; its variance
is at most bound² / 6, that of rounding to nearest bound² / 3, so a bound wider by the root of two gives the same.
"""

import math
from typing import Any, Final

from kompakt_runtime.codec.select import encoder

WIDER: Final = math.sqrt(2)
RANKS: Final = 40  # bits below a rank's number in its seeds


class Seeds:
    """drawn: how many were given out; a training that goes on goes on with the next."""

    def __init__(self, rank: int) -> None:
        self._first = rank << RANKS
        self.drawn = 0

    def of(self, entry: Any) -> int | None:
        """For an entry that is packed now; None where it is rounded to nearest: what a layer computes from weights that move
        is new in each step, and kernels know no other way.
        """
        if not entry.constant or not encoder(entry.probe.device, entry.probe.dtype).stochastic:
            return None
        self.drawn += 1
        return self._first + self.drawn
