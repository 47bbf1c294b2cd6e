"""Disjoint GPU sets for several pods of one gang on one node, good together."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb, factorial
from typing import Final

import numpy as np

from kompakt_core.ids import indices_of
from kompakt_core.patterns.embedding import EdgeTable
from kompakt_core.patterns.sets import Masks
from kompakt_core.patterns.table import MAX_GPUS
from kompakt_core.placement.choose import (
    choose,
    chosen,
    edges_rejection,
    first_ranked,
    sets_allowed,
    values_first,
)
from kompakt_core.placement.facts import GpuSetFacts, Keys, facts_for
from kompakt_core.placement.model import Choice, GpuRequest, Rejection
from kompakt_core.placement.policies import POLICIES
from kompakt_core.topology.graph import LinkGraph, SharedGraph

# Up to so many ways of giving the pods their sets are all compared (8 GPUs: at most 420, so always exact); beyond,
# the pods get theirs one after another, each the policy's choice of what is left.
EXACT_WAYS: Final = 20_000


@dataclass(frozen=True, slots=True)
class Share:
    """Sets of several pods on one node, best first. `value` = the smallest of them."""

    choices: tuple[Choice, ...]

    @property
    def value(self) -> int:
        """MB/s of the worst of the sets; 0 without any."""
        return min((choice.value for choice in self.choices), default=0)


def share(graph: LinkGraph, free: int, size: int, pods: int, gpu_request: GpuRequest) -> Share | None:
    """`pods` disjoint sets of `size` GPUs within `free`, or None when that many are not there.

    Exact up to EXACT_WAYS ways: a policy that wants value first gets the highest smallest value, then what the policy
    ranks best for the union of the sets, then the highest sum. Same inputs give the same answer.
    """
    if pods == 1 or size == 0:
        choice = choose(graph, free, size, gpu_request)
        return None if isinstance(choice, Rejection) else Share((choice,) * pods)
    if free.bit_count() < size * pods:
        return None
    return _share(graph.shared, free, size, pods, gpu_request)


@lru_cache(maxsize=1 << 14)
def _share(shared: SharedGraph, free: int, size: int, pods: int, gpu_request: GpuRequest) -> Share | None:
    graph = shared.graph
    many = ways(free.bit_count(), size, pods) > EXACT_WAYS or graph.size > MAX_GPUS
    if many or graph.partitions or edges_rejection(gpu_request, size):
        return _one_by_one(graph, free, size, pods, gpu_request)
    facts = facts_for(graph, gpu_request)
    if isinstance(facts.table, EdgeTable) and not facts.table.tryable(comb(free.bit_count(), size), size):
        return _one_by_one(shared.graph, free, size, pods, gpu_request)
    allowed = sets_allowed(facts, free, size, gpu_request)
    if isinstance(allowed, Rejection):
        return None
    cuts = list(_partitions(free, size, pods, frozenset(allowed.tolist())))
    if not cuts:
        return None
    found = cuts[first_ranked(_keys(facts, free, np.array(cuts, dtype=np.int64), gpu_request))]
    sets = sorted(found, key=lambda mask: (-facts.value(mask), -facts.second(mask), indices_of(mask)))
    return Share(tuple(chosen(facts, mask) for mask in sets))


def ways(free: int, size: int, pods: int) -> int:
    """In how many ways `pods` disjoint sets of `size` fit into `free` GPUs."""
    used = size * pods
    orders: int = factorial(size) ** pods * factorial(pods)  # of the sets, and inside them
    return comb(free, used) * factorial(used) // orders


def _partitions(free: int, size: int, pods: int, allowed: frozenset[int]) -> Iterator[tuple[int, ...]]:
    """All ways, each once: sets ordered by their lowest GPU, every set allowed."""
    if pods == 0:
        yield ()
        return
    bits = [1 << i for i in indices_of(free)]
    for position in range(len(bits) - size * pods + 1):
        above = bits[position + 1 :]
        for rest in combinations(above, size - 1):
            mask = bits[position] + sum(rest)
            if mask in allowed:
                for others in _partitions(sum(above) & ~mask, size, pods - 1, allowed):
                    yield (mask, *others)


def _keys(facts: GpuSetFacts, free: int, ways: Masks, gpu_request: GpuRequest) -> Keys:
    """Keys of many ways, a row of sets each; of equal ones the first, whose sets have the lowest indices."""
    value, second = facts.values(ways)
    smallest = (-value.min(axis=1), -second.min(axis=1)) if values_first(gpu_request) else ()
    # The same union can be cut in several ways: the highest sums.
    cut = (-value.sum(axis=1), -second.sum(axis=1))
    return (*smallest, *POLICIES[gpu_request.policy](facts, free, ways.sum(axis=1), gpu_request.sensitive), *cut)


def _one_by_one(graph: LinkGraph, free: int, size: int, pods: int, gpu_request: GpuRequest) -> Share | None:
    choices = []
    for _ in range(pods):
        choice = choose(graph, free, size, gpu_request)
        if isinstance(choice, Rejection):
            return None
        choices.append(choice)
        free &= ~choice.mask
    return Share(tuple(choices))
