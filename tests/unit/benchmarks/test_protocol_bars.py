"""The bars of the protocol: a policy that is worse fails them by name, a better one does not."""

import math

import pytest

from benchmarks.protocol.bars import BARS, COMPLETION, FOURFOLD, QUEUE, RIGHT, TWICE, PolicyBar, judged, paired
from benchmarks.protocol.entries import DECLARED, OURS, RIVALS, RUN, WRONG_2X, WRONG_4X
from benchmarks.protocol.figures import PolicyFigures
from benchmarks.protocol.runs import ColumnRun
from benchmarks.protocol.table import lines

SEEN, HELD, MADE = "muri-cluster-flat", "philly-7f04ca-flat", "made-64-load50-x4"


def ran(column: str = SEEN, seed: int = 0, queue: float = 7200.0, **hours: float) -> ColumnRun:
    """All policies take ten hours but those that are named: `ours`, `declared`, `twice`, `fourfold`, `las`."""
    names = {"ours": OURS, "declared": DECLARED, "twice": WRONG_2X, "fourfold": WRONG_4X}
    named = {names.get(name, name): each for name, each in hours.items()}
    figures = {entry.label: PolicyFigures(named.get(entry.label, 10.0) * 3600, 7200.0) for entry in RUN}
    figures[OURS] = PolicyFigures(figures[OURS].avg_jct_s, queue)
    return ColumnRun(column, seed, "", 0.0, figures)


@pytest.mark.parametrize(("hours", "mean_held", "failing"), [(10.09, True, ()), (10.29, False, ()), (10.31, False, (SEEN,))])
def test_completion_is_within_three_percent_in_each_column_and_one_on_average(
    hours: float, mean_held: bool, failing: tuple[str, ...]
) -> None:
    one = judged(COMPLETION, {SEEN: [ran(ours=hours)]})
    assert (one.mean_held, one.failing) == (mean_held, failing)
    assert one.held == (mean_held and not failing)


def test_the_rival_is_the_best_of_the_class_and_never_one_that_knows_more() -> None:
    one = judged(COMPLETION, {SEEN: [ran(las=9.0, sjf=1.0, declared=1.0)]}).ratios[SEEN]
    assert (one.rival, one.ratio) == ("las", pytest.approx(10 / 9))
    assert not set(RIVALS) & {"sjf", "srtf", DECLARED, OURS}


def test_a_gain_in_one_column_does_not_make_up_for_a_loss_in_another() -> None:
    runs = {SEEN: [ran(ours=5.0)], HELD: [ran(HELD, ours=10.25)]}
    assert judged(COMPLETION, runs).mean == pytest.approx(math.sqrt(1.025))
    assert not judged(COMPLETION, runs).held


@pytest.mark.parametrize(("seconds", "failing"), [(7900.0, ()), (7930.0, (SEEN,))])
def test_queue_times_are_within_a_tenth(seconds: float, failing: tuple[str, ...]) -> None:
    assert judged(QUEUE, {SEEN: [ran(queue=seconds)]}).failing == failing


def test_queue_times_below_a_minute_are_alike() -> None:
    run = ran(queue=55.0)
    for rival in RIVALS:
        run.figures[rival] = PolicyFigures(36_000, 0.0)
    assert judged(QUEUE, {SEEN: [run]}).ratios[SEEN].ratio == 1


def test_declared_totals_are_better_on_average_and_cost_a_percent_at_most() -> None:
    better, worse = ran(declared=9.0), ran(HELD, declared=10.15)
    one = judged(RIGHT, {SEEN: [better], HELD: [worse]})
    assert one.mean_held
    assert one.failing == (HELD,)
    assert not judged(RIGHT, {SEEN: [ran(declared=10.05)]}).mean_held


@pytest.mark.parametrize(("bar", "name"), [(TWICE, "twice"), (FOURFOLD, "fourfold")])
def test_wrong_totals_are_judged_against_none(bar: PolicyBar, name: str) -> None:
    assert judged(bar, {SEEN: [ran(**{name: 9.9})]}).held
    assert judged(bar, {SEEN: [ran(**{name: 10.4})]}).failing == (SEEN,)


def test_traces_are_paired_and_their_interval_is_students() -> None:
    runs = [ran(MADE, seed, ours=10 * factor) for seed, factor in enumerate((1.0, 1.02, 1.04))]
    one = paired(runs, OURS, ["las"], COMPLETION.figure)
    logs = [0.0, math.log(1.02), math.log(1.04)]
    middle = sum(logs) / 3
    half = 2.920 * math.sqrt(sum((each - middle) ** 2 for each in logs) / 2) / math.sqrt(3)
    assert (one.low, one.ratio, one.high) == pytest.approx(
        tuple(math.exp(each) for each in (middle - half, middle, middle + half))
    )


@pytest.mark.parametrize(("traces", "student"), [(2, 6.314), (19, 1.734), (20, 1.729)])
def test_an_interval_is_by_as_many_traces_as_there_are(traces: int, student: float) -> None:
    runs = [ran(MADE, seed, ours=10 * math.exp(seed % 2)) for seed in range(traces)]
    one = paired(runs, OURS, ["las"], COMPLETION.figure)
    ones = traces // 2
    spread = math.sqrt(ones * (traces - ones) / traces / (traces - 1))  # of so many ones and zeros
    assert math.log(one.high / one.ratio) == pytest.approx(student * spread / math.sqrt(traces))


def test_what_all_traces_share_does_not_widen_the_interval() -> None:
    runs = [ran(MADE, seed, ours=hours * 1.01, las=hours) for seed, hours in enumerate((1.0, 5.0, 9.0))]
    one = paired(runs, OURS, ["las"], COMPLETION.figure)
    assert one.low == pytest.approx(one.high) == pytest.approx(1.01)


def test_a_column_whose_interval_reaches_over_the_bar_is_doubtful() -> None:
    runs = {MADE: [ran(MADE, seed, ours=10 * factor) for seed, factor in enumerate((1.0, 1.02, 1.05))]}
    one = judged(COMPLETION, runs)
    assert (one.failing, one.doubtful) == ((), (MADE,))


def test_the_table_marks_what_fails() -> None:
    text = list(lines({SEEN: [ran(ours=10.5)], MADE: [ran(MADE, seed) for seed in range(3)]}))
    row = next(line for line in text if line.startswith(f"| {SEEN} "))
    assert "| 10.5 | " in row
    assert "| **1.050** |" in row
    bar = next(line for line in text if line.startswith(f"| {COMPLETION.name}"))
    assert bar.endswith(f"| **1.025** | 1.050, -, 1.000 | **1**: {SEEN} | none |")
    assert len([line for line in text if any(line.startswith(f"| {each.name}:") for each in BARS)]) == len(BARS)
