"""How `make test` shares the machine out among its levels, and keeps apart what they write."""

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import pytest

from tools import test as levels

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
    assert [[level.name for level in batch] for batch in levels.batches(chosen, one_by_one)] == batches


@pytest.mark.parametrize(("processors", "crowded"), [(2, True), (3, True), (4, False)])
def test_two_levels_run_at_once_only_where_processors_are_enough(
    monkeypatch: pytest.MonkeyPatch, processors: int, crowded: bool
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(processors)))
    assert levels.crowded() == crowded


def test_levels_at_once_are_each_shown_whole_and_keep_their_own_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    terminal, level = Lock(), levels.LEVELS[0]
    commands = [[sys.executable, "-c", WRITES.format(word, code)] for word, code in (("cluster", 0), ("node", 3))]
    with ThreadPoolExecutor(2) as threads:
        codes = list(threads.map(lambda command: levels.run(command, level, terminal), commands))
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("cluster", "node"))]
    assert codes == [0, 3]
    assert lines in [[f"{word} {i}" for word in order for i in range(3)] for order in (("cluster", "node"), ("node", "cluster"))]
