"""The best ring through every GPU set at once.

Held and Karp's recurrence for tours (J. SIAM 10(1), 1962, section 2), anchored at the highest GPU of each set, so that
one sweep over all sets of n GPUs serves every set: O(2^n * n^2) steps.
"""

from array import array
from collections.abc import Sequence

MISSING = -(1 << 40)  # weight of a link that must not be used: larger than any sum of 16 real ones


class BestRings:
    """Best ring of every set of up to 16 GPUs.

    `values[m]`: the sum of link weights along the best ring through set m; a ring of two is its link, counted once;
    sets of fewer GPUs have 0. Sums at or below MISSING / 2 use a forbidden link: there is no ring.
    """

    def __init__(self, weights: Sequence[Sequence[int]]) -> None:
        self._weights = weights
        self._size = len(weights)
        # _paths[m * n + j]: the best path from m's highest GPU to j through all of m.
        self._paths = array("q", bytes(8 * self._size << self._size)) if self._size else array("q")
        self.values = array("q", bytes(8 << self._size))
        members = [tuple(i for i in range(self._size) if mask >> i & 1) for mask in range(1 << max(self._size - 1, 0))]
        for anchor in range(self._size):
            self._sweep(anchor, members)

    def _sweep(self, anchor: int, members: Sequence[tuple[int, ...]]) -> None:
        """All sets whose highest GPU is `anchor`; `rest` is the set without it."""
        weights, size, top = self._weights, self._size, 1 << anchor
        home = weights[anchor]
        rows: list[list[int]] = [[]] * top  # rows[rest]: best path ends, in the order of members[rest]
        for rest in range(1, top):
            ends = members[rest]
            row = rows[rest] = [self._extend(rows, members, rest, end, home) for end in ends]
            start = (top | rest) * size
            for end, path in zip(ends, row, strict=True):
                self._paths[start + end] = path
            closing = [path + home[end] for path, end in zip(row, ends, strict=True)]
            self.values[top | rest] = max(closing) if len(ends) > 1 else row[0]

    def _extend(
        self, rows: Sequence[list[int]], members: Sequence[tuple[int, ...]], rest: int, end: int, home: Sequence[int]
    ) -> int:
        before = rest ^ (1 << end)
        if not before:
            return home[end]
        into = self._weights[end]
        return max([path + into[i] for path, i in zip(rows[before], members[before], strict=True)])

    def order(self, mask: int) -> tuple[int, ...]:
        """The GPUs of a set in the order of its best ring: from the lowest index, towards its lower neighbour."""
        if mask.bit_count() < 3:
            return tuple(i for i in range(self._size) if mask >> i & 1)
        anchor = mask.bit_length() - 1
        ring = self._walk_back(mask, anchor)
        start = ring.index(min(ring))
        ring = ring[start:] + ring[:start]
        return tuple(ring) if ring[1] < ring[-1] else (ring[0], *reversed(ring[1:]))

    def _walk_back(self, mask: int, anchor: int) -> list[int]:
        """From the end that closes the best ring back to the anchor, each time to the lowest GPU that explains the path."""
        ring, rest, following, left = [anchor], mask ^ (1 << anchor), anchor, self.values[mask]
        while rest:
            for end in range(self._size):
                path = self._paths[((1 << anchor) | rest) * self._size + end]
                if rest >> end & 1 and path + self._weights[end][following] == left:
                    break
            ring.append(end)
            rest, following, left = rest ^ (1 << end), end, path
        return ring
