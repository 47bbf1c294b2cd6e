"""What the planner writes, in which order, and how it carries on after each kind of accident."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kompakt_core import contract as c
from tests.unit.extender.office import Office
from tests.unit.extender.world import World, job, worker


def run(story: Callable[[Office], Coroutine[Any, Any, None]], nodes: int = 2) -> Office:
    world = World()
    for index in range(nodes):
        world.add_node(f"n{index}")

    async def tell() -> Office:
        office = Office(world)
        office.take_over()
        await story(office)
        return office

    return asyncio.run(tell())


def gates(world: World, name: str) -> list[Any]:
    found: list[Any] = world.pods[name]["spec"]["schedulingGates"]
    return found


def test_a_whole_gang_is_placed_and_its_status_is_written_before_any_gate() -> None:
    async def story(office: Office) -> None:
        office.world.add_gang("j", 2, 4)
        await office.settle()

    office = run(story)
    written = office.scheduling("j")
    assert written["state"] == "Released"
    assert [seat["name"] for seat in written["plan"]["pods"]] == ["j-worker-0-a1", "j-worker-1-a1"]
    methods = [path for method, path in office.world.sent if method == "PATCH"]
    assert methods[0].endswith("/trainingjobs/j/status")
    assert sorted(methods[1:]) == [
        "/api/v1/namespaces/default/pods/j-worker-0-a1",
        "/api/v1/namespaces/default/pods/j-worker-1-a1",
    ]
    for seat in written["plan"]["pods"]:
        notes = office.annotations(seat["name"])
        assert gates(office.world, seat["name"]) == []
        assert notes[c.ANN_PLANNED_NODE] == seat["node"]
        assert notes[c.ANN_PLANNED_GPUS] == ",".join(seat["gpus"])
        assert notes[c.ANN_RANK] == str(seat["rank"])
        assert c.ANN_MIN_VALUE not in notes


def test_a_gang_of_one_gets_a_least_value() -> None:
    async def story(office: Office) -> None:
        office.world.add_gang("j", 1, 2)
        await office.settle()

    office = run(story)
    notes = office.annotations("j-worker-0-a1")
    assert notes[c.ANN_MIN_VALUE] == str(office.scheduling("j")["plan"]["value"]) != "0"


def test_nothing_moves_after_success() -> None:
    async def story(office: Office) -> None:
        office.world.add_gang("j", 2, 4)
        await office.settle()
        sent = len(office.world.sent)
        office.wait(5)
        await office.settle()
        assert len(office.world.sent) == sent

    run(story)


def test_an_incomplete_gang_is_left_alone() -> None:
    async def story(office: Office) -> None:
        office.world.put("jobs", "j", job("j", workers=2))
        office.world.add_pod(worker("j", 0))
        await office.settle()
        assert office.world.sent == []

    run(story)


def test_a_gang_with_a_foreign_gate_is_left_alone_until_ours_is_the_last() -> None:
    async def story(office: Office) -> None:
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

    run(story)


def test_a_gang_that_does_not_fit_now_waits_holds_nothing_and_says_so_once() -> None:
    async def story(office: Office) -> None:
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

    run(story)


def test_a_gang_that_no_node_could_ever_hold_is_told_so_and_looked_at_again_when_nodes_come() -> None:
    async def story(office: Office) -> None:
        office.world.add_gang("j", 3, 8)
        await office.settle()
        status = office.world.jobs["j"]["status"]
        placed = next(one for one in status["conditions"] if one["type"] == "Placed")
        assert (placed["status"], placed["reason"]) == ("False", "NeverFits")
        assert "24" in placed["message"]
        office.world.add_node("n2")
        await office.settle()
        assert office.scheduling("j")["state"] == "Released"

    run(story)


def test_an_unknown_pattern_is_refused_with_the_right_ones() -> None:
    async def story(office: Office) -> None:
        office.world.put("jobs", "j", job("j", workers=1))
        made = worker("j", 0)
        made["metadata"]["annotations"][c.ANN_PATTERN] = "Moebius"
        office.world.add_pod(made)
        await office.settle()
        message = office.scheduling("j")["message"]
        assert "Moebius" in message
        assert "Ring" in message
        assert gates(office.world, "j-worker-0-a1") != []

    run(story)


def test_priority_comes_before_the_time_of_arrival() -> None:
    async def story(office: Office) -> None:
        office.world.add_gang("full", 2, 8)
        await office.settle()
        office.world.add_gang("first", 1, 8)
        await office.settle()
        office.wait(10)
        office.world.add_gang("urgent", 1, 8, priority=100)
        await office.settle()
        office.world.delete_pod("full-worker-0-a1")
        await office.settle()
        assert office.scheduling("urgent")["state"] == "Released"
        assert office.scheduling("first")["state"] == "Waiting"

    run(story)


def test_who_waits_longer_comes_first() -> None:
    async def story(office: Office) -> None:
        office.world.add_gang("full", 2, 8)
        await office.settle()
        office.world.add_gang("z-first", 1, 8)
        await office.settle()
        office.wait(10)
        office.world.add_gang("a-second", 1, 8)
        await office.settle()
        office.world.delete_pod("full-worker-0-a1")
        await office.settle()
        assert office.scheduling("z-first")["state"] == "Released"
        assert office.scheduling("a-second")["state"] == "Waiting"

    run(story)


def test_two_gangs_of_one_round_never_share_a_gpu() -> None:
    async def story(office: Office) -> None:
        for name in ("a", "b", "d"):
            office.world.add_gang(name, 2, 4)
        await office.settle()
        states = sorted(office.scheduling(name)["state"] for name in ("a", "b", "d"))
        assert states == ["Released", "Released", "Waiting"]
        seats = [seat for name in ("a", "b", "d") for seat in office.scheduling(name).get("plan", {}).get("pods", [])]
        handed = [(seat["node"], uuid) for seat in seats for uuid in seat["gpus"]]
        assert len(handed) == len(set(handed)) == 16

    run(story)


def test_a_gang_that_falls_apart_while_others_are_planned_is_not_placed() -> None:
    async def story(office: Office) -> None:
        office.world.add_gang("a", 1, 4)
        office.world.add_gang("b", 2, 4)
        office.see()
        task = asyncio.create_task(office.planner.round())
        await asyncio.sleep(0)  # "a" is planned, and its turn is over
        office.world.delete_pod("b-worker-1-a1")
        office.see()
        await task
        await office.settle()
        assert office.scheduling("a")["state"] == "Released"
        assert office.scheduling("b") == {}

    run(story)


def test_a_job_changed_by_another_before_our_write_is_planned_again() -> None:
    async def story(office: Office) -> None:
        office.world.add_gang("j", 2, 4)
        office.see()
        office.world.put("jobs", "j", office.world.jobs["j"])  # the operator wrote; our watch has not shown it yet
        await office.plan()
        assert office.scheduling("j") == {}
        assert office.ledger.snapshot().nodes["n0"].taken == 0  # type: ignore[index]
        await office.settle()
        assert office.scheduling("j")["state"] == "Released"

    run(story)


@pytest.mark.parametrize("outcome", ["lost", "unheard"])
def test_a_status_write_without_an_answer_is_looked_up_before_any_gate_is_removed(outcome: str) -> None:
    async def story(office: Office) -> None:
        office.world.add_gang("j", 2, 4)
        office.world.outcomes.append(outcome)
        if outcome == "lost":  # somebody else's write ends the uncertainty: ours can no longer arrive
            office.see()
            task = asyncio.create_task(office.plan())
            for _ in range(5):
                await asyncio.sleep(0)
            assert all(gates(office.world, f"j-worker-{i}-a1") for i in range(2))
            office.world.put("jobs", "j", office.world.jobs["j"])
            await task
        await office.settle()
        assert office.scheduling("j")["state"] == "Released"
        assert not any(gates(office.world, f"j-worker-{i}-a1") for i in range(2))

    run(story)


def test_a_new_leader_finishes_a_half_released_gang_as_written() -> None:
    async def story(office: Office) -> None:
        office.world.add_gang("j", 2, 4)
        office.world.outcomes.extend(["ok", "ok", "lost"])  # status, first pod, second pod
        office.see()
        await office.plan()
        assert gates(office.world, "j-worker-1-a1") != []
        plan = json.dumps(office.scheduling("j"))
        successor = Office(office.world)
        successor.take_over()
        claimed = successor.ledger.snapshot().nodes
        assert sum(state.taken.bit_count() for state in claimed.values()) == 8  # before it decides anything
        office.world.add_node("a-better-one")
        await successor.settle()
        assert gates(office.world, "j-worker-1-a1") == []
        assert json.dumps(successor.scheduling("j")) == plan
        seat = successor.scheduling("j")["plan"]["pods"][1]
        assert successor.annotations("j-worker-1-a1")[c.ANN_PLANNED_GPUS] == ",".join(seat["gpus"])

    run(story)


def test_a_replaced_pod_is_never_released_by_the_plan_of_its_predecessor() -> None:
    async def story(office: Office) -> None:
        office.world.add_gang("j", 1, 4)
        office.see()
        made = worker("j", 0, 4)
        made["metadata"]["uid"] = "uid-another"
        office.world.pods["j-worker-0-a1"] = made  # the watch has not told yet
        await office.plan()
        assert gates(office.world, "j-worker-0-a1") != []
        assert c.ANN_PLANNED_NODE not in office.annotations("j-worker-0-a1")

    run(story)


async def released_but_unbound(office: Office, workers: int) -> str:
    office.world.add_gang("j", workers, 4)
    await office.settle()
    node: str = office.scheduling("j")["plan"]["pods"][0]["node"]
    return node


def test_a_gang_not_bound_in_time_is_withdrawn_and_placed_on_other_nodes_in_the_same_attempt() -> None:
    async def story(office: Office) -> None:
        node = await released_but_unbound(office, 2)
        office.wait(119)
        await office.settle()
        assert office.scheduling("j")["state"] == "Released"
        office.wait(2)
        await office.settle()
        again = office.scheduling("j")
        assert again["state"] == "Released"
        assert again["attempt"] == 1
        assert [one["node"] for one in again["excludedNodes"]] == [node]
        other = {seat["node"] for seat in again["plan"]["pods"]}
        assert node not in other
        assert office.annotations("j-worker-0-a1")[c.ANN_PLANNED_NODE] in other
        assert await office.bind("j-worker-0-a1", other.pop()) == ""

    run(story)


def test_a_partly_bound_gang_is_withdrawn_for_good_and_bind_refuses_the_rest() -> None:
    async def story(office: Office) -> None:
        node = await released_but_unbound(office, 2)
        assert await office.bind("j-worker-0-a1", node) == ""
        office.wait(121)
        await office.settle()
        assert office.scheduling("j")["state"] == "Withdrawn"
        assert "withdrawn" in await office.bind("j-worker-1-a1", node)
        sent = len(office.world.sent)
        await office.settle()
        assert len(office.world.sent) == sent  # the next attempt is the operator's

    run(story)


def test_a_withdrawn_plan_gives_its_gpus_back() -> None:
    async def story(office: Office) -> None:
        await released_but_unbound(office, 4)
        office.wait(121)
        await office.settle()
        assert office.scheduling("j")["state"] == "Waiting"  # both nodes are left out now
        assert all(state.taken == 0 for state in office.ledger.snapshot().nodes.values())
        office.wait(600)
        await office.settle()
        assert office.scheduling("j")["state"] == "Released"

    run(story)


def test_a_node_whose_kubelet_rejected_a_pod_is_left_out_of_the_next_attempt() -> None:
    async def story(office: Office) -> None:
        node = await released_but_unbound(office, 1)
        assert await office.bind("j-worker-0-a1", node) == ""
        office.world.pods["j-worker-0-a1"]["status"] = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}
        office.world.add_pod(office.world.pods["j-worker-0-a1"])
        await office.settle()
        office.world.jobs["j"]["status"]["attempt"] = 2
        office.world.put("jobs", "j", office.world.jobs["j"])
        office.world.add_pod(worker("j", 0, 4, attempt=2))
        await office.settle()
        again = office.scheduling("j")
        assert (again["attempt"], again["state"]) == (2, "Released")
        assert again["plan"]["pods"][0]["node"] != node

    run(story)


def test_a_pod_on_its_way_out_that_kubelet_rejects_says_nothing_about_its_node() -> None:
    """So it is on a machine that comes back: its kubelet sees the old pods before its device plugin is there."""

    async def story(office: Office) -> None:
        node = await released_but_unbound(office, 1)
        assert await office.bind("j-worker-0-a1", node) == ""
        office.world.pods["j-worker-0-a1"]["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"
        office.world.pods["j-worker-0-a1"]["status"] = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}
        office.world.add_pod(office.world.pods["j-worker-0-a1"])
        await office.settle()
        office.world.jobs["j"]["status"]["attempt"] = 2
        office.world.put("jobs", "j", office.world.jobs["j"])
        office.world.add_pod(worker("j", 0, 4, attempt=2))
        await office.settle()
        again = office.scheduling("j")
        assert again["attempt"] == 2
        assert again["excludedNodes"] == []

    run(story)


def test_a_suspended_or_foreign_job_is_left_alone() -> None:
    async def story(office: Office) -> None:
        for name, change in (("s", {"suspend": True}), ("f", {"managedBy": "example.com/other"})):
            made = job(name, workers=1)
            made["spec"] |= change
            office.world.put("jobs", name, made)
            office.world.add_pod(worker(name, 0))
        await office.settle()
        assert office.world.sent == []

    run(story)


def test_a_status_that_somebody_spoilt_is_written_over() -> None:
    async def story(office: Office) -> None:
        office.world.add_gang("bad", 1, 2)
        office.world.add_gang("good", 1, 2)
        office.world.jobs["bad"]["status"]["scheduling"] = {
            "attempt": 1,
            "state": "Released",
            "plan": {"level": "Machine", "releasedAt": "2026-01-31T12:00:00Z", "pods": [{"name": "x"}]},
        }
        office.world.put("jobs", "bad", office.world.jobs["bad"])
        await office.settle()
        assert office.scheduling("good")["state"] == "Released"
        assert office.scheduling("bad")["state"] == "Released"
        assert len(office.scheduling("bad")["plan"]["pods"]) == 1

    run(story)
