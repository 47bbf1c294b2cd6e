"""The value of a pattern on every GPU set of a machine, as a table built once per distinct link graph.

`value` is a sum in MB/s, one direction, as in MAPA (Ranganath et al., SC'21): Ring, the links of the best ring through
the set (a ring of two counts its link once); Clique, the links of all pairs; None, 0, since nothing is asked for.
More bandwidth on any link never lowers a value.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuIndex, GpuMask, MegabytesPerSecond, indices_of
from kompakt_core.patterns.names import SUPPORTED, Pattern
from kompakt_core.patterns.pairs import pair_sums
from kompakt_core.patterns.ring import MISSING, BestRings
from kompakt_core.topology.graph import FABRIC_KINDS, LinkGraph, SharedGraph

MAX_GPUS = 16  # 2^16 sets take about a second once; each GPU more doubles that


class SubsetTable:
    """Values of one pattern on all sets of one link graph. Instances are shared and never change."""

    def __init__(self, pattern: Pattern, size: int, values: Sequence[int], rings: BestRings | None = None) -> None:
        self.pattern = pattern
        self.size = size
        self._values = values
        self._rings = rings
        self._best: dict[tuple[int, int], GpuMask] = {}

    def value(self, mask: int) -> MegabytesPerSecond:
        """MB/s of the pattern on this set; 0 for empty and single sets, and for sets that cannot hold the pattern."""
        return MegabytesPerSecond(max(self._values[mask], 0))

    def possible(self, mask: int) -> bool:
        """Whether the set can hold the pattern at all: always, unless the table allows NVLink only."""
        return self._values[mask] >= 0

    def best(self, free: int, size: int) -> GpuMask:
        """The set of `size` GPUs within `free` that has the highest value; of equals the one with the lowest indices.

        Raises InvalidInput when `free` holds fewer GPUs.
        """
        known = self._best.get((free, size))
        return known if known is not None else self._search(free, size)

    def _search(self, free: int, size: int) -> GpuMask:
        bits = [1 << i for i in indices_of(free)]
        if not 0 <= size <= len(bits):
            raise InvalidInput(f"{size} of {len(bits)} free GPUs asked for")
        # Combinations come in the order of their indices, and max keeps the first of equals.
        found = GpuMask(max((sum(chosen) for chosen in combinations(bits, size)), key=self._values.__getitem__))
        self._best[free, size] = found
        return found

    def order(self, mask: int) -> tuple[GpuIndex, ...]:
        """The set's GPUs in the order the pattern uses them: around the ring, else by index."""
        if self._rings is None:
            return indices_of(mask)
        return tuple(GpuIndex(i) for i in self._rings.order(mask))


def table_for(graph: LinkGraph, pattern: Pattern, *, fabric_only: bool = False) -> SubsetTable:
    """The table of a pattern on a link graph, shared by all graphs with the same digest.

    `fabric_only` allows links of FABRIC_KINDS only (NVLink and its like): Ring and Clique use no other link, and for
    None the set must be connected by them.
    Raises InvalidInput for a pattern that is not supported yet and for more than 16 GPUs.
    """
    if pattern not in SUPPORTED:
        raise InvalidInput(f"pattern {pattern} is not supported yet; use one of {', '.join(sorted(SUPPORTED))}")
    if graph.size > MAX_GPUS:
        raise InvalidInput(f"{graph.size} GPUs on one node; patterns are matched on at most {MAX_GPUS}")
    return _build(graph.shared, pattern, fabric_only)


@lru_cache(maxsize=64)
def _build(shared: SharedGraph, pattern: Pattern, fabric_only: bool) -> SubsetTable:
    graph = shared.graph
    weights = fabric_weights(graph, MISSING) if fabric_only else graph.weights
    if pattern is Pattern.RING:
        rings = BestRings(weights)
        return SubsetTable(pattern, graph.size, rings.values, rings)
    if pattern is Pattern.CLIQUE:
        return SubsetTable(pattern, graph.size, pair_sums(weights))
    values = _connected(weights) if fabric_only else [0] * (1 << graph.size)
    return SubsetTable(pattern, graph.size, values)


def fabric_weights(graph: LinkGraph, other: int) -> list[list[int]]:
    """Like LinkGraph.weights, with `other` for every link that is not NVLink or its like."""
    rows = [[0] * graph.size for _ in range(graph.size)]
    for link in graph.links:
        weight = link.megabytes_per_second if link.kind in FABRIC_KINDS else other
        rows[link.a][link.b] = rows[link.b][link.a] = weight
    return rows


def _connected(weights: Sequence[Sequence[int]]) -> list[int]:
    """0 for every set that the allowed links connect (and for empty and single sets), MISSING for the others."""
    size = len(weights)
    near = [sum(1 << b for b in range(size) if b != a and weights[a][b] > MISSING) for a in range(size)]
    values = [0] * (1 << size)
    for mask in range(1, 1 << size):
        reached, fresh = 0, mask & -mask
        while fresh:
            reached |= fresh
            fresh = _neighbours(fresh, near) & mask & ~reached
        values[mask] = 0 if reached == mask else MISSING
    return values


def _neighbours(mask: int, near: Sequence[int]) -> int:
    found = 0
    for i in indices_of(mask):
        found |= near[i]
    return found
