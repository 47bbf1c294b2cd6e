"""The bound follows from its target; what carries no information gives none."""

import math
import random
import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_runtime.bounds.layer import (
    SPAN,
    UNMEASURED,
    Average,
    LayerObservation,
    aimed_at,
    best_bound,
    error_bound,
    first_bound,
    observed,
)

SEEN = LayerObservation(gradient_before=0.02, gradient=0.02, momentum=0.1, delta_squares=25.0, magnitude=1.0)


def test_the_bound_gives_the_gradient_error_it_was_asked_for():
    bound = best_bound(SEEN, 0.01)
    sigma = bound / math.sqrt(3) * math.sqrt(SEEN.delta_squares)
    assert sigma == pytest.approx(0.01 * SEEN.momentum)


def test_loss_scale_and_clipping_cancel():
    scaled = replace(SEEN, gradient_before=0.02 * 1024, delta_squares=25.0 * 1024**2)
    assert best_bound(scaled, 0.01) == pytest.approx(best_bound(SEEN, 0.01))
    clipped = replace(SEEN, gradient=0.002, momentum=0.01)
    assert best_bound(clipped, 0.01) == pytest.approx(best_bound(SEEN, 0.01))


@pytest.mark.parametrize(("best", "magnitude", "bound"), [(2.0, 1e-6, 1e-6), (0.5, 1.0, 0.5)])
def test_the_bound_is_never_wider_than_the_mean_magnitude(best, magnitude, bound):
    assert error_bound(best, replace(SEEN, magnitude=magnitude)) == bound


MEASURED = [step + 1 for step in range(2000) if observed(step)]


@given(st.lists(st.floats(1e-6, 1e3), min_size=len(MEASURED), max_size=len(MEASURED)))
def test_the_average_lies_between_what_was_measured(bests):
    average = Average()
    for count, (step, best) in enumerate(zip(MEASURED, bests, strict=True), 1):
        seen = bests[:count]
        assert min(seen) * (1 - 1e-9) <= average.after(best, step) <= max(seen) * (1 + 1e-9)


@pytest.mark.parametrize(("often", "best"), [(1 / 4, 0.25), (1 / 8, 0.3), (1 / 2, 0.05)])
def test_over_steps_of_very_different_gradients_the_error_meets_the_target_on_average(often, best):
    # Which steps are measured is up to chance. The last one alone is off by 1.7 to 14 times here.
    luck = random.Random(3)
    bests = [best if luck.random() < often else 1.0 for _ in range(200 * SPAN)]
    average, errors = Average(), []
    bound: float | None = 1.0
    for step, best in enumerate(bests):
        errors.append((bound / best) ** 2)
        if observed(step):
            bound = average.after(best, step + 1)
    assert 0.7 < statistics.fmean(errors[SPAN:]) ** 0.5 < 1.6


def test_what_was_measured_long_ago_is_forgotten():
    average = Average()
    for step in (1, 2, 3, 5, 9, 17, 33):
        average.after(1.0, step)
    for step in range(64, 20 * SPAN, 32):
        bound = average.after(100.0, step)
    assert bound == pytest.approx(100.0, rel=0.01)


def test_a_step_that_says_nothing_leaves_the_average_alone():
    average = Average()
    average.after(1.0, 1)
    assert average.after(None, 2) is None
    assert average.after(5e-324, 2) is None
    assert average.after(1.0, 3) == pytest.approx(1.0)


@pytest.mark.parametrize("field", ["gradient_before", "gradient", "momentum", "delta_squares", "magnitude"])
@pytest.mark.parametrize("value", [0.0, math.nan, math.inf, -1.0])
def test_figures_that_say_nothing_give_no_bound_and_tell_no_share_of_the_target(field, value):
    nothing = replace(SEEN, **{field: value})
    assert best_bound(nothing, 0.01) is None
    assert aimed_at(nothing, 0.01, 1.0) is None


def test_the_first_bound_is_what_a_gradient_of_parts_that_do_not_agree_would_give_and_tighter():
    # Dense inputs of deviation 2 and no mean: the gradient is a sum of independent products.
    magnitude = math.sqrt(2 / math.pi) * math.sqrt(25.0) * 2
    seen = replace(SEEN, gradient_before=magnitude, gradient=magnitude, momentum=magnitude, magnitude=9.0)
    bound = first_bound(2.0, 0.01)
    assert bound == pytest.approx(UNMEASURED * best_bound(seen, 0.01))
    assert aimed_at(seen, 0.01, bound) == pytest.approx(UNMEASURED)
    # Gradients that agree are larger, and then it is tighter still.
    agreeing = replace(seen, gradient_before=3 * magnitude, gradient=3 * magnitude, momentum=3 * magnitude)
    assert aimed_at(agreeing, 0.01, bound) == pytest.approx(UNMEASURED / 3)


@pytest.mark.parametrize("deviation", [0.0, math.nan, math.inf])
def test_an_input_without_a_deviation_gives_no_first_bound(deviation):
    assert first_bound(deviation, 0.01) is None


def test_measured_steps_are_dense_at_first_and_then_every_32():
    assert [step for step in range(200) if observed(step)] == [0, 1, 2, 4, 8, 16, 32, 64, 96, 128, 160, 192]
