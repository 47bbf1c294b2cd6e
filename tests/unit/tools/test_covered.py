"""Coverage by room: what the report of coverage's JSON says."""

from tools.covered import Covered, modules, rooms

REPORT = {
    "files": {
        "core/kompakt_core/ids.py": {"summary": {"num_statements": 10, "missing_lines": 1}},
        "cli/kompakt_cli/empty.py": {"summary": {"num_statements": 0, "missing_lines": 0}},
        "core/kompakt_core/job/spec.py": {"summary": {"num_statements": 30, "missing_lines": 7}},
    }
}


def test_statements_are_summed_by_top_level_folder() -> None:
    assert rooms(modules(REPORT)) == [Covered("cli", 0, 0), Covered("core", 40, 8), Covered("all", 40, 8)]


def test_a_line_shows_share_and_counts() -> None:
    assert str(Covered("core", 40, 8)).split() == ["80.0%", "40", "statements", "8", "missed", "core"]
    assert Covered("cli", 0, 0).share == 1.0
