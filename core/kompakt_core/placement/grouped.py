"""Machines of more than 16 GPUs whose links form a hierarchy, such as partitioned ones (64 logical GPUs of eight MI300X).

GPUs with the same links are one group, and a set is how many GPUs it takes of each. In a hierarchy (for any three GPUs the
two slowest of their links are equally fast: an ultrametric) the values follow from these counts, exactly:

- the slowest link of every pattern is the slowest pair of the set;
- Tree and Chain have the sum of a best spanning tree: groups are visited one after another;
- Ring adds one more link of the slowest kind, to close; Star takes the best centre; Clique adds up all pairs.

Everything that policies compare grows when GPUs are taken from as few groups as possible (each is a convex function of the
counts, or falls with every further group), so one of the best sets takes all of some groups, none of others, and a part of
at most one. Those are all tried. Others may be as good: placement/choose.py asks which of the best has the lowest indices.
"""

from collections.abc import Sequence
from copy import copy
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kompakt_core.errors import Bug
from kompakt_core.ids import GpuIndex, GpuMask, MegabytesPerSecond, indices_of, mask_of
from kompakt_core.patterns.names import Measure, Pattern
from kompakt_core.patterns.sets import UNLIMITED, Masks, Matrix, Values, matrix
from kompakt_core.patterns.table import FORBIDDEN, fabric_weights
from kompakt_core.patterns.trees import best_trees, tree_order
from kompakt_core.placement.facts import Keys, islands_of, lane_weights, step_weights, twins_of
from kompakt_core.topology.graph import LinkGraph, SharedGraph

MAX_GROUPS: Final = 10  # 2^10 choices of whole groups; and a row of counts, as digits to base 65, fits 64 bits
MAX_GPUS: Final = 64

# Whose values follow from counts, by the rules above. Whoever adds a pattern proves them for it, and adds it here, to _sums and
# to order.
COUNTED: Final = (
    *(Pattern.RING, Pattern.CHAIN, Pattern.TREE, Pattern.STAR),
    *(Pattern.CLIQUE, Pattern.ALL_TO_ALL, Pattern.NONE),
)

Counts = npt.NDArray[np.int64]  # rows: how many GPUs of each group a set takes


class GroupFacts:
    """One machine and pattern; like Facts, with counts for sets where names are in the plural."""

    def __init__(self, graph: LinkGraph, pattern: Pattern, fabric_only: bool, measure: Measure) -> None:
        if pattern not in COUNTED:
            raise Bug(f"pattern {pattern} has no counts in placement/grouped.py; CONTRIBUTING.md lists what a new pattern needs")
        self._masks = sorted(set(twins_of(graph)), key=indices_of)
        self.groups = [indices_of(mask) for mask in self._masks]
        self._must = 0
        self._pattern = pattern
        self._fabric_only = fabric_only
        self._measure = measure
        self._links = self._shrunk(matrix(fabric_weights(graph, FORBIDDEN) if fabric_only else graph.weights))
        self._fabric = self._shrunk(matrix(fabric_weights(graph, 0)))
        self._lanes = self._shrunk(matrix(lane_weights(graph)))
        self._steps = self._shrunk(matrix(step_weights(graph)))
        self._numa = [graph.gpus[group[0]].numa_node for group in self.groups]
        self._widest = max(len(group) for group in self.groups)
        numa = [mask_of([gpu.index for gpu in graph.gpus if gpu.numa_node == node]) for node in sorted(set(self._numa))]
        fabric = [graph.all_gpus, *islands_of(graph)]
        # Within which a request may ask a set to stay: everything, a NUMA node, an island of NVLink, both.
        self._pools = sorted({within & island for within in (graph.all_gpus, *numa) for island in fabric})
        self._islands = [(self.counts(island), island.bit_count()) for island in islands_of(graph)]
        self._trees, self._between = best_trees(self._links - np.diag(np.diag(self._links)))
        self._digits = (MAX_GPUS + 1) ** np.arange(len(self.groups), dtype=np.int64)  # tells any two rows of counts apart
        self._whole = (np.arange(1 << len(self.groups))[:, None] >> np.arange(len(self.groups)) & 1).astype(np.int64)

    def _shrunk(self, weights: Matrix) -> Matrix:
        """Links between groups; on the diagonal those inside."""
        first = [group[0] for group in self.groups]
        small: Matrix = weights[np.ix_(first, first)].copy()
        for i, group in enumerate(self.groups):
            small[i, i] = weights[group[0], group[1]] if len(group) > 1 else 0
        return small

    def counts(self, mask: int) -> npt.NDArray[np.int64]:
        """How many GPUs of each group are in a set."""
        return np.array([(mask & group).bit_count() for group in self._masks], dtype=np.int64)

    def holding(self, must: int) -> "GroupFacts":
        """The same facts for sets that all hold these GPUs."""
        found = copy(self)
        found._must = must
        return found

    def group_of(self, gpu: int) -> GpuMask:
        """The group of which this set of one GPU is a part."""
        return GpuMask(next(group for group in self._masks if group & gpu))

    def candidates(self, free: int, size: int) -> Counts:
        """The sets worth looking at: beyond what must be held, whole groups of the free GPUs and a part of at most one; and
        those of the lowest free indices, for which nothing else counts under First.
        """
        base = self.counts(self._must)
        room = self.counts(free) - base
        open_groups = self._whole[(self._whole @ (room == 0)) == 0]
        whole = open_groups * room
        rest = size - int(base.sum()) - whole.sum(axis=1)
        full = whole[rest == 0]
        rows, groups = np.nonzero((rest[:, None] > 0) & (rest[:, None] < room) & (open_groups == 0))
        part = whole[rows].copy()
        part[np.arange(len(rows)), groups] = rest[rows]
        found: Counts = np.concatenate([base + full, base + part, *self._lowest(free, size)])
        _, once = np.unique(found @ self._digits, return_index=True)
        return found[once]

    def _lowest(self, free: int, size: int) -> list[Counts]:
        """One row for each pool that holds the set: what must be held and the lowest free GPUs beside it."""
        must, missing = self._must, size - self._must.bit_count()
        pools = [indices_of(free & ~must & pool) for pool in self._pools]
        return [self.counts(must | mask_of(pool[:missing]))[None] for pool in pools if len(pool) >= missing]

    def mask(self, counts: Sequence[int], free: int) -> GpuMask:
        """The set of the first GPUs of each group."""
        chosen = [self._first(group, free)[:count] for group, count in zip(self.groups, counts, strict=True)]
        return GpuMask(mask_of([i for gpus in chosen for i in gpus]))

    def _first(self, group: Sequence[int], free: int) -> list[int]:
        """The free GPUs of a group in the order in which it gives them: what must be held, then the lowest indices."""
        return sorted((i for i in group if free >> i & 1), key=lambda i: (not self._must >> i & 1, i))

    def possible(self, sets: Counts) -> Counts:
        """Those of the sets that can hold the pattern over the allowed links."""
        return sets[self._slowest(sets) >= 0] if self._fabric_only else sets

    def on_one_numa_node(self, sets: Counts) -> Counts:
        """Those of the sets whose GPUs all share one known NUMA node."""
        nodes = np.array(self._numa)
        used = [frozenset(nodes[row > 0].tolist()) for row in sets]
        shared: Counts = sets[[len(one) == 1 and -1 not in one for one in used]]
        return shared

    def values(self, sets: Counts) -> Keys:
        """Value and second of each set, the higher the better."""
        slowest, sums = self._slowest(sets), self._sums(sets)
        if self._pattern is Pattern.NONE:
            slowest = sums
        return (slowest, sums) if self._measure is Measure.BOTTLENECK else (sums, slowest)

    def _slowest(self, sets: Counts) -> Values:
        own = np.where(sets > 1, np.diag(self._links), UNLIMITED).min(axis=1)
        touched = (sets > 0) @ (1 << np.arange(sets.shape[1]))
        found: Values = np.minimum(own, self._between[touched])
        found[found == UNLIMITED] = 0
        return found

    def _sums(self, sets: Counts) -> Values:
        own = np.diag(self._links)
        if self._pattern is Pattern.NONE:
            return np.zeros(len(sets), dtype=np.int64)
        if self._pattern in (Pattern.CLIQUE, Pattern.ALL_TO_ALL):
            return _pairs(sets, self._links)
        if self._pattern is Pattern.STAR:
            stars: Values = np.where(sets > 0, sets @ self._links - own, 0).max(axis=1)
            return stars
        touched = (sets > 0) @ (1 << np.arange(sets.shape[1]))
        trees: npt.NDArray[Any] = self._trees[touched] + np.maximum(sets - 1, 0) @ own
        if self._pattern is Pattern.RING:
            trees = trees + np.where(sets.sum(axis=1) > 2, self._slowest(sets), 0)
        return trees

    def left(self, free: int, sets: Counts) -> Values:
        """MB/s of NVLink and its like among the GPUs that stay free."""
        return _pairs(self.counts(free) - sets, self._fabric)

    def broken(self, free: int, sets: Counts) -> Values:
        """How many islands that were wholly free lose only a part."""
        found = np.zeros(len(sets), dtype=np.int64)
        now = self.counts(free)
        for island, size in self._islands:
            member = island > 0
            if int(now[member].sum()) == size:
                taken = sets[:, member].sum(axis=1)
                found += (taken > 0) & (taken < size)
        return found

    def ties(self, free: int, sets: Counts) -> Keys:
        """As Facts.ties; GPU indices are compared by the caller."""
        now = self.counts(free)
        cut = -_pairs(sets, self._lanes) - _pairs(now - sets, self._lanes)
        bits = np.array([1 << sorted(set(self._numa)).index(node) for node in self._numa])
        used = np.bitwise_count(np.bitwise_or.reduce(np.where(sets > 0, bits, 0), axis=1)).astype(np.int64)
        return cut, used, _pairs(sets, self._steps), self.by_index(free, sets)

    def by_index(self, free: int, sets: Counts) -> npt.NDArray[np.uint64]:
        """Smaller for the set of lower GPU indices, as each group gives them."""
        firsts = np.zeros((len(self.groups), self._widest + 1), dtype=np.uint64)
        for number, group in enumerate(self.groups):
            bits = [1 << (MAX_GPUS - 1 - i) for i in self._first(group, free)]
            firsts[number, 1 : len(bits) + 1] = np.cumsum(np.array(bits, dtype=np.uint64))
        found: npt.NDArray[np.uint64] = firsts[np.arange(len(self.groups)), sets].sum(axis=1, dtype=np.uint64)
        return ~found

    def value(self, mask: int) -> MegabytesPerSecond:
        """MB/s of the pattern on the set."""
        return MegabytesPerSecond(max(int(self.values(self.counts(mask)[None])[0][0]), 0))

    def second(self, mask: int) -> MegabytesPerSecond:
        """MB/s of the pattern on the set by the other measure."""
        return MegabytesPerSecond(max(int(self.values(self.counts(mask)[None])[1][0]), 0))

    def fabric(self, mask: int) -> MegabytesPerSecond:
        """MB/s of all NVLink pairs (and their like) inside the set."""
        return MegabytesPerSecond(int(_pairs(self.counts(mask)[None], self._fabric)[0]))

    def order(self, mask: int) -> tuple[GpuIndex, ...]:
        """The set's GPUs group by group, as a best tree of the groups grows; a star's centre, in the best group, first."""
        counts = self.counts(mask)
        if self._pattern in (Pattern.CLIQUE, Pattern.ALL_TO_ALL, Pattern.NONE) or not mask:
            return indices_of(mask)
        touched = np.flatnonzero(counts)
        groups = [int(touched[i]) for i in tree_order(self._links[np.ix_(touched, touched)])]
        if self._pattern is Pattern.STAR:
            centre = int(np.where(counts > 0, counts @ self._links - np.diag(self._links), -1).argmax())
            groups = [centre, *(group for group in groups if group != centre)]
        return tuple(gpu for group in groups for gpu in self.groups[group] if mask >> gpu & 1)


def _pairs(sets: Counts, weights: Matrix) -> Values:
    """The sum of `weights` over all pairs inside each set."""
    doubled: Values = ((sets @ weights) * sets).sum(axis=1) - sets @ np.diag(weights)
    return doubled // 2


@lru_cache(maxsize=64)
def group_facts(shared: SharedGraph, pattern: Pattern, fabric_only: bool, measure: Measure) -> GroupFacts | None:
    """The facts of a large machine; None where its links are no hierarchy, or of too many groups or GPUs."""
    graph = shared.graph
    fits = graph.size <= MAX_GPUS and len(set(twins_of(graph))) <= MAX_GROUPS
    levels = (matrix(graph.weights), matrix(fabric_weights(graph, 0)))
    if not fits or not all(_hierarchical(weights) for weights in levels):
        return None
    return GroupFacts(graph, pattern, fabric_only, measure)


def _hierarchical(weights: Matrix) -> bool:
    """Whether w(a, c) >= min(w(a, b), w(b, c)) for all different a, b, c."""
    size = len(weights)
    direct = weights + np.diag(np.full(size, UNLIMITED))
    detours: Masks = np.minimum(direct[:, None, :], direct[None, :, :]).max(axis=2)
    return bool((detours <= direct).all())
