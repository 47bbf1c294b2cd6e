"""An older state of the project as it is installed: its chart, and its images built from its own Dockerfile."""

import io
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

from tools.kube.base_image import base_image, build_base
from tools.kube.buildah import Builder
from tools.kube.cache import locked
from tools.kube.images import ROOT

PARTS = ("operator", "extender", "device-plugin")
REGISTRY = "localhost/older"  # apart from today's images: a build drops older images of its own name


@dataclass(frozen=True, slots=True)
class Older:
    """A chart and the archives of its images."""

    chart: Path
    values: dict[str, str]
    archives: tuple[Path, ...] = ()


def checked_out(commit: str, folder: Path) -> Path:
    """The files of a commit, without touching the working tree. Raises CalledProcessError where there is no such commit."""
    packed = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        tar.extractall(folder, filter="data")
    return folder


def built(commit: str, folder: Path) -> Older:
    """That commit's chart, and images made as its own Dockerfile says (several minutes the first time)."""
    root = checked_out(commit, folder / "tree")
    builder = Builder(folder / "images.log")
    archives = []
    with locked("images"):  # another build would drop layers that this one counts on
        build_base(builder)
        for part in PARTS:
            image = f"{REGISTRY}/kompakt-{part}:{commit}"
            builder.build(root, image, target=part, args={"BASE_IMAGE": base_image()})
            archives.append(folder / f"{part}.tar")
            builder.export(image, archives[-1], name=image)
    return Older(root / "charts/kompakt", {"image.registry": REGISTRY, "image.tag": commit}, tuple(archives))
