"""A job that was placed badly is moved once its best level is open, if the rest of it pays. Two machines of four GPUs."""

from dataclasses import replace

import pytest

from kompakt_simulator.jobs import TraceJob
from kompakt_simulator.setting import Knowledge
from tests.support.simulator.jobs import HOUR, SETTING, job, run

SPREAD_AT = 60 + 1800  # job 2 waits as long as a machine can pay for a first guess of an hour, and takes the rack
FREED_AT = 2 * HOUR
DONE = (FREED_AT - SPREAD_AT) / 1.5  # what it has computed by then


def jobs(seconds: float) -> tuple[TraceJob, ...]:
    """Jobs 0 and 1 leave two GPUs of one machine and one of the other; then job 0 ends. Job 2 needs so many seconds."""
    return job(0, 0, FREED_AT, 2), job(1, 0, 9 * HOUR, 3), job(2, 60, seconds, 3)


def test_it_is_moved_as_soon_as_a_machine_is_open_and_pays_checkpoint_and_restart() -> None:
    assert run("kompakt", *jobs(10_000))[2] == (SPREAD_AT, FREED_AT + 3 + 30 + 10_000 - DONE)


def test_it_stays_where_a_restart_costs_more_than_half_of_what_the_move_saves() -> None:
    # Predicted is as much work as was done, at least an hour: 1,800 s saved.
    dear, cheap = (replace(SETTING, restart_s=seconds) for seconds in (897.5, 896.5))
    assert run("kompakt", *jobs(10_000), setting=dear)[2] == (SPREAD_AT, SPREAD_AT + 15_000)
    assert run("kompakt", *jobs(10_000), setting=cheap)[2] == (SPREAD_AT, FREED_AT + 3 + 896.5 + 10_000 - DONE)


@pytest.mark.parametrize(("seconds", "left", "moved"), [(3_645, 100, False), (3_720, 200, True)])
def test_what_a_job_declares_counts_where_it_is_known(seconds: float, left: float, moved: bool) -> None:
    setting = replace(SETTING, knowledge=Knowledge.DECLARED)
    start = 60 + seconds / 2
    assert seconds - (FREED_AT - start) / 1.5 == pytest.approx(left)
    end = FREED_AT + 3 + 30 + left if moved else start + 1.5 * seconds
    assert run("kompakt", *jobs(seconds), setting=setting)[2] == (start, pytest.approx(end))
