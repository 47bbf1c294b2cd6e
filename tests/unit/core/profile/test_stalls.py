"""Stash's formulas, and what is left out where a mode was not measured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core.errors import InvalidInput
from kompakt_core.profile.stalls import Stall, Stalls, StepTimes, stalls


def test_every_stall_by_its_formula() -> None:
    found = stalls(StepTimes(one=0.2, all=0.25, cold=0.5, warm=0.4, halves=0.75))
    assert found.interconnect == Stall(pytest.approx(0.05), pytest.approx(20), "all")
    assert found.network == Stall(pytest.approx(0.5), pytest.approx(200), "all"), "of the single machine: it may exceed 100"
    assert found.prep == Stall(pytest.approx(0.15), pytest.approx(37.5), "warm")
    assert found.fetch == Stall(pytest.approx(0.1), pytest.approx(20), "cold")


def test_what_was_not_measured_is_left_out() -> None:
    assert stalls(StepTimes()) == Stalls()
    only = stalls(StepTimes(one=1, all=2))
    assert (only.interconnect is not None, only.network, only.prep, only.fetch) == (True, None, None, None)
    assert stalls(StepTimes(all=1, warm=1.5)).fetch is None


@pytest.mark.parametrize("time", [0.0, -1.0, float("inf"), float("nan")])
def test_times_that_cannot_be_are_refused(time: float) -> None:
    with pytest.raises(InvalidInput, match=r"step time warm is .*expected seconds above 0"):
        stalls(StepTimes(warm=time))


TIMES = st.floats(1e-4, 1e4)


@given(TIMES, TIMES, TIMES, TIMES)
def test_the_stalls_of_a_machine_add_up_to_what_the_cold_step_takes(one: float, all_: float, cold: float, warm: float) -> None:
    found = stalls(StepTimes(one, all_, cold, warm))
    assert found.interconnect is not None
    assert found.prep is not None
    assert found.fetch is not None
    assert one + found.interconnect.seconds + found.prep.seconds + found.fetch.seconds == pytest.approx(cold)
