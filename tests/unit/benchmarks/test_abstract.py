"""The sweep for Dally's maxima: savings are paired within one world, and an interrupted sweep goes on."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import abstract
from benchmarks.abstract import Place, Row, savings, table
from kompakt_simulator.traces.reading import load_trace

HERE = Place("t", "4x4x8", 32.0, "traced")
THERE = replace(HERE, outer=4.0)
ROWS = [
    Row(HERE, "kompakt", 3600.0, 100.0, 2.0),
    Row(HERE, "tiresias", 7200.0, 400.0, 8.0),
    Row(THERE, "kompakt", 3600.0, 500.0, 0.0),
    Row(THERE, "tiresias", 3600.0, 400.0, 0.0),
]


def test_savings_are_shares_of_the_baseline_in_the_same_world_least_first() -> None:
    found = savings(ROWS, "avg_jct_s", "kompakt", "tiresias")
    assert [(one.saved, one.ours.place) for one in found] == [(-0.25, THERE), (0.75, HERE)]
    assert [one.saved for one in savings(ROWS, "comm_s_per_job", "kompakt", "tiresias")] == [0.75], "nothing is no baseline"
    assert savings(ROWS, "avg_jct_s", "kompakt", "gandiva") == []


def test_the_table_names_the_setting_of_each_maximum() -> None:
    lines = list(table(ROWS))
    assert len(lines) == 2 + len(abstract.FIGURES)
    cells = (
        "average completion time, published -83 %",
        "kompakt",
        "-75.0 %",
        "tiresias",
        "t, 4x4x8, traced, six",
        "32x",
        "0.1 -> 0.0 h",
    )
    assert lines[3] == f"| {' | '.join(cells)} | -75.0 % | +25.0 % | 1 of 2 |"


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    abstract._write(tmp_path / "rows.csv", ROWS)
    assert abstract._read(tmp_path / "rows.csv") == ROWS


def test_one_small_world_is_run_with_all_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [replace(job, model="bert") for job in load_trace("tiresias-60").jobs]
    monkeypatch.setattr(abstract, "_jobs", lambda trace, load, mix: tuple(jobs))
    rows = abstract.run(Place("tiresias-60", "1x4x4", 32.0, "traced"))
    assert [row.policy for row in rows] == [*abstract.OURS, *abstract.THEIRS]
    assert all(row.makespan_s > 0 for row in rows)
