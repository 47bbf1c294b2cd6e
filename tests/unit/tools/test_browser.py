"""Finding a browser: a level that cannot run says why, and never half installs."""

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


def test_without_root_nothing_is_installed(bare: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian, "may_install", lambda: False)
    assert "only root on Debian" in str(browser.obstacle())
    assert bare == []


def test_a_failed_installation_is_the_reason(bare: list[str]) -> None:
    assert "apt-get could not install chromium" in str(browser.obstacle())
    assert bare == ["chromium"]


def test_a_full_disk_is_the_reason(bare: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser, "DISK", 1 << 62)
    assert "GiB of disk are free" in str(browser.obstacle())
    assert bare == []


def test_a_package_that_cannot_be_installed_is_the_reason(bare: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser, "find", lambda: "/usr/bin/chromium")
    assert "Playwright is missing and could not be installed: browser.txt: no network" in str(browser.obstacle())
    assert bare == ["browser.txt"]


def test_where_both_are_there_nothing_is_in_the_way(bare: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser, "find", lambda: "/usr/bin/chromium")
    monkeypatch.setattr(browser, "find_spec", lambda name: object())
    assert browser.obstacle() is None
    assert bare == []
