"""What is held or kept for a gang is free for one of strictly higher priority, and the other thinks anew."""

import asyncio
from typing import Any

import pytest

from tests.support.extender.office import Office, on_nodes, slow_to_write
from tests.support.extender.preempting import PROTECTED, condition, ended, request, runs, seats, urgent
from tests.support.extender.world import worker


async def held_for_urgent(office: Office, lows: int = 1) -> None:
    """Gangs of priority 0 fill the nodes, and are asked to end for one of priority 1000."""
    for index in range(lows):
        await runs(office, f"low-{index}")
    office.wait(PROTECTED)
    urgent(office, gpus=4 * lows)
    await office.settle()
    assert all(request(office, f"low-{index}").name == "urgent" for index in range(lows))


async def test_a_still_more_urgent_gang_gets_the_victim_of_the_other() -> None:
    office = on_nodes(1)
    await held_for_urgent(office)
    urgent(office, "most", priority=2000)
    await office.settle()
    assert (office.scheduling("most")["reason"], request(office, "low-0").name) == ("Preempting", "most")
    assert (office.scheduling("urgent")["state"], office.scheduling("urgent").get("victims")) == ("Waiting", None)
    office.world.sent.clear()
    await office.settle()
    assert office.world.sent == [], "it is decided once"
    mine = seats(office, "low-0")
    ended(office, "low-0")
    for index in range(2):
        office.world.add_pod(worker("low-0", index, 4, 2, priority=0))
    await office.settle()
    assert [office.scheduling(name)["state"] for name in ("most", "urgent", "low-0")] == ["Released", "Waiting", "Waiting"]
    assert seats(office, "most") == mine
    assert not office.ledger.reserved.exact


async def test_the_victim_is_asked_for_the_other_without_being_told_to_go_on_in_between() -> None:
    office = on_nodes(1)
    await held_for_urgent(office)
    heard = slow_to_write(office, "most")
    urgent(office, "most", priority=2000)
    for _ in range(6):  # while the other's reservation is being written
        office.see()
        await office.planner.run_cycle()
        await asyncio.sleep(0)
        assert request(office, "low-0").name == "urgent"
    heard.set()
    await office.settle()
    assert request(office, "low-0").name == "most"


def stopping(office: Office, name: str) -> None:
    """The operator acted on the request; the pods need time to stop."""
    office.world.jobs[name]["status"]["attempt"] += 1
    condition(office, name, "Running", "False")


def gone(office: Office, name: str) -> None:
    """The pods of the first attempt have stopped."""
    for index in range(2):
        office.world.delete_pod(f"{name}-worker-{index}-a1")
    office.world.report("n0")


async def test_who_is_above_gets_the_gpus_of_a_victim_that_stops_while_it_is_being_written_about() -> None:
    office = on_nodes(1)
    await held_for_urgent(office)
    stopping(office, "low-0")
    await office.settle()
    heard = slow_to_write(office, "most")
    urgent(office, "most", priority=2000)
    office.see()
    await office.planner.run_cycle()
    assert office.planner.busy, "it is written why the most urgent gang waits"
    gone(office, "low-0")
    for _ in range(3):
        office.see()
        await office.planner.run_cycle()
        await asyncio.sleep(0)
    assert office.scheduling("urgent")["state"] == "Reserved"
    heard.set()
    await office.settle()
    assert [office.scheduling(name)["state"] for name in ("most", "urgent")] == ["Released", "Waiting"]


async def test_who_is_above_gets_the_gpus_of_a_victim_that_stops_while_it_is_thought_about() -> None:
    office = on_nodes(1)
    await held_for_urgent(office)
    stopping(office, "low-0")
    await office.settle()
    urgent(office, "most", priority=2000)

    def victim_stops() -> None:
        gone(office, "low-0")
        office.see()

    office.meanwhile.append(victim_stops)
    await office.settle()
    assert not office.meanwhile
    assert [office.scheduling(name)["state"] for name in ("most", "urgent")] == ["Released", "Waiting"]


@pytest.mark.parametrize("more", [{}, {"preemptionPolicy": "Never"}], ids=["may end others", "never ends others"])
async def test_gpus_that_are_free_already_are_taken_and_who_need_not_end_goes_on(more: dict[str, Any], office: Office) -> None:
    await held_for_urgent(office, lows=2)
    mine = seats(office, "low-0")
    ended(office, "low-0")
    urgent(office, "most", priority=2000, **more)
    await office.settle()
    assert office.scheduling("most")["state"] == "Released"
    assert seats(office, "most") == mine
    assert (office.scheduling("urgent")["state"], request(office, "low-1")) == ("Waiting", None)
    assert not office.ledger.reserved.exact


@pytest.mark.parametrize("priority", [999, 1000])
async def test_equal_and_lower_priorities_do_not_get_what_is_held(priority: int, office: Office) -> None:
    await held_for_urgent(office, lows=2)
    ended(office, "low-0")
    urgent(office, "other", priority=priority)
    await office.settle()
    assert (office.scheduling("other")["state"], office.scheduling("urgent")["reason"]) == ("Waiting", "Preempting")
    ended(office, "low-1")
    await office.settle()
    assert office.scheduling("urgent")["state"] == "Released"


async def test_a_gang_counts_as_its_least_important_pod_where_it_asks_and_as_its_most_important_one_where_gpus_are_held() -> None:
    office = on_nodes(1)
    await held_for_urgent(office)
    urgent(office, "mixed", priority=2000)
    office.world.pods["mixed-worker-1-a1"]["spec"]["priority"] = 1000
    office.world.add_pod(office.world.pods["mixed-worker-1-a1"])
    await office.settle()
    assert office.scheduling("mixed")["state"] == "Waiting"
    assert request(office, "low-0").name == "urgent"


async def test_nobody_else_ends_where_the_gpus_of_the_others_victim_are_enough(office: Office) -> None:
    """Both low gangs run; one ends for the urgent gang already, and suits the most urgent one as well as the other does."""
    await runs(office, "low-0")
    office.wait(1)
    await runs(office, "low-1", priority=500)
    office.wait(PROTECTED)
    urgent(office)
    await office.settle()
    assert (request(office, "low-0").name, request(office, "low-1")) == ("urgent", None)
    urgent(office, "most", priority=2000)
    await office.settle()
    assert (request(office, "low-0").name, request(office, "low-1").name) == ("most", "urgent")
