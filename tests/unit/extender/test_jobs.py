"""What is decided about a job while it is being written about counts, and so does what is written."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core.contract.scheduling_record import Record, State
from kompakt_core.ids import NodeName
from kompakt_extender.jobs import Jobs
from kompakt_extender.project_job import read_job
from tests.support.extender.leader import Leader, on_nodes, slow_to_write
from tests.support.extender.preempting import PROTECTED, runs, urgent
from tests.support.extender.racks import occupy

JOB = read_job(b'{"metadata": {"name": "j", "namespace": "default", "uid": "uid-j"}, "spec": {}, "status": {"attempt": 1}}')
OLD = Record(1, State.WAITING, "Waiting", "no room", "2026-01-31T12:00:00Z")
NEW = replace(OLD, message="still no room", placeable_since="2026-01-31T12:00:01Z")
UNTIL = "2026-01-31T13:00:00Z"


def known() -> Jobs:
    jobs = Jobs()
    jobs.set_job(JOB)
    jobs.decide(JOB, OLD)
    return jobs


def passed(record: Record) -> Record:
    return replace(record, overtaken=record.overtaken + 1)


def leaving_out(node: str) -> Callable[[Record], Record]:
    return lambda record: record.excluding([NodeName(node)], UNTIL, "OutOfcpu")


CHANGES = st.lists(st.one_of(st.just(passed), st.sampled_from(["a", "b", "c"]).map(leaving_out)))


@given(before=CHANGES, during=CHANGES, after=CHANGES, written=st.booleans())
def test_no_change_is_lost_whenever_it_comes(
    before: list[Callable[[Record], Record]],
    during: list[Callable[[Record], Record]],
    after: list[Callable[[Record], Record]],
    written: bool,
) -> None:
    jobs = known()
    for change in before:
        jobs.change(JOB, change)
    sent = replace(jobs.record(JOB), message=NEW.message, placeable_since=NEW.placeable_since)
    jobs.begin_writing(JOB)
    for change in during:
        jobs.change(JOB, change)
    if written:
        jobs.confirm(JOB, sent)
    jobs.end_writing(JOB)
    for change in after:
        jobs.change(JOB, change)
    expected = NEW if written else OLD
    for change in (*before, *during, *after):
        expected = change(expected)
    assert jobs.record(JOB) == expected
    assert jobs.written(JOB) == (sent if written else None)


def test_nothing_is_decided_anew_while_it_is_being_written_about() -> None:
    jobs = known()
    jobs.begin_writing(JOB)
    with pytest.raises(AssertionError, match="default/j: decided anew while it is being written about"):
        jobs.decide(JOB, NEW)
    assert jobs.record(JOB) == OLD
    jobs.end_writing(JOB)
    assert jobs.decide(JOB, NEW) == jobs.record(JOB) == NEW


def test_what_is_written_about_a_job_that_is_gone_is_forgotten() -> None:
    jobs = known()
    jobs.begin_writing(JOB)
    jobs.remove_job("uid-j")
    jobs.confirm(JOB, NEW)
    jobs.end_writing(JOB)
    assert jobs.written(JOB) is None
    assert jobs.record(JOB).state is State.WAITING
    assert jobs.record(JOB).waiting_since == ""


async def test_a_node_that_fails_a_gang_while_it_is_written_about_is_left_out() -> None:
    leader = on_nodes(1)
    occupy(leader, "n0", 8)
    leader.world.add_gang("j", 2, 4)
    heard = slow_to_write(leader, "j")
    await leader.rounds()
    assert leader.planner.busy
    leader.planner.exclude("uid-j", NodeName("n0"), "OutOfcpu")
    heard.set()
    await leader.settle()
    assert [one["node"] for one in leader.scheduling("j")["excludedNodes"]] == ["n0"]
    for index in range(8):
        leader.world.delete_pod(f"n0-{index}")
    await leader.settle()
    assert leader.scheduling("j")["state"] == "Waiting"


async def test_a_reservation_that_another_takes_while_it_is_written_does_not_come_back() -> None:
    leader = on_nodes(1)
    await runs(leader, "low")
    leader.wait(PROTECTED)
    urgent(leader)
    heard = slow_to_write(leader, "urgent")
    await leader.rounds()
    assert set(leader.ledger.reserved.exact) == {"uid-urgent"}
    urgent(leader, "most", priority=2000)
    await leader.rounds()
    assert set(leader.ledger.reserved.exact) == {"uid-most"}
    leader.see()
    heard.set()
    while leader.planner.busy:
        await asyncio.gather(*leader.planner.busy)
    assert leader.scheduling("urgent")["reason"] == "Preempting", "as it was sent"
    assert leader.jobs.record(leader.jobs.views["uid-urgent"]).victims == ()
    await leader.settle()
    assert (leader.scheduling("urgent")["state"], leader.scheduling("most")["reason"]) == ("Waiting", "Preempting")


async def test_who_was_passed_while_it_was_written_about_counts_that() -> None:
    leader = on_nodes(1)
    occupy(leader, "n0", 4)
    leader.world.add_gang("big", 1, 8)
    heard = slow_to_write(leader, "big")
    await leader.rounds()
    leader.wait(1)
    leader.world.add_gang("small", 1, 4)
    await leader.rounds()
    heard.set()
    await leader.settle()
    assert leader.scheduling("small")["state"] == "Released"
    assert leader.jobs.record(leader.jobs.views["uid-big"]).overtaken == 1


async def test_a_plan_that_is_being_written_stands_though_another_takes_what_was_held_before(leader: Leader) -> None:
    await runs(leader, "low")
    occupy(leader, "n1", 8)
    leader.wait(PROTECTED)
    urgent(leader)
    await leader.settle()
    assert leader.ledger.reserved.nodes_of("uid-urgent") == {"n0"}
    heard = slow_to_write(leader, "urgent")
    for index in range(8):
        leader.world.delete_pod(f"n1-{index}")
    leader.see()
    await leader.planner.run_cycle()  # it finds room elsewhere
    urgent(leader, "most", priority=2000)
    await leader.rounds(1)
    assert set(leader.ledger.reserved.exact) == {"uid-most"}
    heard.set()
    await leader.settle()
    assert (leader.scheduling("urgent")["state"], leader.scheduling("most")["reason"]) == ("Released", "Preempting")
