"""Plans outlive a process: the next attempt of a job has one from its first step on, if it does no more than that one did."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kompakt_runtime.amounts import Amount
from kompakt_runtime.bounds.file import BoundsFile, path_of
from kompakt_runtime.budget import control, earlier
from kompakt_runtime.budget.kept import FIELDS, ForwardPass, KeptPlan
from kompakt_runtime.budget.passes import UNREADABLE, SeenPasses
from kompakt_runtime.config import RuntimeConfig
from kompakt_runtime.report.text import Report
from kompakt_runtime.session import Session
from tests.support.runtime.budgeted import OTHER, ROWS, WIDTH, Counted, EvenClock, network, products, trained
from tests.support.runtime.compiling import compiled

ROOT = Path(__file__).parents[3]
BUDGET = 1_750_000  # a step packs some
STEPS = 16


class Attempt:
    """A session that went on with what an earlier one knew."""

    def __init__(self, running, known=None, budget=BUDGET, **settings) -> None:
        self.session = running(memory=Counted, memory_budget=Amount.of(str(budget)), **settings)
        if known is not None:
            bounds, plan = json.loads(json.dumps(known))
            self.session.remembered.load(bounds)
            self.session.planned.load(plan)

    def stop(self) -> None:
        self.session.stop()

    def trains(self, model, steps: int, rows=lambda step: ROWS) -> list[int]:
        self.model = model  # whose layers are known while it lives
        return trained(self.session, model, steps, rows)

    def known(self):
        self.session.stop()
        return self.session.remembered.state(), self.session.planned.state()

    @property
    def said(self):
        return self.session.figures.budget()


@pytest.fixture
def known(running, monkeypatch):
    monkeypatch.setattr(control, "Clock", EvenClock)
    first = Attempt(running)
    first.trains(network(), STEPS)
    bounds, plan = first.known()
    assert 0 < len(plan["packed"]) < len(plan["packed"]) + len(plan["plain"])
    return bounds, plan


def test_the_next_attempt_has_the_plan_from_its_first_step_on(running, known):
    """Its first step is measured, so that it packs all; the second one is by the plan."""
    _, plan = known
    packing = Attempt(running, (known[0], {**plan, "plain": [], "packed": []}))
    all_packed = max(packing.trains(network(), 3)[1:])
    packing.stop()
    attempt, model = Attempt(running, known), network()
    (first,) = attempt.trains(model, 1)
    assert (attempt.said["packed"], attempt.said["earlier"]) == (len(plan["packed"]), earlier.IN_FORCE)
    second, third = attempt.trains(model, 2)
    assert all_packed + 100_000 < max(second, third) <= BUDGET
    assert first <= BUDGET


def test_its_own_plan_takes_over_and_knows_what_was_proved(running, known):
    """Else all that steps by the earlier plan took would be counted beside what the recorded step has."""
    attempt, model = Attempt(running, known), network()
    peaks = attempt.trains(model, STEPS)
    assert attempt.session.recorded_step is not None
    assert max(peaks) <= BUDGET
    assert attempt.said["reached"]
    assert max(peaks[4:]) > BUDGET - 0.15 * (BUDGET - OTHER)
    assert f"plan of an earlier attempt: {earlier.IN_FORCE}" in str(Report.of(attempt.session.config, attempt.session.figures))


def test_a_smaller_batch_may_have_it_and_a_larger_one_may_not(running, known):
    for rows, words in ((ROWS // 2, earlier.IN_FORCE), (ROWS + 1, earlier.LARGER)):
        attempt = Attempt(running, known)
        attempt.trains(network(), 3, rows=lambda step, rows=rows: rows)
        assert attempt.session.planned.words == words
        assert bool(attempt.session.figures.raw["WithinBudget"]) == (words == earlier.IN_FORCE)
        attempt.stop()


def test_it_is_dropped_at_the_first_batch_that_is_larger(running, known):
    attempt = Attempt(running, known)
    attempt.trains(network(), 3, rows=lambda step: ROWS if step < 2 else 2 * ROWS)
    left = attempt.session.figures.raw["WithinBudget"]
    assert left
    assert attempt.said == {}
    attempt.trains(network(), 1, rows=lambda step: ROWS)
    assert attempt.session.figures.raw["WithinBudget"] == left


def test_more_forward_passes_in_a_step_are_more(running, known):
    attempt, model = Attempt(running, known), network()
    for _ in range(2):
        model(torch.randn(ROWS, WIDTH)).square().mean().backward()
    assert attempt.session.planned.words == earlier.LARGER


@pytest.mark.parametrize(
    ("change", "settings"),
    [
        ({"torch": "2.4"}, {}),
        ({"device": "NVIDIA H100"}, {}),
        ({"budget": 7}, {}),
        ({}, {"target": "0.02"}),
        ({}, {"budget": BUDGET - 1}),
    ],
)
def test_under_other_conditions_all_is_packed(running, known, change, settings):
    bounds, plan = known
    attempt = Attempt(running, (bounds, {**plan, **change}), **settings)
    attempt.trains(network(), 3)
    assert attempt.session.planned.words == earlier.OTHER_CONDITIONS
    assert not attempt.session.figures.raw["WithinBudget"]


def test_a_model_of_another_shape_has_no_use_for_it(running, known):
    attempt, model = Attempt(running, known), network()
    model.append(torch.nn.Linear(4, 4))
    attempt.trains(model, 3)
    assert attempt.session.planned.words == earlier.LARGER


def test_a_plan_by_which_a_step_exceeds_the_budget_is_given_up_at_once(running, known):
    """As where someone wrote into the file, or the program takes more memory now."""
    bounds, plan = known
    attempt, model = Attempt(running, (bounds, {**plan, "plain": plan["plain"] + plan["packed"], "packed": []})), network()
    peaks = attempt.trains(model, 2)
    assert peaks[1] > BUDGET
    assert attempt.session.planned.words == earlier.EXCEEDED
    (third,) = attempt.trains(model, 1)
    assert third < BUDGET


def test_compiled_models_have_it_too(running):
    first = Attempt(running, budget=1)
    first.trains(compiled(products()), 6)
    budget = (first.said["leastBytes"] + first.said["plainBytes"]) // 2
    first.stop()
    torch._dynamo.reset()
    first = Attempt(running, budget=budget)
    first.trains(compiled(products()), STEPS)
    known = first.known()
    torch._dynamo.reset()
    assert known[1]["plain"]
    attempt = Attempt(running, known, budget=budget)
    peaks = attempt.trains(compiled(products()), 3)
    assert attempt.session.planned.words == earlier.IN_FORCE
    assert attempt.session.figures.raw["WithinBudget"]
    assert max(peaks) <= budget


def test_without_a_plan_nothing_is_kept(running):
    attempt = Attempt(running)
    attempt.trains(network(), 2)
    assert not attempt.session.planned.changed
    assert attempt.session.planned.state() == {}


def test_what_is_kept_is_a_plain_value(known):
    _, plan = known
    assert KeptPlan.of(plan, "1Gi").state().keys() == plan.keys()
    again = KeptPlan.of(json.loads(json.dumps(plan)), "1Gi")
    assert again == KeptPlan.of(plan, "1Gi")
    assert again.figures.asked == "1Gi"


ONE = ForwardPass("model", (("torch.float32", (8, 4)),))


@pytest.mark.parametrize(
    ("other", "covered"),
    [
        (ONE, True),
        (ForwardPass("model", (("torch.float32", (7, 4)),)), True),
        (ForwardPass("model", (("torch.float32", (4, 8)),)), False),
        (ForwardPass("model", (("torch.float64", (8, 4)),)), False),
        (ForwardPass("model", (("torch.float32", (8,)),)), False),
        (ForwardPass("model", ONE.inputs * 2), False),
        (ForwardPass("other", ONE.inputs), False),
        (UNREADABLE, False),
    ],
)
def test_a_pass_covers_what_is_no_larger_in_any_dimension(other, covered):
    assert ONE.covers(other) == covered
    assert not UNREADABLE.covers(UNREADABLE)


@pytest.mark.parametrize(
    ("passes", "covered"),
    [
        ([ONE], True),
        ([ONE, ForwardPass("other", (("torch.float32", (1, 1)),))], True),
        ([ONE, ForwardPass("model", (("torch.float32", (2, 4)),))], False),
        ([ONE, UNREADABLE], False),
        ([], False),
    ],
)
def test_of_passes_of_one_model_the_smallest_counts(passes, covered):
    """Two large ones take more than a large one and a small one."""
    plan = replace(KeptPlan.of(GOOD, "4.5M"), passes=frozenset(passes), count=2)
    assert [plan.covers(ONE, count) for count in (1, 2, 3)] == [covered, covered, False]


class Batch:
    """Of a program's own."""


@pytest.mark.parametrize("hidden", [Batch(), [[[[[torch.zeros(9)]]]]], {"a": Batch()}])
def test_where_tensors_may_be_hidden_no_plan_is_trusted(hidden):
    seen = SeenPasses()
    seen.begins(network(), (torch.zeros(2), hidden), {})
    assert seen.last == UNREADABLE


def test_what_is_trained_and_by_which_types_is_part_of_a_pass():
    model, seen, found = network(), SeenPasses(), set()
    for frozen in (False, True):
        model[0].weight.requires_grad_(not frozen)
        for kind in (None, torch.bfloat16, torch.float16):
            with torch.autocast("cpu", kind or torch.bfloat16, enabled=kind is not None):
                seen.begins(model, (torch.zeros(2),), {})
            found.add(seen.last)
        seen.stepped()
    assert len(found) == 6


def test_tensors_are_found_in_lists_and_by_name_and_what_cannot_be_read_is_no_pass():
    model, seen = network(), SeenPasses()
    t = torch.zeros(2, 3)
    seen.begins(model, ([t, (t,)], 3), {"mask": {"a": t}})
    assert [shape for _, shape in seen.last.inputs] == [(2, 3)] * 3
    seen.begins(object(), (t,), {})
    assert seen.last == UNREADABLE
    for rows in range(100):
        seen.begins(model, (torch.zeros(rows),), {})
    assert len(seen.seen) <= 64
    assert UNREADABLE in seen.seen
    assert seen.count == 102


GOOD = {
    "version": 1, "budget": BUDGET, "torch": "2", "device": "cpu", "settings": "", "passes": [["m", [["torch.float32", [2, 3]]]]],
    "count": 1, "plain": ["2"], "packed": ["0"], "peak": 5, "seconds": 0.1, "least": 1, "all_plain": 9, "all_seconds": 0.2,
    "more_seconds": 0.0, "state": 0, "unseen": 3, "at": [1, 2], "moments": "",
}  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(st.sampled_from(sorted(GOOD)), JSON)
def test_whatever_stands_in_there_is_taken_or_named(field, new):
    session = Session(replace(RuntimeConfig(mode="ErrorBounded", min_tensor_bytes=0), memory_budget=Amount.of(str(BUDGET))))
    try:
        session.planned.load({**GOOD, field: new})
    except ValueError:
        return
    json.dumps(KeptPlan.of({**GOOD, field: new}, "1").state())
    session.start()
    try:
        model = torch.nn.Linear(4, 4)
        model(torch.zeros(2, 4)).sum().backward()
        torch.optim.SGD(model.parameters(), lr=1e-3).step()
    finally:
        session.stop()
    assert not [reason for reason in session.figures.raw if "Failed" in reason]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 2}, "no plan of version 1"),
        ({"more": 1}, "must have exactly budget, torch"),
        ({"peak": -1}, "peak cannot be -1"),
        ({"peak": True}, "peak cannot be True"),
        ({"budget": 1 << 60}, "budget cannot be"),
        ({"seconds": float("nan")}, "seconds cannot be nan"),
        ({"plain": "abc"}, "plain cannot be 'abc'"),
        ({"plain": ["x" * 2000]}, "plain cannot be"),
        ({"passes": [["m", [["f", [-1]]]]]}, "passes cannot be"),
        ({"passes": [["m", []]] * 65}, "passes cannot be"),
        ({"at": [0.5]}, "at cannot be"),
    ],
)
def test_what_is_wrong_is_named(change, words):
    with pytest.raises(ValueError, match=words):
        KeptPlan.of({**GOOD, **change}, "1")
    assert set(GOOD) == {"version", *FIELDS}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[" * 100000, b"null", b'{"version": 7}', json.dumps({**GOOD, "count": -1}).encode()]
)
def test_a_file_that_is_broken_is_counted_and_written_over(running, tmp_path, content):
    path = path_of(str(tmp_path), {"RANK": "1", "WORLD_SIZE": "2"}, "plan")
    assert path.name == "kompakt-plan-1-of-2.json"
    path.write_bytes(content)
    attempt = Attempt(running)
    file = BoundsFile(path, attempt.session.planned, attempt.session.figures.count_raw, what="SavedPlan")
    file.read()
    assert dict(attempt.session.figures.raw) == {"SavedPlanBroken": 1}
    attempt.session.stepped = file.stepped
    attempt.trains(network(), 6)
    assert KeptPlan.of(json.loads(path.read_text()), "1").under.budget == BUDGET


# Two processes load torch and its optimizers, one after the other.
@pytest.mark.timeout(300)
def test_the_next_attempt_begins_with_the_plan_of_the_last(environ, tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    ours = {**environ, "KOMPAKT_MIN_TENSOR_BYTES": "0", "KOMPAKT_BOUNDS_DIR": str(kept), "KOMPAKT_MEMORY_BUDGET": "1Ti"}
    ours |= {"PYTHONPATH": os.pathsep.join([environ["PYTHONPATH"], str(ROOT / "runtime")]), "RANK": "1", "WORLD_SIZE": "2"}
    budgets = []
    for attempt, batch, steps in (("1", "8", "6"), ("2", "8", "2"), ("3", "16", "2")):
        command = [sys.executable, ROOT / "tests" / "support" / "runtime" / "train.py", batch, steps]
        subprocess.run(command, env={**ours, "KOMPAKT_ATTEMPT": attempt}, check=True, capture_output=True)
        (figures,) = (tmp_path / "state").glob(f"figures-{attempt}-*.json")
        budgets.append(json.loads(figures.read_text())["budget"])
    assert "earlier" not in budgets[0]
    plan = json.loads((kept / "kompakt-plan-1-of-2.json").read_text())
    assert (budgets[1]["peakBytes"], budgets[1]["earlier"]) == (plan["peak"], earlier.IN_FORCE), "after two steps"
    assert budgets[2] == {}, "the batch is larger"
    assert {path.name for path in kept.iterdir()} == {f"kompakt-{what}-1-of-2.json" for what in ("bounds", "plan")}
