"""A long drill in pieces: what is left after what passed, and what is kept of a piece."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from benchmarks import pieces


def test_only_pieces_of_that_drill_that_passed_count(tmp_path: Path) -> None:
    record = tmp_path / "drills.jsonl"
    assert pieces.done(record, "kills") == 0
    lines = [("kills", 50, True), ("kills", 50, False), ("flaps", 25, True), ("kills", 7, True)]
    record.write_text("\n".join(json.dumps({"drill": name, "size": size, "passed": passed}) for name, size, passed in lines))
    assert pieces.done(record, "kills") == 57


@pytest.mark.parametrize(
    ("total", "before", "left"), [(120, 0, [50, 50, 20]), (120, 57, [50, 13]), (100, 100, []), (100, 120, [])]
)
def test_the_last_piece_is_what_is_left(total: int, before: int, left: list[int]) -> None:
    assert list(pieces.sizes(total, before, 50)) == left


@pytest.mark.parametrize("code", [0, 1])
def test_a_piece_is_recorded_with_the_command_that_repeats_it(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, str]] = []

    def played(argv: list[str], *, env: dict[str, str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(env)
        return subprocess.CompletedProcess(argv, code, ".\nKOMPAKT_SEED=1\n\n50 kills in 9 s\n==== 1 passed ====\n", "")

    monkeypatch.setattr(subprocess, "run", played)
    found = pieces.run("kills", 50)
    assert (found.passed, found.said) == (code == 0, ["KOMPAKT_SEED=1", "50 kills in 9 s"])
    assert (asked[0]["KOMPAKT_KILLS"], asked[0]["KOMPAKT_SEED"]) == ("50", str(found.seed))
    assert found.command.startswith(f"KOMPAKT_KILLS=50 KOMPAKT_SEED={found.seed} KOMPAKT_DRILLS=all python -m pytest")


@pytest.mark.parametrize("name", pieces.DRILLS)
def test_every_drill_is_there_and_reads_its_size(name: str) -> None:
    drill = pieces.DRILLS[name]
    file, _, test = drill.test.partition("::")
    text = (Path(__file__).parents[3] / file).read_text()
    assert re.search(rf'environ.get\("{drill.variable}"', text)
    assert not test or f"def {test}(" in text
