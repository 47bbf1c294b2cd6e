"""Which layers are packed to stay within a budget: against all choices, and against a naive replay of the step."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_runtime.budget.plan import KeptTensor, PlanChoices, RecordedStep

STEPS = st.integers(2, 12)


@st.composite
def recorded(draw, most_layers=6):
    """Any step: tensors of a few layers that are saved and read in any order, and any memory beside them."""
    moments = draw(STEPS)
    tensors = []
    for _ in range(draw(st.integers(1, 10))):
        saved = draw(st.integers(0, moments - 1))
        nbytes = draw(st.integers(1, 1000))
        tensors.append(
            KeptTensor(
                f"layer{draw(st.integers(1, most_layers))}", nbytes, draw(st.integers(0, nbytes)), saved,
                draw(st.integers(saved, moments - 1)),
            )
        )  # fmt: skip
    readings = draw(st.lists(st.integers(0, 5000), min_size=moments, max_size=moments))
    layers = {tensor.layer for tensor in tensors}
    seconds = {layer: draw(st.integers(1, 100)) / 100 for layer in sorted(layers)}
    return RecordedStep(readings, draw(st.integers(0, 100)), tensors, seconds)


def played(step: RecordedStep, plain: frozenset[str]) -> int:
    """The peak, tensor by tensor."""
    return step.unseen + max(
        reading + sum(one.nbytes - one.kept for one in step.tensors if one.layer in plain and one.saved <= moment <= one.read)
        for moment, reading in enumerate(step.readings)
    )


@given(recorded(), st.integers(0, 12000))
def test_a_plan_is_within_its_budget_wherever_any_choice_is(step, budget):
    plan = PlanChoices(step).fastest(budget)
    assert plan.peak == played(step, plan.plain)
    all_packed = played(step, frozenset())
    assert plan.peak <= budget if all_packed <= budget else not plan.plain and plan.peak == all_packed


@given(recorded(), st.integers(0, 12000))
def test_no_layer_is_packed_that_would_fit_as_it_is(step, budget):
    plan = PlanChoices(step).fastest(budget)
    if plan.peak <= budget:
        assert all(played(step, plan.plain | {layer}) > budget for layer in plan.packed)


@settings(max_examples=60)
@given(recorded(), st.integers(0, 12000))
def test_no_choice_is_faster_than_the_best_of_all(step, budget):
    choices = PlanChoices(step)
    best, plan = choices.best(budget), choices.fastest(budget)
    assert best.peak == played(step, best.plain)
    if best.peak <= budget:
        assert best.seconds <= plan.seconds + 1e-12


def test_the_layer_goes_that_wins_most_at_the_peak_for_a_second():
    step = RecordedStep(
        [100, 200, 150],
        0,
        [KeptTensor("slow", 100, 20, 0, 2), KeptTensor("quick", 100, 20, 0, 2), KeptTensor("early", 500, 0, 0, 0)],
        {"slow": 2.0, "quick": 1.0, "early": 0.1},
    )
    choices = PlanChoices(step)
    assert choices.most == 760  # at the first moment, where early is still kept
    assert choices.fastest(760).packed == frozenset()
    assert choices.fastest(360).packed == {"early"}
    assert choices.fastest(300).packed == {"early", "quick"}
    assert choices.fastest(200).packed == {"early", "quick", "slow"}


def test_one_large_layer_goes_in_place_of_two_small_ones_where_that_is_faster():
    """For a second the small ones win more, but both are needed, and together they are slower."""
    step = RecordedStep(
        [100], 0, [KeptTensor(name, nbytes, 0, 0, 0) for name, nbytes in (("a", 60), ("b", 60), ("large", 100))],
        {"a": 1.0, "b": 1.0, "large": 1.9},
    )  # fmt: skip
    plan = PlanChoices(step).fastest(220)
    assert plan.packed == {"large"}
    assert plan == PlanChoices(step).best(220)


def test_plans_are_hardly_slower_than_the_best_of_all_choices():
    """60 drawn steps together, of which single ones may be worse."""
    ours, best = 0.0, 0.0
    for seed in range(60):
        rng = random.Random(seed)
        tensors = [
            KeptTensor(f"layer{n}", nbytes, rng.randrange(nbytes), at := rng.randrange(10), rng.randrange(at, 20))
            for n in range(8)
            for nbytes in [rng.randrange(10, 1000)]
        ]
        step = RecordedStep([rng.randrange(1000) for _ in range(20)], 0, tensors, {one.layer: rng.random() for one in tensors})
        choices = PlanChoices(step)
        budget = (choices.most + played(step, frozenset())) // 2
        ours, best = ours + choices.fastest(budget).seconds, best + choices.best(budget).seconds
    assert best - 1e-9 <= ours < 1.03 * best


def test_too_many_layers_to_look_at_all_choices_are_refused():
    step = RecordedStep([0], 0, [KeptTensor(f"layer{n}", 2, 1, 0, 0) for n in range(17)], {})
    with pytest.raises(ValueError, match="17 layers are too many to look at all choices; at most 16"):
        PlanChoices(step).best(10)
