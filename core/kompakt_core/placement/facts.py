"""What policies may ask about GPU sets of a machine: tables over all sets, built once per distinct link graph."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from kompakt_core.ids import MegabytesPerSecond, indices_of
from kompakt_core.patterns.names import Measure, Pattern
from kompakt_core.patterns.pairs import pair_sums
from kompakt_core.patterns.sets import Masks, Values, compact, matrix, over_members
from kompakt_core.patterns.table import SubsetTable, fabric_weights, table_for
from kompakt_core.topology.graph import FABRIC_KINDS, Link, LinkGraph, LinkKind, SharedGraph

# NCCL's order of paths, best to worst (src/graph/topo.h; NODE between PHB and SYS): breaks ties between PCIe levels
# that have the same planning bandwidth.
_STEPS = {LinkKind.PIX: 4, LinkKind.PXB: 5, LinkKind.PHB: 8, LinkKind.NODE: 9, LinkKind.SYS: 10}

Keys = tuple[Values, ...]  # one array for each thing to compare by, the most important first


class Surroundings:
    """What does not depend on the pattern: sums over the pairs of every set, NUMA nodes, islands."""

    def __init__(self, graph: LinkGraph) -> None:
        self.fabric = compact(pair_sums(matrix(fabric_weights(graph, 0))))
        self.lanes = compact(pair_sums(matrix(_rows(graph, _lanes))))
        self.steps = compact(pair_sums(matrix(_rows(graph, lambda link: _STEPS.get(link.kind, 0)))))
        self.numa = [gpu.numa_node for gpu in graph.gpus]
        self.numa_count = _numa_counts(self.numa)
        self.by_index = compact(over_members(-(1 << np.arange(graph.size)[::-1]), np.add, 0))
        self.islands = _islands(graph)


class Facts:
    """One machine and pattern. All look-ups take GPU sets as bitmasks; those named in the plural take many sets."""

    def __init__(self, table: SubsetTable, around: Surroundings) -> None:
        self.table = table
        self._around = around
        self.islands = around.islands

    def value(self, mask: int) -> MegabytesPerSecond:
        """MB/s of the pattern on the set."""
        return self.table.value(mask)

    def second(self, mask: int) -> MegabytesPerSecond:
        """MB/s of the pattern on the set by the other measure."""
        return self.table.second(mask)

    def fabric(self, mask: int) -> MegabytesPerSecond:
        """MB/s of all NVLink pairs (and their like) inside the set."""
        return MegabytesPerSecond(int(self._around.fabric[mask]))

    def values(self, masks: Masks) -> Keys:
        """Value and second of each set, the higher the better."""
        return self.table.values(masks), self.table.seconds(masks)

    def fabrics(self, masks: Masks) -> Values:
        """MB/s of all NVLink pairs inside each set."""
        return self._around.fabric[masks]

    def numa_nodes(self, mask: int) -> frozenset[int]:
        """NUMA nodes of the set's GPUs; -1 = unknown."""
        return frozenset(self._around.numa[i] for i in indices_of(mask))

    def on_one_numa_node(self, masks: Masks) -> Masks:
        """Those of the sets whose GPUs all share one known NUMA node."""
        known = sum(1 << i for i, node in enumerate(self._around.numa) if node >= 0)
        shared: Masks = masks[(self._around.numa_count[masks] == 1) & (masks & ~known == 0)]
        return shared

    def ties(self, free: int, masks: Masks) -> Keys:
        """The last word of every policy, smaller is better: lanes cut between the set and what stays free, NUMA nodes
        used, PCIe steps, GPU indices. No two different sets of one size are equal, so every choice is total.
        """
        lanes = self._around.lanes
        cut = int(lanes[free]) - lanes[masks].astype(np.int64) - lanes[free & ~masks]
        return cut, self._around.numa_count[masks], self._around.steps[masks], self.by_index(masks)

    def by_index(self, masks: Masks) -> Values:
        """Smaller for the set of lower GPU indices, compared index by index; for sets of one size."""
        return self._around.by_index[masks]


def facts_for(graph: LinkGraph, pattern: Pattern, *, fabric_only: bool = False, measure: Measure = Measure.BOTTLENECK) -> Facts:
    """The facts of a link graph, shared by all graphs with the same digest. Raises InvalidInput as table_for does."""
    return Facts(table_for(graph, pattern, fabric_only=fabric_only, measure=measure), _surroundings(graph.shared))


@lru_cache(maxsize=64)
def _surroundings(shared: SharedGraph) -> Surroundings:
    return Surroundings(shared.graph)


def _rows(graph: LinkGraph, weight: Callable[[Link], int]) -> list[list[int]]:
    rows = [[0] * graph.size for _ in range(graph.size)]
    for link in graph.links:
        rows[link.a][link.b] = rows[link.b][link.a] = weight(link)
    return rows


def _lanes(link: Link) -> int:
    return max(link.lanes, 1) if link.kind in FABRIC_KINDS else 0


def _numa_counts(numa: list[int]) -> Values:
    """How many NUMA nodes each set uses; all unknown ones count as one."""
    used = over_members(np.array([1 << sorted(set(numa)).index(node) for node in numa], dtype=np.int64), np.bitwise_or, 0)
    return np.bitwise_count(used).astype(np.int64)


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
