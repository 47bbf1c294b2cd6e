"""What policies may ask about GPU sets of a machine: tables over all sets, built once per distinct link graph."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from kompakt_core.ids import GpuIndex, MegabytesPerSecond, indices_of
from kompakt_core.patterns.embedding import EdgeTable
from kompakt_core.patterns.names import Pattern
from kompakt_core.patterns.pairs import pair_sums
from kompakt_core.patterns.sets import Masks, Values, compact, matrix, over_members
from kompakt_core.patterns.table import SubsetTable, edge_table_for, fabric_weights, table_for
from kompakt_core.placement.model import GpuRequest
from kompakt_core.topology import bandwidth
from kompakt_core.topology.graph import FABRIC_KINDS, Link, LinkGraph, LinkKind, SharedGraph

# NCCL's order of paths, best to worst (src/graph/topo.h; NODE between PHB and SYS): breaks ties between PCIe levels
# that have the same planning bandwidth.
_STEPS = {LinkKind.PIX: 4, LinkKind.PXB: 5, LinkKind.PHB: 8, LinkKind.NODE: 9, LinkKind.SYS: 10}

Keys = tuple[npt.NDArray[np.integer[Any]], ...]  # one array for each thing to compare by, the most important first


class Surroundings:
    """What does not depend on the pattern: sums over the pairs of every set, NUMA nodes, islands."""

    def __init__(self, graph: LinkGraph) -> None:
        self.fabric = compact(pair_sums(matrix(fabric_weights(graph, 0))))
        self.lanes = compact(pair_sums(matrix(lane_weights(graph))))
        self.steps = compact(pair_sums(matrix(step_weights(graph))))
        self.numa = [gpu.numa_node for gpu in graph.gpus]
        self.numa_count = _numa_counts(self.numa)
        self.twins = twins_of(graph)
        self.by_index = compact(over_members(-(1 << np.arange(graph.size)[::-1]), np.add, 0))
        self.islands = islands_of(graph)


class GpuSetFacts:
    """One machine and pattern. All look-ups take GPU sets as bitmasks; those named in the plural take many sets."""

    def __init__(self, table: SubsetTable | EdgeTable, around: Surroundings) -> None:
        self.table = table
        self._around = around
        self.twins = around.twins
        self.islands = around.islands

    def order(self, mask: int) -> tuple[GpuIndex, ...]:
        """The set's GPUs in the order of the pattern."""
        return self.table.order(mask)

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

    def left(self, free: int, masks: Masks) -> Values:
        """MB/s of all NVLink pairs among the GPUs that stay free beside each set."""
        fabric: Values = self._around.fabric[free & ~masks]
        return fabric

    def broken(self, free: int, masks: Masks) -> Values:
        """How many islands that were wholly free lose only a part to each set."""
        found = np.zeros(len(masks), dtype=np.int64)
        for island in self.islands:
            if island & free == island:
                taken = island & masks
                found += (taken != 0) & (taken != island)
        return found

    def numa_domains(self, free: int) -> list[int]:
        """The free GPUs of each known NUMA node, by node."""
        numa = self._around.numa
        return [sum(1 << i for i in indices_of(free) if numa[i] == node) for node in sorted(set(numa)) if node >= 0]

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
        return cut, self._around.numa_count[masks], self._around.steps[masks], self.by_index(free, masks)

    def by_index(self, free: int, masks: Masks) -> Values:
        """Smaller for the set of lower GPU indices, compared index by index; for sets of one size."""
        return self._around.by_index[masks]


def facts_for(graph: LinkGraph, gpu_request: GpuRequest) -> GpuSetFacts:
    """The facts a request is judged by: with a required link, only NVLink and its like counts. InvalidInput as table_for."""
    only = gpu_request.required_link == "NVLink"
    table = (
        edge_table_for(graph, gpu_request.edges, fabric_only=only, measure=gpu_request.measure)
        if gpu_request.pattern is Pattern.CUSTOM
        else table_for(graph, gpu_request.pattern, fabric_only=only, measure=gpu_request.measure)
    )
    return GpuSetFacts(table, _surroundings(graph.shared))


@lru_cache(maxsize=64)
def _surroundings(shared: SharedGraph) -> Surroundings:
    return Surroundings(shared.graph)


def _rows(graph: LinkGraph, weight: Callable[[Link], int]) -> list[list[int]]:
    rows = [[0] * graph.size for _ in range(graph.size)]
    for link in graph.links:
        rows[link.a][link.b] = rows[link.b][link.a] = weight(link)
    return rows


def lane_weights(graph: LinkGraph) -> list[list[int]]:
    """NVLink lanes (or their like) of every pair; 0 for PCIe."""
    return _rows(graph, _lanes)


def step_weights(graph: LinkGraph) -> list[list[int]]:
    """How far apart a pair is on PCIe, in NCCL's order; 0 for NVLink and its like."""
    return _rows(graph, lambda link: _STEPS.get(link.kind, 0))


def _lanes(link: Link) -> int:
    return max(link.lanes, 1) if link.kind in FABRIC_KINDS else 0


def _numa_counts(numa: list[int]) -> Values:
    """How many NUMA nodes each set uses; all unknown ones count as one."""
    used = over_members(np.array([1 << sorted(set(numa)).index(node) for node in numa], dtype=np.int64), np.bitwise_or, 0)
    return compact(np.bitwise_count(used).astype(np.int64))


def twins_of(graph: LinkGraph) -> tuple[int, ...]:
    """For each GPU the set of those that can take its place: on the same NUMA node, with the same links to all others."""

    def alike(a: int, b: int) -> bool:
        others = (i for i in range(graph.size) if i not in (a, b))
        return graph.gpus[a].numa_node == graph.gpus[b].numa_node and all(
            same(graph.link(a, i), graph.link(b, i)) for i in others
        )

    def same(one: Link, two: Link) -> bool:
        return (one.kind, one.lanes, one.megabytes_per_second) == (two.kind, two.lanes, two.megabytes_per_second)

    # Being alike is an equivalence (a like b and b like c make the link a-c equal to b-c and to a-b).
    groups: list[list[int]] = []
    for gpu in range(graph.size):
        group = next((group for group in groups if alike(group[0], gpu)), None)
        if group is None:
            groups.append([gpu])
        else:
            group.append(gpu)
    masks = {gpu: sum(1 << one for one in group) for group in groups for gpu in group}
    return tuple(masks[gpu] for gpu in range(graph.size))


def islands_of(graph: LinkGraph) -> tuple[int, ...]:
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


def without_fabric(graph: LinkGraph) -> LinkGraph:
    """The same GPUs with no partition switched on: what joins them then is not told, so it counts as the slowest PCIe path."""

    def demoted(link: Link) -> Link:
        if link.kind not in FABRIC_KINDS:
            return link
        return replace(link, kind=LinkKind.SYS, lanes=0, generation=0, megabytes_per_second=bandwidth.pcie()[LinkKind.SYS])

    return replace(graph, links=tuple(demoted(link) for link in graph.links), partitions=())
