"""The bound follows from its target; what carries no information gives none."""

import math
from dataclasses import replace

import pytest

from kompakt_runtime.bounds import UNMEASURED, Observation, aimed_at, error_bound, first_bound, observed

SEEN = Observation(gradient_before=0.02, gradient=0.02, momentum=0.1, delta_squares=50.0, nonzero=0.5, magnitude=1.0)


def test_the_bound_gives_the_gradient_error_it_was_asked_for():
    bound = error_bound(SEEN, 0.01)
    sigma = bound / math.sqrt(3) * math.sqrt(SEEN.nonzero * SEEN.delta_squares)
    assert sigma == pytest.approx(0.01 * SEEN.momentum)


def test_loss_scale_and_clipping_cancel():
    scaled = replace(SEEN, gradient_before=0.02 * 1024, delta_squares=50.0 * 1024**2)
    assert error_bound(scaled, 0.01) == pytest.approx(error_bound(SEEN, 0.01))
    clipped = replace(SEEN, gradient=0.002, momentum=0.01)
    assert error_bound(clipped, 0.01) == pytest.approx(error_bound(SEEN, 0.01))


def test_the_bound_is_never_wider_than_the_mean_magnitude():
    assert error_bound(replace(SEEN, magnitude=1e-6), 0.1) == 1e-6


@pytest.mark.parametrize("field", ["gradient_before", "gradient", "momentum", "delta_squares", "nonzero", "magnitude"])
@pytest.mark.parametrize("value", [0.0, math.nan, math.inf, -1.0])
def test_figures_that_say_nothing_give_no_bound(field, value):
    assert error_bound(replace(SEEN, **{field: value}), 0.01) is None


def test_the_first_bound_is_what_a_gradient_of_parts_that_do_not_agree_would_give_and_tighter():
    # Dense inputs of deviation 2 and no mean: the gradient is a sum of independent products.
    magnitude = math.sqrt(2 / math.pi) * math.sqrt(50.0) * 2
    seen = replace(SEEN, gradient_before=magnitude, gradient=magnitude, momentum=magnitude, nonzero=1.0, magnitude=9.0)
    bound = first_bound(2.0, 0.01)
    assert bound == pytest.approx(UNMEASURED * error_bound(seen, 0.01))
    assert aimed_at(seen, 0.01, bound) == pytest.approx(UNMEASURED)
    # Gradients that agree are larger, and then it is tighter still.
    agreeing = replace(seen, gradient_before=3 * magnitude, gradient=3 * magnitude, momentum=3 * magnitude)
    assert aimed_at(agreeing, 0.01, bound) == pytest.approx(UNMEASURED / 3)


@pytest.mark.parametrize("deviation", [0.0, math.nan, math.inf])
def test_an_input_without_a_deviation_gives_no_first_bound(deviation):
    assert first_bound(deviation, 0.01) is None


def test_figures_that_say_nothing_tell_no_share_of_the_target():
    assert aimed_at(replace(SEEN, gradient=0.0), 0.01, 1.0) is None


def test_measured_steps_are_dense_at_first_and_then_every_32():
    assert [step for step in range(200) if observed(step)] == [0, 1, 2, 4, 8, 16, 32, 64, 96, 128, 160, 192]
