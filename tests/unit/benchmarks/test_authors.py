"""The comparison with the simulator of Dally's authors: its traces are read, and its rules are ours by name."""

import json

import pytest

from benchmarks import authors
from benchmarks.authors_figures import FIGURES, THEIR_RULES
from kompakt_core.errors import InvalidInput
from kompakt_core.placement.model import Level
from kompakt_simulator.setting import SimulationRules

ENTRY = {
    "job_id": "7",
    "arrival_time": "12",
    "max_parallelism": "4",
    "total_iterations": "9000",
    "time_per_iteration": "0.5",
    "model": "VGG",
}


def test_work_is_whole_chunks_on_all_gpus_at_once() -> None:
    (job,) = authors.jobs_in(json.dumps([ENTRY]))
    assert (job.number, job.submit, job.gpus, job.model, job.chunk_ms) == (7, 12_000, 4, "VGG", 500_000)
    assert job.duration == 3 * 500_000, "9000 iterations are 2.25 chunks of 1000 on each of four GPUs"


NO_GPUS, SEVEN = ({**ENTRY, **wrong} for wrong in ({"max_parallelism": "0"}, {"job_id": "seven"}))


@pytest.mark.parametrize("text", ["{", "[1]", "[]", json.dumps([SEVEN]), json.dumps([NO_GPUS]), '[{"job_id": "7"}]'])
def test_what_is_no_such_trace_is_refused_with_what_would_be_right(text: str) -> None:
    with pytest.raises(InvalidInput, match="total_iterations"):
        authors.jobs_in(text)


def test_their_rules_are_settings_of_ours() -> None:
    for figure in FIGURES[411]:
        setting = authors.setting_of(figure, 8, THEIR_RULES[figure.policy])
        assert (setting.restart_s, setting.network.levels[Level.CLUSTER]) == (0, 32)
        assert setting.rules.leases_kept == (figure.policy == "gandiva")
    assert authors.setting_of(FIGURES[411][0], 1, ()).rules == SimulationRules()


def test_a_line_tells_the_difference_and_the_range() -> None:
    jobs = authors.jobs_in(json.dumps([ENTRY]))
    figure = FIGURES[411][0]
    own = authors.run(jobs, "dally", authors.setting_of(figure, 1, ()))
    cells = list(authors.MeasuredRow(figure, 0, own, (24_010.0, 48_020.0)).cells())
    assert cells[:4] == ["dally, tuned", "1", "24,010", f"{own.avg_jct_s:,.0f}"]
    assert cells[4].startswith("-9")
    assert cells[5:7] == ["24,010", f"{own.avg_jct_s:,.0f} to 48,020"]


def test_a_policy_without_figures_is_refused_with_those_that_have_some() -> None:
    with pytest.raises(InvalidInput, match="'daly'; expected some of: dally, tiresias, gandiva"):
        authors.figures_for(411, ["dally", "daly"])
    with pytest.raises(InvalidInput, match="12 jobs"):
        authors.figures_for(12, ["dally"])
    assert [figure.label for figure in authors.figures_for(411, ["tiresias"])] == ["tiresias"]
