"""An image of a release on its way to a node: built from HEAD, pushed into a registry, pulled by digest by a real containerd."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.support import released
from tests.support.node.publishing import Published
from tests.support.registry import running
from tests.support.turns import in_turn
from tools import push
from tools.kube.binaries import find
from tools.kube.command import CommandFailed, output
from tools.kube.images import ROOT
from tools.release import release

ISOLATED = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "env", "--chdir", str(ROOT))


def pulled(root: Path, reference: str) -> str:
    """What the image says of its release, read by a container of it."""
    words = (sys.executable, "-m", "tests.support.node.pull_image", root, reference, "/opt/kompakt/release")
    return output([*ISOLATED, *words])


@in_turn(0)
def test_containerd_pulls_an_image_of_the_release_and_refuses_changed_layers(published: Published, tmp_path: Path) -> None:
    def with_image(folder: Path) -> None:
        shutil.copytree(published.place, folder / published.place.name)

    release(folder := tmp_path / "release", print, run=released.RUN, images=with_image)
    base = f"{published.base.name}@{published.base.digest}"
    with running(tmp_path / "registry") as registry:
        _, reference = push.push(folder, push.Target(registry.address, find("oras"), plain_http=True), print)
        assert pulled(tmp_path / "containerd", reference) == f"0.1.0 {published.commit} {base}\n"
        place = published.place
        listed = json.loads((place / "index.json").read_text())["manifests"][0]["digest"]
        layer = json.loads((place / "blobs" / listed.replace(":", "/")).read_text())["layers"][-1]["digest"]
        released.flip(registry.blob(layer))
        with pytest.raises(CommandFailed, match=f"expected {layer}"):
            pulled(tmp_path / "again", reference)
