"""What is held or kept for a gang is free for one of strictly higher priority, and the other thinks anew."""

import asyncio
from typing import Any

import pytest

from tests.support.extender.leader import Leader, on_nodes, slow_to_write
from tests.support.extender.preempting import PROTECTED, condition, ended, request, runs, seats, urgent
from tests.support.extender.world import worker


async def held_for_urgent(leader: Leader, lows: int = 1) -> None:
    """Gangs of priority 0 fill the nodes, and are asked to end for one of priority 1000."""
    for index in range(lows):
        await runs(leader, f"low-{index}")
    leader.wait(PROTECTED)
    urgent(leader, gpus=4 * lows)
    await leader.settle()
    assert all(request(leader, f"low-{index}").name == "urgent" for index in range(lows))


async def test_a_still_more_urgent_gang_gets_the_victim_of_the_other() -> None:
    leader = on_nodes(1)
    await held_for_urgent(leader)
    urgent(leader, "most", priority=2000)
    await leader.settle()
    assert (leader.scheduling("most")["reason"], request(leader, "low-0").name) == ("Preempting", "most")
    assert (leader.scheduling("urgent")["state"], leader.scheduling("urgent").get("victims")) == ("Waiting", None)
    leader.world.sent.clear()
    await leader.settle()
    assert leader.world.sent == [], "it is decided once"
    mine = seats(leader, "low-0")
    ended(leader, "low-0")
    for index in range(2):
        leader.world.add_pod(worker("low-0", index, 4, 2, priority=0))
    await leader.settle()
    assert [leader.scheduling(name)["state"] for name in ("most", "urgent", "low-0")] == ["Released", "Waiting", "Waiting"]
    assert seats(leader, "most") == mine
    assert not leader.ledger.reserved.exact


async def test_the_victim_is_asked_for_the_other_without_being_told_to_go_on_in_between() -> None:
    leader = on_nodes(1)
    await held_for_urgent(leader)
    heard = slow_to_write(leader, "most")
    urgent(leader, "most", priority=2000)
    for _ in range(6):  # while the other's reservation is being written
        leader.see()
        await leader.planner.run_cycle()
        await asyncio.sleep(0)
        assert request(leader, "low-0").name == "urgent"
    heard.set()
    await leader.settle()
    assert request(leader, "low-0").name == "most"


def stopping(leader: Leader, name: str) -> None:
    """The operator acted on the request; the pods need time to stop."""
    leader.world.jobs[name]["status"]["attempt"] += 1
    condition(leader, name, "Running", "False")


def gone(leader: Leader, name: str) -> None:
    """The pods of the first attempt have stopped."""
    for index in range(2):
        leader.world.delete_pod(f"{name}-worker-{index}-a1")
    leader.world.report("n0")


async def test_who_is_above_gets_the_gpus_of_a_victim_that_stops_while_it_is_being_written_about() -> None:
    leader = on_nodes(1)
    await held_for_urgent(leader)
    stopping(leader, "low-0")
    await leader.settle()
    heard = slow_to_write(leader, "most")
    urgent(leader, "most", priority=2000)
    leader.see()
    await leader.planner.run_cycle()
    assert leader.planner.busy, "it is written why the most urgent gang waits"
    gone(leader, "low-0")
    for _ in range(3):
        leader.see()
        await leader.planner.run_cycle()
        await asyncio.sleep(0)
    assert leader.scheduling("urgent")["state"] == "Reserved"
    heard.set()
    await leader.settle()
    assert [leader.scheduling(name)["state"] for name in ("most", "urgent")] == ["Released", "Waiting"]


async def test_who_is_above_gets_the_gpus_of_a_victim_that_stops_while_it_is_thought_about() -> None:
    leader = on_nodes(1)
    await held_for_urgent(leader)
    stopping(leader, "low-0")
    await leader.settle()
    urgent(leader, "most", priority=2000)

    def victim_stops() -> None:
        gone(leader, "low-0")
        leader.see()

    leader.meanwhile.append(victim_stops)
    await leader.settle()
    assert not leader.meanwhile
    assert [leader.scheduling(name)["state"] for name in ("most", "urgent")] == ["Released", "Waiting"]


@pytest.mark.parametrize("more", [{}, {"preemptionPolicy": "Never"}], ids=["may end others", "never ends others"])
async def test_gpus_that_are_free_already_are_taken_and_who_need_not_end_goes_on(more: dict[str, Any], leader: Leader) -> None:
    await held_for_urgent(leader, lows=2)
    mine = seats(leader, "low-0")
    ended(leader, "low-0")
    urgent(leader, "most", priority=2000, **more)
    await leader.settle()
    assert leader.scheduling("most")["state"] == "Released"
    assert seats(leader, "most") == mine
    assert (leader.scheduling("urgent")["state"], request(leader, "low-1")) == ("Waiting", None)
    assert not leader.ledger.reserved.exact


@pytest.mark.parametrize("priority", [999, 1000])
async def test_equal_and_lower_priorities_do_not_get_what_is_held(priority: int, leader: Leader) -> None:
    await held_for_urgent(leader, lows=2)
    ended(leader, "low-0")
    urgent(leader, "other", priority=priority)
    await leader.settle()
    assert (leader.scheduling("other")["state"], leader.scheduling("urgent")["reason"]) == ("Waiting", "Preempting")
    ended(leader, "low-1")
    await leader.settle()
    assert leader.scheduling("urgent")["state"] == "Released"


async def test_a_gang_counts_as_its_least_important_pod_where_it_asks_and_as_its_most_important_one_where_gpus_are_held() -> None:
    leader = on_nodes(1)
    await held_for_urgent(leader)
    urgent(leader, "mixed", priority=2000)
    leader.world.pods["mixed-worker-1-a1"]["spec"]["priority"] = 1000
    leader.world.add_pod(leader.world.pods["mixed-worker-1-a1"])
    await leader.settle()
    assert leader.scheduling("mixed")["state"] == "Waiting"
    assert request(leader, "low-0").name == "urgent"


async def test_nobody_else_ends_where_the_gpus_of_the_others_victim_are_enough(leader: Leader) -> None:
    """Both low gangs run; one ends for the urgent gang already, and suits the most urgent one as well as the other does."""
    await runs(leader, "low-0")
    leader.wait(1)
    await runs(leader, "low-1", priority=500)
    leader.wait(PROTECTED)
    urgent(leader)
    await leader.settle()
    assert (request(leader, "low-0").name, request(leader, "low-1")) == ("urgent", None)
    urgent(leader, "most", priority=2000)
    await leader.settle()
    assert (request(leader, "low-0").name, request(leader, "low-1").name) == ("most", "urgent")
