"""Edges between the pods of a gang: against one pod of the same size, against all ways to seat small gangs, and edge by edge."""

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_core.ids import JobUid, NodeName, mask_of
from kompakt_core.patterns.edges import Edges, inner_edges, make_edges
from kompakt_core.patterns.names import Pattern
from kompakt_core.placement.choose import choose
from kompakt_core.placement.gang_placement import plan_gang
from kompakt_core.placement.model import (
    Choice,
    Gang,
    GpuRequest,
    Level,
    NodeState,
    PlacementPolicy,
    Plan,
    Reason,
    Rejection,
    Snapshot,
)
from kompakt_core.placement.rank_mapping import crossing, first_ranks, with_edges
from kompakt_core.placement.seating import LEVEL_LABELS
from kompakt_core.topology.machines import machine
from tests.support.core.gangs import cluster, node, worker

BEST = GpuRequest(policy=PlacementPolicy.BEST)
RACK, BLOCK = LEVEL_LABELS[Level.RACK], LEVEL_LABELS[Level.BLOCK]


def in_rack(name: str, block: str, rack: str) -> NodeState:
    return node(name, labels={RACK: rack, BLOCK: block})


def gang(sizes: list[int], edges: Edges, gpu_request: GpuRequest = BEST, **fields: Any) -> Gang:
    workers = with_edges([worker(i, gpus) for i, gpus in enumerate(sizes)], edges)
    return Gang(JobUid("job"), 1, workers, gpu_request, edges=edges, **fields)


def planned(snapshot: Snapshot, wanted: Gang) -> Plan:
    plan = plan_gang(snapshot, wanted)
    assert isinstance(plan, Plan), plan
    for name, state in snapshot.nodes.items():
        given = [gpu for seat in plan.seats if seat.node == name for gpu in seat.gpus]
        assert len(given) == len(set(given)), "no GPU twice"
        assert not mask_of(tuple(given)) & ~state.free
    assert all(len(seat.gpus) == seat.worker.gpus for seat in plan.seats)
    return plan


def worth(snapshot: Snapshot, wanted: Gang, plan: Plan) -> int:
    """The slowest share of the edges that stay on a machine, link by link; 0 without any."""
    ranks = [(seat.node, gpu) for seat in sorted(plan.seats, key=lambda seat: seat.worker.index) for gpu in seat.gpus]
    shares = []
    for edge in wanted.edges:
        (one, a), (two, b) = ranks[edge.a], ranks[edge.b]
        graph = snapshot.nodes[one].graph
        if one == two and graph is not None:
            shares.append(graph.weights[a][b] // edge.weight)
    return min(shares, default=0)


def edge_lists(ranks: int) -> st.SearchStrategy[Edges]:
    rank = st.integers(0, ranks - 1)
    edge = st.tuples(rank, rank, st.integers(1, 9)).filter(lambda edge: edge[0] != edge[1])
    return st.lists(edge, min_size=1, max_size=9).map(make_edges)


def test_an_edge_lies_inside_a_pod_or_between_two() -> None:
    edges = make_edges([(0, 1, 5), (1, 2, 1), (2, 3, 2)])
    assert inner_edges(edges, 2, 2) == make_edges([(0, 1, 2)])
    assert [worker.edges for worker in gang([2, 2], edges).workers] == [make_edges([(0, 1, 5)]), make_edges([(0, 1, 2)])]
    assert first_ranks(gang([2, 1, 4], edges).workers) == {0: 0, 1: 2, 2: 3}


@settings(max_examples=30, deadline=None)
@given(edge_lists(6), st.sampled_from([[1] * 6, [2] * 3, [3, 3], [1, 2, 3]]))
def test_on_one_machine_a_gang_is_as_well_off_as_one_pod_of_its_size(edges: Edges, sizes: list[int]) -> None:
    snapshot, wanted = cluster(node("a", taken=(1, 6))), gang(sizes, edges)
    plan = planned(snapshot, wanted)
    state = snapshot.nodes[NodeName("a")]
    assert state.graph is not None
    alone = choose(state.graph, state.free, 6, replace(BEST, pattern=Pattern.CUSTOM, edges=edges))
    assert isinstance(alone, Choice)
    assert plan.level is Level.MACHINE
    assert plan.value == alone.value == worth(snapshot, wanted, plan) <= plan.ideal
    assert [seat.rank for seat in plan.seats] == [seat.worker.index for seat in plan.seats]


def test_single_gpu_pods_that_talk_get_the_fast_links_and_the_faster_machine() -> None:
    """The third and the fourth of six free GPUs have two NVLinks between them, the first two one."""
    plan = planned(cluster(node("a", taken=(6, 7))), gang([1, 1], make_edges([(0, 1, 1)])))
    assert plan.value == plan.ideal == max(link.megabytes_per_second for link in machine("dgx1-v100").links)
    two = cluster(node("a", "l40s-4"), node("b", "hgx-h100-8"))
    plan = planned(two, gang([1, 1, 1, 1], make_edges([(0, 1, 1), (2, 3, 1)])))
    assert {seat.node for seat in plan.seats} == {"b"}


def test_pods_that_talk_share_a_machine() -> None:
    nodes = (node(name, taken=(6, 7)) for name in "ab")
    plan = planned(cluster(*nodes), gang([3] * 4, make_edges([(0, 6, 3), (3, 9, 3), (0, 3, 1)])))
    places = [seat.node for seat in plan.seats]
    assert places[0] == places[2] != places[1] == places[3]


@pytest.mark.parametrize("racks", ["rrss", "rsrs"])
def test_the_widest_boundary_counts_first(racks: str) -> None:
    """Two racks, or blocks whose racks bear the same names, of two machines each with room for one pod: the pods that exchange
    most share one.
    """
    blocks = "xxxx" if racks == "rrss" else "xxyy"
    nodes = [in_rack(name, block, rack) for name, block, rack in zip("abcd", blocks, racks, strict=True)]
    small = cluster(*(replace(state, taken=mask_of((4, 5, 6, 7))) for state in nodes))
    plan = planned(small, gang([4] * 4, make_edges([(0, 12, 2), (4, 8, 2), (0, 4, 1), (8, 12, 1)])))
    assert plan.level is (Level.BLOCK if racks == "rrss" else Level.CLUSTER)
    near = {seat.worker.index: seat.node in {"a", "b"} for seat in plan.seats}
    assert near[0] == near[3] != near[1] == near[2]


@settings(max_examples=40, deadline=None)
@given(edge_lists(8))
def test_no_exchange_of_two_workers_takes_weight_off_a_wider_boundary(edges: Edges) -> None:
    nodes = (in_rack("a", "x", "r"), in_rack("b", "x", "r"), in_rack("c", "x", "s"), in_rack("d", "y", "t"))
    snapshot, wanted = cluster(*(replace(state, taken=mask_of((2, 3, 4, 5, 6, 7))) for state in nodes)), gang([1] * 8, edges)
    plan = planned(snapshot, wanted)
    seats = [(seat.worker, seat.node, Choice(mask_of(seat.gpus), seat.gpus, seat.value)) for seat in plan.seats]
    found = crossing(seats, wanted, snapshot, LEVEL_LABELS)
    for i, j in permutations(range(8), 2):
        changed = list(seats)
        changed[i], changed[j] = (seats[i][0], *seats[j][1:]), (seats[j][0], *seats[i][1:])
        assert crossing(changed, wanted, snapshot, LEVEL_LABELS) >= found
    assert plan.value == worth(snapshot, wanted, plan)


@pytest.mark.parametrize(
    "gpu_request",
    [replace(BEST, same_numa_node=True), replace(BEST, required_link="NVLink"), GpuRequest(policy=PlacementPolicy.FIRST)],
)
def test_what_each_pod_must_have_it_has_beside_edges_too(gpu_request: GpuRequest) -> None:
    edges = make_edges([(0, 1, 1), (2, 3, 1), (1, 2, 1)])
    plan = planned(cluster(node("a")), gang([2, 2], edges, gpu_request))
    state = node("a")
    assert state.graph is not None
    for seat in plan.seats:
        numa = {state.graph.gpus[i].numa_node for i in seat.gpus}
        assert len(numa) == 1 or not gpu_request.same_numa_node
        assert state.graph.weights[seat.gpus[0]][seat.gpus[1]] >= 18_000 or gpu_request.required_link == "Any"


def test_where_a_fabric_joins_partitions_each_pod_has_one() -> None:
    plan = planned(cluster(node("n", "h800-8-shared")), gang([1, 2, 1], make_edges([(0, 1, 1), (1, 2, 1), (2, 3, 1)])))
    assert {mask_of(seat.gpus) for seat in plan.seats} <= set(machine("h800-8-shared").partition_masks.values())


def test_machines_beyond_the_tables_take_the_gang_as_it_comes_and_who_does_not_fit_is_refused() -> None:
    plan = planned(cluster(node("n", "mi300x-8-cpx")), gang([1] * 4, make_edges([(0, 3, 1)])))
    assert plan.level is Level.MACHINE
    found = plan_gang(cluster(node("a", taken=tuple(range(7)))), gang([1, 1], make_edges([(0, 1, 1)])))
    assert found == Rejection(Reason.DOES_NOT_FIT_NOW, have=1, need=2)
