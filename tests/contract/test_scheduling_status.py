"""status.scheduling as the planner writes it against the schema of TrainingJob: what that lacks the API server drops silently."""

import json
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from kompakt_core.contract import plan_record
from kompakt_core.contract.plan_record import PlanRecord, SeatRecord
from kompakt_core.contract.preempt_request import PreemptRequest
from kompakt_core.contract.scheduling_record import Excluded, Record, State, Victim, decode, encode
from kompakt_core.ids import GpuIndex, GpuUuid, NodeName, PodUid
from kompakt_core.job.status import read_status
from tests.support.crds import schema

NOW = "2026-01-31T12:00:00Z"
NODE = NodeName("n0")
FULL = Record(
    attempt=3,
    state=State.RESERVED,
    reason="Preempting",
    message="words",
    waiting_since=NOW,
    excluded=(Excluded(NODE, NOW, "NotBound"),),
    plan=PlanRecord("Rack", 1, 2, NOW, (SeatRecord(PodUid("u"), NODE, (), (GpuIndex(3),), 5, 2),), "5f3a"),
    placeable_since=NOW,
    waits_for="Machine",
    until=NOW,
    overtaken=4,
    reserved_counts=((NodeName("n1"), 8),),
    victims=(Victim("ml", "low", "uid-low", 2, -5),),
    reserved_gpus=((NODE, (GpuUuid("a"), GpuUuid("b"))),),
    decided_at=NOW,
    preempt=PreemptRequest(3, NOW, "ml", "urgent", "uid-urgent", 1000, 0),
)


def misfits(value: Any, node: dict[str, Any], path: str = "scheduling") -> list[str]:
    """Paths of what the API server would drop or refuse."""
    kinds = {dict: "object", list: "array", str: "string", int: "integer"}
    if node.get("type") != kinds[type(value)]:
        return [f"{path}: {node.get('type')}"]
    if isinstance(value, dict):
        known = node["properties"]
        return [
            one
            for key, inner in value.items()
            for one in (misfits(inner, known[key], f"{path}.{key}") if key in known else [f"{path}.{key}"])
        ]
    if isinstance(value, list):
        return [one for inner in value for one in misfits(inner, node["items"], f"{path}[]")]
    if isinstance(value, int):
        return [] if value >= node.get("minimum", value) else [path]
    return [] if value in node.get("enum", [value]) else [path]


def test_the_schema_has_every_field_that_the_planner_writes() -> None:
    node = schema("trainingjobs", "status", "scheduling")
    assert misfits(encode(FULL), node) == []
    assert {state.value for state in State} == set(node["properties"]["state"]["enum"])


EARLIER = replace(FULL, plan=PlanRecord("Rack", 1, 2, NOW, (SeatRecord(PodUid("u"), NODE, (GpuUuid("g"),), (), 1, 0),)))


def test_the_schema_has_every_field_that_earlier_versions_wrote() -> None:
    assert misfits(encode(EARLIER), schema("trainingjobs", "status", "scheduling")) == []


@pytest.mark.parametrize("record", [FULL, EARLIER])
def test_a_record_reads_as_it_was_written(record: Record) -> None:
    assert decode(encode(record)) == record


def test_the_plan_of_a_large_gang_is_small() -> None:
    """1,024 pods of eight GPUs each, on as many nodes."""
    order = tuple(map(GpuIndex, (0, 3, 2, 1, 5, 6, 7, 4)))
    seats = (
        SeatRecord(PodUid(str(UUID(int=rank))), NodeName(f"gpu-node-{rank:04}"), (), order, 25000, rank) for rank in range(1024)
    )
    plan = PlanRecord("Cluster", 25000, 25000, NOW, tuple(seats), "9f86d081884c7d65")
    written = json.dumps(plan_record.encode(plan), separators=(",", ":"))
    assert len(written) <= 120_000
    assert plan_record.decode(json.loads(written)) == plan


def test_the_operator_reads_the_planners_request() -> None:
    assert read_status({"status": {"attempt": 3, "scheduling": encode(FULL)}}).preempt == FULL.preempt
    assert read_status({"status": {"attempt": 4, "scheduling": encode(FULL)}}).preempt is None


def test_the_operator_reads_how_far_the_planner_is() -> None:
    status = read_status({"status": {"attempt": 3, "scheduling": encode(FULL)}})
    assert (status.scheduling_attempt, status.scheduling_state, status.level) == (3, "Reserved", "Rack")


@pytest.mark.parametrize("spoilt", [{"attempt": "3", "plan": ["Rack"]}, {"attempt": -1, "plan": None}, {"attempt": True}])
def test_what_the_planner_never_writes_reads_as_not_yet_written(spoilt: dict[str, Any]) -> None:
    status = read_status({"status": {"scheduling": spoilt}})
    assert (status.scheduling_attempt, status.scheduling_state, status.level) == (0, "", "")
