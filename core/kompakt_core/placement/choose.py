"""Which GPUs of one node a pod gets."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import numpy as np

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import NO_GPUS, GpuMask, MegabytesPerSecond, indices_of
from kompakt_core.patterns.names import Pattern
from kompakt_core.patterns.sets import Masks
from kompakt_core.patterns.table import MAX_GPUS, sets_within
from kompakt_core.placement.best import best
from kompakt_core.placement.facts import Facts, Keys, facts_for
from kompakt_core.placement.first import first
from kompakt_core.placement.model import Choice, Policy, Reason, Refusal, Wish
from kompakt_core.placement.packed import packed
from kompakt_core.placement.preserve import preserve
from kompakt_core.topology.graph import LinkGraph, SharedGraph

__all__ = ["POLICIES", "Choice", "choose", "sets_allowed"]

# The contract of a policy, called as policy(facts, free, masks, sensitive):
# 1. It gives the keys by which sets of one size within `free` are compared, the most important first, smaller is better.
# 2. Two different sets differ in some key, and the same inputs give the same keys.
# 3. It never refuses: a set that is allowed and the only one is chosen.
POLICIES: Final[Mapping[Policy, Callable[[Facts, int, Masks, bool], Keys]]] = MappingProxyType(
    {Policy.BEST: best, Policy.PRESERVE: preserve, Policy.PACKED: packed, Policy.FIRST: first}
)


def choose(
    graph: LinkGraph, free: int, size: int, wish: Wish, *, must_include: int = 0, must_exclude: int = 0
) -> Choice | Refusal:
    """The set of `size` GPUs within `free` and outside `must_exclude` that the wish's policy ranks first; it holds all of
    `must_include`.

    Same inputs give the same answer; a request that fits is never refused. Refused are: too few free GPUs
    (have, need), no set of the required link or on one NUMA node, a pattern not supported yet, and machines of more
    GPUs than patterns are matched on. Raises InvalidInput when `must_include` is not within the free GPUs or too large.
    """
    return _decide(graph.shared, free & ~must_exclude, size, wish, must_include)


@lru_cache(maxsize=1 << 16)
def _decide(shared: SharedGraph, free: int, size: int, wish: Wish, must_include: int) -> Choice | Refusal:
    graph = shared.graph
    if size == 0 and not must_include:
        return Choice(NO_GPUS, (), MegabytesPerSecond(0))
    if must_include & ~free or must_include.bit_count() > size:
        raise InvalidInput(f"GPUs {indices_of(must_include)} must be free and at most {size}; free are {indices_of(free)}")
    if wish.pattern is Pattern.CUSTOM:
        return Refusal(Reason.UNSUPPORTED_PATTERN, detail=wish.pattern)
    if graph.size > MAX_GPUS:
        return Refusal(Reason.TOO_MANY_GPUS, have=graph.size, need=MAX_GPUS)
    if free.bit_count() < size:
        return Refusal(Reason.NOT_ENOUGH_GPUS, have=free.bit_count(), need=size)
    facts = wished_facts(graph, wish)
    candidates = sets_allowed(facts, free, size, wish, must_include)
    if isinstance(candidates, Refusal):
        return candidates
    keys = POLICIES[wish.policy](facts, free, candidates, wish.sensitive)
    return chosen(facts, int(candidates[first_ranked(keys)]))


def first_ranked(keys: Keys) -> int:
    """The position of the smallest by all keys, the most important first; of equals the first."""
    left = np.arange(len(keys[0]))
    for key in keys:
        within = key[left]
        left = left[within == within.min()]
        if len(left) == 1:
            break
    return int(left[0])


def chosen(facts: Facts, mask: int) -> Choice:
    """A set as an answer: in the order of its pattern, with its values."""
    return Choice(GpuMask(mask), facts.table.order(mask), facts.value(mask), facts.second(mask))


def wished_facts(graph: LinkGraph, wish: Wish) -> Facts:
    """The facts a wish is judged by: with a required link, only NVLink and its like counts. InvalidInput as table_for."""
    return facts_for(graph, wish.pattern, fabric_only=wish.required_link == "NVLink", measure=wish.measure)


def sets_allowed(facts: Facts, free: int, size: int, wish: Wish, must_include: int = 0) -> Masks | Refusal:
    """All sets of `size` GPUs within `free` that obey the wish's hard demands, by index; never an empty list."""
    sets = sets_within(free, size, must_include)
    if wish.same_numa_node and size > 1:
        sets = facts.on_one_numa_node(sets)
        if not len(sets):
            return Refusal(Reason.NUMA_SPLIT, have=free.bit_count(), need=size)
    sets = facts.table.possible(sets)
    return sets if len(sets) else Refusal(Reason.LINK_TOO_WEAK, have=free.bit_count(), need=size, detail=wish.required_link)
