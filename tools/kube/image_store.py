"""Containerd roots that already hold all images: filled once, then hard-linked into each node in a tenth of a second."""

import json
import shutil
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.kube.cache import cache_root, content_key
from tools.kube.command import logged, output

# containerd writes these two in place; every other file of a root is written once and renamed, so links are safe.
_DATABASES = ("io.containerd.metadata.v1.bolt/meta.db", "io.containerd.snapshotter.v1.overlayfs/metadata.db")


# A test run starts nodes all the time, for less than this. Roots share most files by links, so one more costs little.
UNUSED_SECONDS = 2 * 3600.0


@dataclass(frozen=True, slots=True)
class Stored:
    """A filled root and the stems (name and content key) of the images in it."""

    root: Path
    stems: frozenset[str]


def root_of(stems: Collection[str]) -> Path:
    """The root that holds exactly these images, whether it is filled already or not."""
    return _roots() / content_key(sorted(stems))


def holding(stems: Collection[str]) -> Path:
    """A filled root that holds these images, alone or, the newest, with others beside them; else the one to be filled."""
    root = root_of(stems)
    if not root.exists() and (wider := _newest(stored for stored in _stored() if stored.stems.issuperset(stems))):
        return wider.root
    return root


def latest() -> Stored | None:
    """What was filled last; None where nothing was."""
    return _newest(_stored())


def fill(images: Mapping[str, str], archives: Sequence[Path], before: Stored | None, log: Path) -> Path:
    """Make the root that holds `images` (names by stem): a linked copy of `before` with the archives' images added.

    What `before` holds already is not imported again, and images that are no longer wanted are dropped, layers that
    only they use with them. A half filled root never gets its name.

    Raises:
        CommandFailed: an import failed.
    """
    root = root_of(images.keys())
    part = root.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    if before is not None:
        clone(before.root, part)
    part.mkdir(parents=True, exist_ok=True)
    isolated = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    wanted = ",".join(images.values())
    logged([*isolated, sys.executable, Path(__file__).parent / "fill_store.py", part, wanted, *archives], log)
    part.rename(root)
    root.touch()
    root.with_suffix(".json").write_text(json.dumps(sorted(images)))
    _drop_unused()
    return root


def _drop_unused() -> None:
    """Remove the roots from which no node was started lately: another checkout's run may start more from the others."""
    for root in _roots().iterdir():
        if root.is_dir() and root.stat().st_mtime < time.time() - UNUSED_SECONDS:
            root.with_suffix(".json").unlink(missing_ok=True)
            shutil.rmtree(root)


def clone(template_root: Path, target: Path) -> None:
    """Give a node its own containerd root: linked files, real copies of the databases."""
    target.parent.mkdir(parents=True, exist_ok=True)
    template_root.touch()  # in use
    output(["cp", "-al", template_root, target])
    for name in _DATABASES:
        (target / name).unlink()
        shutil.copy2(template_root / name, target / name)


def _stored() -> list[Stored]:
    return [Stored(path.with_suffix(""), frozenset(json.loads(path.read_text()))) for path in _roots().glob("*.json")]


def _newest(found: Iterable[Stored]) -> Stored | None:
    return max(found, key=lambda stored: stored.root.stat().st_mtime, default=None)


def _roots() -> Path:
    return cache_root() / "containerd"
