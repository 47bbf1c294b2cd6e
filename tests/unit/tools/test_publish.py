"""Images to be published: which bases are taken, and that nothing that is there is replaced. Building is tried on real nodes."""

from pathlib import Path

import pytest

from tools import publish
from tools.kube.buildah import Builder
from tools.provenance.layout import Refused
from tools.provenance.write import Run

DIGEST = "sha256:" + "d" * 64


@pytest.mark.parametrize("name", ["docker.io/library/python:3.11-slim-bookworm", "localhost:5000/base", "python"])
def test_a_base_by_digest_is_taken_apart(name: str) -> None:
    assert publish.base_of(f"{name}@{DIGEST}") == publish.Base(name, DIGEST)


@pytest.mark.parametrize(
    "reference", ["python:3.11", "python", f"@{DIGEST}", f"python@{DIGEST[:-1]}", f"python@{DIGEST}0", DIGEST, ""]
)
def test_a_base_that_is_not_named_by_digest_is_refused(reference: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Refused, match="name it by digest"):
        publish.base_of(reference)
    assert publish.main([f"--base-image={reference}", "--builder=https://example.com"]) == 1
    assert "name it by digest" in capsys.readouterr().err


def test_layouts_that_are_there_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "kompakt-runtime").mkdir()
    builder = Builder(tmp_path / "log")
    with pytest.raises(Refused, match="kompakt-runtime is there already"):
        publish.publish(["operator", "runtime"], publish.Base("b", DIGEST), Run("https://example.com"), tmp_path, builder, print)
    assert [path.name for path in tmp_path.iterdir()] == ["kompakt-runtime"]
