"""The value of a named pattern on every GPU set of a machine, as tables built once per distinct link graph.

Two measures, both exact, MB/s one way. Bottleneck: the slowest link of the embedding whose slowest link is fastest, the
speed at which the pattern runs as a whole. Sum: all links of the embedding with the greatest sum, as in MAPA
(Ranganath et al., SC'21). Ring: the best cycle through the set (a ring of two counts its link once); Chain: the best path;
Tree: the best spanning tree; Star: the best centre; Clique and AllToAll: all pairs; None: 0, since nothing is asked for.
More bandwidth on any link never lowers a value.
"""

from functools import lru_cache
from itertools import combinations

import numpy as np
import numpy.typing as npt

from kompakt_core.errors import Bug, InvalidInput
from kompakt_core.ids import GpuIndex, GpuMask, MegabytesPerSecond, indices_of
from kompakt_core.patterns import pairs, paths, trees
from kompakt_core.patterns.canonical import canonical_order
from kompakt_core.patterns.edges import Edges
from kompakt_core.patterns.embedding import EdgeTable
from kompakt_core.patterns.names import Measure, Pattern
from kompakt_core.patterns.orders import avoiding, embedding_order
from kompakt_core.patterns.sets import UNLIMITED, Masks, Matrix, Values, compact, matrix, over_members
from kompakt_core.topology.graph import FABRIC_KINDS, LinkGraph, SharedGraph

MAX_GPUS = 16  # 2^16 sets; each GPU more doubles time and memory
Sets = npt.NDArray[np.uint16]  # GPU sets of at most MAX_GPUS, in a quarter of the memory
FORBIDDEN = -1  # bottleneck of a set that cannot hold the pattern over the allowed links


class SubsetTable:
    """Values of one pattern on all sets of one link graph, by one measure. Instances are shared and never change.

    `values`: bottleneck and sum of every set in another numbering of the machine, `there`: this one's sets in that.
    """

    def __init__(self, pattern: Pattern, weights: Matrix, there: Sets, values: tuple[Values, Values], measure: Measure) -> None:
        self.pattern = pattern
        self.measure = measure
        self.size = len(weights)
        self._weights = weights
        self._there = there
        self._slowest = values[0]
        self._first, self._second = values if measure is Measure.BOTTLENECK else values[::-1]
        self._best: dict[tuple[int, int], GpuMask] = {}

    def value(self, mask: int) -> MegabytesPerSecond:
        """MB/s of the pattern on this set; 0 for empty and single sets, and for sets that cannot hold the pattern."""
        return MegabytesPerSecond(max(int(self._first[self._there[mask]]), 0))

    def second(self, mask: int) -> MegabytesPerSecond:
        """MB/s by the other measure, which decides between sets of equal value."""
        return MegabytesPerSecond(max(int(self._second[self._there[mask]]), 0))

    def values(self, masks: Masks) -> Values:
        """Values of many sets; FORBIDDEN where the pattern is not possible."""
        return self._first[self._there[masks]]

    def seconds(self, masks: Masks) -> Values:
        """The other measure of many sets."""
        return self._second[self._there[masks]]

    def possible(self, masks: Masks) -> Masks:
        """Those of the sets that can hold the pattern at all: every one, unless the table allows NVLink only."""
        return masks[self._slowest[self._there[masks]] >= 0]

    def best(self, free: int, size: int) -> GpuMask:
        """The set of `size` GPUs within `free` with the highest value, then the higher second; of equals lowest indices.

        Raises InvalidInput when `free` holds fewer GPUs.
        """
        known = self._best.get((free, size))
        return known if known is not None else self._search(free, size)

    def _search(self, free: int, size: int) -> GpuMask:
        masks = sets_within(free, size)
        # The sort is stable and sets come in the order of their indices.
        order = np.lexsort((-self.seconds(masks), -self.values(masks)))
        found = GpuMask(int(masks[order[0]]))
        self._best[free, size] = found
        return found

    def order(self, mask: int) -> tuple[GpuIndex, ...]:
        """The set's GPUs in the order the pattern uses them: around the ring, along the chain, a tree's root first and
        each further GPU joined to an earlier one, a star's centre first; else by index.

        Among the embeddings of the set's value one with the highest other measure.
        """
        gpus = indices_of(mask)
        inside = self._weights[np.ix_(gpus, gpus)]
        return tuple(gpus[i] for i in embedding_order(self.pattern, inside, self.measure, int(self._slowest[self._there[mask]])))


def table_for(
    graph: LinkGraph, pattern: Pattern, *, fabric_only: bool = False, measure: Measure = Measure.BOTTLENECK
) -> SubsetTable:
    """The table of a named pattern on a link graph, shared by all graphs with the same digest, and built once for all
    numberings of the same links.

    `fabric_only` allows links of FABRIC_KINDS only (NVLink and its like): patterns use no other link, and for None the
    set must be connected by them. Raises InvalidInput for Custom, see edge_table_for, and for more than 16 GPUs.
    """
    if pattern is Pattern.CUSTOM:
        raise InvalidInput("custom edges have no table: their value depends on the edges")
    if graph.size > MAX_GPUS:
        raise InvalidInput(f"{graph.size} GPUs on one node; patterns are matched on at most {MAX_GPUS}")
    return _table(graph.shared, pattern, fabric_only, measure)


def edge_table_for(
    graph: LinkGraph, edges: Edges, *, fabric_only: bool = False, measure: Measure = Measure.BOTTLENECK
) -> EdgeTable:
    """The values of custom edges on a link graph, found as they are asked for; shared like tables. InvalidInput as table_for."""
    if graph.size > MAX_GPUS:
        raise InvalidInput(f"{graph.size} GPUs on one node; patterns are matched on at most {MAX_GPUS}")
    return _edge_table(graph.shared, edges, fabric_only, measure)


@lru_cache(maxsize=64)
def _edge_table(shared: SharedGraph, edges: Edges, fabric_only: bool, measure: Measure) -> EdgeTable:
    return EdgeTable(_weights(shared.graph, fabric_only), edges, measure)


@lru_cache(maxsize=128)
def _table(shared: SharedGraph, pattern: Pattern, fabric_only: bool, measure: Measure) -> SubsetTable:
    weights = _weights(shared.graph, fabric_only)
    order = _order(shared, fabric_only)
    rows = weights[np.ix_(order, order)]
    values = _canonical_values(_BUILT_LIKE.get(pattern, pattern), tuple(map(tuple, rows.tolist())))
    return SubsetTable(pattern, weights, _renumbered(order), values, measure)


@lru_cache(maxsize=64)
def _renumbered(order: tuple[int, ...]) -> Sets:
    """Every set of a machine as it is called where `order[i]` is GPU i."""
    place = np.zeros(len(order), dtype=np.int64)
    place[list(order)] = 1 << np.arange(len(order))
    return over_members(place, np.add, 0).astype(np.uint16)


@lru_cache(maxsize=64)
def _order(shared: SharedGraph, fabric_only: bool) -> tuple[int, ...]:
    return canonical_order(_weights(shared.graph, fabric_only))


@lru_cache(maxsize=64)
def _canonical_values(pattern: Pattern, rows: tuple[tuple[int, ...], ...]) -> tuple[Values, Values]:
    """Bottleneck and sum of every set of a machine so numbered."""
    slowest, sums = build(pattern, matrix(rows))
    sums = np.where(slowest < 0, FORBIDDEN, sums)
    return compact(slowest), compact(sums)


def _weights(graph: LinkGraph, fabric_only: bool) -> Matrix:
    return matrix(fabric_weights(graph, FORBIDDEN) if fabric_only else graph.weights)


def build(pattern: Pattern, weights: Matrix) -> tuple[Values, Values]:
    """Bottlenecks and sums of a named pattern on all sets. Negative weights are forbidden links; a set whose bottleneck
    is negative cannot do without, and its sum means nothing.
    """
    if pattern not in _BUILDERS:
        raise Bug(f"pattern {pattern} has no values in patterns/table.py; CONTRIBUTING.md lists what a new pattern needs")
    slowest, sums = _BUILDERS[pattern](weights)
    slowest[slowest == UNLIMITED] = 0  # sets without links
    return slowest, sums


def _rings(weights: Matrix) -> tuple[Values, Values]:
    return paths.best_rings(weights, np.minimum), paths.best_rings(avoiding(weights), np.add)


def _chains(weights: Matrix) -> tuple[Values, Values]:
    return paths.best_chains(weights, np.minimum), paths.best_chains(avoiding(weights), np.add)


def _trees(weights: Matrix) -> tuple[Values, Values]:
    sums, slowest = trees.best_trees(weights)
    return slowest, sums


def _stars(weights: Matrix) -> tuple[Values, Values]:
    stars = pairs.best_stars(weights, np.minimum), pairs.best_stars(avoiding(weights), np.add)
    for values in stars:
        values[0] = 0
    return stars


def _cliques(weights: Matrix) -> tuple[Values, Values]:
    return pairs.pair_minima(weights), pairs.pair_sums(np.maximum(weights, 0))


def _nothing(weights: Matrix) -> tuple[Values, Values]:
    """0 for every set that links of 0 and more connect (and for empty and single sets), FORBIDDEN for the others."""
    zeros = np.zeros(1 << len(weights), dtype=np.int64)
    slowest = trees.best_trees(weights)[1] if weights.min(initial=0) < 0 else zeros
    return np.minimum(slowest, 0), zeros


_BUILDERS = {
    Pattern.RING: _rings,
    Pattern.CHAIN: _chains,
    Pattern.TREE: _trees,
    Pattern.STAR: _stars,
    Pattern.CLIQUE: _cliques,
    Pattern.ALL_TO_ALL: _cliques,
    Pattern.NONE: _nothing,
}
_BUILT_LIKE = {Pattern.ALL_TO_ALL: Pattern.CLIQUE}  # and so they share their values


def sets_within(free: int, size: int, must_include: int = 0) -> Masks:
    """All sets of `size` GPUs within `free` that hold `must_include`, in the order of their indices.

    Raises InvalidInput when there are none.
    """
    bits = [1 << i for i in indices_of(free & ~must_include)]
    wanted = size - must_include.bit_count()
    if not 0 <= wanted <= len(bits):
        raise InvalidInput(f"{size} of {free.bit_count()} free GPUs asked for")
    return np.fromiter((must_include + sum(chosen) for chosen in combinations(bits, wanted)), dtype=np.int64)


def fabric_weights(graph: LinkGraph, other: int) -> list[list[int]]:
    """Like LinkGraph.weights, with `other` for every link that is not NVLink or its like."""
    rows = [[0] * graph.size for _ in range(graph.size)]
    for link in graph.links:
        weight = link.megabytes_per_second if link.kind in FABRIC_KINDS else other
        rows[link.a][link.b] = rows[link.b][link.a] = weight
    return rows
