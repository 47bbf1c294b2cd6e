"""Pods that join others of their gang: which nodes they may go to, nearest first."""

import pytest

from kompakt_core.ids import JobUid, NodeName, PodUid
from kompakt_core.placement.beside import nearest_first
from kompakt_core.placement.gang_placement import LEVEL_LABELS
from kompakt_core.placement.model import Gang, GpuRequest, Level, NodeState, Snapshot, Worker

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
