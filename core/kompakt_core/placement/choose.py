"""Which GPUs of one node a pod gets."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import combinations
from types import MappingProxyType
from typing import Final

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import NO_GPUS, GpuMask, MegabytesPerSecond, indices_of
from kompakt_core.patterns.names import SUPPORTED
from kompakt_core.patterns.table import MAX_GPUS
from kompakt_core.placement.best import best
from kompakt_core.placement.facts import Facts, Rank, facts_for
from kompakt_core.placement.first import first
from kompakt_core.placement.model import Choice, Policy, Reason, Refusal, Wish
from kompakt_core.placement.packed import packed
from kompakt_core.placement.preserve import preserve
from kompakt_core.topology.graph import LinkGraph, SharedGraph

__all__ = ["POLICIES", "Choice", "choose", "sets_allowed"]

# The contract of a policy, called as policy(facts, free, mask, sensitive):
# 1. It ranks `mask` among all sets of its size within `free`; the smallest rank wins.
# 2. Ranks of two different sets differ, and the same inputs give the same rank.
# 3. It never refuses: a set that is allowed and the only one is chosen.
POLICIES: Final[Mapping[Policy, Callable[[Facts, int, int, bool], Rank]]] = MappingProxyType(
    {Policy.BEST: best, Policy.PRESERVE: preserve, Policy.PACKED: packed, Policy.FIRST: first}
)


def choose(graph: LinkGraph, free: int, size: int, wish: Wish, *, must_include: int = 0) -> Choice | Refusal:
    """The set of `size` GPUs within `free` that the wish's policy ranks first; it holds all of `must_include`.

    Same inputs give the same answer; a request that fits is never refused. Refused are: too few free GPUs
    (have, need), no set of the required link or on one NUMA node, a pattern not supported yet, and machines of more
    GPUs than patterns are matched on. Raises InvalidInput when `must_include` is not within `free` or too large.
    """
    return _decide(graph.shared, free, size, wish, must_include)


@lru_cache(maxsize=1 << 16)
def _decide(shared: SharedGraph, free: int, size: int, wish: Wish, must_include: int) -> Choice | Refusal:
    graph = shared.graph
    if size == 0 and not must_include:
        return Choice(NO_GPUS, (), MegabytesPerSecond(0))
    if must_include & ~free or must_include.bit_count() > size:
        raise InvalidInput(f"GPUs {indices_of(must_include)} must be free and at most {size}; free are {indices_of(free)}")
    if wish.pattern not in SUPPORTED:
        return Refusal(Reason.UNSUPPORTED_PATTERN, detail=wish.pattern)
    if graph.size > MAX_GPUS:
        return Refusal(Reason.TOO_MANY_GPUS, have=graph.size, need=MAX_GPUS)
    if free.bit_count() < size:
        return Refusal(Reason.NOT_ENOUGH_GPUS, have=free.bit_count(), need=size)
    facts = wished_facts(graph, wish)
    candidates = sets_allowed(facts, free, size, wish, must_include)
    if isinstance(candidates, Refusal):
        return candidates
    policy = POLICIES[wish.policy]
    mask = min(candidates, key=lambda mask: policy(facts, free, mask, wish.sensitive))
    return Choice(GpuMask(mask), facts.table.order(mask), facts.value(mask))


def wished_facts(graph: LinkGraph, wish: Wish) -> Facts:
    """The facts a wish is judged by: with a required link, only NVLink and its like counts. InvalidInput as table_for."""
    return facts_for(graph, wish.pattern, fabric_only=wish.required_link == "NVLink")


def sets_allowed(facts: Facts, free: int, size: int, wish: Wish, must_include: int = 0) -> list[int] | Refusal:
    """All sets of `size` GPUs within `free` that obey the wish's hard demands, by index; never an empty list."""
    bits = [1 << i for i in indices_of(free & ~must_include)]
    sets = [must_include + sum(rest) for rest in combinations(bits, size - must_include.bit_count())]
    if wish.same_numa_node and size > 1:
        sets = [mask for mask in sets if len(nodes := facts.numa_nodes(mask)) == 1 and -1 not in nodes]
        if not sets:
            return Refusal(Reason.NUMA_SPLIT, have=free.bit_count(), need=size)
    sets = [mask for mask in sets if facts.table.possible(mask)]
    return sets or Refusal(Reason.LINK_TOO_WEAK, have=free.bit_count(), need=size, detail=wish.required_link)
