"""Which GPUs of a node: policies on known machines, and what must hold for every request."""

import random
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuIndex, GpuMask, indices_of, mask_of
from kompakt_core.patterns.edges import parse_edges
from kompakt_core.patterns.names import NAMED, Measure, Pattern
from kompakt_core.patterns.table import table_for
from kompakt_core.placement.baseline import random_choice
from kompakt_core.placement.choose import choose
from kompakt_core.placement.model import Choice, GpuRequest, PlacementPolicy, Reason, Rejection
from kompakt_core.placement.policies import POLICIES
from kompakt_core.topology.describe import read_description
from kompakt_core.topology.graph import FABRIC_KINDS, LinkGraph
from kompakt_core.topology.machines import MACHINES, machine
from tests.support.core.graphs import graph_of, graphs
from tests.support.core.outcomes import refusal

DGX = machine("dgx1-v100")
PAIRS = machine("a100-pcie-8-bridge-pairs")
RING = GpuRequest(Pattern.RING, PlacementPolicy.PRESERVE, sensitive=True)
SMALL = sorted(name for name in MACHINES if machine(name).size <= 8 and not machine(name).partitions)

requests = st.builds(
    lambda name, free, share: (machine(name), free & machine(name).all_gpus, share),
    st.sampled_from(SMALL),
    st.integers(0, 255),
    st.floats(0, 1),
)
gpu_requests = st.builds(GpuRequest, st.sampled_from(sorted(NAMED)), st.sampled_from(sorted(PlacementPolicy)), st.booleans())


def choice(graph: LinkGraph, free: int, size: int, gpu_request: GpuRequest, **more: GpuMask) -> Choice:
    found = choose(graph, free, size, gpu_request, **more)
    assert isinstance(found, Choice), found
    return found


def chosen(graph: LinkGraph, free: int, size: int, gpu_request: GpuRequest) -> tuple[int, ...]:
    return indices_of(choice(graph, free, size, gpu_request).mask)


@given(requests, gpu_requests)
@settings(max_examples=300, deadline=None)
def test_a_request_that_fits_is_never_rejected(request: tuple[LinkGraph, int, float], gpu_request: GpuRequest) -> None:
    graph, free, part = request
    size = round(part * free.bit_count())
    found = choice(graph, free, size, gpu_request)
    assert found.mask.bit_count() == size == len(found.order)
    assert found.mask & ~free == 0
    assert mask_of(found.order) == found.mask
    assert found == choose(graph, free, size, gpu_request)


@given(requests, st.sampled_from(sorted(NAMED)))
@settings(max_examples=200, deadline=None)
def test_best_and_sensitive_preserve_reach_the_highest_value_and_of_equals_leave_the_most_nvlink(
    request: tuple[LinkGraph, int, float], pattern: Pattern
) -> None:
    graph, free, part = request
    size = round(part * free.bit_count())
    table = table_for(graph, pattern)
    highest = max(table.value(mask_of(gpus)) for gpus in combinations(indices_of(free), size))
    equals = [mask for mask in map(mask_of, combinations(indices_of(free), size)) if table.value(mask) == highest]
    second = max(map(table.second, equals))
    most = max(nvlink_in(graph, free & ~mask) for mask in equals if table.second(mask) == second)
    for gpu_request in (GpuRequest(pattern, PlacementPolicy.BEST), GpuRequest(pattern, PlacementPolicy.PRESERVE, sensitive=True)):
        found = choice(graph, free, size, gpu_request)
        assert (found.value, found.second, nvlink_in(graph, free & ~found.mask)) == (highest, second, most)


def relabelled(graph: LinkGraph, new: list[int]) -> LinkGraph:
    """The same machine whose GPU i is what was GPU new[i]."""
    gpus = tuple(replace(graph.gpus[old], index=GpuIndex(i)) for i, old in enumerate(new))
    pairs = combinations(range(graph.size), 2)
    links = tuple(replace(graph.link(new[a], new[b]), a=GpuIndex(a), b=GpuIndex(b)) for a, b in pairs)
    return LinkGraph(gpus, links)


def nvlink_in(graph: LinkGraph, mask: int) -> int:
    links = (graph.link(a, b) for a, b in combinations(indices_of(mask), 2))
    return sum(link.megabytes_per_second for link in links if link.kind in FABRIC_KINDS)


@given(requests | st.tuples(graphs(7), st.integers(0, 127), st.floats(0, 1)), gpu_requests, st.randoms(use_true_random=False))
@settings(max_examples=300, deadline=None)
def test_other_numbers_on_the_gpus_give_a_set_of_equal_value_and_equal_remainder(
    request: tuple[LinkGraph, int, float], gpu_request: GpuRequest, chance: random.Random
) -> None:
    graph, free, part = request[0], request[1] & request[0].all_gpus, request[2]
    size = round(part * free.bit_count())
    new = list(range(graph.size))
    chance.shuffle(new)
    other = relabelled(graph, new)
    other_free = sum(1 << i for i in range(graph.size) if free >> new[i] & 1)
    one, two = choice(graph, free, size, gpu_request), choice(other, other_free, size, gpu_request)
    if gpu_request.policy is PlacementPolicy.FIRST:  # goes by the numbers alone
        return
    assert (two.value, two.second) == (one.value, one.second)
    assert nvlink_in(other, other_free & ~two.mask) == nvlink_in(graph, free & ~one.mask)


@given(requests)
@settings(max_examples=200, deadline=None)
def test_insensitive_preserve_leaves_the_most_nvlink(request: tuple[LinkGraph, int, float]) -> None:
    graph, free, part = request
    size = round(part * free.bit_count())
    most = max(nvlink_in(graph, free & ~mask_of(gpus)) for gpus in combinations(indices_of(free), size))
    taken = choice(graph, free, size, replace(RING, sensitive=False)).mask
    assert nvlink_in(graph, free & ~taken) == most


def test_machines_are_compared_by_the_slowest_link_of_the_ring_unless_sums_are_asked_for() -> None:
    bridged, meshed = (choice(graph, 255, 4, RING) for graph in (PAIRS, DGX))
    assert (bridged.value, bridged.second) == (6_000, 2 * 309_372 + 2 * 6_000)
    assert (meshed.value, meshed.second) == (25_000, 175_000)
    by_sum = replace(RING, measure=Measure.SUM)
    assert [choice(graph, 255, 4, by_sum).value for graph in (PAIRS, DGX)] == [630_744, 175_000]


FIRST, BEST, PACKED = (
    replace(RING, policy=policy) for policy in (PlacementPolicy.FIRST, PlacementPolicy.BEST, PlacementPolicy.PACKED)
)
LAX, NVLINK, ONE_NUMA = replace(RING, sensitive=False), replace(RING, required_link="NVLink"), replace(RING, same_numa_node=True)
PCIE, SPLIT = machine("pcie-8-pix-pxb"), machine("a100-pcie-4-two-bridges-4-numa")
ALL = tuple(range(8))
CHOSEN: dict[str, tuple[LinkGraph, tuple[int, ...], int, GpuRequest, tuple[int, ...]]] = {
    "first fit takes a worse pair": (PAIRS, (0, 1, 2, 3), 2, FIRST, (0, 1)),
    "the bridged pair is better": (PAIRS, (0, 1, 2, 3), 2, RING, (0, 2)),
    # All double links are equal in value; 0-4 leaves 3-2-1 and its triangle whole, taking 2-3 would break it.
    "of equal pairs the one that leaves more NVLink": (DGX, (0, 1, 2, 3, 4), 2, RING, (0, 4)),
    "an insensitive job takes what nobody else wants": (PAIRS, (0, 1, 3), 1, LAX, (0,)),
    "the GPU off the fabric": (machine("b200-8-gpu2-off-fabric"), ALL, 1, LAX, (2,)),
    "packed fills the broken pair first": (PAIRS, (0, 2, 3), 1, PACKED, (3,)),
    "best takes the shorter path": (PCIE, (0, 1, 2, 3, 4, 6), 2, BEST, (0, 1)),
    "packed leaves the whole socket alone": (PCIE, (0, 1, 2, 3, 4, 6), 2, PACKED, (4, 6)),
    "ties avoid a second NUMA node": (PCIE, (3, 4, 5), 2, GpuRequest(Pattern.NONE, PlacementPolicy.BEST), (4, 5)),
    "ties prefer short PCIe paths": (PCIE, (0, 2, 3), 2, RING, (2, 3)),
    "NVLink is required and there": (PAIRS, ALL, 2, NVLINK, (0, 2)),
    "a single GPU needs no NVLink": (PAIRS, (0, 1), 1, NVLINK, (0,)),
    "three joined by NVLink": (DGX, (0, 1, 2, 4), 3, NVLINK, (0, 1, 2)),
    "a single GPU is on one NUMA node": (SPLIT, (0, 1, 2, 3), 1, ONE_NUMA, (0,)),
    "two on one NUMA node": (DGX, (0, 4, 5), 2, ONE_NUMA, (4, 5)),
}
CHAIN_OF_THREE = replace(RING, pattern=Pattern.CUSTOM, edges=parse_edges("0-1,1-2"))
REFUSED: dict[str, tuple[LinkGraph, int, int, GpuRequest, Rejection]] = {
    "no NVLink joins three": (PAIRS, 255, 3, NVLINK, Rejection(Reason.LINK_TOO_WEAK, have=8, need=3, detail="NVLink")),
    "each is on a NUMA node of its own": (SPLIT, 15, 2, ONE_NUMA, Rejection(Reason.NUMA_SPLIT, have=4, need=2)),
    "unknown NUMA nodes promise nothing": (machine("rtx8000-4"), 15, 2, ONE_NUMA, Rejection(Reason.NUMA_SPLIT, have=4, need=2)),
    "too few are free": (DGX, 0b111, 4, RING, Rejection(Reason.NOT_ENOUGH_GPUS, have=3, need=4)),
    "the machine has too few": (DGX, 0b111, 9, RING, Rejection(Reason.MACHINE_TOO_SMALL, have=8, need=9)),
    "edges name more ranks": (DGX, 255, 2, CHAIN_OF_THREE, Rejection(Reason.TOO_FEW_RANKS, have=2, need=3)),
}


@pytest.mark.parametrize(("graph", "free", "size", "gpu_request", "gpus"), CHOSEN.values(), ids=CHOSEN)
def test_which_gpus_are_chosen(
    graph: LinkGraph, free: tuple[int, ...], size: int, gpu_request: GpuRequest, gpus: tuple[int, ...]
) -> None:
    assert chosen(graph, mask_of(free), size, gpu_request) == gpus


@pytest.mark.parametrize(("graph", "free", "size", "gpu_request", "rejection"), REFUSED.values(), ids=REFUSED)
def test_rejections_are_data(graph: LinkGraph, free: int, size: int, gpu_request: GpuRequest, rejection: Rejection) -> None:
    assert choose(graph, free, size, gpu_request) == rejection


def test_must_include_is_kept_or_refused() -> None:
    assert choice(DGX, 255, 2, RING, must_include=mask_of([7])).order == (4, 7)
    assert choice(DGX, 255, 0, RING) == Choice(mask_of([]), (), 0)
    for free, size, must in ((0b1111, 2, [7]), (255, 1, [6, 7])):
        with pytest.raises(InvalidInput, match=f"must be free and at most {size}"):
            choose(DGX, free, size, RING, must_include=mask_of(must))


def test_all_policies_are_in_the_table() -> None:
    assert set(POLICIES) == set(PlacementPolicy)


def test_chance_is_the_mean_over_all_free_sets() -> None:
    chance = random_choice(DGX, DGX.all_gpus, 2, Pattern.RING)
    speeds = [link.megabytes_per_second for link in DGX.links]
    assert (chance.sets, chance.mean, chance.worst, chance.best) == (28, sum(speeds) // 28, 6_000, 50_000)
    assert "3 of 2 free GPUs" in refusal(random_choice, DGX, 0b11, 3, Pattern.RING)


def test_chance_meets_a_partition_seldom_where_nvlink_joins_nothing_else() -> None:
    shared = machine("h800-8-shared")
    chance = random_choice(shared, shared.all_gpus, 2, Pattern.RING)
    assert (chance.sets, chance.best, chance.worst) == (28, 212_496, 6_000)
    assert chance.mean == (4 * 212_496 + 24 * 6_000) // 28, "four of the 28 pairs are partitions"
    assert random_choice(shared, shared.all_gpus, 1, Pattern.RING).best == 0


def test_choices_are_shared_by_nodes_of_one_kind() -> None:
    one, two = (read_description("dgx1-v100", node) for node in ("a", "b"))
    assert one.shared is two.shared
    assert choose(one, 255, 3, RING) is choose(two, 255, 3, RING)


@pytest.mark.parametrize("policy", [PlacementPolicy.BEST, PlacementPolicy.PRESERVE, PlacementPolicy.PACKED])
def test_of_sets_of_equal_value_the_one_that_leaves_the_faster_pair_goes_first(policy: PlacementPolicy) -> None:
    triangle = graph_of({(0, 1): 25, (0, 2): 51, (1, 2): 25}, 3)
    assert chosen(triangle, triangle.all_gpus, 1, GpuRequest(Pattern.NONE, policy)) == (1,)
