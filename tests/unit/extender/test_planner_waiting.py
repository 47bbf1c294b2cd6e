"""Gangs that wait: for how long, in which order, and what they are told."""

from typing import Any

import pytest

from kompakt_core import contract as c
from kompakt_extender.planner.waiting_status import NOT_ALL_REPORTED
from tests.support.extender.leader import Leader, gates
from tests.support.extender.world import job, node, worker


@pytest.mark.parametrize(
    ("workers", "change"),
    [(2, {}), (1, {"suspend": True}), (1, {"managedBy": "example.com/other"})],
    ids=["as long as a worker is missing", "while it is suspended", "when another controller manages it"],
)
async def test_a_gang_is_left_alone(workers: int, change: dict[str, Any], leader: Leader) -> None:
    made = job("j", workers)
    made["spec"] |= change
    leader.world.put("jobs", "j", made)
    leader.world.add_pod(worker("j", 0))
    await leader.settle()
    assert leader.world.sent == []


async def test_a_gang_with_a_foreign_gate_is_left_alone_until_ours_is_the_last(leader: Leader) -> None:
    leader.world.put("jobs", "j", job("j", workers=1))
    made = worker("j", 0)
    made["spec"]["schedulingGates"].append({"name": "kueue.x-k8s.io/admission"})
    leader.world.add_pod(made)
    await leader.settle()
    assert leader.world.sent == []
    del made["spec"]["schedulingGates"][1]
    leader.world.add_pod(made)
    await leader.settle()
    assert leader.scheduling("j")["state"] == "Released"


async def test_a_gang_that_does_not_fit_now_waits_holds_nothing_and_says_so_once(leader: Leader) -> None:
    leader.world.add_gang("big", 2, 8)
    await leader.settle()
    assert leader.scheduling("big")["state"] == "Released"
    leader.world.add_gang("late", 1, 8)
    await leader.settle()
    waiting = leader.scheduling("late")
    assert (waiting["state"], waiting["reason"]) == ("Waiting", "Waiting")
    assert waiting["waitingSince"] == "2026-01-31T12:00:00Z"
    sent = len(leader.world.sent)
    leader.wait(30)
    await leader.settle()
    assert len(leader.world.sent) == sent
    for index in range(2):
        leader.world.delete_pod(f"big-worker-{index}-a1")
    await leader.settle()
    assert leader.scheduling("late")["state"] == "Released"
    assert leader.scheduling("late")["waitingSince"] == "2026-01-31T12:00:00Z"


async def test_a_gang_that_no_node_could_ever_hold_is_told_so_and_looked_at_again_when_nodes_come(leader: Leader) -> None:
    leader.world.add_gang("j", 3, 8)
    await leader.settle()
    status = leader.world.jobs["j"]["status"]
    placed = next(one for one in status["conditions"] if one["type"] == "Placed")
    assert (placed["status"], placed["reason"]) == ("False", "NeverFits")
    assert "24" in placed["message"]
    leader.world.add_node("n2")
    await leader.settle()
    assert leader.scheduling("j")["state"] == "Released"


async def test_an_unknown_pattern_is_refused_with_the_right_ones(leader: Leader) -> None:
    leader.world.put("jobs", "j", job("j", workers=1))
    made = worker("j", 0)
    made["metadata"]["annotations"][c.ANN_PATTERN] = "Moebius"
    leader.world.add_pod(made)
    await leader.settle()
    message = leader.scheduling("j")["message"]
    assert "Moebius" in message
    assert "Ring" in message
    assert gates(leader.world, "j-worker-0-a1") != []


@pytest.mark.parametrize(
    ("first", "second", "priority", "winner"),
    [("first", "urgent", 100, "urgent"), ("z-first", "a-second", 0, "z-first")],
    ids=["priority comes before the time of arrival", "of equal priority who waits longer comes first"],
)
async def test_who_gets_what_becomes_free(first: str, second: str, priority: int, winner: str, leader: Leader) -> None:
    leader.world.add_gang("full", 2, 8)
    await leader.settle()
    leader.world.add_gang(first, 1, 8)
    await leader.settle()
    leader.wait(10)
    leader.world.add_gang(second, 1, 8, priority=priority)
    await leader.settle()
    leader.world.delete_pod("full-worker-0-a1")
    await leader.settle()
    states = {name: leader.scheduling(name)["state"] for name in (first, second)}
    assert states == {first: "Waiting", second: "Waiting"} | {winner: "Released"}


def placed(leader: Leader, name: str) -> dict[str, str]:
    conditions: list[dict[str, str]] = leader.world.jobs[name]["status"].get("conditions", [])
    return next((one for one in conditions if one["type"] == "Placed"), {})


@pytest.mark.parametrize("announced", ["by resource", "by label"])
async def test_never_is_not_said_while_a_node_has_not_reported_its_gpus(announced: str, leader: Leader) -> None:
    late = node("n2", gpus=8 if announced == "by resource" else 0)
    late["metadata"]["labels"][c.LABEL_MACHINE] = "" if announced == "by resource" else "dgx1-v100"
    leader.world.put("nodes", "n2", late)
    leader.world.add_gang("j", 3, 8)
    await leader.settle()
    assert leader.scheduling("j")["state"] == "Waiting"
    assert placed(leader, "j")["reason"] == "Waiting"
    assert placed(leader, "j")["message"] == NOT_ALL_REPORTED
    leader.world.add_node("n2")
    await leader.settle()
    assert leader.scheduling("j")["state"] == "Released"


async def test_never_is_said_although_nodes_without_gpus_never_report(leader: Leader) -> None:
    leader.world.put("nodes", "cpu-only", node("cpu-only", gpus=0))
    leader.world.add_gang("j", 3, 8)
    await leader.settle()
    assert placed(leader, "j")["reason"] == "NeverFits"
