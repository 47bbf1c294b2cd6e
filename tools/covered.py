"""Which share of each package's statements the unit and contract tests reach, and the modules that they reach least.

Not a bar: mutants (tools/mutants.py) say whether a test would notice. This says where no test has been at all.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.levels import EVERY_CORE, ROOT

FOLDERS = ("tests/unit", "tests/contract")
LEAST = 10  # modules that are named


@dataclass(frozen=True, slots=True)
class Covered:
    """Statements of a module or a room, and how many of them no test reached."""

    name: str
    statements: int
    missed: int

    @property
    def share(self) -> float:
        return 1 - self.missed / self.statements if self.statements else 1.0

    def __str__(self) -> str:
        return f"{self.share:6.1%}  {self.statements:6} statements  {self.missed:6} missed  {self.name}"


def modules(report: Mapping[str, Any]) -> list[Covered]:
    """The modules of a report that coverage wrote as JSON."""
    counts = {path: found["summary"] for path, found in report["files"].items()}
    return [Covered(path, found["num_statements"], found["missing_lines"]) for path, found in sorted(counts.items())]


def rooms(found: Iterable[Covered]) -> list[Covered]:
    """The same by top-level folder, and all together."""
    every = list(found)
    names = sorted({one.name.split("/")[0] for one in every})
    return [_sum(name, [one for one in every if one.name.split("/")[0] == name]) for name in names] + [_sum("all", every)]


def _sum(name: str, found: list[Covered]) -> Covered:
    return Covered(name, sum(one.statements for one in found), sum(one.missed for one in found))


def measured(folder: Path, tests: list[str]) -> tuple[int, Mapping[str, Any]]:
    """pytest's exit code, and coverage's report."""
    environ = os.environ | {"COVERAGE_FILE": str(folder / "data"), "OMP_NUM_THREADS": "1"}
    coverage = [sys.executable, "-m", "coverage"]
    done = subprocess.run([*coverage, "run", "-m", "pytest", "-q", *EVERY_CORE, *tests], cwd=ROOT, env=environ, check=False)
    subprocess.run([*coverage, "combine", "--quiet"], cwd=ROOT, env=environ, check=True)
    subprocess.run([*coverage, "json", "--quiet", "-o", str(folder / "report.json")], cwd=ROOT, env=environ, check=True)
    report: Mapping[str, Any] = json.loads((folder / "report.json").read_text())
    return done.returncode, report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "tests", nargs="*", default=list(FOLDERS), help="files and options for pytest, after -- (all unit and contract)"
    )
    with tempfile.TemporaryDirectory() as folder:
        returncode, report = measured(Path(folder), parser.parse_args().tests)
    found = modules(report)
    print("least reached:", *sorted(found, key=lambda one: (one.share, one.name))[:LEAST], "by room:", *rooms(found), sep="\n")
    return returncode


if __name__ == "__main__":
    sys.exit(main())
