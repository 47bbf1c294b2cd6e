"""Priorities and chances: their arithmetic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core.errors import InvalidInput
from kompakt_core.policy.chance import chance_of_none, offers_for, time_for
from kompakt_core.policy.priority import Progress, priority


@pytest.mark.parametrize(
    ("done", "running", "ideal", "value"),
    [
        (0.0, 0.0, 100.0, 0.0),  # never ran: first
        (0.5, 50.0, 100.0, 1.0),  # not slowed
        (0.01, 1.0, 100.0, 1.0),  # nor is a job that has just begun, nor a long one
        (0.25, 50.0, 100.0, 0.5),  # half as fast as it could be
        (1.0, 400.0, 100.0, 0.25),
        (0.0, 30.0, 100.0, 0.0),  # ran, but did nothing yet
    ],
)
def test_priority_is_the_average_efficiency(done: float, running: float, ideal: float, value: float) -> None:
    assert priority(Progress(done, running, ideal)) == pytest.approx(value)


@pytest.mark.parametrize("progress", [Progress(-0.1, 1, 1), Progress(1.1, 1, 1), Progress(0, -1, 1), Progress(0, 1, 0)])
def test_impossible_progress_is_refused(progress: Progress) -> None:
    with pytest.raises(InvalidInput, match="expected a share from 0 to 1"):
        priority(progress)


def test_chance_that_offers_hold_nothing_local() -> None:
    assert chance_of_none(0.1, 0) == 1
    assert chance_of_none(0.1, 20) == pytest.approx(0.12157665459)
    assert chance_of_none(1, 3) == 0


def test_offers_take_task_time_over_slots() -> None:
    assert time_for(10, 60, 100) == 6.0


def test_offers_for_a_share_of_locality() -> None:
    # 100 machines, 3 replicas, the last 20 tasks, 95 %: miss = 1, -(100/3) ln(1/2)
    assert offers_for(0.95, 20, 3, 100) == pytest.approx(23.1049060187)


@given(st.floats(0, 0.99), st.integers(1, 100), st.integers(1, 5), st.integers(1, 1000))
def test_more_locality_takes_more_offers(locality: float, tasks: int, replicas: int, machines: int) -> None:
    assert 0 <= offers_for(locality, tasks, replicas, machines) <= offers_for((1 + locality) / 2, tasks, replicas, machines)


@pytest.mark.parametrize("call", [lambda: chance_of_none(1.5, 1), lambda: time_for(1, 1, 0), lambda: offers_for(1.0, 1, 1, 1)])
def test_impossible_chances_are_refused(call: object) -> None:
    with pytest.raises(InvalidInput, match="expected"):
        call()  # type: ignore[operator]
