"""What the planner writes, in which order, and how it carries on after each kind of accident."""

import asyncio
import json

import pytest

from kompakt_core import contract as c
from tests.support.extender.office import Office, gates
from tests.support.extender.world import worker


async def test_a_whole_gang_is_placed_and_its_status_is_written_before_any_gate(office: Office) -> None:
    office.world.add_gang("j", 2, 4)
    await office.settle()
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


async def test_a_gang_of_one_gets_a_least_value(office: Office) -> None:
    office.world.add_gang("j", 1, 2)
    await office.settle()
    notes = office.annotations("j-worker-0-a1")
    assert notes[c.ANN_MIN_VALUE] == str(office.scheduling("j")["plan"]["value"]) != "0"


async def test_nothing_moves_after_success(office: Office) -> None:
    office.world.add_gang("j", 2, 4)
    await office.settle()
    sent = len(office.world.sent)
    office.wait(5)
    await office.settle()
    assert len(office.world.sent) == sent


async def test_two_gangs_of_one_round_never_share_a_gpu(office: Office) -> None:
    for name in ("a", "b", "d"):
        office.world.add_gang(name, 2, 4)
    await office.settle()
    states = sorted(office.scheduling(name)["state"] for name in ("a", "b", "d"))
    assert states == ["Released", "Released", "Waiting"]
    seats = [seat for name in ("a", "b", "d") for seat in office.scheduling(name).get("plan", {}).get("pods", [])]
    handed = [(seat["node"], uuid) for seat in seats for uuid in seat["gpus"]]
    assert len(handed) == len(set(handed)) == 16


async def test_a_gang_that_falls_apart_while_others_are_planned_is_not_placed(office: Office) -> None:
    office.world.add_gang("a", 1, 4)
    office.world.add_gang("b", 2, 4)
    office.see()
    task = asyncio.create_task(office.planner.run_cycle())
    await asyncio.sleep(0)  # "a" is planned, and its turn is over
    office.world.delete_pod("b-worker-1-a1")
    office.see()
    await task
    await office.settle()
    assert office.scheduling("a")["state"] == "Released"
    assert office.scheduling("b") == {}


def taken(office: Office) -> int:
    return office.ledger.snapshot().nodes["n0"].taken.bit_count()  # type: ignore[index]


@pytest.mark.parametrize("suspended", [False, True])
async def test_a_job_changed_by_another_before_our_write_keeps_its_places_until_it_is_looked_at_again(
    suspended: bool, office: Office
) -> None:
    office.world.add_gang("j", 2, 4)
    office.see()
    office.world.jobs["j"]["spec"]["suspend"] = suspended
    office.world.put("jobs", "j", office.world.jobs["j"])  # written by another; our watch has not shown it yet
    await office.plan()
    assert (office.scheduling("j"), taken(office)) == ({}, 8)
    await office.settle()
    assert (office.scheduling("j").get("state"), taken(office)) == ((None, 0) if suspended else ("Released", 8))


@pytest.mark.parametrize("outcome", ["lost", "unheard"])
async def test_a_status_write_without_an_answer_is_looked_up_before_any_gate_is_removed(outcome: str, office: Office) -> None:
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


@pytest.mark.parametrize("outcomes", [["lost"], ["lost", "lost", "lost"], ["late"], ["lost", "unheard"]])
async def test_a_status_write_that_surely_did_not_happen_is_sent_again(outcomes: list[str], office: Office) -> None:
    office.world.add_gang("j", 2, 4)
    office.world.outcomes.extend(outcomes)
    await asyncio.wait_for(office.settle(), 5)
    assert office.scheduling("j")["state"] == "Released"
    plan = json.dumps(office.scheduling("j"))
    office.world.arrive_late()
    await office.settle()
    assert json.dumps(office.scheduling("j")) == plan, "of two equal writes one succeeds"


async def test_a_new_leader_finishes_a_half_released_gang_as_written(office: Office) -> None:
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


async def test_a_replaced_pod_is_never_released_by_the_plan_of_its_predecessor(office: Office) -> None:
    office.world.add_gang("j", 1, 4)
    office.see()
    made = worker("j", 0, 4)
    made["metadata"]["uid"] = "uid-another"
    office.world.pods["j-worker-0-a1"] = made  # the watch has not told yet
    await office.plan()
    assert gates(office.world, "j-worker-0-a1") != []
    assert c.ANN_PLANNED_NODE not in office.annotations("j-worker-0-a1")


async def test_a_status_that_somebody_spoilt_is_written_over(office: Office) -> None:
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
