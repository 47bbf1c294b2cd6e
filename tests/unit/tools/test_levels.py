"""How `make test` shares the machine out among its levels, and keeps apart what they write."""

import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from types import SimpleNamespace

import pytest

from tests.support import turns
from tools import levels
from tools import test as runner

WRITES = "import sys, time\nfor i in range(3): print({0!r}, i, flush=True); time.sleep(0.05)\nsys.exit({1})"


@pytest.mark.parametrize(
    ("wanted", "one_by_one", "batches"),
    [
        ("unit cluster node", False, [["unit"], ["cluster", "node"]]),
        ("unit cluster node", True, [["unit"], ["cluster"], ["node"]]),
        ("cluster", False, [["cluster"]]),
    ],
)
def test_only_levels_that_mostly_wait_run_at_once(wanted: str, one_by_one: bool, batches: list[list[str]]) -> None:
    chosen = [level for level in levels.LEVELS if level.name in wanted.split()]
    assert [[level.name for level in batch] for batch in runner.batches(chosen, one_by_one)] == batches


@pytest.mark.parametrize(("processors", "crowded"), [(2, True), (3, True), (4, False)])
def test_two_levels_run_at_once_only_where_processors_are_enough(
    monkeypatch: pytest.MonkeyPatch, processors: int, crowded: bool
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(processors)))
    assert runner.crowded() == crowded


def test_levels_at_once_are_each_shown_whole_and_keep_their_own_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    terminal, level = Lock(), levels.LEVELS[0]
    commands = [[sys.executable, "-c", WRITES.format(word, code)] for word, code in (("cluster", 0), ("node", 3))]
    with ThreadPoolExecutor(2) as threads:
        codes = list(threads.map(lambda command: runner.run(command, level, terminal), commands))
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("cluster", "node"))]
    assert codes == [0, 3]
    assert lines in [[f"{word} {i}" for word in order for i in range(3)] for order in (("cluster", "node"), ("node", "cluster"))]


@pytest.mark.parametrize(
    ("wanted", "one_by_one", "background", "foreground"),
    [
        ("static unit contract cluster node", False, "static unit contract", "cluster node"),
        ("unit node", True, "", "unit node"),
        ("static unit contract", False, "", "static unit contract"),  # of what would it be the background?
        ("unit", False, "", "unit"),
        ("node", False, "", "node"),
        ("static fast", False, "", "static fast"),
    ],
)
def test_what_computes_runs_in_the_background(wanted: str, one_by_one: bool, background: str, foreground: str) -> None:
    assert runner.split(wanted.split(), one_by_one) == (background.split(), foreground.split())


@pytest.mark.parametrize(
    ("returncode", "text", "count"),
    [
        (0, "== unit: begins\n12 passed in 3 s\n10 passed, 0 failed, 2 skipped\n", runner.Count(10, 0, 2)),
        (1, "10 passed, 3 failed, 2 skipped\n", runner.Count(10, 3, 2)),
        (1, "10 passed, 0 failed, 2 skipped\n", runner.Count(10, 1, 2)),
        (1, "Traceback: 10 passed, 0 failed, 2 skipped\nand then\n", runner.Count(failed=1)),
        (-15, "", runner.Count(failed=1)),
    ],
)
def test_levels_in_the_background_count_by_their_last_line_and_what_breaks_is_a_failure(
    returncode: int, text: str, count: runner.Count
) -> None:
    assert runner.of_text(returncode, text) == count


def test_levels_in_the_background_are_shown_whole_after_the_others_and_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("sh", "nice", "gcc"):
        (tmp_path / name).symlink_to(shutil.which(name) or "/bin/false")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("KOMPAKT_REQUIRE", "gpu")  # of which there is no sign on that path: a failure

    def foreground() -> runner.Count:
        print("foreground", flush=True)
        return runner.Count(passed=2)

    total = runner.run_with_background(["gpu"], foreground, [])
    shown = capfd.readouterr().out
    assert total == runner.Count(passed=2, failed=1)
    assert (
        shown.index("foreground") < shown.index("are over, and wrote") < shown.index("== gpu: required by KOMPAKT_REQUIRE, but")
    )


def test_every_older_version_has_its_turn_and_whoever_names_one_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {levels.in_turn(number) for number in range(8)} == {"1.35", "1.36"}
    (versions,) = [level for level in levels.LEVELS if level.name == "versions"]
    monkeypatch.delenv("KOMPAKT_KUBERNETES", raising=False)
    monkeypatch.setattr(levels, "commits", lambda: 7)
    assert levels.environment(versions)["KOMPAKT_KUBERNETES"] == levels.in_turn(7)
    monkeypatch.setenv("KOMPAKT_KUBERNETES", "1.37")
    assert levels.environment(versions)["KOMPAKT_KUBERNETES"] == "1.37"


def test_half_of_the_long_tests_run_and_whoever_wants_all_gets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    (unit,) = [level for level in levels.LEVELS if level.name == "unit"]
    monkeypatch.delenv("KOMPAKT_TURN", raising=False)
    assert levels.environment(unit)["KOMPAKT_TURN"] == levels.turn()
    assert levels.turn() in turns.TURNS
    monkeypatch.setenv("KOMPAKT_TURN", "all")
    assert levels.environment(unit)["KOMPAKT_TURN"] == "all"


@pytest.mark.parametrize(("turn", "runs"), [("0", [True, False]), ("1", [False, True]), ("all", [True, True])])
def test_a_long_test_runs_at_its_turn(monkeypatch: pytest.MonkeyPatch, turn: str, runs: list[bool]) -> None:
    monkeypatch.setattr(turns, "TURN", turn)
    assert [not turns.in_turn(number).args[0] for number in (0, 1)] == runs


def test_both_halves_of_commits_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    names = (f"{number:08x}" + "0" * 32 for number in (0xE864B089, 0x95FAEBF2))
    monkeypatch.setattr("tools.levels.subprocess.run", lambda *_, **__: SimpleNamespace(returncode=0, stdout=next(names)))
    assert [levels.turn(), levels.turn()] == ["1", "0"]


def test_older_versions_need_programs_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOMPAKT_KUBE_BIN", "/opt/kube")
    assert "names the programs of one version" in (levels.one_version_obstacle() or "")


def test_a_level_whose_programs_cannot_be_had_fails(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("KOMPAKT_KUBERNETES", "1.2")
    level = levels.TestLevel("versions", levels.no_obstacle, ("kubectl",))
    assert runner.run_level(level, []) == runner.Count(failed=1)
    assert "give one of 1.35, 1.36, 1.37" in capfd.readouterr().err
