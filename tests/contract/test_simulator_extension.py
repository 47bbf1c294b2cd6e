"""The example package of docs/examples, installed as a user would: its policy, placement and trace run by name."""

import json
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "simulator-extension"
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example installed, and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    command = (BIN / "uv", "pip", "install", "--quiet", "--offline", "--no-deps", "--no-build-isolation", "--no-cache")
    subprocess.run(
        [*map(str, command), "--python", sys.executable, "--target", str(folder), str(EXAMPLE)], check=True, capture_output=True
    )
    return folder


def simulate(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(path)}
    command = [str(BIN / "kompakt"), "simulate", *arguments]
    return subprocess.run(command, env=environment, cwd=path, capture_output=True, text=True, check=False)


def figures(path: Path, *arguments: str) -> dict[str, Any]:
    shown = simulate(path, *arguments, "-o", "json")
    assert shown.returncode == 0, shown.stderr
    told: dict[str, Any] = json.loads(shown.stdout)
    return told


def wait_by_gpus(jobs: list[dict[str, Any]]) -> dict[int, float]:
    return {gpus: fmean(job["queue_s"] for job in jobs if job["gpus"] == gpus) for gpus in (1, 8)}


def test_its_policy_runs_beside_those_of_the_simulator(installed: Path) -> None:
    flags = ("--trace", "rush-hour", "--cluster", "1x4x4", "--jobs", "--policy", "fifo-skip,largest-first")
    waits = {policy: wait_by_gpus(told["jobs"]) for policy, told in figures(installed, *flags).items()}
    assert waits["largest-first"][8] < waits["fifo-skip"][8]
    assert waits["largest-first"][1] > waits["fifo-skip"][1]


def test_its_placement_spreads_what_ours_packs(installed: Path) -> None:
    flags = ("--trace", "rush-hour", "--cluster", "1x8x8", "--policy", "fifo", "--jobs", "--placement")
    machines = {place: figures(installed, *flags, place)["fifo"]["jobs"][3]["machines"] for place in ("spread", "levels")}
    assert machines == {"spread": 8, "levels": 1}


def test_without_the_package_its_names_are_unknown(tmp_path: Path) -> None:
    if entry_points(group="kompakt.policies", name="largest-first"):
        pytest.skip("largest-first is installed in this environment: `pip uninstall largest-first`")
    shown = simulate(tmp_path, "--policy", "largest-first")
    assert shown.returncode == 2
    assert "--policy largest-first: unknown; expected one of: fifo" in shown.stderr
