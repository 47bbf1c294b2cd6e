"""Copies read again: those decoded last serve the readers that follow, and what cannot be read is named."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

import torch

from kompakt_runtime import codec
from kompakt_runtime.codec import decode
from kompakt_runtime.saved.entry import SavedStorage, stream_of
from kompakt_runtime.saved.handle import ChangedInPlace, DecodeFailed
from kompakt_runtime.saved.states import Copy

Tensor = Any


class Recent:
    """Copies that somebody will read again, as far as there is room; and one that was just read, for those who read it next. An
    entry that dies takes its copy with it.
    """

    def __init__(self, kept: Callable[[SavedStorage, Tensor], None], room: Callable[[], int]) -> None:
        self._copies: WeakKeyDictionary[SavedStorage, Tensor] = WeakKeyDictionary()
        self._kept, self._room = kept, room
        self._making = 0  # bytes of what is being computed from others now

    def latest(self, entry: SavedStorage) -> Tensor | None:
        return self._copies.get(entry)

    @contextlib.contextmanager
    def making(self, entry: SavedStorage) -> Iterator[None]:
        """Sources that are read for it meanwhile do not take its room."""
        self._clear(entry)
        self._making += entry.nbytes
        try:
            yield
        finally:
            self._making -= entry.nbytes

    def _clear(self, entry: SavedStorage) -> None:
        """Makes room for this entry's copy. Those that nobody seeks go, then those that lay there for longest."""
        for one in [one for one in self._copies if not one.sought]:
            self._copies.pop(one, None)
        waiting = list(self._copies)
        while waiting and not self._fits(entry):
            self._copies.pop(waiting.pop(0), None)

    def keep(self, entry: SavedStorage, flat: Tensor) -> None:
        """For as long as it is sought and there is room."""
        self._copies.pop(entry, None)
        if entry.sought and (self._fits(entry) or not (self._copies or entry.opened in (0, entry.handles))):
            self._copies[entry] = flat
            self._kept(entry, flat)

    def _fits(self, entry: SavedStorage) -> bool:
        return self._room() - self._making >= entry.nbytes

    def forget(self) -> None:
        self._copies.clear()


class Decoded:
    """Recent copies by thread and stream. kept: called with each that stays for others; room: bytes that may be held
    more while the step's peak stays what it is.

    Backward passes of GPUs run on threads of autograd's own, and what one stream has decoded is not there for another that does
    not wait for it.
    """

    def __init__(self, kept: Callable[[SavedStorage, Tensor], None], room: Callable[[], int]) -> None:
        self.recent: dict[tuple[int, int], Recent] = {}
        self._kept, self._room = kept, room

    def latest(self, entry: SavedStorage) -> Tensor | None:
        """A copy that was decoded before."""
        return self._here(entry).latest(entry)

    def read(self, entry: SavedStorage, copy: Copy, fresh: Callable[[SavedStorage, Tensor], None]) -> Tensor:
        """The storage, 1-D. fresh: called with a copy that had to be decoded."""
        recent = self._here(entry)
        flat = recent.latest(entry)
        if flat is None:
            with recent.making(entry):
                flat = self.decode(entry, copy)
            fresh(entry, flat)
        recent.keep(entry, flat)
        return flat

    def _here(self, entry: SavedStorage) -> Recent:
        here = (threading.get_ident(), stream_of(entry.probe))
        return self.recent.get(here) or self.recent.setdefault(here, Recent(self._kept, self._room))

    def forget(self) -> None:
        """Frees the copies decoded last, of all threads."""
        for recent in list(self.recent.values()):
            recent.forget()

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


def _read(copy: Copy) -> Tensor:
    return decode(copy) if isinstance(copy, codec.Packed) else copy.decode()


def _out_of_memory(error: Exception) -> bool:
    return type(error) in (torch.cuda.OutOfMemoryError, MemoryError)
