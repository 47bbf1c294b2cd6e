"""A gang that has its places and does not run, because its image cannot be pulled, say, may be ended like one that runs."""

from collections.abc import Callable
from typing import Any

import pytest

from kompakt_core import contract as c
from kompakt_core.contract import timestamps
from tests.support.extender.office import Office, on_nodes
from tests.support.extender.preempting import PROTECTED, bind_all, condition, ended, request, seats, touch, urgent


async def placed(office: Office, name: str = "low", workers: int = 2) -> None:
    """Bound to its nodes; its containers never start."""
    office.world.add_gang(name, workers, 4, priority=0)
    await office.settle()
    await bind_all(office, name, workers)


@pytest.mark.parametrize("never", [True, False], ids=["it never ran", "it runs no more"])
async def test_it_is_ended_when_its_minimum_run_time_since_the_release_is_over(never: bool) -> None:
    office = on_nodes(1)
    await placed(office)
    if not never:
        office.wait(10)
        condition(office, "low", "Running", "True")
        await office.settle()
        condition(office, "low", "Running", "False")
        office.wait(-10)
    office.wait(PROTECTED - 1)
    urgent(office)
    await office.settle()
    assert request(office, "low") is None
    assert "may be ended for it from" in office.scheduling("urgent")["message"]
    office.wait(1)
    await office.settle()
    assert request(office, "low").name == "urgent"
    mine = seats(office, "low")
    ended(office, "low")
    await office.settle()
    assert (office.scheduling("urgent")["state"], seats(office, "urgent")) == ("Released", mine)
    assert not office.ledger.reserved.exact


async def test_once_it_runs_its_minimum_run_time_begins() -> None:
    office = on_nodes(1)
    await placed(office)
    office.wait(PROTECTED - 1)
    condition(office, "low", "Running", "True")
    urgent(office)
    await office.settle()
    office.wait(PROTECTED - 1)
    await office.settle()
    assert request(office, "low") is None
    office.wait(1)
    await office.settle()
    assert request(office, "low").name == "urgent"


async def test_a_gang_that_is_not_wholly_bound_is_withdrawn_and_not_ended() -> None:
    office = on_nodes(1)
    office.world.add_gang("low", 2, 4, priority=0)
    await office.settle()
    await bind_all(office, "low", 1)
    office.world.jobs["low"]["spec"]["runPolicy"] = {"preemption": {"minRuntimeSeconds": 1}}
    touch(office, "low")
    office.wait(60)
    urgent(office)
    await office.settle()
    assert request(office, "low") is None
    office.wait(60)
    await office.settle()
    assert office.scheduling("low")["state"] == "Withdrawn"
    assert request(office, "low") is None


def delete_worker(office: Office) -> None:
    office.world.delete_pod("low-worker-1-a1")


def stop_worker(office: Office) -> None:
    office.world.pods["low-worker-1-a1"]["metadata"]["deletionTimestamp"] = "2026-01-31T12:00:00Z"
    office.world.add_pod(office.world.pods["low-worker-1-a1"])


def suspend(office: Office) -> None:
    office.world.jobs["low"]["spec"]["suspend"] = True
    touch(office, "low")


@pytest.mark.parametrize("happens", [delete_worker, stop_worker, suspend])
async def test_one_that_is_going_anyway_is_not_asked(happens: Callable[[Office], Any]) -> None:
    office = on_nodes(1)
    await placed(office)
    office.wait(PROTECTED)
    happens(office)
    urgent(office)
    await office.settle()
    assert request(office, "low") is None


async def test_a_gang_that_waits_is_asked_about_again_once_the_record_of_another_says_that_it_may_be_ended() -> None:
    """All pods of a withdrawn plan were bound after all: nothing but the record changes when it stands again."""
    office = on_nodes(1)
    office.world.add_gang("low", 2, 4, priority=0)
    await office.settle()
    office.wait(PROTECTED)
    began = office.jobs.preemption_version
    for index in range(2):  # bound, but the watch is behind
        node = office.annotations(f"low-worker-{index}-a1")[c.ANN_PLANNED_NODE]
        assert await office.bind(f"low-worker-{index}-a1", node) == ""
        office.world.report("n0")
        reports = [news for news in office.world.news if news[0] == "topologies"]
        office.world.news.extendleft(reports)
        office.see(len(reports))
    assert not any(pod.node for pod in office.jobs.pods_of("uid-low"))
    await office.planner.run_cycle()  # takes the plan back
    urgent(office)
    await office.settle()
    assert office.scheduling("low")["state"] == "Released"
    assert office.jobs.preemption_version > began
    assert timestamps.decode(office.scheduling("low")["plan"]["releasedAt"]) < office.now
    assert request(office, "low").name == "urgent"
