"""`kompakt simulate` as a person calls it."""

import pytest
import typer
from typer.testing import CliRunner, Result

from kompakt_core.errors import InvalidInput
from kompakt_simulator.command import simulate

APP = typer.Typer()
APP.command()(simulate)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(APP, arguments, env={"COLUMNS": "120"})


def test_one_policy_and_placement_make_one_line() -> None:
    flags = ("--trace", "tiresias-60", "--machines", "4", "--gpus", "4", "--policy", "fifo", "--placement", "consolidated")
    shown = call(*flags)
    assert shown.exit_code == 0
    assert "tiresias-60: 60 jobs on 4 x 4 GPUs" in shown.output
    lines = [line for line in shown.output.splitlines() if "fifo" in line]
    assert [line.split() for line in lines] == [["fifo", "consolidated", "217.517", "3341", "39.100", "1870", "60", "0"]]


def test_policies_stand_side_by_side_and_case_does_not_matter() -> None:
    shown = call("--policy", "SJF", "--policy", "fifo-skip", "--placement", "Count")
    assert [line.split()[0] for line in shown.output.splitlines() if "count" in line] == ["sjf", "fifo-skip"]


def test_dropped_jobs_are_counted_in_the_table() -> None:
    line = next(
        line for line in call("--machines", "1", "--policy", "fifo", "--placement", "count").output.splitlines() if "fifo" in line
    )
    finished, dropped = (int(word) for word in line.split()[-2:])
    assert dropped > 0
    assert finished + dropped == 60


def test_the_planner_of_the_cluster_gives_better_rings_than_counting() -> None:
    flags = ("--machine", "dgx1-v100", "--machines", "2", "--policy", "fifo")
    lines = [line.split() for line in call(*flags).output.splitlines() if line.startswith("fifo")]
    rings = {placement: float(cells[-1].rstrip("%")) for _, placement, *cells in lines}
    assert rings["count"] < rings["consolidated"] < rings["planned"] <= 100


def test_a_narrow_terminal_cuts_no_figure() -> None:
    shown = CliRunner().invoke(APP, ["--policy", "fifo", "--placement", "consolidated"], env={"COLUMNS": "60"})
    cells = [line.split() for line in shown.output.splitlines()]
    assert "…" not in shown.output
    assert "217." in "".join(word for line in cells for word in line)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--policy", "lifo"), "--policy lifo: unknown; expected one of: fifo, fifo-skip, sjf, srtf"),
        (("--placement", "best"), "--placement best: unknown; expected one of: count, consolidated"),
        (("--placement", "planned"), "--placement planned: unknown; expected one of: count, consolidated"),
        (("--machine", "dgx-9"), "unknown machine 'dgx-9'; known are"),
        (("--machine", "dgx1-v100", "--gpus", "4"), "machines of 4 GPUs with a link graph of 8; expected equal numbers"),
        (("--machines", "0"), "0 machines of 4 GPUs; expected at least one of each"),
        (("--gpus", "-4"), "4 machines of -4 GPUs; expected at least one of each"),
        (("--machines", "1000001"), "at most 1000000 GPUs in all"),
        (("--trace", "nowhere.csv"), "trace nowhere.csv: No such file"),
        (("--trace", "bad\x00name"), "embedded null byte"),
    ],
)
def test_wrong_flags_are_refused_in_words(flags: tuple[str, ...], message: str) -> None:
    shown = call(*flags)
    assert isinstance(shown.exception, InvalidInput)
    assert message in str(shown.exception)
