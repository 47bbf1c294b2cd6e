"""A gang of higher priority gets the GPUs of gangs of lower priority: held, written down, asked for, in this order."""

from datetime import timedelta
from typing import Any

import pytest

from kompakt_core.contract import timestamps
from kompakt_extender.consolidation import ClusterPolicy
from tests.support.extender.office import Office, on_nodes
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
    office = await urgent_on_full_node()
    waits = office.scheduling("urgent")
    assert (waits["state"], waits.get("reason", "")) == ("Reserved", "Preempting")
    assert "1 running job is ended for it, of lower priority: default/low; 8 GPUs are reserved for it" in waits["message"]
    asked = request(office, "low")
    assert (asked.attempt, asked.name, asked.uid) == (1, "urgent", "uid-urgent")
    assert asked.message == "for default/urgent, priority 1000; this job has priority 0"
    assert asked.requested_at == timestamps.encode(office.now)
    assert office.metrics.registry.get_sample_value("kompakt_planner_preemptions_total") == 1
    assert conditions(office, "low")["PreemptionRequested"] == "True"
    assert office.scheduling("low")["state"] == "Released", "its plan stands until it ends"
    mine = seats(office, "low")
    ended(office, "low")
    office.world.add_gang("late", 2, 4)
    await office.settle()
    assert office.scheduling("urgent")["state"] == "Released"
    assert seats(office, "urgent") == mine
    assert office.scheduling("late")["state"] == "Waiting", "what is held goes to nobody else"
    assert "victims" not in office.scheduling("urgent")


async def test_the_reservation_is_written_before_the_request() -> None:
    office = await full_node()
    urgent(office)
    office.see()
    office.world.sent.clear()
    await office.settle()
    written = [path.split("/")[-2] for method, path in office.world.sent if path.endswith("/status")]
    assert written == ["urgent", "low"]


@pytest.mark.parametrize(
    ("other", "more"),
    [(1000, {}), (2000, {}), (0, {"preemptionPolicy": "Never"}), (None, {})],
    ids=["equal priority stays", "higher priority stays", "preemptionPolicy Never is honoured", "plain pods are never ended"],
)
async def test_who_is_not_ended(other: int | None, more: dict[str, Any]) -> None:
    office = on_nodes(1)
    if other is None:
        occupy(office, "n0", 8)
    else:
        await runs(office, "other", priority=other)
    office.wait(PROTECTED)
    urgent(office, **more)
    await office.settle()
    assert office.scheduling("urgent")["state"] == "Waiting"
    assert other is None or request(office, "other") is None


async def test_nobody_is_asked_before_its_minimum_run_time_and_the_moment_is_told_and_kept() -> None:
    office = on_nodes(1)
    await runs(office, "low")
    began = office.now
    office.wait(PROTECTED - 60)
    urgent(office)
    await office.settle()
    message = office.scheduling("urgent")["message"]
    assert message.endswith(f"may be ended for it from {timestamps.encode(began + timedelta(seconds=PROTECTED))} on")
    assert office.planner._attempts.next_timer() == (began + timedelta(seconds=PROTECTED)).timestamp()
    office.wait(59)
    await office.settle()
    assert request(office, "low") is None
    office.wait(1)
    await office.settle()
    assert request(office, "low") is not None


async def test_a_preempted_job_runs_its_minimum_run_time_again_before_it_is_asked_again() -> None:
    office = await full_node()
    urgent(office, "first")
    await office.settle()
    ended(office, "low")
    await office.settle()
    for index in range(2):  # the first urgent one is over
        office.world.delete_pod(f"first-worker-{index}-a1")
    office.world.report("n0")
    condition(office, "first", "Complete", "True")
    for index in range(2):
        office.world.add_pod(worker("low", index, 4, 2, priority=0))
    await runs(office, "low", attempt=2)
    assert "preempt" not in office.scheduling("low")
    urgent(office, "second")
    await office.settle()
    assert request(office, "low") is None
    office.wait(PROTECTED)
    await office.settle()
    assert request(office, "low").attempt == 2


async def test_it_can_be_switched_off_also_while_a_job_is_asked() -> None:
    office = await urgent_on_full_node()
    assert request(office, "low") is not None
    successor = Office(office.world, ClusterPolicy("no-wait", preemption=False))
    successor.now = office.now
    successor.take_over()
    await successor.settle()
    assert (successor.scheduling("urgent")["state"], request(successor, "low")) == ("Waiting", None)
    assert "victims" not in successor.scheduling("urgent")


async def test_a_request_is_taken_back_when_the_urgent_job_is_gone() -> None:
    office = await urgent_on_full_node()
    office.world.news.append(("jobs", "uid-urgent", None))
    del office.world.jobs["urgent"]
    for index in range(2):
        office.world.delete_pod(f"urgent-worker-{index}-a1")
    await office.settle()
    assert "preempt" not in office.scheduling("low")
    assert "PreemptionRequested" not in conditions(office, "low")
    assert office.scheduling("low")["state"] == "Released"


async def test_a_request_is_taken_back_when_the_urgent_job_finds_another_place(office: Office) -> None:
    await runs(office, "low")
    occupy(office, "n1", 8)
    office.wait(PROTECTED)
    urgent(office)
    await office.settle()
    assert request(office, "low") is not None
    vacate(office, "n1", 8)
    await office.settle()
    assert {seat["node"] for seat in office.scheduling("urgent")["plan"]["pods"]} == {"n1"}
    assert "preempt" not in office.scheduling("low")
    state = office.ledger.state("n0")  # type: ignore[arg-type]
    assert state is not None
    assert not office.ledger.reserved.exact


async def test_a_victim_that_ends_by_itself_needs_no_request() -> None:
    office = await urgent_on_full_node()
    for index in range(2):
        office.world.finish_pod(f"low-worker-{index}-a1")
    office.world.report("n0")
    condition(office, "low", "Complete", "True")
    await office.settle()
    assert office.scheduling("urgent")["state"] == "Released"
    assert "PreemptionRequested" not in conditions(office, "low")


@pytest.mark.parametrize("lost", [0, 1, 2], ids=["before the reservation", "between reservation and request", "after both"])
async def test_a_new_leader_goes_on_where_the_old_one_was(lost: int) -> None:
    office = await full_node()
    urgent(office)
    office.see()
    for _ in range(2 * lost):
        if len([1 for _, path in office.world.sent if path.endswith("urgent/status")]) >= lost:
            break
        await office.plan()
    if lost == 2:
        await office.settle()
    office.world.sent.clear()
    successor = Office(office.world, ClusterPolicy("no-wait"))
    successor.now = office.now
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
    office = await full_node()
    urgent(office)
    office.see()
    office.meanwhile.append(lambda: None)  # first it is thought about a place, then about victims
    office.meanwhile.append(lambda: touch(office, "urgent"))
    await office.planner.run_cycle()
    touch(office, "low")
    office.world.deliver(office.handlers, office.readers)
    while office.planner.busy:
        await office.plan()
        stands = office.scheduling("urgent").get("reason") == "Preempting"
        assert request(office, "low") is None or stands
    assert office.scheduling("urgent") == {}, "refused: the job is newer than what was decided about"
    assert request(office, "low") is None
    await office.settle()
    assert request(office, "low") is not None


async def test_two_urgent_gangs_get_two_victims_and_one_is_not_asked_for_both(office: Office) -> None:
    await runs(office, "low-1")
    await runs(office, "low-2")
    office.wait(PROTECTED)
    urgent(office, "urgent-1")
    urgent(office, "urgent-2")
    await office.settle()
    assert {request(office, name).name for name in ("low-1", "low-2")} == {"urgent-1", "urgent-2"}
    for name in ("low-1", "low-2"):
        ended(office, name)
    await office.settle()
    assert {office.scheduling(name)["state"] for name in ("urgent-1", "urgent-2")} == {"Released"}


async def test_a_node_that_is_lost_meanwhile_ends_the_reservation() -> None:
    office = await urgent_on_full_node()
    office.world.nodes["n0"]["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    office.world.put("nodes", "n0", office.world.nodes["n0"])
    await office.settle()
    assert (office.scheduling("urgent")["state"], request(office, "low")) == ("Waiting", None)
    assert not office.ledger.reserved.exact


async def test_a_gang_that_waits_for_one_machine_has_nobody_ended_for_less() -> None:
    """Sensitivity High: half of each machine is taken by plain pods, so that a victim would free half a machine only."""
    office = on_racks(ClusterPolicy("kompakt"))
    half_full(office)
    for index in range(4):
        await runs(office, f"low-{index}", 1, 4)
    office.wait(PROTECTED)
    urgent(office)
    await office.settle()
    assert office.scheduling("urgent")["state"] == "Waiting"
    assert all(request(office, f"low-{index}") is None for index in range(4))
    vacate(office, "a0", 4)
    office.world.report("a0")
    await office.settle()
    assert [request(office, f"low-{index}") is not None for index in range(4)].count(True) == 1
