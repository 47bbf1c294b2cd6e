"""The commit that upgrades are tried from is one of this history; a clone without it is told what helps, and asks nobody."""

import subprocess
from pathlib import Path

import pytest

from tests.support import older
from tools.kube.images import ROOT


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits; the first is the one to begin from, and has other files."""
    root = tmp_path / "whole"
    root.mkdir()
    git(root, "init", "--quiet")
    git(root, "config", "user.name", "n")
    git(root, "config", "user.email", "n@example.com")
    for name in older.FOLDERS:
        (root / name).mkdir()
        (root / name / "file").write_text("old")
    for text in ("old", "new"):
        (root / "core/file").write_text(text)
        git(root, "add", ".")
        git(root, "commit", "--quiet", "--message", text)
    return root


@pytest.fixture
def first(repository: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    found = git(repository, "rev-parse", "HEAD~1")
    monkeypatch.setenv(older.ENV, found)
    return found


def test_files_are_those_of_the_older_commit(repository: Path, first: str, tmp_path: Path) -> None:
    assert older.commit(repository) == first
    assert (older.checked_out(tmp_path / "older", repository) / "core/file").read_text() == "old"
    assert (repository / "core/file").read_text() == "new"


def test_a_shallow_clone_says_what_it_lacks(repository: Path, first: str, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{repository}", "shallow")
    with pytest.raises(older.NoHistory, match=rf"{first}.*does not have.*unshallow"):
        older.checked_out(tmp_path / "older", tmp_path / "shallow")


@pytest.mark.parametrize(("required", "outcome"), [("torch,history", pytest.fail.Exception), ("torch", pytest.skip.Exception)])
def test_history_may_be_required(required: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOMPAKT_REQUIRE", required)
    with pytest.raises(outcome, match="no such commit"):
        older.cannot(older.NoHistory("no such commit"))


def test_the_commit_in_the_file_is_an_ancestor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(older.ENV, raising=False)
    try:
        found = older.commit()
    except older.NoHistory as error:
        older.cannot(error)
    assert found == older.FILE.read_text().strip(), "named in full: an abbreviation can become ambiguous"
    assert subprocess.run(["git", "merge-base", "--is-ancestor", found, "HEAD"], cwd=ROOT, check=False).returncode == 0
