"""What verifying a release finds: each kind of change is named, also one that brings fitting checksums along."""

import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import released
from tools.provenance.__main__ import main
from tools.provenance.charts import metadata
from tools.provenance.clone import Clone
from tools.provenance.layout import Refused
from tools.provenance.releases import Release
from tools.provenance.sums import SUMS, sums
from tools.provenance.verify_release import release_problems

BUILDER = "https://example.com/tests"


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "release"))


def document(path: Path, change: Callable[[Any], object]) -> None:
    change(found := json.loads(path.read_text()))
    path.write_text(json.dumps(found))


def test_a_release_matches_itself(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--verify", f"--builder={BUILDER}", str(made)]) == 0
    assert capsys.readouterr().out == f"ok {made}: checksums and statements match; nothing here is signed\n"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda folder: released.flip(folder / "NOTES.md"), "NOTES.md has the SHA-256"),
        (lambda folder: (folder / "NOTES.md").unlink(), "NOTES.md is missing, and SHA256SUMS names it"),
        (lambda folder: (folder / "more").touch(), "more is not named in SHA256SUMS"),
        (lambda folder: (folder / SUMS).write_text("what\n"), "line 1 of"),
        (lambda folder: os.mkfifo(folder / "pipe"), "pipe is neither a file nor a folder"),
    ],
    ids=["changed", "removed", "added", "no sums", "a pipe"],
)
def test_a_file_that_is_not_what_the_sums_say_is_named(change: Callable[[Path], object], says: str, copy: Path) -> None:
    change(copy)
    (problem,) = release_problems(copy, Clone())
    assert says in problem


def replace_wheel(folder: Path) -> None:
    wheel = next((folder / "python").glob("kompakt_core-*.whl"))
    wheel.write_bytes(wheel.read_bytes() + b"more")


def halve(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def lead_elsewhere(folder: Path) -> None:
    """As if sums had followed the link: what lies behind it would be pushed without being named."""
    shutil.move(folder / "oci", folder.with_name("elsewhere"))
    (folder / "oci").symlink_to(folder.with_name("elsewhere"))


def swap_images(folder: Path) -> None:
    """With a list of contents that fits."""
    one, other, free = (folder / "oci" / name for name in ("kompakt-runtime", "kompakt-operator", "free"))
    for place, to in ((one, free), (other, one), (free, other)):
        place.rename(to)
    document(folder / "sbom.intoto.json", lambda said: said.update(predicate=Release(folder).contents()))


def layer(layout: Path) -> Path:
    """Packed, so that no reader of JSON comes upon the change first."""
    return next(path for path in (layout / "blobs/sha256").iterdir() if path.read_bytes().startswith(b"\x1f\x8b"))


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a wheel": (replace_wheel, r"provenance\.intoto\.json\.subject\[\d+\]\.digest\.sha256 is"),
    "the commit's name": (
        lambda folder: document(
            folder / "provenance.intoto.json",
            lambda one: one["predicate"]["buildDefinition"]["resolvedDependencies"][0].update(digest={"gitCommit": "--help"}),
        ),
        r"provenance\.intoto\.json: it names the commit '--help', which is no hash in full",
    ),
    "a pinned file": (
        lambda folder: document(
            folder / "provenance.intoto.json",
            lambda one: one["predicate"]["buildDefinition"]["resolvedDependencies"][1].update(digest={"sha256": "0" * 64}),
        ),
        r"resolvedDependencies\[1\]\.digest\.sha256 is",
    ),
    "the list": (
        lambda folder: document(folder / "sbom.intoto.json", lambda one: one["predicate"]["components"].pop()),
        r"sbom\.intoto\.json\.predicate\.components is",
    ),
    "a statement": (lambda folder: (folder / "sbom.intoto.json").unlink(), r"sbom\.intoto\.json is missing"),
    "the chart's layout": (
        lambda folder: released.flip(next((folder / "oci/charts/kompakt/blobs/sha256").iterdir())),
        r"oci/charts/kompakt is not what kompakt-0\.1\.0\.tgz",
    ),
    "an image": (
        lambda folder: released.flip(layer(folder / "oci/kompakt-runtime")),
        "kompakt-runtime: blob sha256:.* has the digest",
    ),
    "no source": (
        lambda folder: document(
            folder / "provenance.intoto.json",
            lambda one: one["predicate"]["buildDefinition"].update(resolvedDependencies=["source"]),
        ),
        r"provenance\.intoto\.json is not built as it should be",
    ),
    "no builder": (
        lambda folder: document(folder / "provenance.intoto.json", lambda one: one["predicate"].update(runDetails=["builder"])),
        r"provenance\.intoto\.json is not built as it should be",
    ),
    "an index": (
        lambda folder: document(folder / "oci/kompakt-runtime/index.json", lambda one: one.update(manifests=["image"])),
        "kompakt-runtime is not built as it should be",
    ),
    "half a wheel": (lambda folder: halve(next((folder / "python").glob("kompakt_core-*.whl"))), r"\.whl is no wheel"),
    "a link": (lead_elsewhere, "oci is neither a file nor a folder"),
    "versions of others": (
        lambda folder: (folder / "requirements/cli.txt").write_text("evil==1.0\n"),
        r"requirements/cli\.txt is not what commit [0-9a-f]{40} has there",
    ),
    "images under each other's names": (swap_images, "kompakt-operator: the image's title is kompakt-runtime"),
    "the chart": (lambda folder: (folder / "kompakt-0.1.0.tgz").unlink(), "holds 0 archives of charts"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_with_fitting_checksums_is_found_by_the_statements(name: str, copy: Path) -> None:
    change, says = CHANGES[name]
    change(copy)
    (copy / SUMS).write_text(sums(copy))
    with pytest.raises(AssertionError, match=says):
        assert not (found := release_problems(copy, Clone())), "\n".join(found)


def test_another_builder_is_named(made: Path) -> None:
    found = release_problems(made, Clone(), "https://example.com/others")
    assert len(found) == 5, "the release and its four images"
    assert all("should be 'https://example.com/others'" in one for one in found)


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b\x08"])
def test_what_is_no_chart_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "kompakt.tgz").write_bytes(content)
    with pytest.raises(Refused, match=r"kompakt\.tgz"):
        metadata(tmp_path / "kompakt.tgz")


def test_a_chart_without_a_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kompakt").mkdir()
    (tmp_path / "kompakt/Chart.yaml").write_text("name: kompakt\n")
    with tarfile.open(tmp_path / "kompakt.tgz", "w:gz") as tar:
        tar.add(tmp_path / "kompakt", "kompakt")
    with pytest.raises(Refused, match=r"kompakt\.tgz cannot be read: its Chart\.yaml has no version"):
        metadata(tmp_path / "kompakt.tgz")


def test_what_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--verify", str(tmp_path / "none" / "release")]) == 1
    (said,) = capsys.readouterr().out.splitlines()
    assert "No such file or directory" in said
