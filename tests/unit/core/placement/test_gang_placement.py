"""Gangs: all places or none, few nodes, good sets together; against exhaustive search on small clusters."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, combinations_with_replacement

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_core.ids import NodeName, indices_of, mask_of
from kompakt_core.patterns.edges import parse_edges
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
    Worker,
)
from kompakt_core.topology.machines import machine
from tests.support.core.gangs import RING, cluster, gang, node, worker
from tests.support.core.outcomes import refusal


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
            assert seat.value == table_for(state.graph, wanted.gpu_request.pattern).value(mask)
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
    nodes: list[tuple[str, int]], size: int, count: int, gpu_request: GpuRequest
) -> None:
    states = [node(f"n{i}", name, indices_of(taken & machine(name).all_gpus)) for i, (name, taken) in enumerate(nodes)]
    snapshot = cluster(*states)

    def cost(chosen: tuple[tuple[str, int], ...]) -> tuple[int, int]:
        graphs = {name: snapshot.nodes[NodeName(name)].graph for name, _ in chosen}
        values = [table_for(graph, gpu_request.pattern).value(mask) for name, mask in chosen if (graph := graphs[name])]
        return (len(graphs), -min(values))

    best = min((cost(chosen) for chosen in arrangements(snapshot, size, count)), default=None)
    plan = plan_gang(snapshot, gang(count, size, gpu_request))
    if best is None:
        assert isinstance(plan, Rejection)
    else:
        assert isinstance(plan, Plan)
        check(snapshot, gang(count, size, gpu_request), plan)
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


# --- which nodes, at which level ---------------------------------------------------------------------------------------


HALF = (0, 1, 2, 3)
LAX = replace(RING, sensitive=False)
PCIE = "pcie-8-pix-phb"
PAIRS = "a100-pcie-8-bridge-pairs"
SSD = {"labels": {"disk": "ssd"}}
PICKY = {"affinity": ((Selector("disk", "In", ("ssd",)),),)}


def racked(name: str, rack: str, block: str = "b1", taken: tuple[int, ...] = HALF) -> NodeState:
    return node(name, taken=taken, labels={"kompakt.dev/rack": rack, "kompakt.dev/block": block})


def of(*workers: Worker) -> Gang:
    return replace(gang(1), workers=workers)


FOUR = of(*(worker(index, 1, cpu_millis=1000, memory_bytes=10) for index in range(4)))
LAUNCHED = of(worker(0, 0, cpu_millis=500), worker(1, 4), worker(2, 4))
PLAIN = replace(node("plain"), graph=None, problem=Reason.NO_TOPOLOGY)
# Nodes of the seats in the order of ranks, "" for those that any node may have.
NODES: dict[str, tuple[tuple[NodeState, ...], Gang, str, Level]] = {
    "a gang that fits one node is not spread for value": (
        (node("a", PAIRS, (0, 1, 4, 6)), node("b", "pcie-8-pix-pxb")), gang(2), "bb", Level.MACHINE,
    ),
    "of equal nodes the fullest that holds it, then the first name": (
        (node("c"), node("b", taken=HALF), node("a", taken=HALF), node("d", taken=(0,))), gang(1), "a", Level.MACHINE,
    ),
    "a job that needs no bandwidth leaves NVLink nodes alone": (
        (node("a"), node("z", PCIE)), gang(2, gpu_request=LAX), "zz", Level.MACHINE,
    ),
    "a job that needs bandwidth does not": ((node("a"), node("z", PCIE)), gang(2), "aa", Level.MACHINE),
    **{
        f"{limit} limits a node": ((node("a", **{limit: most}), node("b", taken=(7,))), FOUR, "bbbb", Level.MACHINE)
        for limit, most in (("free_cpu_millis", 3999), ("free_memory_bytes", 39), ("free_pods", 3))
    },
    "excluded and foreign nodes are avoided": (
        (node("a"), node("b", ready=False), node("c", taints=(Taint("k", "NoSchedule"),)), node("d")),
        gang(2, excluded=frozenset({NodeName("a")})), "dd", Level.MACHINE,
    ),
    "a rack is preferred to a wider spread": (
        (racked("a", "r1"), racked("b", "r2"), racked("c", "r2")), gang(2, 4), "bc", Level.RACK,
    ),
    "equal rack names in two blocks are two racks": (
        (racked("a", "r1"), racked("b", "r1", "b2"), racked("c", "r9", "b2")), gang(2, 4), "bc", Level.BLOCK,
    ),
    "a node without labels serves one machine": (
        (node("a", taken=HALF), racked("b", "r1")), gang(1, 4, required_level=Level.RACK), "a", Level.MACHINE,
    ),
    "a node without labels serves the whole cluster": (
        (node("a", taken=HALF), racked("b", "r1")), gang(2, 4), "ab", Level.CLUSTER,
    ),
    "neighbours in rank share a node": (
        (node("a", taken=HALF), node("b", taken=(4, 5, 6, 7))), gang(4), "aabb", Level.CLUSTER,
    ),
    "a launcher without GPUs sits with its workers": (
        (node("c"), node("g", taken=(0,)), PLAIN), LAUNCHED, "ccc", Level.MACHINE,
    ),
    "workers of several kinds find their places": (
        (node("a", **SSD), node("b", taken=(0,), **SSD)), of(worker(0, 4), worker(1, 4), worker(2, 1, **PICKY)),
        "aab", Level.CLUSTER,
    ),
    "kinds that get into each other's way are tried in another order": (
        (node("a", taken=HALF, **SSD), node("b", taken=HALF)), of(worker(0, 4), worker(1, 4, **PICKY)), "ba", Level.CLUSTER,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("nodes", "wanted", "names", "level"), NODES.values(), ids=NODES)
def test_which_nodes_a_gang_gets(nodes: tuple[NodeState, ...], wanted: Gang, names: str, level: Level) -> None:
    plan = planned(cluster(*nodes), wanted)
    assert ("".join(seat.node for seat in plan.seats), plan.level) == (names, level)


def test_a_launcher_ranks_last_and_workers_without_gpus_may_use_nodes_without_gpus() -> None:
    assert [seat.worker.index for seat in planned(cluster(node("cpu")), LAUNCHED).seats] == [1, 2, 0]
    plan = planned(cluster(PLAIN), gang(2, 0))
    assert (plan.value, plan.ideal) == (0, 0)
    assert [seat.gpus for seat in plan.seats] == [(), ()]


def test_scattered_gpus_make_a_gang_use_both_nodes() -> None:
    snapshot = cluster(node("dgx", taken=(2, 3, 5, 6, 7)), node("pairs", PAIRS, (4, 5, 6, 7, 1)))
    plan = planned(snapshot, gang(2))
    assert places(plan) == [("dgx", (0, 4)), ("pairs", (0, 2))]
    assert (plan.level, plan.value, plan.ideal) == (Level.CLUSTER, 50_000, 309_372)


def test_shuffled_nodes_and_workers_give_the_same_plan() -> None:
    states = [node(f"n{i}", taken=indices_of(i * 37 % 256)) for i in range(12)]
    one = planned(cluster(*states), gang(5))
    assert one == plan_gang(cluster(*reversed(states)), replace(gang(5), workers=tuple(reversed(gang(5).workers))))
    assert [seat.worker.index for seat in one.seats] == [0, 1, 2, 3, 4]


def test_required_nvlink_holds_for_every_pod() -> None:
    plan = planned(cluster(node("a", PAIRS)), gang(4, gpu_request=replace(RING, required_link="NVLink")))
    assert places(plan) == [("a", (0, 2)), ("a", (1, 3)), ("a", (4, 5)), ("a", (6, 7))]


TWO_RACKS = (racked("a", "r1"), racked("b", "r2"))
FULL = (node("a", taken=tuple(range(8))),)
IN_RACK = {"required_level": Level.RACK}
CHAIN_OF_THREE = replace(RING, pattern=Pattern.CUSTOM, edges=parse_edges("0-1,1-2"))
PASSING = {"ready": False, "unschedulable": True, "problem": Reason.STALE_TOPOLOGY, "free_pods": 0}
NOT_READY = node("a", taints=(Taint("node.kubernetes.io/not-ready", "NoExecute"),), **PASSING)
NEVER, NOT_NOW = Reason.NEVER_FITS, Reason.DOES_NOT_FIT_NOW
# What can never fit is told from what must wait; of the sentence for people the telling words.
REFUSED: dict[str, tuple[tuple[NodeState, ...], Gang, Rejection, str]] = {
    "all or nothing": (
        (node("a", taken=tuple(range(6))), node("b", taken=tuple(range(5)))), gang(3), Rejection(NOT_NOW, have=2, need=3),
        "2 of 3 workers would find a place now; the gang waits for all",
    ),
    "pairs of NVLink are broken": (
        (node("a", PAIRS, (0, 4)),), gang(3, 2, replace(RING, required_link="NVLink")), Rejection(NOT_NOW, have=2, need=3), "",
    ),
    "pairs of a NUMA node are broken": (
        (node("a", taken=(0, 4)),), gang(3, 2, replace(RING, same_numa_node=True)), Rejection(NOT_NOW, have=2, need=3), "",
    ),
    "it waits rather than crossing its required level": (
        TWO_RACKS, gang(2, 4, **IN_RACK), Rejection(NOT_NOW, have=2, need=2, detail="Rack"), "not within the level Rack",
    ),
    "a node without labels is in no block": (
        (node("a", taken=HALF), racked("b", "r1")), gang(2, 4, required_level=Level.BLOCK),
        Rejection(NOT_NOW, have=2, need=2, detail="Block"), "",
    ),
    "passing troubles are no reason for never": (
        (NOT_READY,), gang(1, excluded=frozenset({NodeName("a")})), Rejection(NOT_NOW, have=0, need=1), "",
    ),
    "lasting ones are": (
        (replace(NOT_READY, taints=(Taint("team", "NoSchedule", "x"),)),), gang(1), Rejection(NEVER, detail="demands"), "",
    ),
    "a worker is larger than any node": (
        FULL, gang(1, 9), Rejection(NEVER, have=8, need=9, detail="worker"),
        "one worker asks for 9 GPUs but the largest node has 8",
    ),
    "the gang is larger than the cluster": (
        FULL, gang(3, 4), Rejection(NEVER, have=8, need=12, detail="gang"),
        "all workers together ask for 12 GPUs but the cluster has 8",
    ),
    "the gang is larger than the cluster, whatever level it requires": (
        TWO_RACKS, gang(3, 8, **IN_RACK), Rejection(NEVER, have=16, need=24, detail="gang"), "",
    ),
    "no rack is that large": (TWO_RACKS, gang(2, 8, **IN_RACK), Rejection(NEVER, detail="demands"), ""),
    "no NUMA node is that large": (
        FULL, gang(1, 8, replace(RING, same_numa_node=True)), Rejection(NEVER, detail="demands"), "sameNUMANode",
    ),
    "edges name more ranks than a pod has": (
        FULL, gang(1, 2, CHAIN_OF_THREE), Rejection(Reason.TOO_FEW_RANKS, have=2, need=3),
        "the edges name rank 2 but the pod has 2 GPUs, numbered from 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("nodes", "wanted", "expected", "words"), REFUSED.values(), ids=REFUSED)
def test_why_a_gang_gets_no_place(nodes: tuple[NodeState, ...], wanted: Gang, expected: Rejection, words: str) -> None:
    assert plan_gang(cluster(*nodes), wanted) == expected
    assert words in sentence(expected)


def test_an_empty_gang_is_a_mistake() -> None:
    assert "without workers" in refusal(plan_gang, cluster(node("a")), gang(0))


def test_other_labels_can_name_the_levels() -> None:
    snapshot = cluster(*(node(name, taken=HALF, labels={"row": "x"}) for name in "ab"))
    plan = plan_gang(snapshot, gang(2, 4), {Level.RACK: "row"})
    assert isinstance(plan, Plan)
    assert plan.level is Level.RACK


def test_pods_of_many_sizes_are_placed_on_nodes_that_others_of_the_gang_have_opened() -> None:
    workers = [worker(index, gpus) for index, gpus in enumerate((1, 1, 2, 0, 4, 1, 1, 2, 1))]
    for gpu_request in (RING, LAX):
        plan = planned(cluster(node("a"), node("b"), node("c", PAIRS)), replace(of(*workers), gpu_request=gpu_request))
        assert len({seat.node for seat in plan.seats}) == 2


# --- values and whole plans -------------------------------------------------------------------------------------------


def test_the_ideal_is_the_best_of_any_empty_node() -> None:
    snapshot = cluster(node("a", taken=tuple(range(8))), node("b", PAIRS))
    assert ideal_value(snapshot, 2, RING) == 309_372
    assert ideal_value(snapshot, 4, RING) == 25_000, "a ring of NVLinks alone, not the bridges with their greater sum"
    assert ideal_value(snapshot, 4, replace(RING, measure=Measure.SUM)) == 2 * 309_372 + 2 * 6_000
    assert ideal_value(snapshot, 9, RING) == 0


@given(st.integers(1, 3), st.integers(1, 4), st.lists(st.integers(0, 255), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_equal_workers_are_planned_whenever_enough_sets_are_free(size: int, count: int, taken: list[int]) -> None:
    snapshot = cluster(*(node(f"n{i}", taken=indices_of(mask)) for i, mask in enumerate(taken)))
    room = sum(state.free.bit_count() // size for state in snapshot.nodes.values())
    assert isinstance(plan_gang(snapshot, gang(count, size)), Plan) == (room >= count)
    assert [state.taken for state in snapshot.nodes.values()] == taken, "planning is a trial: the snapshot is never changed"


def test_combinations_of_levels_and_nodes_stay_whole() -> None:
    for racks in combinations_with_replacement(("r1", "r2"), 3):
        states = [racked(f"n{i}", rack) for i, rack in enumerate(racks)]
        for count in (1, 2, 3):
            planned(cluster(*states), gang(count, 4))
