"""Which GPUs of one node a pod gets."""

from dataclasses import replace
from functools import lru_cache
from math import comb

import numpy as np

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import NO_GPUS, GpuMask, MegabytesPerSecond, indices_of
from kompakt_core.patterns.edges import ranks_of
from kompakt_core.patterns.embedding import EdgeTable
from kompakt_core.patterns.names import Pattern
from kompakt_core.patterns.sets import Masks
from kompakt_core.patterns.table import MAX_GPUS, sets_within
from kompakt_core.placement.facts import GpuSetFacts, Keys, facts_for, without_fabric
from kompakt_core.placement.fit import shortage
from kompakt_core.placement.grouped import GroupFacts, group_facts
from kompakt_core.placement.model import Choice, GpuRequest, PlacementPolicy, Reason, Rejection
from kompakt_core.placement.policies import POLICIES
from kompakt_core.topology.graph import LinkGraph, SharedGraph

__all__ = ["Choice", "choose", "facts_on", "requested_facts", "runner_up", "sets_allowed", "values_first"]


def choose(graph: LinkGraph, free: int, size: int, gpu_request: GpuRequest, *, must_include: int = 0) -> Choice | Rejection:
    """The set of `size` GPUs within `free` that the request's policy ranks first; it holds all of `must_include`.

    Same inputs give the same answer; a request that fits is never refused. Refused are: too few free GPUs
    (have, need), no set of the required link or on one NUMA node, custom edges that name more ranks than `size`, and
    machines of more GPUs than patterns are matched on. Raises InvalidInput when `must_include` is not within the free
    GPUs or too large.
    """
    return _decide(graph.shared, free, size, gpu_request, must_include)


@lru_cache(maxsize=1 << 16)
def _decide(shared: SharedGraph, free: int, size: int, gpu_request: GpuRequest, must_include: int) -> Choice | Rejection:
    graph = shared.graph
    if size == 0 and not must_include:
        return Choice(NO_GPUS, (), MegabytesPerSecond(0))
    if must_include & ~free or must_include.bit_count() > size:
        must, available = (", ".join(map(str, indices_of(mask))) or "none" for mask in (must_include, free))
        raise InvalidInput(f"GPUs to include, {must}, must be free and at most {size}; free are {available}")
    if rejection := edges_rejection(gpu_request, size):
        return rejection
    if rejection := shortage(graph, free, size):
        return rejection
    if graph.size > MAX_GPUS:
        return _grouped(graph, free, size, gpu_request, must_include)
    if graph.partitions and size > 1:
        return _partitioned(graph, free, size, gpu_request, must_include)
    facts = facts_for(graph, gpu_request)
    count = comb((free & ~must_include).bit_count(), size - must_include.bit_count())
    if isinstance(facts.table, EdgeTable) and not facts.table.tryable(count, size):
        return searched(graph, facts, facts.table, free, size, gpu_request, must_include)
    return ranked(facts, free, size, gpu_request, must_include)


def _grouped(graph: LinkGraph, free: int, size: int, gpu_request: GpuRequest, must_include: int) -> Choice | Rejection:
    """On a machine of more GPUs than tables are made for."""
    facts = large_facts(graph, gpu_request)
    if facts is None:
        return Rejection(Reason.TOO_MANY_GPUS, have=graph.size, need=MAX_GPUS, detail="edges" if gpu_request.edges else "")
    first = _first_counted(facts.holding(must_include), free, size, gpu_request)
    if isinstance(first, Rejection):
        return first
    mask = _lowest_of_equals(facts, free, size, gpu_request, must_include, first)
    return Choice(mask, facts.order(mask), facts.value(mask), facts.second(mask))


def _first_counted(
    facts: GroupFacts, free: int, size: int, gpu_request: GpuRequest
) -> tuple[GpuMask, tuple[int, ...]] | Rejection:
    """The set that the policy ranks first among those whose counts are tried, and its keys, those of its indices excepted."""
    sets = facts.candidates(free, size)
    if gpu_request.same_numa_node and size > 1:
        sets = facts.on_one_numa_node(sets)
        if not len(sets):
            return Rejection(Reason.NUMA_SPLIT, have=free.bit_count(), need=size)
    sets = facts.possible(sets)
    if not len(sets):
        return Rejection(Reason.LINK_TOO_WEAK, have=free.bit_count(), need=size, detail=gpu_request.required_link)
    keys = POLICIES[gpu_request.policy](facts, free, sets, gpu_request.sensitive)
    row = first_ranked(keys)
    return facts.mask(sets[row].tolist(), free), tuple(int(key[row]) for key in keys[:-1])


def _lowest_of_equals(
    facts: GroupFacts, free: int, size: int, gpu_request: GpuRequest, must_include: int, first: tuple[GpuMask, tuple[int, ...]]
) -> GpuMask:
    """Of all sets with the first one's keys the one of the lowest indices. A part of two groups may be worth as much as a
    whole one, so the counts tried do not name each of them; whether one holds a GPU is told by the best that must hold it.
    """
    mask, keys = first
    held, refused = must_include, 0
    while held != mask:
        lowest = free & ~held & ~refused & -(free & ~held & ~refused)
        other = first if mask & lowest else _first_counted(facts.holding(held | lowest), free, size, gpu_request)
        if isinstance(other, Rejection) or other[1] != keys:
            refused |= facts.group_of(lowest)
            continue
        held |= lowest
        mask = mask if mask & lowest else other[0]
    return mask


def _partitioned(graph: LinkGraph, free: int, size: int, gpu_request: GpuRequest, must_include: int) -> Choice | Rejection:
    """On a machine whose fabric joins GPUs by partitions only: one of them, judged by its links. Where none of that size
    is free, GPUs without NVLink between them, if the request allows that; each is then worth what PCIe gives at least.
    """
    offered = np.array(sorted(set(graph.partition_masks.values())), dtype=np.int64)
    fits = (offered & ~free == 0) & (offered & must_include == must_include) & (np.bitwise_count(offered) == size)
    if not fits.any() and gpu_request.required_link == "NVLink":
        return Rejection(Reason.PARTITION_SPLIT, have=free.bit_count(), need=size)
    if not fits.any():
        return _decide(without_fabric(graph).shared, free, size, gpu_request, must_include)
    facts = facts_for(graph, gpu_request)
    candidates = sets_allowed(facts, free, size, gpu_request, must_include, among=offered[fits])
    return candidates if isinstance(candidates, Rejection) else _first_of(facts, free, candidates, gpu_request)


def ranked(
    facts: GpuSetFacts, free: int, size: int, gpu_request: GpuRequest, must_include: int = 0, leave_out: int = 0
) -> Choice | Rejection:
    """What the policy ranks first among all sets that the request allows, the set `leave_out` excepted."""
    candidates = sets_allowed(facts, free, size, gpu_request, must_include)
    if isinstance(candidates, Rejection):
        return candidates
    candidates = candidates[candidates != leave_out]
    if not len(candidates):
        return Rejection(Reason.NOT_ENOUGH_GPUS, have=free.bit_count(), need=size)
    return _first_of(facts, free, candidates, gpu_request)


def _first_of(facts: GpuSetFacts, free: int, candidates: Masks, gpu_request: GpuRequest) -> Choice:
    keys = POLICIES[gpu_request.policy](facts, free, candidates, gpu_request.sensitive)
    return chosen(facts, int(candidates[first_ranked(keys)]))


def runner_up(graph: LinkGraph, free: int, size: int, gpu_request: GpuRequest, leave_out: int) -> Choice | None:
    """What `choose` would give if the set `leave_out` were not allowed; None where there is no other or nobody can tell."""
    if size == 0 or size > free.bit_count() or graph.size > MAX_GPUS or graph.partitions or edges_rejection(gpu_request, size):
        return None
    facts = facts_for(graph, gpu_request)
    if isinstance(facts.table, EdgeTable) and not facts.table.tryable(comb(free.bit_count(), size), size):
        return None
    found = ranked(facts, free, size, gpu_request, leave_out=leave_out)
    return found if isinstance(found, Choice) else None


def edges_rejection(gpu_request: GpuRequest, size: int) -> Rejection | None:
    """Why custom edges cannot be laid over `size` GPUs, or None."""
    if gpu_request.pattern is not Pattern.CUSTOM:
        return None
    need = ranks_of(gpu_request.edges)
    return Rejection(Reason.TOO_FEW_RANKS, have=size, need=need) if size < need else None


def searched(
    graph: LinkGraph, facts: GpuSetFacts, table: EdgeTable, free: int, size: int, gpu_request: GpuRequest, must_include: int
) -> Choice | Rejection:
    """Custom edges on too many sets to try every way. A policy that puts value first gets the best placement that the
    search meets; for the others it is the best placement on the set that they rank first, value apart.
    """
    if values_first(gpu_request):
        domains = facts.numa_domains(free) if gpu_request.same_numa_node else [free]
        domains = [domain for domain in domains if domain.bit_count() >= size and must_include & ~domain == 0]
    else:
        plain = replace(gpu_request, pattern=Pattern.NONE, edges=())
        choice = ranked(facts_for(graph, plain), free, size, plain, must_include)
        if isinstance(choice, Rejection):
            return choice
        domains, must_include = [choice.mask], 0
    if not domains:
        return Rejection(Reason.NUMA_SPLIT, have=free.bit_count(), need=size)
    found = [one for domain in domains if (one := table.find(size, domain, facts.twins, must_include)) is not None]
    if not found:
        return Rejection(Reason.LINK_TOO_WEAK, have=free.bit_count(), need=size, detail=gpu_request.required_link)
    best = max(found, key=lambda one: one.worth(gpu_request.measure))
    value, second = (MegabytesPerSecond(number) for number in best.worth(gpu_request.measure))
    bound = None if all(one.exact for one in found) else MegabytesPerSecond(max(one.bound for one in found))
    return Choice(best.mask, best.order, value, second, bound)


def values_first(gpu_request: GpuRequest) -> bool:
    """Whether the policy puts the value of the pod's own set before everything else."""
    return gpu_request.policy is PlacementPolicy.BEST or (
        gpu_request.policy is PlacementPolicy.PRESERVE and gpu_request.sensitive
    )


def first_ranked(keys: Keys) -> int:
    """The position of the smallest by all keys, the most important first; of equals the first."""
    left = np.arange(len(keys[0]))
    for key in keys:
        within = key[left]
        left = left[within == within.min()]
        if len(left) == 1:
            break
    return int(left[0])


def chosen(facts: GpuSetFacts, mask: int) -> Choice:
    """A set as an answer: in the order of its pattern, with its values."""
    return Choice(GpuMask(mask), facts.table.order(mask), facts.value(mask), facts.second(mask))


def requested_facts(graph: LinkGraph, gpu_request: GpuRequest) -> GpuSetFacts | GroupFacts:
    """The facts a request is judged by: with a required link, only NVLink and its like counts.

    Raises InvalidInput for machines on which patterns are not matched.
    """
    large = large_facts(graph, gpu_request) if graph.size > MAX_GPUS else None
    return facts_for(graph, gpu_request) if large is None else large


def facts_on(graph: LinkGraph, mask: int, gpu_request: GpuRequest) -> GpuSetFacts | GroupFacts:
    """The facts that this very set is judged by: where a fabric joins GPUs by partitions only, its links count for none else.

    Raises InvalidInput as requested_facts.
    """
    if graph.partitions and mask.bit_count() > 1 and mask not in graph.partition_masks.values():
        return requested_facts(without_fabric(graph), gpu_request)
    return requested_facts(graph, gpu_request)


def large_facts(graph: LinkGraph, gpu_request: GpuRequest) -> GroupFacts | None:
    """The facts of a machine of more than 16 GPUs; None where none can be had, as for custom edges."""
    if gpu_request.pattern is Pattern.CUSTOM:
        return None
    return group_facts(graph.shared, gpu_request.pattern, gpu_request.required_link == "NVLink", gpu_request.measure)


def sets_allowed(
    facts: GpuSetFacts, free: int, size: int, gpu_request: GpuRequest, must_include: int = 0, among: Masks | None = None
) -> Masks | Rejection:
    """All sets of `size` GPUs within `free` (or those of `among`) that obey the request's hard demands, by index; never an
    empty list.
    """
    sets = sets_within(free, size, must_include) if among is None else among
    if gpu_request.same_numa_node and size > 1:
        sets = facts.on_one_numa_node(sets)
        if not len(sets):
            return Rejection(Reason.NUMA_SPLIT, have=free.bit_count(), need=size)
    sets = facts.table.possible(sets)
    return (
        sets if len(sets) else Rejection(Reason.LINK_TOO_WEAK, have=free.bit_count(), need=size, detail=gpu_request.required_link)
    )
