"""Gangs: all places or none, few nodes, good sets together; against exhaustive search on small clusters."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, combinations_with_replacement

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_core.ids import GpuMask, NodeName, indices_of, mask_of
from kompakt_core.patterns.names import Measure, Pattern
from kompakt_core.patterns.table import table_for
from kompakt_core.placement import share as sharing
from kompakt_core.placement.explain import sentence
from kompakt_core.placement.gang_placement import ideal_value, plan_gang
from kompakt_core.placement.model import (
    Gang,
    GpuRequest,
    Level,
    NodeState,
    PlacementPolicy,
    Plan,
    Reason,
    Rejection,
    Selector,
    Snapshot,
    Taint,
)
from kompakt_core.topology.machines import machine
from tests.support.core.gangs import RING, cluster, gang, node, worker


def planned(snapshot: Snapshot, wanted: Gang) -> Plan:
    plan = plan_gang(snapshot, wanted)
    assert isinstance(plan, Plan), sentence(plan)
    check(snapshot, wanted, plan)
    return plan


def check(snapshot: Snapshot, wanted: Gang, plan: Plan) -> None:
    """What holds for every plan: all workers seated once, on free GPUs, no GPU twice, values true, ranks 0, 1, 2, ..."""
    assert sorted(seat.worker.index for seat in plan.seats) == sorted(one.index for one in wanted.workers)
    assert [seat.rank for seat in plan.seats] == list(range(len(wanted.workers)))
    used: dict[str, int] = {}
    for seat in plan.seats:
        state = snapshot.nodes[seat.node]
        mask = mask_of(seat.gpus)
        assert len(seat.gpus) == mask.bit_count() == seat.worker.gpus
        assert mask & ~state.free == 0
        assert mask & used.get(seat.node, 0) == 0
        used[seat.node] = used.get(seat.node, 0) | mask
        if state.graph is not None and seat.worker.gpus:
            assert seat.value == table_for(state.graph, wanted.wish.pattern).value(mask)
    values = [seat.value for seat in plan.seats if seat.worker.gpus]
    assert plan.value == min(values, default=0)
    assert all(value <= plan.ideal for value in values) or len({one.gpus for one in wanted.workers}) > 1
    assert (plan.level is Level.MACHINE) == (len(used) == 1)


def places(plan: Plan) -> list[tuple[str, tuple[int, ...]]]:
    return [(seat.node, tuple(sorted(seat.gpus))) for seat in plan.seats]


# --- exactness -------------------------------------------------------------------------------------------------------


def arrangements(snapshot: Snapshot, size: int, count: int) -> Iterator[tuple[tuple[str, int], ...]]:
    """Every way to give `count` equal pods their sets, by plain enumeration."""
    sets = [
        (name, mask_of(gpus)) for name, state in snapshot.nodes.items() for gpus in combinations(indices_of(state.free), size)
    ]
    for chosen in combinations(sets, count):
        if all(one[0] != two[0] or one[1] & two[1] == 0 for one, two in combinations(chosen, 2)):
            yield chosen


SMALL = st.sampled_from(
    ["rtx8000-4", "a100-pcie-4-one-bridge", "a100-sxm-4", "desktop-5-mixed", "a100-pcie-4-two-bridges-4-numa"]
)
POLICY = st.sampled_from([RING, replace(RING, policy=PlacementPolicy.BEST), replace(RING, pattern=Pattern.CLIQUE)])


@given(st.lists(st.tuples(SMALL, st.integers(0, 31)), min_size=1, max_size=3), st.integers(1, 2), st.integers(1, 4), POLICY)
@settings(max_examples=80, deadline=None)
def test_equal_workers_get_the_fewest_nodes_and_then_the_best_value(
    nodes: list[tuple[str, int]], size: int, count: int, wish: GpuRequest
) -> None:
    states = [node(f"n{i}", name, indices_of(taken & machine(name).all_gpus)) for i, (name, taken) in enumerate(nodes)]
    snapshot = cluster(*states)

    def cost(chosen: tuple[tuple[str, int], ...]) -> tuple[int, int]:
        graphs = {name: snapshot.nodes[NodeName(name)].graph for name, _ in chosen}
        values = [table_for(graph, wish.pattern).value(mask) for name, mask in chosen if (graph := graphs[name])]
        return (len(graphs), -min(values))

    best = min((cost(chosen) for chosen in arrangements(snapshot, size, count)), default=None)
    plan = plan_gang(snapshot, gang(count, size, wish))
    if best is None:
        assert isinstance(plan, Rejection)
    else:
        assert isinstance(plan, Plan)
        check(snapshot, gang(count, size, wish), plan)
        assert (len({seat.node for seat in plan.seats}), -plan.value) == best


@given(st.integers(0, 255), st.integers(1, 4), st.integers(1, 4), st.sampled_from(sorted(PlacementPolicy)), st.booleans())
@settings(max_examples=100, deadline=None)
def test_pods_on_one_node_share_it_whenever_it_holds_them(
    taken: int, size: int, pods: int, policy: PlacementPolicy, sensitive: bool
) -> None:
    state = node("n", taken=indices_of(taken))
    plan = plan_gang(cluster(state), gang(pods, size, GpuRequest(Pattern.RING, policy, sensitive)))
    assert isinstance(plan, Plan) == (state.free.bit_count() >= size * pods)


def test_pods_on_one_node_are_good_together_not_one_after_another() -> None:
    # One after another, the first pod could take 0-4 and leave 3 and 5, which only the slow path joins.
    free = (0, 3, 4, 5)
    state = node("n", taken=tuple(i for i in range(8) if i not in free))
    plan = planned(cluster(state), gang(2))
    assert plan.value == 25_000, "5 has one fast neighbour, 4, with a single lane"
    assert places(plan) == [("n", (0, 3)), ("n", (4, 5))]


def test_beyond_the_stated_bound_pods_get_their_sets_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "EXACT_WAYS", 0)
    sharing._share.cache_clear()
    try:
        # 0-3 comes first and leaves 1-2 of the double links whole; then 4-7 and 5-6 likewise.
        assert places(planned(cluster(node("n")), gang(4))) == [("n", (0, 3)), ("n", (1, 2)), ("n", (4, 7)), ("n", (5, 6))]
    finally:
        sharing._share.cache_clear()


def test_eight_gpus_are_always_exact() -> None:
    sizes = [(size, pods) for size in range(1, 9) for pods in range(1, 9) if size * pods <= 8]
    assert max(sharing.ways(8, size, pods) for size, pods in sizes) <= sharing.EXACT_WAYS


def test_sixteen_gpus_of_one_switch_are_filled_completely() -> None:
    plan = planned(cluster(node("n", "dgx2-16xv100")), gang(4, 4, replace(RING, pattern=Pattern.CLIQUE)))
    assert plan.value == plan.ideal == 150_000


# --- which nodes -----------------------------------------------------------------------------------------------------


def test_a_gang_that_fits_one_node_is_not_spread_for_value() -> None:
    snapshot = cluster(node("a", "a100-pcie-8-bridge-pairs", (0, 1, 4, 6)), node("b", "pcie-8-pix-pxb"))
    plan = planned(snapshot, gang(2))
    assert {seat.node for seat in plan.seats} == {"b"}
    assert plan.level is Level.MACHINE


def test_scattered_gpus_make_a_gang_use_both_nodes() -> None:
    snapshot = cluster(node("dgx", taken=(2, 3, 5, 6, 7)), node("pairs", "a100-pcie-8-bridge-pairs", (4, 5, 6, 7, 1)))
    plan = planned(snapshot, gang(2))
    assert places(plan) == [("dgx", (0, 4)), ("pairs", (0, 2))]
    assert (plan.level, plan.value, plan.ideal) == (Level.CLUSTER, 50_000, 309_372)


def test_of_equal_nodes_the_fullest_that_holds_it_then_the_first_name() -> None:
    snapshot = cluster(node("c"), node("b", taken=(1, 2, 5, 6)), node("a", taken=(1, 2, 5, 6)), node("d", taken=(0,)))
    assert {seat.node for seat in planned(snapshot, gang(1)).seats} == {"a"}


def test_a_job_that_needs_no_bandwidth_leaves_nvlink_nodes_alone() -> None:
    snapshot = cluster(node("a"), node("z", "pcie-8-pix-phb"))
    lax = replace(RING, sensitive=False)
    assert {seat.node for seat in planned(snapshot, gang(2, wish=lax)).seats} == {"z"}
    assert {seat.node for seat in planned(snapshot, gang(2)).seats} == {"a"}


def test_shuffled_nodes_and_workers_give_the_same_plan() -> None:
    states = [node(f"n{i}", taken=indices_of(i * 37 % 256)) for i in range(12)]
    one = planned(cluster(*states), gang(5))
    other = plan_gang(cluster(*reversed(states)), replace(gang(5), workers=tuple(reversed(gang(5).workers))))
    assert one == other


def test_cpu_memory_and_pod_slots_limit_a_node() -> None:
    workers = tuple(worker(index, 1, cpu_millis=1000, memory_bytes=10) for index in range(4))
    wanted = replace(gang(4, 1), workers=workers)
    roomy = node("b", taken=(7,))
    for limit in ({"free_cpu_millis": 3999}, {"free_memory_bytes": 39}, {"free_pods": 3}):
        plan = planned(cluster(node("a", **limit), roomy), wanted)
        assert {seat.node for seat in plan.seats} == {"b"}


def test_excluded_and_foreign_nodes_are_avoided() -> None:
    snapshot = cluster(node("a"), node("b", ready=False), node("c", taints=(Taint("k", "NoSchedule"),)), node("d"))
    plan = planned(snapshot, gang(2, excluded=frozenset({NodeName("a")})))
    assert {seat.node for seat in plan.seats} == {"d"}


def test_required_nvlink_and_numa_node_hold_for_every_pod() -> None:
    nvlink = replace(RING, required_link="NVLink")
    pairs = cluster(node("a", "a100-pcie-8-bridge-pairs"))
    assert places(planned(pairs, gang(4, wish=nvlink))) == [("a", (0, 2)), ("a", (1, 3)), ("a", (4, 5)), ("a", (6, 7))]
    broken = cluster(node("a", "a100-pcie-8-bridge-pairs", (0, 4)))
    assert plan_gang(broken, gang(3, wish=nvlink)) == Rejection(Reason.DOES_NOT_FIT_NOW, have=2, need=3)
    numa = replace(RING, same_numa_node=True)
    assert plan_gang(cluster(node("a", taken=(0, 4))), gang(3, wish=numa)) == Rejection(Reason.DOES_NOT_FIT_NOW, have=2, need=3)


# --- levels ----------------------------------------------------------------------------------------------------------


def racked(name: str, rack: str, block: str = "b1", taken: tuple[int, ...] = ()) -> NodeState:
    return node(name, taken=taken, labels={"kompakt.dev/rack": rack, "kompakt.dev/block": block})


def test_a_rack_is_preferred_to_a_wider_spread() -> None:
    half = (0, 1, 2, 3)
    snapshot = cluster(racked("a", "r1", taken=half), racked("b", "r2", taken=half), racked("c", "r2", taken=half))
    plan = planned(snapshot, gang(2, 4))
    assert plan.level is Level.RACK
    assert [seat.node for seat in plan.seats] == ["b", "c"]


def test_equal_rack_names_in_two_blocks_are_two_racks() -> None:
    half = (0, 1, 2, 3)
    snapshot = cluster(racked("a", "r1", "b1", half), racked("b", "r1", "b2", half), racked("c", "r9", "b2", half))
    plan = planned(snapshot, gang(2, 4))
    assert plan.level is Level.BLOCK
    assert [seat.node for seat in plan.seats] == ["b", "c"]


def test_a_gang_waits_rather_than_crossing_its_required_level() -> None:
    half = (0, 1, 2, 3)
    snapshot = cluster(racked("a", "r1", taken=half), racked("b", "r2", taken=half))
    refusal = plan_gang(snapshot, gang(2, 4, required_level=Level.RACK))
    assert refusal == Rejection(Reason.DOES_NOT_FIT_NOW, have=2, need=2, detail="Rack")
    assert "not within the level Rack" in sentence(refusal)  # type: ignore[arg-type]
    assert plan_gang(snapshot, gang(3, 8, required_level=Level.RACK)) == Rejection(
        Reason.NEVER_FITS, have=16, need=24, detail="gang"
    )
    assert plan_gang(snapshot, gang(2, 8, required_level=Level.RACK)) == Rejection(Reason.NEVER_FITS, detail="demands")


def test_a_node_without_labels_serves_machine_and_cluster_only() -> None:
    half = (0, 1, 2, 3)
    snapshot = cluster(node("a", taken=half), racked("b", "r1", taken=half))
    assert planned(snapshot, gang(1, 4, required_level=Level.RACK)).level is Level.MACHINE
    assert planned(snapshot, gang(2, 4)).level is Level.CLUSTER
    assert isinstance(plan_gang(snapshot, gang(2, 4, required_level=Level.BLOCK)), Rejection)


def test_other_labels_can_name_the_levels() -> None:
    half = (0, 1, 2, 3)
    snapshot = cluster(*(node(name, taken=half, labels={"row": "x"}) for name in "ab"))
    plan = plan_gang(snapshot, gang(2, 4), {Level.RACK: "row"})
    assert isinstance(plan, Plan)
    assert plan.level is Level.RACK


# --- ranks and kinds -------------------------------------------------------------------------------------------------


def test_neighbours_in_rank_share_a_node_and_rank_0_is_worker_0() -> None:
    snapshot = cluster(node("a", taken=(0, 1, 2, 3)), node("b", taken=(4, 5, 6, 7)))
    plan = planned(snapshot, gang(4))
    assert [seat.worker.index for seat in plan.seats] == [0, 1, 2, 3]
    nodes = [seat.node for seat in plan.seats]
    assert nodes == sorted(nodes)


def test_pods_of_many_sizes_are_placed_on_nodes_that_others_of_the_gang_have_opened() -> None:
    workers = tuple(worker(index, gpus) for index, gpus in enumerate((1, 1, 2, 0, 4, 1, 1, 2, 1)))
    snapshot = cluster(node("a"), node("b"), node("c", "a100-pcie-8-bridge-pairs"))
    for wish in (RING, replace(RING, sensitive=False)):
        wanted = replace(gang(1, wish=wish), workers=workers)
        plan = planned(snapshot, wanted)
        check(snapshot, wanted, plan)
        assert len({seat.node for seat in plan.seats}) == 2


def test_a_launcher_without_gpus_sits_with_its_workers_and_ranks_last() -> None:
    workers = (worker(0, 0, cpu_millis=500), *(worker(index, 4) for index in (1, 2)))
    snapshot = cluster(node("cpu"), node("gpu", taken=(0,)), replace(node("plain"), graph=None, problem=Reason.NO_TOPOLOGY))
    plan = planned(snapshot, replace(gang(1), workers=workers))
    assert [seat.worker.index for seat in plan.seats] == [1, 2, 0]
    assert {seat.node for seat in plan.seats} == {"cpu"}


def test_workers_without_gpus_may_use_nodes_without_gpus() -> None:
    plain = replace(node("plain"), graph=None, problem=Reason.NO_TOPOLOGY)
    plan = planned(cluster(plain), gang(2, 0))
    assert (plan.value, plan.ideal) == (0, 0)
    assert [seat.gpus for seat in plan.seats] == [(), ()]


def test_workers_of_several_kinds_find_their_places() -> None:
    picky = worker(2, 1, affinity=((Selector("disk", "In", ("ssd",)),),))
    workers = (worker(0, 4), worker(1, 4), picky)
    snapshot = cluster(node("a", labels={"disk": "ssd"}), node("b", taken=(0,), labels={"disk": "ssd"}))
    plan = planned(snapshot, replace(gang(1), workers=workers))
    assert [(seat.worker.index, seat.node) for seat in plan.seats] == [(0, "a"), (1, "a"), (2, "b")]


def test_kinds_that_get_into_each_others_way_are_tried_in_another_order() -> None:
    picky = worker(1, 4, affinity=((Selector("disk", "In", ("ssd",)),),))
    half = (0, 1, 2, 3)
    snapshot = cluster(node("a", taken=half, labels={"disk": "ssd"}), node("b", taken=half))
    plan = planned(snapshot, replace(gang(1), workers=(worker(0, 4), picky)))
    assert [(seat.worker.index, seat.node) for seat in plan.seats] == [(0, "b"), (1, "a")]


# --- values and whole plans -------------------------------------------------------------------------------------------


def test_the_ideal_is_the_best_of_any_empty_node() -> None:
    snapshot = cluster(node("a", taken=tuple(range(8))), node("b", "a100-pcie-8-bridge-pairs"))
    assert ideal_value(snapshot, 2, RING) == 309_372
    assert ideal_value(snapshot, 4, RING) == 25_000, "a ring of NVLinks alone, not the bridges with their greater sum"
    assert ideal_value(snapshot, 4, replace(RING, measure=Measure.SUM)) == 2 * 309_372 + 2 * 6_000
    assert ideal_value(snapshot, 9, RING) == 0


def test_a_gang_on_a_full_snapshot_frees_nothing_of_others() -> None:
    snapshot = cluster(node("a", taken=(0, 1)))
    assert isinstance(plan_gang(snapshot, gang(3)), Plan)
    assert snapshot.nodes[NodeName("a")].taken == GpuMask(0b11), "planning is a trial: the snapshot is never changed"


@given(st.integers(1, 3), st.integers(1, 4), st.lists(st.integers(0, 255), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_equal_workers_are_planned_whenever_enough_sets_are_free(size: int, count: int, taken: list[int]) -> None:
    states = [node(f"n{i}", taken=indices_of(mask)) for i, mask in enumerate(taken)]
    room = sum(state.free.bit_count() // size for state in states)
    assert isinstance(plan_gang(cluster(*states), gang(count, size)), Plan) == (room >= count)


def test_combinations_of_levels_and_nodes_stay_whole() -> None:
    for racks in combinations_with_replacement(("r1", "r2"), 3):
        states = [racked(f"n{i}", rack, taken=(0, 1, 2, 3)) for i, rack in enumerate(racks)]
        for count in (1, 2, 3):
            planned(cluster(*states), gang(count, 4))
