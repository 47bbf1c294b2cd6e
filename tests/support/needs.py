"""Packages that only some machines have: tests skip with a reason, unless KOMPAKT_REQUIRE=torch says that they must run."""

import os
from pathlib import Path

import pytest

from tools.alone import UNREACHABLE
from tools.kube.command import CommandFailed, Words, output
from tools.prometheus import NoPrometheus, find

REASONS = {
    "torch": "torch is not installed: `make sync-torch`",
    "sklearn": "scikit-learn is not installed: `make sync-torch`",
    "skimage": "scikit-image is not installed: `make sync-torch`",
    "triton": "triton is not installed: it comes with torch from the package index",
    **{library: f"{library} is not installed: `make sync-zoo`" for library in ("peft", "timm", "torchvision", "transformers")},
    **{library: f"{library} is not installed: `make sync-frameworks`" for library in ("accelerate", "lightning")},
}


def needs(package: str, group: str = "torch") -> None:
    """Skips the test, or the file that is being imported, where a package is missing and need not be there; or where it is
    left unused (KOMPAKT_WITHOUT=torch, as in `make test-fast`). group: the word in KOMPAKT_REQUIRE that asks for it.
    """
    if "torch" in os.environ.get("KOMPAKT_WITHOUT", ""):
        pytest.skip("left out: KOMPAKT_WITHOUT names torch", allow_module_level=True)
    if group not in os.environ.get("KOMPAKT_REQUIRE", ""):
        pytest.importorskip(package, reason=REASONS[package])


def from_index(command: Words) -> None:
    """Runs what asks a package index; skips the test where none can be reached, unless KOMPAKT_REQUIRE names `index`."""
    try:
        output(command)
    except CommandFailed as error:
        if "index" in os.environ.get("KOMPAKT_REQUIRE", "") or not any(words in str(error) for words in UNREACHABLE):
            raise
        pytest.skip("no package index can be reached")


def monitor(program: str) -> Path:
    """`prometheus` or `promtool`; skips the test where there is none, unless KOMPAKT_REQUIRE names `prometheus`."""
    try:
        return find(program)
    except NoPrometheus as reason:
        if "prometheus" in os.environ.get("KOMPAKT_REQUIRE", ""):
            raise
        pytest.skip(str(reason))
