"""Copies read again: the one decoded last serves the readers that follow, and what cannot be read is named."""

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import torch

from kompakt_runtime import codec
from kompakt_runtime.codec import decode
from kompakt_runtime.saved.entry import SavedStorage, stream_of
from kompakt_runtime.saved.handle import ChangedInPlace, DecodeFailed
from kompakt_runtime.saved.states import Copy

Tensor = Any


class Decoded:
    """Several operations that saved one storage read it in a row, so the latest copy is kept: by thread and stream.

    Backward passes of GPUs run on threads of autograd's own, and what one stream has decoded is not there for another that does
    not wait for it.
    """

    def __init__(self) -> None:
        self.recent: dict[tuple[int, int], tuple[SavedStorage, Tensor]] = {}

    def latest(self, entry: SavedStorage) -> Tensor | None:
        """The copy decoded last, if it is this entry's."""
        latest, flat = self.recent.get(_reader(entry), (None, None))
        return flat if latest is entry else None

    def read(self, entry: SavedStorage, copy: Copy, again: bool, fresh: Callable[[SavedStorage, Tensor], None]) -> Tensor:
        """The storage, 1-D. again: more readers will come; fresh: called with a copy that had to be decoded."""
        reader = _reader(entry)
        latest, flat = self.recent.pop(reader, (None, None))  # of another entry: let go of before this one is decoded
        if latest is not entry:
            flat = self.decode(entry, copy)
            fresh(entry, flat)
        if again:
            self.recent[reader] = (entry, flat)
        return flat

    def forget(self) -> None:
        """Frees the copies decoded last, of all threads."""
        self.recent.clear()

    def decode(self, entry: SavedStorage, copy: Copy) -> Tensor:
        """The storage, 1-D. Raises DecodeFailed or an error for want of memory."""
        with contextlib.suppress(Exception):
            return _read(copy)
        self.forget()  # perhaps what it takes was all that was missing
        try:
            return _read(copy)
        except (ChangedInPlace, DecodeFailed):  # of what it is computed from
            raise
        except Exception as error:
            words = (
                f"kompakt: the compressed copy of what {entry.layer or 'a module'} saved ({entry.nbytes} bytes) cannot be read, "
                f"and the original is gone, so this backward pass cannot go on: {type(error).__name__}: {error}"
            )
            # Loops that leave out a batch for want of memory know that error by its class.
            raise (type(error) if _out_of_memory(error) else DecodeFailed)(words) from error


def _reader(entry: SavedStorage) -> tuple[int, int]:
    return threading.get_ident(), stream_of(entry.probe)


def _read(copy: Copy) -> Tensor:
    return decode(copy) if isinstance(copy, codec.Packed) else copy.decode()


def _out_of_memory(error: Exception) -> bool:
    return type(error) in (torch.cuda.OutOfMemoryError, MemoryError)
