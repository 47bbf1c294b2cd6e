"""The recipes for training frameworks, each run as its reader would run it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.needs import needs

RECIPES = Path(__file__).parents[3] / "examples" / "recipes"
WRITTEN = {path.stem.removeprefix("with_") for path in RECIPES.glob("with_*.py")}
PACKAGES = {"accelerate": "accelerate", "trainer": "transformers", "lightning": "lightning"}


def test_every_recipe_is_tried_here():
    assert PACKAGES.keys() == WRITTEN


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PACKAGES)
def test_a_recipe_trains_compressed_within_its_promise(name, tmp_path):
    if "recipes" not in os.environ.get("KOMPAKT_REQUIRE", ""):
        needs("torch")
        needs("sklearn")
        if not any((Path(folder) / PACKAGES[name]).is_dir() for folder in sys.path):
            pytest.skip(f"{PACKAGES[name]} is not installed: `make sync-recipes`")
    environ = {**os.environ, "HOME": str(tmp_path), "TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, str(RECIPES / f"with_{name}.py")]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    assert "ErrorBounded, target 0.01, 12 optimizer steps" in done.stdout
    assert ", 0 beyond what was promised" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("  ")]
    # Both hidden layers, each kept in less than a quarter of its bytes, with an error below the bound.
    assert [row[0].rpartition(".")[2] for row in rows] == ["2", "4"]
    assert all(float(row[3]) > 4 and 0 < float(row[5]) <= float(row[4]) for row in rows)
