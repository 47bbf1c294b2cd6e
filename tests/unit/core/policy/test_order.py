"""Who goes first where durations are unknown."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_core.policy import order
from kompakt_core.policy.order import BINS, bin_of, ranks
from tests.support.core.outcomes import refusal

SERVICES = st.lists(st.floats(0, 1e6), max_size=60)


@pytest.mark.parametrize(("gpu_hours", "begins"), [(0, 0), (0.015, 0), (1, 1), (1.4, 1), (1.42, 2**0.5), (1e9, 2**16.5)])
def test_service_lies_in_the_bin_that_begins_at_or_below_it(gpu_hours: float, begins: float) -> None:
    assert BINS[bin_of(gpu_hours)] == begins


@pytest.mark.parametrize("wrong", [-1.0, -1e-9, math.nan])
def test_service_that_nobody_can_have_is_refused(wrong: float) -> None:
    assert "expected a number from 0 up" in refusal(bin_of, wrong)
    assert "expected a number from 0 up" in refusal(ranks, [1.0], [wrong])


def test_before_anybody_ended_least_service_goes_first() -> None:
    found = ranks((), ())
    assert list(found[1:-1]) == sorted(found[1:-1]), "all but the first bin, wider than the next, and the last, which ends"
    assert found[0] < found[bin_of(16)] < found[bin_of(1024)]


def test_who_nears_the_length_that_jobs_have_goes_before_who_begins() -> None:
    found = ranks([10.0] * 500, ())
    assert found[bin_of(8)] < found[bin_of(0)]
    assert found[bin_of(8)] < found[bin_of(20)], "and before those that outlived it"


def test_jobs_that_go_on_for_long_are_not_overlooked() -> None:
    alone = ranks([1.0] * 200, ())
    beside = ranks([1.0] * 200, [900.0] * 200)
    assert beside[bin_of(2)] > alone[bin_of(2)], "half of all live on and on: whoever outlived an hour will not end soon"


@settings(max_examples=50, deadline=None)
@given(SERVICES, SERVICES)
def test_every_job_ends_some_time_and_order_of_telling_does_not_matter(ended: list[float], alive: list[float]) -> None:
    lives = order._lives(order._counts(ended), order._counts(alive))
    assert math.isclose(math.fsum(lives), 1)
    assert min(lives) > 0
    assert ranks(ended, alive) == ranks(ended[::-1], sorted(alive))


@settings(max_examples=50, deadline=None)
@given(SERVICES, st.integers(0, len(BINS) - 1))
def test_a_rank_is_that_of_the_best_span_as_survival_tells_it(ended: list[float], at: int) -> None:
    """The index by the area under the survival curve, whose jobs end in the middle of their bins."""
    lives = order._lives(order._counts(ended), [0] * len(BINS))
    ends = [*BINS[1:], BINS[-1] * 2**0.5]
    middles = [(begin + end) / 2 for begin, end in zip(BINS, ends, strict=True)]

    def hours(until: float) -> float:
        return math.fsum(share * (min(middle, until) - BINS[at]) for share, middle in list(zip(lives, middles, strict=True))[at:])

    best = max(math.fsum(lives[at : stop + 1]) / hours(ends[stop]) for stop in range(at, len(BINS)))
    assert abs(ranks(ended, ())[at] - -math.log(best, order.RANK_BASE)) <= 1 + 1e-6
    assert ranks(ended, ())[at] <= -math.log(best, order.RANK_BASE) + 1e-6


def test_the_more_live_on_the_later_the_rank_of_a_kaplan_meier_example() -> None:
    """Ten end within the first bin, ten are alive beyond the second, twenty end in the last: by hand, without a prior."""
    first, third, last = 0, 3, len(BINS) - 1
    ended, alive = [0] * len(BINS), [0] * len(BINS)
    ended[first], alive[third], ended[last] = 10, 10, 20
    lives = order._lives(ended, alive)
    prior = order.PRIOR / len(BINS)
    reached = 40 + order.PRIOR
    assert lives[first] == pytest.approx((10 + prior) / reached)
    left = 1 - lives[first]
    for at in (1, 2):
        assert lives[at] == pytest.approx(left * prior / (reached - 10 - prior * at))
        left -= lives[at]
    assert lives[third] == pytest.approx(left * prior / (reached - 10 - prior * third - 5)), "half of those alive are past it"
