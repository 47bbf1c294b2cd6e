"""The batch that is suggested where a training is given a budget of memory, and steps that such a budget leaves plain."""

import pytest

from kompakt_runtime.amounts import Amount
from kompakt_runtime.budget.earlier import BATCH_MEASURED, IN_FORCE
from kompakt_runtime.cost import headroom
from kompakt_runtime.figures.export import report
from kompakt_runtime.report.notes import batch as words
from tests.support.runtime.budgeted import OTHER, ROWS, Counted, network, trained


@pytest.fixture
def budgeted(running, monkeypatch):
    """Trains with a budget of so many bytes; suggestions read the same device."""

    def begin(budget: int, steps: int = 6, rows: int = ROWS, **settings):
        session = running(memory=Counted, memory_budget=Amount.of(str(budget)), **settings)
        device = Counted(session.figures, None)
        monkeypatch.setattr(headroom, "held", lambda _: device.now())
        monkeypatch.setattr(headroom, "peak", lambda _: device.peak())
        trained(session, network(), steps, lambda _: rows)
        session.stop()
        return session

    return begin


@pytest.fixture
def least(budgeted) -> int:
    """Bytes that a step takes with all packed."""
    return budgeted(1).figures.budget()["leastBytes"]


def test_the_suggested_batch_fits_into_the_budget_with_all_packed(budgeted, least):
    budget = OTHER + 3 * (least - OTHER)
    session = budgeted(budget, batch="Suggest")
    suggested = session.figures.suggested_batch
    print(f"a budget of {budget} bytes, of which {ROWS} rows take {least}: {suggested} rows are suggested")
    assert 2 * ROWS < suggested < 3 * ROWS
    assert budgeted(budget, rows=suggested).figures.budget()["reached"]
    assert not budgeted(budget, rows=round(1.5 * suggested)).figures.budget()["reached"]


def test_steps_by_a_plan_that_leaves_layers_plain_suggest_nothing_smaller(budgeted, least):
    budget = OTHER + 8 * (least - OTHER)
    before, after = (budgeted(budget, steps, batch="Suggest") for steps in (4, 12))
    assert after.figures.raw["WithinBudget"] > 0
    assert after.figures.suggested_batch == before.figures.suggested_batch > 4 * ROWS


def test_a_budget_above_what_is_there_suggests_no_more_than_fits(budgeted, monkeypatch, least):
    there = OTHER + 3 * (least - OTHER)
    monkeypatch.setattr(headroom, "limit", lambda device, environ: there)
    figures = budgeted(100 * OTHER, batch="Suggest").figures
    assert 2 * ROWS < figures.suggested_batch < 3 * ROWS
    assert figures.batch_memory[0] == there


def test_the_report_says_that_the_suggestion_rests_on_the_budget(budgeted, least):
    session = budgeted(OTHER + 3 * (least - OTHER), batch="Suggest")
    (line,) = words([report(session.figures)], session.config, 6)
    assert line.endswith(": the memory budget, less what of it is left over")


@pytest.mark.parametrize(("batch", "said"), [("Suggest", BATCH_MEASURED), ("Measure", BATCH_MEASURED), ("Keep", IN_FORCE)])
def test_the_plan_of_an_earlier_attempt_is_not_used_where_a_batch_is_suggested(budgeted, running, least, batch, said):
    kept = budgeted(OTHER + 8 * (least - OTHER)).planned.state()
    assert kept
    session = running(memory=Counted, memory_budget=Amount.of(str(OTHER + 8 * (least - OTHER))), batch=batch)
    session.planned.load(kept)
    assert session.planned.words == said


def test_a_raised_batch_of_which_the_budget_leaves_all_as_it_is_trains_on(budgeted):
    session = budgeted(9 * OTHER, steps=12, batch="Raise")
    assert session.figures.raw["WithinBudget"] > 0
    assert (session.figures.failure, session.figures.budget()["packed"]) == ("", 0)
