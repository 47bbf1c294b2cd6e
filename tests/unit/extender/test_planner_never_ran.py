"""A gang that has its places and does not run, because its image cannot be pulled, say, may be ended like one that runs."""

from collections.abc import Callable
from typing import Any

import pytest

from kompakt_core import contract as c
from kompakt_core.contract import timestamps
from tests.support.extender.leader import Leader, on_nodes
from tests.support.extender.preempting import PROTECTED, bind_all, condition, ended, request, seats, touch, urgent


async def placed(leader: Leader, name: str = "low", workers: int = 2) -> None:
    """Bound to its nodes; its containers never start."""
    leader.world.add_gang(name, workers, 4, priority=0)
    await leader.settle()
    await bind_all(leader, name, workers)


@pytest.mark.parametrize("never", [True, False], ids=["it never ran", "it runs no more"])
async def test_it_is_ended_when_its_minimum_run_time_since_the_release_is_over(never: bool) -> None:
    leader = on_nodes(1)
    await placed(leader)
    if not never:
        leader.wait(10)
        condition(leader, "low", "Running", "True")
        await leader.settle()
        condition(leader, "low", "Running", "False")
        leader.wait(-10)
    leader.wait(PROTECTED - 1)
    urgent(leader)
    await leader.settle()
    assert request(leader, "low") is None
    assert "may be ended for it from" in leader.scheduling("urgent")["message"]
    leader.wait(1)
    await leader.settle()
    assert request(leader, "low").name == "urgent"
    mine = seats(leader, "low")
    ended(leader, "low")
    await leader.settle()
    assert (leader.scheduling("urgent")["state"], seats(leader, "urgent")) == ("Released", mine)
    assert not leader.ledger.reserved.exact


async def test_once_it_runs_its_minimum_run_time_begins() -> None:
    leader = on_nodes(1)
    await placed(leader)
    leader.wait(PROTECTED - 1)
    condition(leader, "low", "Running", "True")
    urgent(leader)
    await leader.settle()
    leader.wait(PROTECTED - 1)
    await leader.settle()
    assert request(leader, "low") is None
    leader.wait(1)
    await leader.settle()
    assert request(leader, "low").name == "urgent"


async def test_a_gang_that_is_not_wholly_bound_is_withdrawn_and_not_ended() -> None:
    leader = on_nodes(1)
    leader.world.add_gang("low", 2, 4, priority=0)
    await leader.settle()
    await bind_all(leader, "low", 1)
    leader.world.jobs["low"]["spec"]["runPolicy"] = {"preemption": {"minRuntimeSeconds": 1}}
    touch(leader, "low")
    leader.wait(60)
    urgent(leader)
    await leader.settle()
    assert request(leader, "low") is None
    leader.wait(60)
    await leader.settle()
    assert leader.scheduling("low")["state"] == "Withdrawn"
    assert request(leader, "low") is None


def delete_worker(leader: Leader) -> None:
    leader.world.delete_pod("low-worker-1-a1")


def stop_worker(leader: Leader) -> None:
    leader.world.pods["low-worker-1-a1"]["metadata"]["deletionTimestamp"] = "2026-01-31T12:00:00Z"
    leader.world.add_pod(leader.world.pods["low-worker-1-a1"])


def suspend(leader: Leader) -> None:
    leader.world.jobs["low"]["spec"]["suspend"] = True
    touch(leader, "low")


@pytest.mark.parametrize("happens", [delete_worker, stop_worker, suspend])
async def test_one_that_is_going_anyway_is_not_asked(happens: Callable[[Leader], Any]) -> None:
    leader = on_nodes(1)
    await placed(leader)
    leader.wait(PROTECTED)
    happens(leader)
    urgent(leader)
    await leader.settle()
    assert request(leader, "low") is None


async def test_a_gang_that_waits_is_asked_about_again_once_the_record_of_another_says_that_it_may_be_ended() -> None:
    """All pods of a withdrawn plan were bound after all: nothing but the record changes when it stands again."""
    leader = on_nodes(1)
    leader.world.add_gang("low", 2, 4, priority=0)
    await leader.settle()
    leader.wait(PROTECTED)
    began = leader.jobs.preemption_version
    for index in range(2):  # bound, but the watch is behind
        node = leader.annotations(f"low-worker-{index}-a1")[c.ANN_PLANNED_NODE]
        assert await leader.bind(f"low-worker-{index}-a1", node) == ""
        leader.world.report("n0")
        reports = [news for news in leader.world.news if news[0] == "topologies"]
        leader.world.news.extendleft(reports)
        leader.see(len(reports))
    assert not any(pod.node for pod in leader.jobs.pods_of("uid-low"))
    await leader.planner.run_cycle()  # takes the plan back
    urgent(leader)
    await leader.settle()
    assert leader.scheduling("low")["state"] == "Released"
    assert leader.jobs.preemption_version > began
    assert timestamps.decode(leader.scheduling("low")["plan"]["releasedAt"]) < leader.now
    assert request(leader, "low").name == "urgent"
