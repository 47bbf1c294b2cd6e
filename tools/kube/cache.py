"""Where things are kept that are expensive to make, outside the checkout, keyed by the content of their inputs."""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

_SKIPPED = {"__pycache__", ".venv", "build", "dist"}


def cache_root() -> Path:
    """`${XDG_CACHE_HOME:-~/.cache}/kompakt`, made when missing."""
    above = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    root = above / "kompakt"
    root.mkdir(parents=True, exist_ok=True)
    return root


def files_of(root: Path, names: Iterable[str]) -> list[Path]:
    """The files under `root` that the given files and folders name, sorted, without caches and build products."""
    found: list[Path] = []
    for name in names:
        start = root / name
        found += [start] if start.is_file() else [path for path in start.rglob("*") if path.is_file() and _counts(path, start)]
    return sorted(set(found))


def content_key(texts: Iterable[str], files: Iterable[Path] = (), root: Path = Path("/")) -> str:
    """12 hexadecimal digits that change when a text, a file's name below `root`, its mode or its content changes."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(f"text {len(text.encode())}\n{text}".encode())
    for file in files:
        content = file.read_bytes()
        digest.update(f"file {file.relative_to(root)} {file.stat().st_mode & 0o111} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:12]


def copy_files(files: Iterable[Path], root: Path, target: Path) -> None:
    """Copy files to the same places below `target`."""
    for file in files:
        place = target / file.relative_to(root)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, place)


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold one lock of the cache: a second run waits here until the first has filled what both need."""
    with (cache_root() / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _counts(path: Path, start: Path) -> bool:
    parts = path.relative_to(start).parts
    return not any(part in _SKIPPED or part.startswith(".") or part.endswith(".egg-info") for part in parts)
