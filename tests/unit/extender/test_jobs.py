"""What is decided about a job while it is being written about counts, and so does what is written."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core.contract.scheduling_record import Record, State
from kompakt_core.ids import NodeName
from kompakt_extender.jobs import Jobs
from kompakt_extender.project_job import read_job

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
    state = jobs.begin_writing(JOB)
    for change in during:
        jobs.change(JOB, change)
    if written:
        jobs.confirm(state, sent)
    jobs.end_writing(state)
    for change in after:
        jobs.change(JOB, change)
    expected = NEW if written else OLD
    for change in (*before, *during, *after):
        expected = change(expected)
    assert jobs.record(JOB) == expected
    assert jobs.written(JOB) == (sent if written else None)


def test_nothing_is_decided_anew_while_it_is_being_written_about() -> None:
    jobs = known()
    state = jobs.begin_writing(JOB)
    with pytest.raises(AssertionError, match="default/j: decided anew while it is being written about"):
        jobs.decide(JOB, NEW)
    assert jobs.record(JOB) == OLD
    jobs.end_writing(state)
    assert jobs.decide(JOB, NEW) == jobs.record(JOB) == NEW


def test_what_is_written_about_a_job_that_is_gone_is_forgotten() -> None:
    jobs = known()
    state = jobs.begin_writing(JOB)
    jobs.remove_job("uid-j")
    jobs.confirm(state, NEW)
    jobs.end_writing(state)
    assert jobs.written(JOB) is None
    assert jobs.record(JOB).state is State.WAITING
    assert jobs.record(JOB).waiting_since == ""
