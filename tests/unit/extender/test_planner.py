"""What the planner writes, in which order, and how it carries on after each kind of accident."""

import asyncio
import json

import pytest

from kompakt_core import contract as c
from tests.support.extender.leader import Leader, gates, may_not_read
from tests.support.extender.made_objects import node, worker


async def test_a_whole_gang_is_placed_and_its_status_is_written_before_any_gate(leader: Leader) -> None:
    await leader.place("j", 2, 4)
    written = leader.scheduling("j")
    assert written["state"] == "Released"
    names = {made["metadata"]["uid"]: name for name, made in leader.world.pods.items()}
    assert [names[seat.uid] for seat in leader.seats("j")] == ["j-worker-0-a1", "j-worker-1-a1"]
    methods = [path for method, path in leader.world.sent if method == "PATCH"]
    assert methods[0].endswith("/trainingjobs/j/status")
    assert sorted(methods[1:]) == [
        "/api/v1/namespaces/default/pods/j-worker-0-a1",
        "/api/v1/namespaces/default/pods/j-worker-1-a1",
    ]
    for seat in leader.seats("j"):
        notes = leader.annotations(names[seat.uid])
        assert gates(leader.world, names[seat.uid]) == []
        assert notes[c.ANN_PLANNED_NODE] == seat.node
        assert notes[c.ANN_PLANNED_GPUS] == ",".join(seat.gpus)
        assert notes[c.ANN_RANK] == str(seat.rank)
        assert c.ANN_MIN_VALUE not in notes


async def test_a_gang_of_one_gets_a_least_value(leader: Leader) -> None:
    await leader.place("j", 1, 2)
    notes = leader.annotations("j-worker-0-a1")
    assert notes[c.ANN_MIN_VALUE] == str(leader.scheduling("j")["plan"]["value"]) != "0"


async def test_a_gang_that_falls_apart_while_others_are_planned_is_not_placed(leader: Leader) -> None:
    leader.world.add_gang("a", 1, 4)
    leader.world.add_gang("b", 2, 4)
    leader.see()
    task = asyncio.create_task(leader.planner.run_cycle())
    await asyncio.sleep(0)  # "a" is planned, and its turn is over
    leader.world.delete_pod("b-worker-1-a1")
    leader.see()
    await task
    await leader.settle()
    assert leader.scheduling("a")["state"] == "Released"
    assert leader.scheduling("b") == {}


def taken(leader: Leader) -> int:
    return leader.ledger.snapshot().nodes["n0"].taken.bit_count()  # type: ignore[index]


@pytest.mark.parametrize("suspended", [False, True])
async def test_a_job_changed_by_another_before_our_write_keeps_its_places_until_it_is_looked_at_again(
    suspended: bool, leader: Leader
) -> None:
    leader.world.add_gang("j", 2, 4)
    leader.see()
    leader.world.jobs["j"]["spec"]["suspend"] = suspended
    leader.world.put("jobs", "j", leader.world.jobs["j"])  # written by another; our watch has not shown it yet
    await leader.plan()
    assert (leader.scheduling("j"), taken(leader)) == ({}, 8)
    await leader.settle()
    assert (leader.scheduling("j").get("state"), taken(leader)) == ((None, 0) if suspended else ("Released", 8))


@pytest.mark.parametrize("outcome", ["lost", "unheard"])
async def test_a_status_write_without_an_answer_is_looked_up_before_any_gate_is_removed(outcome: str, leader: Leader) -> None:
    leader.world.add_gang("j", 2, 4)
    leader.world.outcomes.append(outcome)
    if outcome == "lost":  # somebody else's write ends the uncertainty: ours can no longer arrive
        leader.see()
        task = asyncio.create_task(leader.plan())
        for _ in range(5):
            await asyncio.sleep(0)
        assert all(gates(leader.world, f"j-worker-{i}-a1") for i in range(2))
        leader.world.put("jobs", "j", leader.world.jobs["j"])
        await task
    await leader.settle()
    assert leader.scheduling("j")["state"] == "Released"
    assert not any(gates(leader.world, f"j-worker-{i}-a1") for i in range(2))


@pytest.mark.parametrize("outcomes", [["lost"], ["lost", "lost", "lost"], ["late"], ["lost", "unheard"]])
async def test_a_status_write_that_surely_did_not_happen_is_sent_again(outcomes: list[str], leader: Leader) -> None:
    leader.world.add_gang("j", 2, 4)
    leader.world.outcomes.extend(outcomes)
    await asyncio.wait_for(leader.settle(), 5)
    assert leader.scheduling("j")["state"] == "Released"
    plan = json.dumps(leader.scheduling("j"))
    leader.world.arrive_late()
    await leader.settle()
    assert json.dumps(leader.scheduling("j")) == plan, "of two equal writes one succeeds"


@pytest.mark.parametrize("outcome", ["unheard", "lost"])
async def test_what_became_of_a_plan_is_read_though_the_lease_was_nobodys_meanwhile(outcome: str, leader: Leader) -> None:
    leader.world.add_gang("j", 2, 4)
    leader.world.outcomes.append(outcome)
    may_not_read(leader, 3)
    leader.see()
    await asyncio.wait_for(leader.plan(), 5)
    assert leader.scheduling("j")["state"] == "Released"
    assert gates(leader.world, "j-worker-1-a1") == []


async def test_a_new_leader_finishes_a_half_released_gang_as_written(leader: Leader) -> None:
    leader.world.add_gang("j", 2, 4)
    leader.world.outcomes.extend(["ok", "ok", "lost"])  # status, first pod, second pod
    leader.see()
    await leader.plan()
    assert gates(leader.world, "j-worker-1-a1") != []
    plan = json.dumps(leader.scheduling("j"))
    successor = Leader(leader.world)
    successor.take_over()
    claimed = successor.ledger.snapshot().nodes
    assert sum(state.taken.bit_count() for state in claimed.values()) == 8  # before it decides anything
    leader.world.add_node("a-better-one")
    await successor.settle()
    assert gates(leader.world, "j-worker-1-a1") == []
    assert json.dumps(successor.scheduling("j")) == plan
    seat = successor.seats("j")[1]
    assert successor.annotations("j-worker-1-a1")[c.ANN_PLANNED_GPUS] == ",".join(seat.gpus)


async def half_released(leader: Leader) -> None:
    """The write on the second pod was lost."""
    leader.world.add_gang("j", 2, 4)
    leader.world.outcomes.extend(["ok", "ok", "lost"])
    leader.see()
    await leader.plan()
    assert gates(leader.world, "j-worker-1-a1") != []


async def test_a_plan_on_gpus_that_a_node_has_no_more_is_made_again(leader: Leader) -> None:
    """Indices in a plan are of the GPUs that the nodes had then."""
    await half_released(leader)
    changed = leader.world.topologies[leader.seats("j")[1].node]
    changed["spec"]["gpus"][0]["uuid"] = "GPU-new"
    leader.world.put("topologies", changed["metadata"]["name"], changed)
    successor = Leader(leader.world)
    successor.take_over()
    await successor.plan()
    assert successor.scheduling("j")["state"] == "Withdrawn"
    assert "a node has other GPUs than were planned" in successor.scheduling("j")["message"]
    await successor.settle()
    assert successor.scheduling("j")["state"] == "Released"
    known = {gpu["uuid"] for one in leader.world.topologies.values() for gpu in one["spec"]["gpus"]}
    for index, seat in enumerate(successor.seats("j")):
        assert set(seat.gpus) <= known
        assert successor.annotations(f"j-worker-{index}-a1")[c.ANN_PLANNED_GPUS] == ",".join(seat.gpus)


async def test_a_node_without_gpus_is_no_reason_to_plan_again(leader: Leader) -> None:
    """Its pod has none, and it has no GPUTopology."""
    leader.world.put("nodes", "cpu-only", node("cpu-only", gpus=0))
    leader.world.add_gang("j", 2, 4)
    alone = worker("j", 1, 0, nodeSelector={"kubernetes.io/hostname": "cpu-only"})
    leader.world.add_pod(alone)
    leader.world.outcomes.extend(["ok", "lost", "lost"])
    leader.see()
    await leader.plan()
    assert [seat.node for seat in leader.seats("j")][1] == "cpu-only"
    assert gates(leader.world, "j-worker-0-a1") != []
    plan = json.dumps(leader.scheduling("j"))
    successor = Leader(leader.world)
    successor.take_over()
    await successor.plan()
    assert successor.scheduling("j")["state"] == "Released"
    await successor.settle()
    assert gates(leader.world, "j-worker-0-a1") == gates(leader.world, "j-worker-1-a1") == []
    assert json.dumps(successor.scheduling("j")) == plan


async def test_a_gang_that_is_all_bound_keeps_its_plan_whatever_gpus_its_nodes_have(leader: Leader) -> None:
    await leader.place("j", 2, 4)
    for index, seat in enumerate(leader.seats("j")):
        assert await leader.bind(f"j-worker-{index}-a1", seat.node) == ""
        leader.report(seat.node)
    changed = leader.world.topologies[leader.seats("j")[0].node]
    changed["spec"]["gpus"][7]["uuid"] = "GPU-new"
    leader.world.put("topologies", changed["metadata"]["name"], changed)
    plan = json.dumps(leader.scheduling("j"))
    successor = Leader(leader.world)
    successor.take_over()
    await successor.settle()
    assert json.dumps(successor.scheduling("j")) == plan


async def test_a_plan_that_an_earlier_version_wrote_is_finished_as_written(leader: Leader) -> None:
    await half_released(leader)
    seats, plan = leader.seats("j"), leader.scheduling("j")["plan"]
    del plan["gpusDigest"], plan["nodes"]
    plan["pods"] = [{"uid": s.uid, "node": s.node, "gpus": list(s.gpus), "value": s.value, "rank": s.rank} for s in seats]
    leader.world.put("jobs", "j", leader.world.jobs["j"])
    successor = Leader(leader.world)
    successor.take_over()
    await successor.settle()
    assert gates(leader.world, "j-worker-1-a1") == []
    assert successor.annotations("j-worker-1-a1")[c.ANN_PLANNED_GPUS] == ",".join(seats[1].gpus)


async def test_a_new_leader_gives_nobody_what_stands_on_a_pod_of_an_attempt_that_ended(leader: Leader) -> None:
    """It carries no gate any more and is there until it is deleted: whoever looked would see its GPUs held twice."""
    await leader.place("j", 2, 4)
    leader.world.jobs["j"]["status"]["attempt"] = 2
    leader.world.put("jobs", "j", leader.world.jobs["j"])
    successor = Leader(leader.world)
    successor.take_over()
    assert taken(successor) == 8
    leader.world.delete_pod("j-worker-0-a1")
    successor.see()
    assert taken(successor) == 4


async def test_a_replaced_pod_is_never_released_by_the_plan_of_its_predecessor(leader: Leader) -> None:
    leader.world.add_gang("j", 1, 4)
    leader.see()
    made = worker("j", 0, 4)
    made["metadata"]["uid"] = "uid-another"
    leader.world.pods["j-worker-0-a1"] = made  # the watch has not told yet
    await leader.plan()
    assert gates(leader.world, "j-worker-0-a1") != []
    assert c.ANN_PLANNED_NODE not in leader.annotations("j-worker-0-a1")


async def test_a_status_that_somebody_spoilt_is_written_over(leader: Leader) -> None:
    leader.world.add_gang("bad", 1, 2)
    leader.world.add_gang("good", 1, 2)
    leader.world.jobs["bad"]["status"]["scheduling"] = {
        "attempt": 1,
        "state": "Released",
        "plan": {"level": "Machine", "releasedAt": "2026-01-31T12:00:00Z", "pods": [{"name": "x"}]},
    }
    leader.world.put("jobs", "bad", leader.world.jobs["bad"])
    await leader.settle()
    assert leader.scheduling("good")["state"] == "Released"
    assert leader.scheduling("bad")["state"] == "Released"
    assert len(leader.seats("bad")) == 1
