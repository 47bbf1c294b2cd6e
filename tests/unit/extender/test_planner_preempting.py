"""A gang of higher priority gets the GPUs of gangs of lower priority: held, written down, asked for, in this order."""

from datetime import timedelta
from typing import Any

import pytest

from kompakt_core.contract import timestamps
from kompakt_extender.consolidation import ClusterPolicy
from tests.support.extender.leader import Leader, on_nodes
from tests.support.extender.preempting import (
    PROTECTED,
    condition,
    conditions,
    ended,
    full_node,
    request,
    runs,
    seats,
    touch,
    urgent,
    urgent_on_full_node,
)
from tests.support.extender.racks import half_full, occupy, on_racks, vacate
from tests.support.extender.world import worker


async def test_a_running_gang_of_lower_priority_is_asked_to_end_and_its_gpus_go_to_the_urgent_one() -> None:
    leader = await urgent_on_full_node()
    waits = leader.scheduling("urgent")
    assert (waits["state"], waits.get("reason", "")) == ("Reserved", "Preempting")
    assert "1 running job is ended for it, of lower priority: default/low; 8 GPUs are reserved for it" in waits["message"]
    asked = request(leader, "low")
    assert (asked.attempt, asked.name, asked.uid) == (1, "urgent", "uid-urgent")
    assert asked.message == "for default/urgent, priority 1000; this job has priority 0"
    assert asked.requested_at == timestamps.encode(leader.now)
    assert leader.metrics.registry.get_sample_value("kompakt_planner_preemptions_total") == 1
    assert conditions(leader, "low")["PreemptionRequested"] == "True"
    assert leader.scheduling("low")["state"] == "Released", "its plan stands until it ends"
    mine = seats(leader, "low")
    ended(leader, "low")
    leader.world.add_gang("late", 2, 4)
    await leader.settle()
    assert leader.scheduling("urgent")["state"] == "Released"
    assert seats(leader, "urgent") == mine
    assert leader.scheduling("late")["state"] == "Waiting", "what is held goes to nobody else"
    assert "victims" not in leader.scheduling("urgent")


async def test_the_reservation_is_written_before_the_request() -> None:
    leader = await full_node()
    urgent(leader)
    leader.see()
    leader.world.sent.clear()
    await leader.settle()
    written = [path.split("/")[-2] for method, path in leader.world.sent if path.endswith("/status")]
    assert written == ["urgent", "low"]


@pytest.mark.parametrize(
    ("other", "more"),
    [(1000, {}), (2000, {}), (0, {"preemptionPolicy": "Never"}), (None, {})],
    ids=["equal priority stays", "higher priority stays", "preemptionPolicy Never is honoured", "plain pods are never ended"],
)
async def test_who_is_not_ended(other: int | None, more: dict[str, Any]) -> None:
    leader = on_nodes(1)
    if other is None:
        occupy(leader, "n0", 8)
    else:
        await runs(leader, "other", priority=other)
    leader.wait(PROTECTED)
    urgent(leader, **more)
    await leader.settle()
    assert leader.scheduling("urgent")["state"] == "Waiting"
    assert other is None or request(leader, "other") is None


async def test_nobody_is_asked_before_its_minimum_run_time_and_the_moment_is_told_and_kept() -> None:
    leader = on_nodes(1)
    await runs(leader, "low")
    began = leader.now
    leader.wait(PROTECTED - 60)
    urgent(leader)
    await leader.settle()
    message = leader.scheduling("urgent")["message"]
    assert message.endswith(f"may be ended for it from {timestamps.encode(began + timedelta(seconds=PROTECTED))} on")
    assert leader.planner._attempts.next_timer() == (began + timedelta(seconds=PROTECTED)).timestamp()
    leader.wait(59)
    await leader.settle()
    assert request(leader, "low") is None
    leader.wait(1)
    await leader.settle()
    assert request(leader, "low") is not None


async def test_a_preempted_job_runs_its_minimum_run_time_again_before_it_is_asked_again() -> None:
    leader = await full_node()
    urgent(leader, "first")
    await leader.settle()
    ended(leader, "low")
    await leader.settle()
    for index in range(2):  # the first urgent one is over
        leader.world.delete_pod(f"first-worker-{index}-a1")
    leader.world.report("n0")
    condition(leader, "first", "Complete", "True")
    for index in range(2):
        leader.world.add_pod(worker("low", index, 4, 2, priority=0))
    await runs(leader, "low", attempt=2)
    assert "preempt" not in leader.scheduling("low")
    urgent(leader, "second")
    await leader.settle()
    assert request(leader, "low") is None
    leader.wait(PROTECTED)
    await leader.settle()
    assert request(leader, "low").attempt == 2


async def test_it_can_be_switched_off_also_while_a_job_is_asked() -> None:
    leader = await urgent_on_full_node()
    assert request(leader, "low") is not None
    successor = Leader(leader.world, ClusterPolicy("no-wait", preemption=False))
    successor.now = leader.now
    successor.take_over()
    await successor.settle()
    assert (successor.scheduling("urgent")["state"], request(successor, "low")) == ("Waiting", None)
    assert "victims" not in successor.scheduling("urgent")


async def test_a_request_is_taken_back_when_the_urgent_job_is_gone() -> None:
    leader = await urgent_on_full_node()
    leader.world.news.append(("jobs", "uid-urgent", None))
    del leader.world.jobs["urgent"]
    for index in range(2):
        leader.world.delete_pod(f"urgent-worker-{index}-a1")
    await leader.settle()
    assert "preempt" not in leader.scheduling("low")
    assert "PreemptionRequested" not in conditions(leader, "low")
    assert leader.scheduling("low")["state"] == "Released"


async def test_a_request_is_taken_back_when_the_urgent_job_finds_another_place(leader: Leader) -> None:
    await runs(leader, "low")
    occupy(leader, "n1", 8)
    leader.wait(PROTECTED)
    urgent(leader)
    await leader.settle()
    assert request(leader, "low") is not None
    vacate(leader, "n1", 8)
    await leader.settle()
    assert {seat["node"] for seat in leader.scheduling("urgent")["plan"]["pods"]} == {"n1"}
    assert "preempt" not in leader.scheduling("low")
    state = leader.ledger.state("n0")  # type: ignore[arg-type]
    assert state is not None
    assert not leader.ledger.reserved.exact


async def test_a_victim_that_ends_by_itself_needs_no_request() -> None:
    leader = await urgent_on_full_node()
    for index in range(2):
        leader.world.finish_pod(f"low-worker-{index}-a1")
    leader.world.report("n0")
    condition(leader, "low", "Complete", "True")
    await leader.settle()
    assert leader.scheduling("urgent")["state"] == "Released"
    assert "PreemptionRequested" not in conditions(leader, "low")


@pytest.mark.parametrize("lost", [0, 1, 2], ids=["before the reservation", "between reservation and request", "after both"])
async def test_a_new_leader_goes_on_where_the_old_one_was(lost: int) -> None:
    leader = await full_node()
    urgent(leader)
    leader.see()
    for _ in range(2 * lost):
        if len([1 for _, path in leader.world.sent if path.endswith("urgent/status")]) >= lost:
            break
        await leader.plan()
    if lost == 2:
        await leader.settle()
    leader.world.sent.clear()
    successor = Leader(leader.world, ClusterPolicy("no-wait"))
    successor.now = leader.now
    successor.take_over()
    held = bool(successor.ledger.reserved.exact)
    assert held == (lost > 0)
    await successor.settle()
    assert request(successor, "low").name == "urgent"
    assert successor.scheduling("urgent")["reason"] == "Preempting"
    ended(successor, "low")
    await successor.settle()
    assert successor.scheduling("urgent")["state"] == "Released"


async def test_nobody_is_asked_as_long_as_the_reservation_does_not_stand_written() -> None:
    """The waiting job changes while core thinks, so that the first write of the reservation is refused."""
    leader = await full_node()
    urgent(leader)
    leader.see()
    leader.meanwhile.append(lambda: None)  # first it is thought about a place, then about victims
    leader.meanwhile.append(lambda: touch(leader, "urgent"))
    await leader.planner.run_cycle()
    touch(leader, "low")
    leader.world.deliver(leader.handlers, leader.readers)
    while leader.planner.busy:
        await leader.plan()
        stands = leader.scheduling("urgent").get("reason") == "Preempting"
        assert request(leader, "low") is None or stands
    assert leader.scheduling("urgent") == {}, "refused: the job is newer than what was decided about"
    assert request(leader, "low") is None
    await leader.settle()
    assert request(leader, "low") is not None


async def test_two_urgent_gangs_get_two_victims_and_one_is_not_asked_for_both(leader: Leader) -> None:
    await runs(leader, "low-1")
    await runs(leader, "low-2")
    leader.wait(PROTECTED)
    urgent(leader, "urgent-1")
    urgent(leader, "urgent-2")
    await leader.settle()
    assert {request(leader, name).name for name in ("low-1", "low-2")} == {"urgent-1", "urgent-2"}
    for name in ("low-1", "low-2"):
        ended(leader, name)
    await leader.settle()
    assert {leader.scheduling(name)["state"] for name in ("urgent-1", "urgent-2")} == {"Released"}


async def test_a_node_that_is_lost_meanwhile_ends_the_reservation() -> None:
    leader = await urgent_on_full_node()
    leader.world.nodes["n0"]["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    leader.world.put("nodes", "n0", leader.world.nodes["n0"])
    await leader.settle()
    assert (leader.scheduling("urgent")["state"], request(leader, "low")) == ("Waiting", None)
    assert not leader.ledger.reserved.exact


async def test_a_gang_that_waits_for_one_machine_has_nobody_ended_for_less() -> None:
    """Sensitivity High: half of each machine is taken by plain pods, so that a victim would free half a machine only."""
    leader = on_racks(ClusterPolicy("kompakt"))
    half_full(leader)
    for index in range(4):
        await runs(leader, f"low-{index}", 1, 4)
    leader.wait(PROTECTED)
    urgent(leader)
    await leader.settle()
    assert leader.scheduling("urgent")["state"] == "Waiting"
    assert all(request(leader, f"low-{index}") is None for index in range(4))
    vacate(leader, "a0", 4)
    leader.world.report("a0")
    await leader.settle()
    assert [request(leader, f"low-{index}") is not None for index in range(4)].count(True) == 1
