"""The cheapest hardware inside a time budget: never dominated, and never better for what was predicted than it surely is."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core.profile.measurements import Measured
from kompakt_core.profile.offers import PricedPlace, cheapest, offers, recommend
from kompakt_core.profile.predictions import Unpredictable
from kompakt_core.profile.prices import Price
from tests.support.core.outcomes import refusal

# The published prices of three machines (Stash); the step times are made up.
PRICES = [Price("p3.2x", 1, 3.06), Price("p3.8x", 4, 12.24), Price("p3.16x", 8, 24.48)]
STEPS = [Measured("p3.2x", 1, 0.36), Measured("p3.8x", 4, 0.72), Measured("p3.16x", 8, 0.45)]
BATCHES = 80_000


def test_without_a_budget_the_smallest_cost_wins_and_dearer_is_not_faster_by_itself() -> None:
    found = offers(PRICES, STEPS, BATCHES)
    assert [(one.price.machine, one.hours, one.cost) for one in found] == [
        ("p3.2x", pytest.approx(8), pytest.approx(24.48)),
        ("p3.16x", pytest.approx(1.25), pytest.approx(30.6)),
        ("p3.8x", pytest.approx(4), pytest.approx(48.96)),
    ]
    assert cheapest(found) is found[0]


def test_a_budget_rules_out_what_is_late_and_equal_is_in_time() -> None:
    first = cheapest(offers(PRICES, STEPS, BATCHES, 7.9))
    assert first is not None
    assert first.price.machine == "p3.16x"
    exact = offers(PRICES, STEPS, BATCHES, 8.0)
    assert [one.in_time for one in exact] == [True, True, True]
    late = offers(PRICES, STEPS, BATCHES, 1.0)
    assert cheapest(late) is None
    assert late[0].price.machine == "p3.16x", "the fastest of those that are late"


def test_what_nobody_measured_stands_last_without_a_time() -> None:
    found = offers([Price("new", 8, 0.01), *PRICES], STEPS, BATCHES)
    assert (found[-1].price.machine, found[-1].hours, found[-1].cost, found[-1].in_time) == ("new", None, None, False)
    assert cheapest(offers([Price("new", 8, 0.01)], STEPS, BATCHES)) is None


@given(st.permutations(PRICES), st.permutations(STEPS), st.floats(0.5, 10))
def test_the_order_of_lines_does_not_matter(prices: list[Price], steps: list[Measured], hours: float) -> None:
    assert offers(prices, steps, BATCHES, hours) == offers(PRICES, STEPS, BATCHES, hours)


def test_numbers_that_cannot_be_are_refused() -> None:
    for batches, hours in ((0, 1.0), (1, 0.0), (-1, 1.0), (1, -1.0), (1, math.nan), (1 << 51, 1.0)):
        assert "expected both above 0" in refusal(offers, PRICES, STEPS, batches, hours)
    assert "p3.2x: a step of 0" in refusal(offers, PRICES, [Measured("p3.2x", 1, 0.0)], 1)


def test_two_profiles_of_one_place_that_differ_are_refused_and_equal_ones_are_one() -> None:
    twice = [*STEPS, Measured("p3.8x", 4, 0.8)]
    assert "two profiles of p3.8x with 4 GPUs differ; expected one" in refusal(offers, PRICES, twice, BATCHES)
    halves = [Measured("p3.8x", 4, 0.7, 2, run="halves"), Measured("p3.8x", 4, 0.9, 2, run="halves")]
    assert "two profiles of p3.8x with 4 GPUs on 2 machines differ" in refusal(offers, PRICES, halves, BATCHES)
    assert offers(PRICES, [*STEPS, STEPS[1]], BATCHES) == offers(PRICES, STEPS, BATCHES)


# A machine measured on 1 and 8 GPUs; 4 of them are somewhere between.
BOX = [Measured("box", 1, 0.2, run="one"), Measured("box", 8, 0.3)]
SIZES = [Price("box", 1, 1.0), Price("box", 4, 4.0), Price("box", 8, 9.0)]


def test_a_predicted_line_is_in_time_by_the_most_it_can_take_and_perhaps_by_the_least() -> None:
    """36,000 batches on 4 GPUs: 9,000 steps of 0.2 to 0.3 s are 0.5 to 0.75 h."""
    (four,) = (one for one in offers(SIZES, BOX, 36_000, 0.75) if one.price.gpus == 4)
    assert (four.predicted, four.measured, four.in_time) == (True, False, True)
    assert (four.least_hours, four.hours) == (pytest.approx(0.5), pytest.approx(0.75))
    assert (four.least_cost, four.cost) == (pytest.approx(2), pytest.approx(3))
    found = recommend(offers(SIZES, BOX, 36_000, 0.6), 0.6)
    assert found.cheapest is not None
    assert found.cheapest.price.gpus == 8, "4 GPUs may need more than 0.6 h"
    assert [one.price.gpus for one in found.perhaps] == [4], "they may be in time and cheaper"
    assert recommend(offers(SIZES, BOX, 36_000, 0.49), 0.49).perhaps == (), "they cannot be in time"


def test_a_prediction_that_cannot_be_cheaper_is_not_worth_a_measurement() -> None:
    found = recommend(offers([Price("box", 4, 5.0), SIZES[2]], BOX, 36_000), math.inf)
    assert [one.price.gpus for one in found.perhaps] == [4], "2.50 to 3.75, and 3.38"
    dear = [Price("box", 4, 7.0), SIZES[2]]
    found = recommend(offers(dear, BOX, 36_000), math.inf)
    assert (found.cheapest is not None and found.cheapest.price.gpus, found.perhaps) == (8, ()), "3.50 at least, and 3.38"


def test_where_nothing_is_in_time_the_fastest_is_told() -> None:
    found = recommend(offers(SIZES, BOX, 36_000, 0.1), 0.1)
    assert (found.cheapest, found.perhaps) == (None, ())
    assert found.fastest is not None
    assert (found.fastest.price.gpus, found.fastest.hours) == (8, pytest.approx(0.375))
    assert recommend(offers([Price("new", 1, 1.0)], BOX, 1)).fastest is None


MACHINES = st.sampled_from(["a", "b"])
SECONDS = st.floats(1e-3, 10)
LINES = st.lists(
    st.builds(Price, MACHINES, st.sampled_from([1, 2, 3, 4, 8]), st.floats(0, 100)),
    min_size=1,
    unique_by=lambda price: price.hardware,
)
KNOWN = st.lists(st.builds(Measured, MACHINES, st.sampled_from([1, 2, 4, 8]), SECONDS), unique_by=lambda one: one.hardware)
BUDGETS = st.floats(1e-3, 100)


@given(LINES, KNOWN, st.integers(1, 10**6), BUDGETS)
def test_no_offer_that_is_surely_in_time_is_cheaper_than_the_recommended(
    prices: list[Price], known: list[Measured], batches: int, budget: float
) -> None:
    found = offers(prices, known, batches, budget)
    assert sorted(one.price.hardware.machine for one in found) == sorted(price.machine for price in prices)
    best = recommend(found, budget).cheapest
    in_time = [one.cost for one in found if one.hours is not None and one.hours <= budget and one.cost is not None]
    if best is None:
        assert not in_time
    else:
        assert best.cost == min(in_time)
        assert best.hours is not None
        assert best.hours <= budget


def cost(one: PricedPlace | None) -> float:
    return math.inf if one is None or one.cost is None else one.cost


@given(LINES, KNOWN, st.integers(1, 10**6), BUDGETS, BUDGETS)
def test_more_time_is_never_dearer(prices: list[Price], known: list[Measured], batches: int, one: float, other: float) -> None:
    short, long = sorted((one, other))
    assert cost(cheapest(offers(prices, known, batches, long))) <= cost(cheapest(offers(prices, known, batches, short)))


@given(LINES, KNOWN, st.integers(1, 10**6), BUDGETS)
def test_measured_lines_are_what_they_are_without_any_prediction(
    prices: list[Price], known: list[Measured], batches: int, budget: float
) -> None:
    """Computed here from the step alone, and unchanged where all other measurements are taken away."""
    by_place = {one.hardware: one for one in known}
    for one in offers(prices, known, batches, budget):
        exact = by_place.get(one.price.hardware)
        assert one.measured == (exact is not None)
        if exact is not None:
            assert one.hours == one.least_hours == math.ceil(batches / one.price.gpus) * exact.step_seconds / 3600
            assert offers([one.price], [exact], batches, budget) == [one]


@given(LINES, KNOWN, st.integers(1, 10**6))
def test_the_fastest_ones_hours_are_the_smallest_budget_that_works(
    prices: list[Price], known: list[Measured], batches: int
) -> None:
    fastest = recommend(offers(prices, known, batches)).fastest
    if fastest is None:
        assert all(isinstance(one.step, Unpredictable) for one in offers(prices, known, batches))
        return
    assert fastest.hours is not None
    assert cheapest(offers(prices, known, batches, fastest.hours)) is not None
    assert cheapest(offers(prices, known, batches, math.nextafter(fastest.hours, 0))) is None
