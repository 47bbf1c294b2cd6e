"""Files out of the page cache and into it, without root: for files that this user may read."""

import ctypes
import mmap
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from kompakt_runtime.config import ConfigError

CHUNK: Final = 1 << 22
LOOKED_AT: Final = 1000


def files_of(paths: Iterable[str]) -> list[Path]:
    """All files at and below these paths, by name. Raises ConfigError for a path that is not there, or without files."""
    found: list[Path] = []
    for text in paths:
        path = Path(text)
        if not path.exists():
            raise ConfigError(f"{text}: not there; give a file or folder that the training reads")
        found += [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    if not found:
        raise ConfigError(f"{', '.join(paths)}: no files in it; give a file or folder that the training reads")
    return sorted(set(found))


def drop(files: Sequence[Path]) -> float | None:
    """Ask the kernel to forget these files; the share that it kept all the same, as `cached`."""
    _forget(files)
    return cached(files)


def _forget(files: Sequence[Path]) -> None:
    """What was just written is brought to the disk before, or it would stay."""
    for fd in _opened(files):
        os.fdatasync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def load(files: Sequence[Path]) -> None:
    """Read them all."""
    for fd in _opened(files):
        while os.read(fd, CHUNK):
            pass


def cached(files: Sequence[Path]) -> float | None:
    """Share of these files (of at most 1,000 of them) whose first page is in the cache; None where the kernel does not tell.

    It tells owners and those who may write only (mincore(2), since Linux 5.2).
    """
    seen = there = 0
    every = -(-len(files) // LOOKED_AT)
    for fd in _opened(files[::every]):
        if not os.fstat(fd).st_size:
            continue
        if not _may_ask(fd):
            return None
        there += _first_page_cached(fd)
        seen += 1
    return there / seen if seen else None


def _may_ask(fd: int) -> bool:
    return os.geteuid() in (0, os.fstat(fd).st_uid) or os.access(f"/proc/self/fd/{fd}", os.W_OK)


def _first_page_cached(fd: int) -> bool:
    """By a mapping that nobody reads: a look that reads (RWF_NOWAIT) may bring in the very page it asks for, some time later."""
    with mmap.mmap(fd, 1, access=mmap.ACCESS_COPY) as page:
        start, told = ctypes.c_char.from_buffer(page), ctypes.c_ubyte()
        failed = ctypes.CDLL(None).mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(1), ctypes.byref(told))
        del start  # or the mapping could not be closed
    return not failed and bool(told.value & 1)


def _opened(files: Iterable[Path]) -> Iterator[int]:
    for path in files:
        try:
            fd = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}; expected files that this user may read") from error
        try:
            yield fd
        finally:
            os.close(fd)
