"""Custom edges on GPU sets: the best of all ways to give a set's GPUs to the ranks.

Bottleneck: the smallest of bandwidth / weight over the edges (rounded down), since an edge of weight w carries w shares.
Sum: bandwidth times weight, added up. Up to 8 ranks every way is tried where that is little work (all sets of 8 GPUs
always are); beyond, `search` branches and bounds and says whether it came to an end.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import permutations
from math import factorial
from typing import Final

import numpy as np

from kompakt_core.ids import GpuIndex, MegabytesPerSecond, indices_of
from kompakt_core.patterns.edges import Edges, ranks_of
from kompakt_core.patterns.names import Measure, Pattern
from kompakt_core.patterns.search import SearchResult, search
from kompakt_core.patterns.sets import NOWHERE, UNLIMITED, Masks, Matrix, Values

# Links looked at (sets x ways x edges) up to which every way is tried: about half a second.
EXHAUSTIVE: Final = 60_000_000
FASTEST: Final = 1 << 34  # MB/s; faster links count as this, so that 120 edges of weight 10^6 still add up in 64 bits
MAX_TRIED: Final = 8  # ranks: 8! = 40,320 ways a set
_CHUNK: Final = 1 << 20  # (sets x ways) held at once, 8 MB an array
_AUTOMORPHISMS: Final = 64  # of the edges, used to leave out equal ways


class EdgeTable:
    """Values of custom edges on sets of one machine, found as they are asked for and kept; like SubsetTable.

    A set of fewer GPUs than the edges have ranks cannot hold them; in a larger one the ranks beyond talk to nobody.
    Of more than 8 GPUs the value is the best found within `search.NODES`.
    """

    pattern = Pattern.CUSTOM

    def __init__(self, weights: Matrix, edges: Edges, measure: Measure) -> None:
        self.measure = measure
        self._weights = np.minimum(weights, FASTEST)
        self._edges = edges
        self._known: dict[int, tuple[int, int]] = {}

    def tryable(self, sets: int, size: int) -> bool:
        """Whether every way on so many sets of `size` GPUs can be tried: up to EXHAUSTIVE links looked at."""
        return size <= MAX_TRIED and sets * factorial(size) * len(self._edges) <= EXHAUSTIVE

    def value(self, mask: int) -> MegabytesPerSecond:
        """MB/s of the edges on this set; 0 for one that cannot hold them."""
        return MegabytesPerSecond(max(int(self.values(np.array([mask]))[0]), 0))

    def second(self, mask: int) -> MegabytesPerSecond:
        """MB/s by the other measure."""
        return MegabytesPerSecond(max(int(self.seconds(np.array([mask]))[0]), 0))

    def values(self, masks: Masks) -> Values:
        """Values of many sets; negative where the edges are not possible."""
        return self._column(masks, 0 if self.measure is Measure.BOTTLENECK else 1)

    def seconds(self, masks: Masks) -> Values:
        """The other measure of many sets."""
        return self._column(masks, 1 if self.measure is Measure.BOTTLENECK else 0)

    def possible(self, masks: Masks) -> Masks:
        """Those of the sets that can hold the edges: every one, unless NVLink only is allowed."""
        able: Masks = masks[self._column(masks, 0) >= 0]
        return able

    def order(self, mask: int) -> tuple[GpuIndex, ...]:
        """The GPU of each rank, in an embedding of the set's value; among those the best by the other measure."""
        gpus = indices_of(mask)
        if len(gpus) < ranks_of(self._edges):
            return gpus
        if len(gpus) > MAX_TRIED:
            found = self.find(len(gpus), mask)
            return gpus if found is None else found.order
        inside = self._weights[np.ix_(gpus, gpus)][None]
        ways = distinct_ways(self._edges, len(gpus))
        slowest, sums = (values[0] for values in worth_of(inside, ways, self._edges))
        first, second = (slowest, sums) if self.measure is Measure.BOTTLENECK else (sums, slowest)
        best = ways[int(np.lexsort((-second, -first))[0])]
        return tuple(gpus[i] for i in best)

    def _column(self, masks: Masks, column: int) -> Values:
        wanted = masks.ravel().tolist()
        missing = sorted({mask for mask in wanted if mask not in self._known})
        for size in {mask.bit_count() for mask in missing}:
            self._solve([mask for mask in missing if mask.bit_count() == size], size)
        found: Values = np.array([self._known[mask][column] for mask in wanted], dtype=np.int64).reshape(masks.shape)
        return found

    def find(self, size: int, free: int, twins: Sequence[int] = (), must: int = 0) -> SearchResult | None:
        """The best placement on `size` GPUs of `free` that `search` meets; None when none is possible."""
        alone = [1 << i for i in range(len(self._weights))]
        return search(self._weights.tolist(), self._edges, size, free, self.measure, twins or alone, must)

    def _solve(self, masks: Sequence[int], size: int) -> None:
        if size < ranks_of(self._edges):
            self._known.update(dict.fromkeys(masks, (NOWHERE, NOWHERE)))
            return
        if size > MAX_TRIED:
            found = {mask: self.find(size, mask) for mask in masks}
            self._known.update({mask: (one.slowest, one.total) if one else (NOWHERE, NOWHERE) for mask, one in found.items()})
            return
        gpus = np.array([indices_of(mask) for mask in masks], dtype=np.int64).reshape(len(masks), size)
        inside = self._weights[gpus[:, :, None], gpus[:, None, :]]
        slowest = np.full(len(masks), NOWHERE, dtype=np.int64)
        sums = slowest.copy()
        ways = distinct_ways(self._edges, size)
        step = max(_CHUNK // len(masks), 1)
        for start in range(0, len(ways), step):
            one, two = worth_of(inside, ways[start : start + step], self._edges)
            slowest, sums = np.maximum(slowest, one.max(axis=1)), np.maximum(sums, two.max(axis=1))
        self._known.update(zip(masks, zip(slowest.tolist(), sums.tolist(), strict=True), strict=True))


def worth_of(inside: Matrix, ways: Matrix, edges: Edges) -> tuple[Values, Values]:
    """Bottleneck and sum, sets x ways. `inside`: sets x k x k weights; `ways`: rows of the position of each rank."""
    slowest = np.full((len(inside), len(ways)), UNLIMITED, dtype=np.int64)
    sums = np.zeros_like(slowest)
    for edge in edges:
        links = inside[:, ways[:, edge.a], ways[:, edge.b]]
        slowest = np.minimum(slowest, links // edge.weight)
        sums += links * edge.weight
    # A forbidden link has a negative weight: its whole embedding is out.
    return slowest, np.where(slowest < 0, NOWHERE, sums)


@lru_cache(maxsize=16)
def distinct_ways(edges: Edges, size: int) -> Matrix:
    """Ways to give positions 0..size-1 to the ranks, at least one of each class that the edges cannot tell apart."""
    ways = np.array(list(permutations(range(size))), dtype=np.int64).reshape(-1, size)
    wanted = np.zeros((size, size), dtype=np.int64)
    for edge in edges:
        wanted[edge.a, edge.b] = wanted[edge.b, edge.a] = edge.weight
    same = (wanted[ways[:, :, None], ways[:, None, :]] == wanted).all(axis=(1, 2))
    number = ways @ (size ** np.arange(size)[::-1])
    smallest = number.copy()
    for automorphism in ways[same][:_AUTOMORPHISMS]:
        smallest = np.minimum(smallest, ways[:, automorphism] @ (size ** np.arange(size)[::-1]))
    distinct: Matrix = ways[number == smallest]
    return distinct
