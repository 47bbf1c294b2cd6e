"""Pods that join others of their gang: which nodes they may go to, nearest first."""

import pytest

from kompakt_core.ids import GpuIndex, JobUid, MegabytesPerSecond, NodeName, PodUid
from kompakt_core.placement.beside import near_neighbours, nearest_first
from kompakt_core.placement.gang_placement import LEVEL_LABELS
from kompakt_core.placement.model import Gang, GpuRequest, Level, NodeState, Plan, Seat, Snapshot, Worker

RACK, BLOCK = LEVEL_LABELS[Level.RACK], LEVEL_LABELS[Level.BLOCK]
PLACES = {"a0": ("r0", "b0"), "a1": ("r0", "b0"), "a2": ("r1", "b0"), "c0": ("r0", "b1"), "bare": ("", "")}


def node(name: str) -> NodeState:
    rack, block = PLACES[name]
    return NodeState(NodeName(name), None, labels={key: text for key, text in ((RACK, rack), (BLOCK, block)) if text})


SNAPSHOT = Snapshot({NodeName(name): node(name) for name in PLACES})


def gang(level: Level = Level.CLUSTER) -> Gang:
    worker = Worker(0, "p", PodUid("p"), 1)
    return Gang(JobUid("j"), 1, (worker,), GpuRequest(), level, excluded=frozenset({NodeName("a1")}))


def nodes_left(beside: str, level: Level = Level.CLUSTER) -> dict[Level, set[str]]:
    names = [NodeName(name) for name in beside.split()]
    found = nearest_first(gang(level), SNAPSHOT, names, LEVEL_LABELS)
    return {at: set(PLACES) - {str(name) for name in one.excluded} for at, one in found}


def test_nodes_are_left_out_level_by_level() -> None:
    assert nodes_left("a0") == {
        Level.MACHINE: {"a0"},
        Level.RACK: {"a0"},  # a1 stays left out
        Level.BLOCK: {"a0", "a2"},
        Level.CLUSTER: {"a0", "a2", "c0", "bare"},
    }


def test_a_rack_of_the_same_name_in_another_block_is_another_one() -> None:
    assert "c0" not in nodes_left("a0")[Level.RACK]


@pytest.mark.parametrize(
    ("beside", "narrowest"), [("a0 a0", Level.MACHINE), ("a0 a1", Level.RACK), ("a0 a2", Level.BLOCK), ("a0 c0", Level.CLUSTER)]
)
def test_no_level_is_narrower_than_that_of_the_others(beside: str, narrowest: Level) -> None:
    assert next(iter(nodes_left(beside))) is narrowest


def test_no_level_is_wider_than_the_gang_needs() -> None:
    assert nodes_left("a0", Level.RACK).keys() == {Level.MACHINE, Level.RACK}
    assert nodes_left("a0 a2", Level.RACK) == {}, "the others are wider already: a label has changed"


def test_a_node_without_the_label_shares_a_rack_with_none() -> None:
    assert nodes_left("bare").keys() == {Level.MACHINE, Level.CLUSTER}


def test_where_all_others_are_on_nodes_that_are_gone_any_node_will_do() -> None:
    assert nodes_left("gone")[Level.MACHINE] == set(PLACES) - {"a1"}


def given(stay: dict[int, str], *nodes: str, gpus: tuple[int, ...] = ()) -> list[str]:
    """The nodes of newcomers, in the order of ranks, that were planned on these."""
    sizes = gpus or (1,) * len(nodes)
    seats = tuple(
        Seat(Worker(i, f"p{i}", PodUid(f"p{i}"), size), NodeName(name), (GpuIndex(i),), MegabytesPerSecond(i), i)
        for i, (name, size) in enumerate(zip(nodes, sizes, strict=True))
    )
    plan = Plan(Level.CLUSTER, MegabytesPerSecond(0), MegabytesPerSecond(0), seats)
    found = near_neighbours(plan, {rank: NodeName(name) for rank, name in stay.items()}, SNAPSHOT, LEVEL_LABELS)
    assert [(seat.worker, seat.rank) for seat in found.seats] == [(seat.worker, seat.rank) for seat in seats]
    assert {(seat.node, seat.gpus, seat.value) for seat in found.seats} == {(seat.node, seat.gpus, seat.value) for seat in seats}
    return [seat.node for seat in found.seats]


@pytest.mark.parametrize(
    ("stay", "planned", "wanted"),
    [
        ({0: "a0", 2: "a0", 3: "c0", 5: "c0"}, "c0 a1", "a1 c0"),  # ranks 1 and 4, each in the rack of both neighbours
        ({0: "a0", 2: "c0", 3: "a0", 5: "a0"}, "a1 c0", "c0 a1"),  # whose rack is that of both comes before one between racks
        ({0: "a0", 3: "c0"}, "c0 a1", "a1 c0"),  # ranks 1 and 2, each by the one that is nearer
        ({0: "a0", 3: "a2"}, "c0 a2", "c0 a2"),  # so too where only the one above has a seat by it
        ({1: "c0", 2: "a0"}, "a1 c0", "c0 a1"),  # ranks 0 and 3: the only one that each has
        ({0: "a2", 2: "a2", 3: "c0"}, "c0 a0", "a0 c0"),  # the block, where the rack has no seat
        ({1: "bare", 2: "a0"}, "a1 bare", "bare a1"),  # the machine itself, which has no rack
        ({1: "gone"}, "a1 c0", "a1 c0"),
        ({}, "c0 a1", "c0 a1"),
    ],
)
def test_newcomers_sit_near_their_neighbours_in_rank(stay: dict[int, str], planned: str, wanted: str) -> None:
    assert given(stay, *planned.split()) == wanted.split()


def test_newcomers_of_other_demands_change_no_seats() -> None:
    assert given({0: "a0", 2: "a0", 3: "c0", 5: "c0"}, "c0", "a1", gpus=(1, 2)) == ["c0", "a1"]
