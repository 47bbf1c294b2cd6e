"""What policies may ask about a GPU set of a machine: tables over all sets, built once per distinct link graph."""

from collections.abc import Callable
from functools import lru_cache

from kompakt_core.ids import MegabytesPerSecond, indices_of
from kompakt_core.patterns.names import Pattern
from kompakt_core.patterns.pairs import pair_sums
from kompakt_core.patterns.table import SubsetTable, fabric_weights, table_for
from kompakt_core.topology.graph import FABRIC_KINDS, Link, LinkGraph, LinkKind, SharedGraph

# NCCL's order of paths, best to worst (src/graph/topo.h; NODE between PHB and SYS): breaks ties between PCIe levels
# that have the same planning bandwidth.
_STEPS = {LinkKind.PIX: 4, LinkKind.PXB: 5, LinkKind.PHB: 8, LinkKind.NODE: 9, LinkKind.SYS: 10}

Rank = tuple[int, ...]


class Facts:
    """One machine and pattern. All look-ups take GPU sets as bitmasks."""

    def __init__(self, graph: LinkGraph, pattern: Pattern, fabric_only: bool) -> None:
        self.table: SubsetTable = table_for(graph, pattern, fabric_only=fabric_only)
        self._fabric = pair_sums(fabric_weights(graph, 0))
        self._lanes = pair_sums(_matrix(graph, _lanes))
        self._steps = pair_sums(_matrix(graph, lambda link: _STEPS.get(link.kind, 0)))
        self._numa = [gpu.numa_node for gpu in graph.gpus]
        self.islands = _islands(graph)

    def value(self, mask: int) -> MegabytesPerSecond:
        """MB/s of the pattern on the set."""
        return self.table.value(mask)

    def fabric(self, mask: int) -> MegabytesPerSecond:
        """MB/s of all NVLink pairs (and their like) inside the set."""
        return MegabytesPerSecond(self._fabric[mask])

    def lanes_cut(self, free: int, mask: int) -> int:
        """NVLink lanes between the set and the GPUs of `free` that it leaves behind."""
        return self._lanes[free] - self._lanes[mask] - self._lanes[free & ~mask]

    def numa_nodes(self, mask: int) -> frozenset[int]:
        """NUMA nodes of the set's GPUs; -1 = unknown."""
        return frozenset(self._numa[i] for i in indices_of(mask))

    def ties(self, free: int, mask: int) -> Rank:
        """The last word of every policy, smaller is better: lanes cut, NUMA nodes used, PCIe steps, GPU indices.

        No two different sets of one size are equal, so every choice is total.
        """
        return (self.lanes_cut(free, mask), len(self.numa_nodes(mask)), self._steps[mask], *indices_of(mask))


def facts_for(graph: LinkGraph, pattern: Pattern, *, fabric_only: bool = False) -> Facts:
    """The facts of a link graph, shared by all graphs with the same digest. Raises InvalidInput as table_for does."""
    table_for(graph, pattern, fabric_only=fabric_only)
    return _build(graph.shared, pattern, fabric_only)


@lru_cache(maxsize=64)
def _build(shared: SharedGraph, pattern: Pattern, fabric_only: bool) -> Facts:
    return Facts(shared.graph, pattern, fabric_only)


def _matrix(graph: LinkGraph, weight: Callable[[Link], int]) -> list[list[int]]:
    rows = [[0] * graph.size for _ in range(graph.size)]
    for link in graph.links:
        rows[link.a][link.b] = rows[link.b][link.a] = weight(link)
    return rows


def _lanes(link: Link) -> int:
    return max(link.lanes, 1) if link.kind in FABRIC_KINDS else 0


def _islands(graph: LinkGraph) -> tuple[int, ...]:
    """Groups of two and more GPUs that belong together, from tight to wide: joined by NVLink, by a PCIe switch, in one
    NUMA node. A group found twice counts once.
    """
    levels = (
        FABRIC_KINDS,
        FABRIC_KINDS | {LinkKind.PIX, LinkKind.PXB},
        FABRIC_KINDS | {LinkKind.PIX, LinkKind.PXB, LinkKind.PHB, LinkKind.NODE},
    )
    found: dict[int, None] = {}
    for kinds in levels:
        groups = [1 << i for i in range(graph.size)]
        for link in graph.links:
            if link.kind in kinds:
                one = next(group for group in groups if group >> link.a & 1)
                two = next(group for group in groups if group >> link.b & 1)
                groups = [group for group in groups if group not in (one, two)] + [one | two]
        found.update(dict.fromkeys(sorted(group for group in groups if group.bit_count() > 1)))
    return tuple(found)
