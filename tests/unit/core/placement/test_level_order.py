"""Ranks along racks and blocks: what a ring or a tree crosses, beside every other order; and what stays as it was."""

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_core.patterns.names import Pattern
from kompakt_core.placement import level_order
from kompakt_core.placement.collective_cost import Collective, Costs, order_cost
from kompakt_core.placement.gang_placement import LEVEL_LABELS, plan_gang
from kompakt_core.placement.model import Gang, NodeState, Plan, Snapshot
from tests.support.core.gangs import RING, cluster, gang, node, worker

TREE = replace(RING, pattern=Pattern.TREE)


def at(name: str, rack: str = "", block: str = "", taken: tuple[int, ...] = ()) -> NodeState:
    labels = {key: value for key, value in (("kompakt.dev/rack", rack), ("kompakt.dev/block", block)) if value}
    return node(name, taken=taken, labels=labels)


def planned(snapshot: Snapshot, wanted: Gang) -> Plan:
    plan = plan_gang(snapshot, wanted)
    assert isinstance(plan, Plan)
    return plan


def costs_of(snapshot: Snapshot, names: list[str]) -> Costs:
    """Written once more, from the labels."""
    labels = [snapshot.nodes[name].labels for name in names]

    def cost(one: int, two: int) -> int:
        if one == two:
            return 1
        block, rack = ([labels[i].get(key, "") for i in (one, two)] for key in (LEVEL_LABELS["Block"], LEVEL_LABELS["Rack"]))
        if block[0] != block[1]:
            return 80
        return 20 if rack[0] == rack[1] != "" else 40

    return [[cost(one, two) for two in range(len(names))] for one in range(len(names))]


def nodes_of(plan: Plan) -> list[str]:
    """In the order of ranks."""
    return list(dict.fromkeys(seat.node for seat in plan.seats if seat.worker.gpus))


RACKED = st.lists(st.tuples(st.sampled_from(["", "r1", "r2"]), st.sampled_from(["", "b1", "b2"])), min_size=2, max_size=6)


@given(RACKED, st.sampled_from([RING, TREE]), st.integers(1, 2))
@settings(max_examples=120, deadline=None)
def test_no_order_of_the_nodes_costs_the_pattern_less(places: list[tuple[str, str]], request: object, pods: int) -> None:
    snapshot = cluster(*(at(f"n{i}", rack, block) for i, (rack, block) in enumerate(places)))
    plan = planned(snapshot, gang(len(places) * pods, 8 // pods, request))
    names, ranks = nodes_of(plan), [pods] * len(places)
    costs = costs_of(snapshot, names)
    collective = Collective.RING if request is RING else Collective.TREE
    own = order_cost(collective, range(len(names)), ranks, costs)[0]
    assert own == min(order_cost(collective, (0, *rest), ranks, costs)[0] for rest in permutations(range(1, len(names))))


@given(RACKED, st.integers(1, 4), st.booleans())
@settings(max_examples=80, deadline=None)
def test_workers_of_one_kind_rank_by_index_and_all_keep_a_seat(places: list[tuple[str, str]], gpus: int, tree: bool) -> None:
    snapshot = cluster(*(at(f"n{i}", rack, block) for i, (rack, block) in enumerate(places)))
    plan = planned(snapshot, gang(len(places) * (8 // gpus), gpus, TREE if tree else RING))
    assert [seat.worker.index for seat in plan.seats] == [seat.rank for seat in plan.seats] == list(range(len(plan.seats)))
    taken = [(seat.node, gpu) for seat in plan.seats for gpu in seat.gpus]
    assert len(set(taken)) == len(taken)


def test_workers_that_share_an_index_have_a_seat_each() -> None:
    """So do the pods of a job that carry no label with one."""
    alike = tuple(replace(worker(i, 8), index=index) for i, index in enumerate((0, 1 << 30, 1 << 30)))
    plan = planned(cluster(*(at(f"n{i}", "r1") for i in range(3))), replace(gang(3, 8), workers=alike))
    assert [(seat.worker.pod, seat.node) for seat in plan.seats] == [(f"job-worker-{i}-a1", f"n{i}") for i in range(3)]


TURNS = (at("n0", "r1"), at("n1", "r2"), at("n2", "r1"), at("n3", "r2"))


def test_a_ring_goes_through_one_rack_before_the_next() -> None:
    assert nodes_of(planned(cluster(*TURNS), gang(4, 8))) == ["n0", "n2", "n1", "n3"]


def test_racks_of_one_block_follow_each_other_and_blocks_may_have_racks_of_one_name() -> None:
    nodes = at("n0", "r1", "b1"), at("n1", "r1", "b2"), at("n2", "r2", "b1"), at("n3", "r1", "b1"), at("n4", "r1", "b2")
    assert nodes_of(planned(cluster(*nodes), gang(5, 8))) == ["n0", "n3", "n2", "n1", "n4"]


def test_nodes_without_labels_stay_in_the_order_that_they_had() -> None:
    assert nodes_of(planned(cluster(*(at(f"n{i}") for i in range(5))), gang(5, 8))) == [f"n{i}" for i in range(5)]


def test_of_two_kinds_each_follows_the_racks_and_rank_0_stays_the_first_worker_with_gpus() -> None:
    workers = worker(0, 0), *(worker(i, 8) for i in (1, 2)), *(worker(i, 4) for i in range(3, 7))
    nodes = *TURNS, at("n4", "r1", taken=(0, 1, 2, 3)), at("n5", "r2", taken=(0, 1, 2, 3))
    plan = planned(cluster(*nodes), replace(gang(1), workers=workers))
    assert plan.seats[0].worker.index == 1
    assert plan.seats[-1].worker.index == 0, "the launcher has no GPUs"
    racks = [dict(cluster(*nodes).nodes[name].labels)["kompakt.dev/rack"] for name in nodes_of(plan)]
    assert racks == sorted(racks, key=racks.index), "no rack is left and entered again"
    for gpus in (8, 4):
        indices = [seat.worker.index for seat in plan.seats if seat.worker.gpus == gpus]
        assert indices == sorted(indices)


def test_beyond_what_is_searched_a_tree_goes_rack_by_rack(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = *TURNS, at("n4", "r1")
    assert nodes_of(planned(cluster(*nodes), gang(5, 8, TREE))) == ["n0", "n2", "n1", "n3", "n4"]
    monkeypatch.setattr(level_order, "MAX_SEARCHED", 4)
    assert nodes_of(planned(cluster(*nodes), gang(5, 8, TREE))) == ["n0", "n2", "n4", "n1", "n3"]


def test_a_tree_leaves_a_rack_where_its_rounds_do() -> None:
    """Rack by rack, ranks 2 and 3 would meet across racks in the first round, and ranks 0 and 4 in the last."""
    nodes = *TURNS, at("n4", "r1")
    assert nodes_of(planned(cluster(*nodes), gang(5, 8, RING))) == ["n0", "n2", "n4", "n1", "n3"]
    order = nodes_of(planned(cluster(*nodes), gang(5, 8, TREE)))
    assert ["ab"[int(name[1]) % 2] for name in order] == ["a", "a", "b", "b", "a"]
