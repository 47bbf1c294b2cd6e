"""Containerd roots that already hold all images: filled once, then hard-linked into each node in a tenth of a second."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.kube.cache import cache_root, content_key
from tools.kube.command import logged, output

# containerd writes these two in place; every other file of a root is written once and renamed, so links are safe.
_DATABASES = ("io.containerd.metadata.v1.bolt/meta.db", "io.containerd.snapshotter.v1.overlayfs/metadata.db")


def root_of(keys: Sequence[str]) -> Path:
    """The root that holds the images of these keys, whether it is filled already or not."""
    return _roots() / content_key(keys)


def any_filled() -> bool:
    """Whether images were made here before."""
    return _roots().exists() and any(root.suffix == "" for root in _roots().iterdir())


def fill(root: Path, above: Path | None, archives: Sequence[Path], log: Path) -> None:
    """Make `root`: a linked copy of `above`, if there is one, with the images of the archives added.

    So a change in the last images needs no new import of the first. A half filled root never gets its name.

    Raises:
        CommandFailed: an import failed.
    """
    part = root.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    if above is not None:
        clone(above, part)
    part.mkdir(parents=True, exist_ok=True)
    isolated = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    logged([*isolated, sys.executable, Path(__file__).parent / "fill_store.py", part, *archives], log)
    part.rename(root)


def keep_only(roots: Sequence[Path]) -> None:
    """Remove all other roots; nodes that run from them keep their links."""
    for root in _roots().iterdir():
        if root not in roots:
            shutil.rmtree(root)


def clone(template_root: Path, target: Path) -> None:
    """Give a node its own containerd root: linked files, real copies of the databases."""
    target.parent.mkdir(parents=True, exist_ok=True)
    output(["cp", "-al", template_root, target])
    for name in _DATABASES:
        (target / name).unlink()
        shutil.copy2(template_root / name, target / name)


def _roots() -> Path:
    return cache_root() / "containerd"
