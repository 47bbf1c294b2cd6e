"""Each package runs with what it declares: no import that only the shared development environment satisfies."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.alone import FOLDERS, NO_INDEX

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_package_imports_in_an_environment_of_its_own(folder: str) -> None:
    done = subprocess.run([sys.executable, "tools/alone.py", folder], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == NO_INDEX and "index" not in os.environ.get("KOMPAKT_REQUIRE", ""):
        pytest.skip(f"no package index can be reached for requirements/{folder}.txt")
    assert done.returncode == 0, done.stdout + done.stderr
