"""What is kept for the backward pass: one entry per storage, however many operations save it.

Autograd holds handles; a handle holds its entry and says which view of the storage it was.
"""

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary, ref

import torch

from kompakt_runtime.codec import Channels, Packed, Room, decode
from kompakt_runtime.codec.pending import most_waiting
from kompakt_runtime.saved.carrier import Hosted
from kompakt_runtime.saved.derived import Derived
from kompakt_runtime.saved.entry import Copy, SavedStorage, stream_of
from kompakt_runtime.saved.lossless import sign_mask
from kompakt_runtime.uses.policy import Use

Tensor = Any


class DecodeFailed(RuntimeError):
    """A copy cannot be read in a backward pass. Its original is gone, so nothing can stand in for it."""


class ChangedInPlace(RuntimeError):
    """What a backward pass needs was changed meanwhile, as plain autograd says it too."""


class Handle:
    """What autograd gets instead of a tensor: a view of an entry's storage.

    call: the module call that saved it, while nobody knows what reads it.
    """

    __slots__ = ("__weakref__", "asked", "call", "dtype", "entry", "offset", "shape", "strides", "use", "version")

    def __init__(self, entry: SavedStorage, t: Tensor) -> None:
        entry.handles += 1
        self.call: Any = None
        self.asked: tuple[Any, str] | None = None  # who bears errors in it, and the slot
        self.entry, self.use = entry, Use.VALUES
        self.version = int(t._version)
        self.dtype, self.shape, self.strides, self.offset = t.dtype, t.shape, t.stride(), t.storage_offset()

    def __del__(self) -> None:
        """A branch that was computed and thrown away."""
        if self.call is not None:
            self.entry.unresolved -= 1

    def wait(self, call: Any) -> None:
        """Until its reader is known; `entry.hold` was called for it."""
        self.call = call

    def resolve(self) -> Any:
        """Its reader is known, or never will be. The call that saved it."""
        call, self.call = self.call, None
        self.entry.unresolved -= 1
        return call

    def view(self, flat: Tensor) -> Tensor:
        if flat.dtype != self.dtype:
            flat = flat.view(self.dtype)
        return flat.as_strided(self.shape, self.strides, self.offset)

    def shape_only(self, device: Any) -> Tensor:
        """A stand-in of the right shape, type and memory format, for operations that read nothing else; without memory where
        the format allows it.
        """
        nothing = torch.zeros((), dtype=self.dtype, device=device)
        if self.strides == tuple(torch.empty(self.shape, device="meta").stride()):
            return nothing.expand(self.shape)
        return torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=device).zero_()


class PlainTensor:
    """A tensor that is kept as it is, outside the accounts: parameters, or what the ledger cannot describe."""

    __slots__ = ("tensor", "version")

    def __init__(self, t: Tensor) -> None:
        # A leaf has no history, so holding it makes no cycle; and whoever exchanges its data sees what plain autograd sees.
        self.tensor = t if t.is_leaf else t.detach()
        self.version = int(t._version)


class StorageLedger:
    """The living entries, and the copy decoded last (several operations that saved one storage read it in a row)."""

    def __init__(
        self,
        closed: Callable[[SavedStorage, bool], None],
        compared: Callable[[SavedStorage, Tensor], None] | None = None,
        changed: Callable[[SavedStorage], None] = lambda entry: None,
    ) -> None:
        """closed: an entry was read for the first time; compared: keep originals, and call this with each copy that is read;
        changed: what an entry keeps is something else now, by what the ledger itself did.
        """
        self._entries: WeakValueDictionary[int, SavedStorage] = WeakValueDictionary()
        self._closed, self._changed = closed, changed
        self._compared = compared
        self._waiting = _Waiting()
        # By thread and stream: backward passes of GPUs run on threads of autograd's own, and what one stream has decoded is not
        # there for another that does not wait for it.
        self._recent: dict[tuple[int, int], tuple[SavedStorage, Tensor]] = {}
        # What each layer's last tensor needed, and at which bound.
        self._rooms: dict[str, tuple[float, Room]] = {}
        self._flying: deque[ref[SavedStorage]] = deque()
        self._lock = threading.Lock()
        self._landing = threading.Lock()  # of forward passes on several threads one at a time looks at who flies

    def holds(self, storage: Any) -> bool:
        """Whether the storage behind a weak reference is kept here."""
        return storage.cdata in self._entries

    def known(self, t: Tensor) -> SavedStorage | None:
        entry = self._entries.get(t.untyped_storage()._cdata)
        return entry if entry is not None and entry.version == t._version else None

    def entry(self, t: Tensor) -> SavedStorage:
        """The entry of the tensor's storage at its present version, a new one if need be."""
        entry = self.known(t)
        if entry is None:
            entry = SavedStorage(t)
            if self._compared is not None:
                entry.original = entry.alias
            self._entries[t.untyped_storage()._cdata] = entry
        return entry

    def wait(self, entry: SavedStorage) -> None:
        """Only signs are read so far; `settle_waiting` makes a mask unless another use turns up."""
        self._waiting.entries.append(ref(entry))

    def settle_waiting(self, everything: bool) -> None:
        """Makes masks of this thread's waiting entries that nobody else holds any more, or of all: the forward pass is over."""
        waiting, self._waiting.entries = self._waiting.entries, []
        for reference in waiting:
            entry = reference()
            if entry is None or entry.alias is None or entry.taken or entry.whole:
                continue
            if everything or entry.alone:
                entry.replace(sign_mask(entry.alias), entry.alias)
                self._changed(entry)
            else:
                self._waiting.entries.append(reference)

    def compress(
        self,
        entry: SavedStorage,
        t: Tensor,
        bound: float,
        layer: str,
        at_once: bool,
        seed: int | None = None,
        channels: Channels | None = None,
    ) -> bool:
        """Keeps a compressed copy, now or (on a GPU, unless `at_once`) when its size is known; False where it is no gain."""
        known = self._rooms.get(layer)
        if at_once or channels is not None or not defers(t) or known is None or known[0] != bound:
            gained = entry.compress(t, bound, seed, channels)
            if gained and entry.packed is not None:
                self._rooms[layer] = (bound, Room.of(entry.packed))
            return gained
        with self._landing:
            self._land(entry.nbytes, most_waiting(t.device))
        entry.layer = layer
        if not entry.start(t, bound, known[1]):
            return False
        with self._landing:
            self._flying.append(ref(entry))
        return True

    def _land(self, coming: int, most: int) -> None:
        """Settles what has arrived, and the oldest while originals of more than `most` bytes would wait."""
        while self._flying:
            entry = self._flying[0]()
            pending = entry.pending if entry is not None else None
            if pending is not None and not pending.ready and self._waiting_bytes() + coming <= most:
                return
            self._flying.popleft()
            if entry is not None:
                self._settle(entry, again=True)

    def _waiting_bytes(self) -> int:
        entries = (reference() for reference in self._flying)
        return sum(entry.nbytes for entry in entries if entry is not None and entry.pending is not None)

    def _settle(self, entry: SavedStorage, again: bool) -> None:
        # A backward pass on another thread may want the same entry.
        with self._lock:
            room = entry.settle(again)
        if room is not None:
            self._rooms[entry.layer] = (entry.bound, room)
            self._changed(entry)

    def open(self, handle: Handle | PlainTensor) -> Tensor:
        """The tensor again, as often as asked. Raises RuntimeError where plain autograd would: it was changed in place; and
        DecodeFailed or torch.OutOfMemoryError where a copy cannot be read.
        """
        if isinstance(handle, PlainTensor):
            check_version(handle.tensor, handle.version, handle.tensor.shape, handle.tensor.dtype)
            return handle.tensor
        entry = handle.entry
        check_version(entry.probe, handle.version, handle.shape, handle.dtype)
        self._settle(entry, again=False)  # what is read now is no longer worth packing
        self._count(entry)
        entry.opened += 1
        if handle.use is Use.SHAPE:
            return handle.shape_only(entry.probe.device)
        return handle.view(self._flat(entry))

    def _count(self, entry: SavedStorage) -> None:
        if not entry.counted:
            # Where originals are kept for comparison nobody can tell whether others hold them as well.
            kept = entry.alias is not None or entry.original is not None
            self._closed(entry, not kept and not entry.storage.expired())
        entry.counted = True

    def source(self, handle: Handle, *, backward: bool = True) -> tuple[Tensor, bool]:
        """What something else is computed from again, and whether this copy is nobody else's. Does not count as a reader.

        Raises as `open` does, but of a copy: changes in place of what was copied do it no harm.
        """
        entry = handle.entry
        if entry.plain or not isinstance(entry.copy, Packed | Derived | Hosted):
            check_version(entry.probe, handle.version, handle.shape, handle.dtype)
        self._settle(entry, again=not backward)
        if backward:
            self._count(entry)
        if isinstance(entry.copy, Hosted):
            entry.landed(entry.copy.land())
        if entry.copy is None:
            return handle.view(entry.alias), False
        latest, flat = self._recent.get((threading.get_ident(), stream_of(entry.probe)), (None, None))
        if latest is entry:
            return handle.view(flat), False
        if isinstance(entry.copy, Derived) and not backward:
            return handle.view(entry.copy.decode(self.looked_at)), True
        return handle.view(self._decoded(entry, entry.copy)), isinstance(entry.copy, Packed | Derived)

    def looked_at(self, handle: Handle) -> tuple[Tensor, bool]:
        """As `source`, while the forward pass runs: nothing is counted."""
        return self.source(handle, backward=False)

    def _flat(self, entry: SavedStorage) -> Tensor:
        if entry.copy is None:
            return entry.alias
        reader = (threading.get_ident(), stream_of(entry.probe))
        latest, flat = self._recent.pop(reader, (None, None))
        if latest is not entry:
            flat = self._decoded(entry, entry.copy)
            if self._compared is not None:
                self._compared(entry, flat)
        if entry.opened < entry.handles:
            self._recent[reader] = (entry, flat)
        return flat

    def _decoded(self, entry: SavedStorage, copy: Copy) -> Tensor:
        with contextlib.suppress(Exception):
            return _read(copy)
        self.forget_recent()  # perhaps what it takes was all that was missing
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

    def forget_recent(self) -> None:
        """Frees the copies decoded last, if a backward pass ended before all had read them: on whichever thread it ran."""
        self._recent.clear()


class _Waiting(threading.local):
    """Entries whose fate is open; forward passes of different threads do not wait for each other."""

    def __init__(self) -> None:
        self.entries: list[ref[SavedStorage]] = []


def _read(copy: Copy) -> Tensor:
    return decode(copy) if isinstance(copy, Packed) else copy.decode()


def _out_of_memory(error: Exception) -> bool:
    return type(error) in (torch.cuda.OutOfMemoryError, MemoryError)


def defers(t: Tensor) -> bool:
    """Whether sizes of this tensor's copy are not at hand at once: reading them back would make the host wait."""
    return bool(t.is_cuda)


def check_version(now: Tensor, version: int, shape: Any, dtype: Any) -> None:
    """Saved-tensor hooks switch off autograd's own check, so we do it, in words that people search for."""
    if now._version != version:
        raise ChangedInPlace(
            f"one of the variables needed for gradient computation has been modified by an inplace operation: "
            f"a tensor of {dtype}, shape {list(shape)}, is at version {now._version}; expected version {version} instead."
        )
