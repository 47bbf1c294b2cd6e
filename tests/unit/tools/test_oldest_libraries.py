"""What people install beside their own libraries works with the oldest ones that its packages allow: requirements/oldest.in."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.needs import from_index
from tests.support.turns import in_turn
from tools.kube.command import output

ROOT = Path(__file__).parents[3]
UV = Path(sys.executable).parent / "uv"
PACKAGES = ("core", "client", "sdk", "cli", "simulator")
STAND_IN = ("operator", "extender", "device-plugin", "runtime")  # of which tests of the command line make a cluster
PINNED = dict(re.findall(r"^(\S+)==(\S+)$", (ROOT / "requirements" / "oldest.in").read_text(), re.MULTILINE))


def required(package: str) -> dict[str, str]:
    """Ranges by library, without our own packages."""
    project = tomllib.loads((ROOT / package / "pyproject.toml").read_text())["project"]
    extras = [one for extra in project.get("optional-dependencies", {}).values() for one in extra]
    found = (re.match(r"([A-Za-z0-9._-]+)(?:\[\w+\])?(.*)", one) for one in [*project.get("dependencies", ()), *extras])
    return {one[1]: one[2] for one in found if one and not one[1].startswith("kompakt")}


@pytest.mark.parametrize("package", PACKAGES)
def test_ranges_begin_at_the_oldest_that_is_tried(package: str) -> None:
    for library, range_ in required(package).items():
        if library == "torch":
            continue  # the tour's training: tests/unit/runtime/test_old_torch.py
        (oldest,) = re.findall(r">=([\d.]+)", range_)
        assert PINNED[library].removesuffix(".0") == oldest.removesuffix(".0"), f"{package} needs {library}{range_}"


@in_turn(1)
@pytest.mark.timeout(600)
def test_the_command_line_works_with_the_oldest_libraries(tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    output([UV, "venv", "--quiet", f"--python={sys.executable}", tmp_path / "venv"])
    install = [UV, "pip", "install", "--quiet", f"--python={python}"]
    from_index([*install, "--require-hashes", "-r", ROOT / "requirements" / "oldest.txt"])
    ours = [word for package in (*PACKAGES, *STAND_IN) for word in ("-e", ROOT / package)]
    output([*install, "--no-deps", "--no-build-isolation", *ours])
    around = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/unit/client", "tests/unit/sdk", "tests/unit/cli"],
        cwd=ROOT,
        env={**around, "KOMPAKT_WITHOUT": "torch", "KOMPAKT_REQUIRE": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) > 650
