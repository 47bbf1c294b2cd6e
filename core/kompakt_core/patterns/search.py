"""Custom edges where trying every way is too much: branch and bound over whole placements, with a proven bound.

Ranks get GPUs one after another, the most connected first. A partial placement is left when even the fastest links of
the GPUs it uses could not make it better than the best one met. The search ends after NODES partial placements at the
latest: then what it found is the best found, and `bound` says what nothing can exceed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kompakt_core.ids import GpuIndex, GpuMask, indices_of
from kompakt_core.patterns.edges import Edges
from kompakt_core.patterns.names import Measure
from kompakt_core.patterns.sets import UNLIMITED

NODES: Final = 150_000  # below a second


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The best placement met: GPUs by rank, slowest link and sum of it, and what no placement exceeds (MB/s).

    `exact`: nothing better exists by the measure asked for.
    """

    order: tuple[GpuIndex, ...]
    slowest: int
    total: int
    exact: bool
    bound: int

    def worth(self, measure: Measure) -> tuple[int, int]:
        """Its two values, that of the measure first."""
        return (self.slowest, self.total) if measure is Measure.BOTTLENECK else (self.total, self.slowest)

    @property
    def mask(self) -> GpuMask:
        """The GPUs as a set."""
        return GpuMask(sum(1 << gpu for gpu in self.order))


def search(
    weights: Sequence[Sequence[int]], edges: Edges, size: int, free: int, measure: Measure, twins: Sequence[int], must: int = 0
) -> SearchResult | None:
    """The best placement of ranks 0..size-1 on GPUs of `free`, all of `must` among them; None when none is possible.

    Negative weights are links that must not be used. `twins[i]` = the GPUs that can take the place of GPU i.
    """
    walk = _BranchAndBound(weights, edges, size, free, measure, twins, must)
    walk.place(0, free, UNLIMITED, 0)
    if walk.best_order is None:
        return None
    by_rank = sorted(range(size), key=walk.ranks.__getitem__)
    order = tuple(walk.best_order[position] for position in by_rank)
    slowest, total = walk.best if measure is Measure.BOTTLENECK else walk.best[::-1]
    bound = upper_bound(weights, edges, free, measure)
    exact = walk.nodes < NODES or walk.best[0] >= bound
    return SearchResult(order, slowest, total, exact, walk.best[0] if exact else bound)


def upper_bound(weights: Sequence[Sequence[int]], edges: Edges, free: int, measure: Measure) -> int:
    """What no placement exceeds: the heaviest edges on the fastest links, regardless of which GPUs they join.

    Both for the sum and for the smallest of bandwidth / weight, pairing by size is best (rearrangement inequality).
    """
    gpus = indices_of(free)
    links = sorted((weights[a][b] for a in gpus for b in gpus if a < b), reverse=True)
    pairs = list(zip(links, sorted((edge.weight for edge in edges), reverse=True), strict=False))
    if measure is Measure.SUM:
        return sum(link * weight for link, weight in pairs)
    return min(link // weight for link, weight in pairs)


class _BranchAndBound:
    def __init__(
        self,
        weights: Sequence[Sequence[int]],
        edges: Edges,
        size: int,
        free: int,
        measure: Measure,
        twins: Sequence[int],
        must: int,
    ) -> None:
        self.weights = weights
        self.size = size
        self.twins = twins
        self.must = must
        self.slowest_first = measure is Measure.BOTTLENECK
        self.nodes = 0
        self.best: tuple[int, int] = (-1, -1)
        self.best_order: tuple[GpuIndex, ...] | None = None
        self.order: list[GpuIndex] = []
        self.ranks = _connected_order(edges, size)
        position = {rank: i for i, rank in enumerate(self.ranks)}
        # back[p]: (earlier position, weight) of the edges that position p closes; ahead[p][q]: weight of the edges
        # from position q < p to positions p and later; open[p]: weight of the edges among positions p and later.
        self.back: list[list[tuple[int, int]]] = [[] for _ in range(size)]
        for edge in edges:
            low, high = sorted((position[edge.a], position[edge.b]))
            self.back[high].append((low, edge.weight))
        closing = [[edge for back in self.back[now:] for edge in back] for now in range(size + 1)]
        self.ahead = [[sum(w for q, w in closing[now] if q == past) for past in range(now)] for now in range(size + 1)]
        self.open = [sum(w for q, w in closing[now] if q >= now) for now in range(size + 1)]
        gpus = indices_of(free)
        self.fastest = [max((row[b] for b in gpus if b != a), default=0) for a, row in enumerate(weights)]
        self.top = max((self.fastest[gpu] for gpu in gpus), default=0)

    def place(self, position: int, free: int, slowest: int, total: int) -> None:
        """Give the rank at `position` each GPU of `free` that is worth trying, and go on."""
        if self.size - position < (self.must & free).bit_count():
            return
        if position == self.size:
            self._keep(slowest, total)
            return
        left = free
        while left and self.nodes < NODES:
            bit = left & -left
            gpu = bit.bit_length() - 1
            left &= ~(self.twins[gpu] & left | bit) if not self.must else ~bit
            self._try(position, GpuIndex(gpu), free ^ bit, slowest, total)

    def _try(self, position: int, gpu: GpuIndex, free: int, slowest: int, total: int) -> None:
        self.nodes += 1
        row = self.weights[gpu]
        for earlier, weight in self.back[position]:
            link = row[self.order[earlier]]
            slowest = min(slowest, link // weight)
            total += link * weight
        self.order.append(gpu)
        if slowest >= 0 and self._promising(position + 1, slowest, total):
            self.place(position + 1, free, slowest, total)
        self.order.pop()

    def _promising(self, position: int, slowest: int, total: int) -> bool:
        hoped = total + self.top * self.open[position]
        hoped += sum(weight * self.fastest[gpu] for weight, gpu in zip(self.ahead[position], self.order, strict=True))
        return ((slowest, hoped) if self.slowest_first else (hoped, slowest)) > self.best

    def _keep(self, slowest: int, total: int) -> None:
        worth = (slowest, total) if self.slowest_first else (total, slowest)
        if worth > self.best:
            self.best, self.best_order = worth, tuple(self.order)


def _connected_order(edges: Edges, size: int) -> list[int]:
    """Ranks, each next one the most tied to those before it; then by the weight of all its edges, then by number."""
    weight = [[0] * size for _ in range(size)]
    for edge in edges:
        weight[edge.a][edge.b] = weight[edge.b][edge.a] = edge.weight
    order: list[int] = []
    while len(order) < size:
        left = [rank for rank in range(size) if rank not in order]
        order.append(max(left, key=lambda rank: (sum(weight[rank][i] for i in order), sum(weight[rank]), -rank)))
    return order
