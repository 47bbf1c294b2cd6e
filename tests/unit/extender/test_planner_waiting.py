"""Gangs that wait: for how long, in which order, and what they are told."""

from typing import Any

import pytest

from kompakt_core import contract as c
from kompakt_extender.planner.waiting_status import NOT_ALL_REPORTED
from tests.support.extender.office import Office, gates
from tests.support.extender.world import job, node, worker


@pytest.mark.parametrize(
    ("workers", "change"),
    [(2, {}), (1, {"suspend": True}), (1, {"managedBy": "example.com/other"})],
    ids=["as long as a worker is missing", "while it is suspended", "when another controller manages it"],
)
async def test_a_gang_is_left_alone(workers: int, change: dict[str, Any], office: Office) -> None:
    made = job("j", workers)
    made["spec"] |= change
    office.world.put("jobs", "j", made)
    office.world.add_pod(worker("j", 0))
    await office.settle()
    assert office.world.sent == []


async def test_a_gang_with_a_foreign_gate_is_left_alone_until_ours_is_the_last(office: Office) -> None:
    office.world.put("jobs", "j", job("j", workers=1))
    made = worker("j", 0)
    made["spec"]["schedulingGates"].append({"name": "kueue.x-k8s.io/admission"})
    office.world.add_pod(made)
    await office.settle()
    assert office.world.sent == []
    del made["spec"]["schedulingGates"][1]
    office.world.add_pod(made)
    await office.settle()
    assert office.scheduling("j")["state"] == "Released"


async def test_a_gang_that_does_not_fit_now_waits_holds_nothing_and_says_so_once(office: Office) -> None:
    office.world.add_gang("big", 2, 8)
    await office.settle()
    assert office.scheduling("big")["state"] == "Released"
    office.world.add_gang("late", 1, 8)
    await office.settle()
    waiting = office.scheduling("late")
    assert (waiting["state"], waiting["reason"]) == ("Waiting", "Waiting")
    assert waiting["waitingSince"] == "2026-01-31T12:00:00Z"
    sent = len(office.world.sent)
    office.wait(30)
    await office.settle()
    assert len(office.world.sent) == sent
    for index in range(2):
        office.world.delete_pod(f"big-worker-{index}-a1")
    await office.settle()
    assert office.scheduling("late")["state"] == "Released"
    assert office.scheduling("late")["waitingSince"] == "2026-01-31T12:00:00Z"


async def test_a_gang_that_no_node_could_ever_hold_is_told_so_and_looked_at_again_when_nodes_come(office: Office) -> None:
    office.world.add_gang("j", 3, 8)
    await office.settle()
    status = office.world.jobs["j"]["status"]
    placed = next(one for one in status["conditions"] if one["type"] == "Placed")
    assert (placed["status"], placed["reason"]) == ("False", "NeverFits")
    assert "24" in placed["message"]
    office.world.add_node("n2")
    await office.settle()
    assert office.scheduling("j")["state"] == "Released"


async def test_an_unknown_pattern_is_refused_with_the_right_ones(office: Office) -> None:
    office.world.put("jobs", "j", job("j", workers=1))
    made = worker("j", 0)
    made["metadata"]["annotations"][c.ANN_PATTERN] = "Moebius"
    office.world.add_pod(made)
    await office.settle()
    message = office.scheduling("j")["message"]
    assert "Moebius" in message
    assert "Ring" in message
    assert gates(office.world, "j-worker-0-a1") != []


@pytest.mark.parametrize(
    ("first", "second", "priority", "winner"),
    [("first", "urgent", 100, "urgent"), ("z-first", "a-second", 0, "z-first")],
    ids=["priority comes before the time of arrival", "of equal priority who waits longer comes first"],
)
async def test_who_gets_what_becomes_free(first: str, second: str, priority: int, winner: str, office: Office) -> None:
    office.world.add_gang("full", 2, 8)
    await office.settle()
    office.world.add_gang(first, 1, 8)
    await office.settle()
    office.wait(10)
    office.world.add_gang(second, 1, 8, priority=priority)
    await office.settle()
    office.world.delete_pod("full-worker-0-a1")
    await office.settle()
    states = {name: office.scheduling(name)["state"] for name in (first, second)}
    assert states == {first: "Waiting", second: "Waiting"} | {winner: "Released"}


def placed(office: Office, name: str) -> dict[str, str]:
    conditions: list[dict[str, str]] = office.world.jobs[name]["status"].get("conditions", [])
    return next((one for one in conditions if one["type"] == "Placed"), {})


@pytest.mark.parametrize("announced", ["by resource", "by label"])
async def test_never_is_not_said_while_a_node_has_not_reported_its_gpus(announced: str, office: Office) -> None:
    late = node("n2", gpus=8 if announced == "by resource" else 0)
    late["metadata"]["labels"][c.LABEL_MACHINE] = "" if announced == "by resource" else "dgx1-v100"
    office.world.put("nodes", "n2", late)
    office.world.add_gang("j", 3, 8)
    await office.settle()
    assert office.scheduling("j")["state"] == "Waiting"
    assert placed(office, "j")["reason"] == "Waiting"
    assert placed(office, "j")["message"] == NOT_ALL_REPORTED
    office.world.add_node("n2")
    await office.settle()
    assert office.scheduling("j")["state"] == "Released"


async def test_never_is_said_although_nodes_without_gpus_never_report(office: Office) -> None:
    office.world.put("nodes", "cpu-only", node("cpu-only", gpus=0))
    office.world.add_gang("j", 3, 8)
    await office.settle()
    assert placed(office, "j")["reason"] == "NeverFits"
