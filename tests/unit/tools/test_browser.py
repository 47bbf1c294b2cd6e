"""Finding a browser: a level that cannot run says why, and never half installs."""

import subprocess
from typing import Any

import pytest

from tools import browser


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """A machine without a browser, on which we are root with apt-get; the commands that were run."""
    ran: list[list[str]] = []

    def run(command: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
        ran.append(command)
        return subprocess.CompletedProcess(command, 100)

    monkeypatch.setattr(browser.shutil, "which", lambda name: "/usr/bin/apt-get" if name == "apt-get" else None)
    monkeypatch.setattr(browser.os, "geteuid", lambda: 0)
    monkeypatch.setattr(browser.subprocess, "run", run)
    return ran


def test_without_root_nothing_is_installed(bare: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser.os, "geteuid", lambda: 1000)
    assert "only root on Debian" in str(browser.obstacle())
    assert bare == []


def test_a_failed_installation_is_the_reason(bare: list[list[str]]) -> None:
    assert "apt-get could not install chromium" in str(browser.obstacle())
    assert [command[1] for command in bare] == ["update"]


def test_a_full_disk_is_the_reason(bare: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser, "DISK", 1 << 62)
    assert "GiB of disk are free" in str(browser.obstacle())
    assert bare == []
