"""Entry points of other packages: what is taken in, and what is left out with a reason."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from kompakt_core.errors import InvalidInput
from kompakt_simulator.command import simulate
from kompakt_simulator.extensions import installed_placements, installed_policies, installed_traces, trace_named
from kompakt_simulator.jobs import Milliseconds, Trace, TraceJob
from kompakt_simulator.placements import PLACEMENTS
from kompakt_simulator.policies import POLICIES

APP = typer.Typer()
APP.command()(simulate)
MODULE = """
from kompakt_simulator.policies import POLICIES

borrowed = POLICIES["fifo-skip"]
number = 7


def count(cluster, gpus):
    raise ZeroDivisionError
"""


class Packages:
    """Installs packages of one module into a folder on the search path."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "other_policies.py").write_text(MODULE)
        (folder / "broken_policies.py").write_text("1 / 0\n")

    def install(self, group: str, *entries: str) -> None:
        info = self._folder / f"{group.replace('.', '_')}-2.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 2.5\n")
        (info / "entry_points.txt").write_text("\n".join((f"[{group}]", *entries)) + "\n")


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Packages:
    monkeypatch.syspath_prepend(tmp_path)
    return Packages(tmp_path)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(APP, arguments, env={"COLUMNS": "160"})


def test_without_other_packages_there_is_what_comes_with_the_simulator() -> None:
    assert list(installed_policies().rows) == list(POLICIES)
    assert list(installed_placements(None).rows) == list(PLACEMENTS)
    assert list(installed_traces().rows) == []


def test_a_policy_is_named_after_its_entry_point_and_stands_behind_ours(packages: Packages) -> None:
    packages.install("kompakt.policies", "Mine = other_policies:borrowed")
    found = installed_policies()
    assert [*found.rows] == [*POLICIES, "mine"]
    assert (found.rows["mine"].name, found.left_out) == ("mine", ())
    lines = [line.split()[0] for line in call("--policy", "mine,fifo").output.splitlines()]
    assert [word for word in lines if word in found.rows] == ["mine", "fifo"]


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("fifo = other_policies:borrowed", "fifo = other_policies:borrowed of others 2.5: the name is taken"),
        ("mine = other_policies:missing", "AttributeError: module 'other_policies' has no attribute 'missing'"),
        ("mine = broken_policies:policy", "ZeroDivisionError: division by zero"),
        ("mine = nowhere:policy", "ModuleNotFoundError: No module named 'nowhere'"),
        ("mine = other_policies:number", "it is 7; expected a SchedulingPolicy"),
    ],
)
def test_what_cannot_be_used_is_left_out_in_words_and_takes_nothing_away(packages: Packages, entry: str, reason: str) -> None:
    packages.install("kompakt.policies", entry, "other = other_policies:borrowed")
    shown = call("--policy", "fifo,other")
    assert shown.exit_code == 0
    assert "left out: kompakt.policies " in shown.stderr
    assert reason in " ".join(shown.stderr.split())


def test_placements_and_traces_are_functions_under_names_of_their_own(packages: Packages) -> None:
    packages.install("kompakt.placements", "mine = other_policies:count", "planned = other_policies:count")
    packages.install("kompakt.traces", "muri-cluster = other_policies:count", "number = other_policies:number")
    assert [*installed_placements(None).rows] == [*PLACEMENTS, "mine"]
    assert isinstance(call("--placement", "mine", "--policy", "fifo").exception, ZeroDivisionError)
    reasons = " ".join((*installed_placements(None).left_out, *installed_traces().left_out))
    for entry in (
        "planned = other_policies:count of others 2.5: the name",
        "muri-cluster = other_policies:count of others 2.5: the",
    ):
        assert entry in reasons
    assert "it is 7; expected a function without arguments that returns a Trace" in reasons


def job(number: int, gpus: int = 1, duration: int = 1, submit: int = 0) -> TraceJob:
    return TraceJob(number, Milliseconds(submit), Milliseconds(duration), gpus)


def test_the_names_of_other_traces_are_told_with_ours() -> None:
    made = Trace("made", (job(1), job(2)))
    assert trace_named("Made", None, {"made": lambda: made}) is made
    assert trace_named("tiresias-60", None, {"made": lambda: made}).name == "tiresias-60"
    with pytest.raises(InvalidInput, match="shockwave-900, made"):
        trace_named("nowhere.csv", None, {"made": lambda: made})


@pytest.mark.parametrize("jobs", [(), (job(1), job(1)), (job(1, gpus=0),), (job(1, duration=0),), (job(1, submit=-1),)], ids=str)
def test_traces_of_jobs_that_cannot_be_are_refused(jobs: tuple[TraceJob, ...]) -> None:
    with pytest.raises(InvalidInput, match=r"trace made: got .*; expected a Trace of jobs with distinct numbers"):
        trace_named("made", None, {"made": lambda: Trace("made", jobs)})
