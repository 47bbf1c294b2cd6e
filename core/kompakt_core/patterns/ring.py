"""The best ring through every GPU set at once.

Held and Karp's recurrence for tours (J. SIAM 10(1), 1962, section 2), anchored at the highest GPU of each set, so that
one sweep over all sets of n GPUs serves every set: O(2^n * n^2) steps.
"""

from array import array
from collections.abc import Sequence
from itertools import chain
from operator import add

from kompakt_core.ids import indices_of

MISSING = -(1 << 40)  # weight of a link that must not be used: larger than any sum of 16 real ones
_NOWHERE = -(1 << 60)  # "path" to a GPU outside the set: never the largest


class BestRings:
    """Best ring of every set of up to 16 GPUs.

    `values[m]`: the sum of link weights along the best ring through set m; a ring of two is its link, counted once;
    sets of fewer GPUs have 0. A negative sum uses a forbidden link: there is no ring.
    """

    def __init__(self, weights: Sequence[Sequence[int]]) -> None:
        self._weights = weights
        self.values = array("q", bytes(8 << len(weights)))
        # _paths[anchor][rest * anchor + end]: the best path from `anchor` to `end` through all of `rest`, a set of
        # GPUs below the anchor.
        members = [indices_of(rest) for rest in range(1 << max(len(weights) - 1, 0))]
        self._paths = [self._sweep(anchor, members) for anchor in range(len(weights))]

    def _sweep(self, anchor: int, members: Sequence[Sequence[int]]) -> "array[int]":
        """All sets whose highest GPU is `anchor`."""
        top, home, values = 1 << anchor, self._weights[anchor][:anchor], self.values
        below = [row[:anchor] for row in self._weights[:anchor]]
        rows = [[_NOWHERE] * anchor for _ in range(top)]
        for rest in range(1, top):
            row = rows[rest]
            ends = members[rest]
            if len(ends) == 1:
                row[ends[0]] = values[top | rest] = home[ends[0]]
                continue
            for end in ends:
                row[end] = max(map(add, rows[rest ^ (1 << end)], below[end]))
            values[top | rest] = max(map(add, row, home))
        return array("q", chain.from_iterable(rows))

    def order(self, mask: int) -> tuple[int, ...]:
        """The GPUs of a set in the order of its best ring: from the lowest index, towards its lower neighbour."""
        if mask.bit_count() < 3:
            return indices_of(mask)
        ring = self._trace_back(mask)
        start = ring.index(min(ring))
        ring = ring[start:] + ring[:start]
        return tuple(ring) if ring[1] < ring[-1] else (ring[0], *reversed(ring[1:]))

    def _trace_back(self, mask: int) -> list[int]:
        """From the end that closes the best ring back to the anchor, each time to the lowest GPU that explains the path."""
        anchor = mask.bit_length() - 1
        ring, rest, following, left = [anchor], mask ^ (1 << anchor), anchor, self.values[mask]
        while rest:
            paths = {end: self._paths[anchor][rest * anchor + end] for end in indices_of(rest)}
            end = next(end for end, path in paths.items() if path + self._weights[end][following] == left)
            ring.append(end)
            rest, following, left = rest ^ (1 << end), end, paths[end]
        return ring
