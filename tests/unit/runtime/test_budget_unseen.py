"""What steps take beyond their readings: whatever proves it less, it is never less than it is."""

from dataclasses import replace
from types import SimpleNamespace

import torch
from hypothesis import given
from hypothesis import strategies as st

from kompakt_runtime.budget.plan import KeptTensor, PlanChoices, RecordedStep
from kompakt_runtime.budget.unseen import UnseenBytes

MOMENTS = 4
BYTES = st.lists(st.integers(0, 1000), min_size=MOMENTS, max_size=MOMENTS)
TENSORS = [KeptTensor(name, 100, 10, saved, MOMENTS - 1 - saved) for saved, name in enumerate("ab")]


def recorded(readings, unseen: int, known: int | None = None, tensors=TENSORS, into: UnseenBytes | None = None):
    """known: this step's own peak."""
    found = into or UnseenBytes()
    found.ended(SimpleNamespace(ended=lambda peak, before: unseen, highest=max(readings)), known)
    step = RecordedStep(readings, unseen, tensors, {"a": 1.0, "b": 2.0})
    found.recorded(step)
    return found, step


@given(BYTES, BYTES, st.lists(st.tuples(st.sets(st.sampled_from("ab")), st.integers(0, 500))))
def test_what_steps_prove_is_never_less_than_it_is(readings, truly, steps):
    """Of each step by a plan nothing is known but that it took no more than the most so far."""
    found, step = recorded(readings, unseen := max(truly))
    truth, most = torch.tensor(truly), max(readings) + unseen
    for packed, besides in steps:
        totals = PlanChoices(step).seen(SimpleNamespace(packed=packed))
        most = max(most, int((totals + truth).max()) + besides)
        found.proved(totals, most)
        assert bool((found.at >= truth).all())
        assert bool((found.at <= unseen).all())


def test_a_step_by_the_plan_proves_what_is_unseen_at_its_peak():
    found, step = recorded([100, 200, 150, 50], 300)
    found.proved(PlanChoices(step).seen(SimpleNamespace(packed={"a", "b"})), 240)
    assert found.at.tolist() == [140, 40, 90, 190]
    assert found.at_most(step) == 500, "steps that measure take it all the same"


def test_what_was_proved_holds_for_the_same_tensors_only():
    proof = torch.tensor([100, 200, 150, 50])
    larger, renamed = [KeptTensor("a", 200, 10, 0, 3), TENSORS[1]], [replace(TENSORS[0], layer="c"), TENSORS[1]]
    for again, kept in ((TENSORS, True), (renamed, True), (larger, False)):
        found, _ = recorded([100, 200, 150, 50], 300)
        found.proved(proof, 240)
        recorded([110, 210, 160, 60], 300, tensors=again, into=found)
        assert (found.at.tolist() == [140, 40, 90, 190]) == kept
        assert (found.at.tolist() == [300] * 4) != kept


def test_a_recorded_step_whose_own_peak_is_known_is_believed_over_what_was_proved():
    found, _ = recorded([100, 200, 150, 50], 300)
    found.proved(torch.tensor([100, 200, 150, 50]), 240)
    recorded([100, 200, 150, 50], 90, known=290, into=found)
    assert found.at.tolist() == [90] * 4


def test_what_a_step_took_too_much_is_added_everywhere_until_a_larger_one_is_recorded():
    found, step = recorded([100, 200, 150, 50], 30)
    found.exceeded(50)
    assert found.at.tolist() == [80] * 4
    assert found.at_most(step) == 280
    recorded([100, 240, 150, 50], 30, into=found)
    assert found.at.tolist() == [40] * 4
