"""An older state of the project: the commit that upgrades begin from, and its files.

It stands in tests/upgrade_from; KOMPAKT_UPGRADE_FROM names another. A clone without that commit (a shallow one) cannot try
upgrades: nothing is fetched, the tests skip with that reason, or fail where KOMPAKT_REQUIRE names `history`.
"""

import io
import os
import subprocess
import tarfile
from pathlib import Path
from typing import NoReturn

import pytest

from tools.kube.images import ROOT

FILE = ROOT / "tests/upgrade_from"
ENV = "KOMPAKT_UPGRADE_FROM"
# What programs, images, chart and the stand-in for device plugins are made from.
FOLDERS = (
    *("Dockerfile", "requirements", "charts", "crds", "tools"),
    *("core", "client", "operator", "extender", "device-plugin", "runtime"),
)


class NoHistory(Exception):
    """This clone does not have the older commit; the message says which and what helps."""


def commit(root: Path = ROOT) -> str:
    """The older commit in full. Raises NoHistory."""
    wanted = os.environ.get(ENV) or FILE.read_text().strip()
    found = _git(root, "rev-parse", "--verify", "--quiet", f"{wanted}^{{commit}}")
    if found.returncode != 0:
        raise NoHistory(
            f"upgrades begin from commit {wanted} (tests/upgrade_from, {ENV}), which {root} does not have: "
            "clone with history (`git fetch --unshallow`)"
        )
    return found.stdout.decode().strip()


def checked_out(folder: Path, root: Path = ROOT) -> Path:
    """The older commit's files in that folder, without touching the working tree. Raises NoHistory."""
    packed = _git(root, "archive", commit(root), *FOLDERS)
    packed.check_returncode()
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as tar:
        tar.extractall(folder, filter="data")
    return folder


def cannot(error: NoHistory) -> NoReturn:
    """Skips, or fails where history is required."""
    if "history" in os.environ.get("KOMPAKT_REQUIRE", "").split(","):
        pytest.fail(f"required by KOMPAKT_REQUIRE: {error}")
    pytest.skip(str(error))


def _git(root: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    # No fetching in passing either: a partial clone would ask its origin for what it lacks.
    return subprocess.run(
        ["git", *arguments], cwd=root, env={**os.environ, "GIT_NO_LAZY_FETCH": "1"}, capture_output=True, check=False
    )
