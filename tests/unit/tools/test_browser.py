"""Finding a browser: a level that cannot run says why, and never half installs."""

from typing import Any

import pytest

from tools import browser, debian
from tools.kube.command import CommandFailed, Words


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A machine without a browser and its package, on which we may install both and nothing succeeds; what was tried."""
    tried: list[str] = []

    def refuse(what: str) -> None:
        tried.append(what)
        raise CommandFailed(f"{what}: no network")

    def run(argv: Words) -> str:
        refuse(f"uv {argv[-1]}".rpartition("/")[2])
        return ""

    monkeypatch.setattr(browser.shutil, "which", lambda name: None)  # type: ignore[attr-defined]
    monkeypatch.setattr(browser, "find_spec", lambda name: None)
    monkeypatch.setattr(debian, "may_install", lambda: True)
    monkeypatch.setattr(debian, "install", lambda packages: refuse(*packages))
    monkeypatch.setattr(browser, "output", run)
    return tried


@pytest.mark.parametrize(
    ("changes", "says", "tried"),
    [
        ({(debian, "may_install"): lambda: False}, "only root on Debian", []),
        ({}, "apt-get could not install chromium", ["chromium"]),
        ({(browser, "DISK"): 1 << 62}, "GiB of disk are free", []),
        (
            {(browser, "find"): lambda: "/usr/bin/chromium"},
            "Playwright is missing and could not be installed: browser.txt: no network",
            ["browser.txt"],
        ),
        ({(browser, "find"): lambda: "/usr/bin/chromium", (browser, "find_spec"): lambda name: object()}, None, []),
    ],
    ids=["we are not root", "an installation fails", "the disk is full", "a package cannot be had", "both are there"],
)
def test_what_is_in_the_way_where(
    bare: list[str], monkeypatch: pytest.MonkeyPatch, changes: dict[tuple[Any, str], Any], says: str | None, tried: list[str]
) -> None:
    for (owner, name), value in changes.items():
        monkeypatch.setattr(owner, name, value)
    found = browser.obstacle()
    assert found is None if says is None else says in str(found)
    assert bare == tried
