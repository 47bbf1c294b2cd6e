"""What is kept for the backward pass: one entry per storage, however many operations save it.

Autograd holds handles; a handle holds its entry and says which view of the storage it was.
"""

import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary, ref

from kompakt_runtime.compat.tensors import storage_key, version_of
from kompakt_runtime.saved import states
from kompakt_runtime.saved.decoded import Decoded
from kompakt_runtime.saved.entry import SavedStorage
from kompakt_runtime.saved.handle import Handle, PlainTensor, check_version
from kompakt_runtime.saved.later import Later
from kompakt_runtime.saved.lossless import sign_mask
from kompakt_runtime.uses.policy import Use

Tensor = Any


class StorageLedger:
    """The living entries."""

    def __init__(
        self,
        closed: Callable[[SavedStorage, bool], None],
        compared: Callable[[SavedStorage, Tensor], None] | None = None,
        changed: Callable[[SavedStorage], None] = lambda entry: None,
        kept: Callable[[SavedStorage, Tensor], None] = lambda entry, flat: None,
        room: Callable[[], int] = lambda: 0,
    ) -> None:
        """closed: an entry was read for the first time; compared: keep originals, and call this with each copy that is read;
        changed: what an entry keeps is something else now, by what the ledger itself did; kept: a copy that was decoded stays
        for whoever reads it next; room: bytes that such copies may take.
        """
        self._entries: WeakValueDictionary[int, SavedStorage] = WeakValueDictionary()
        self._closed, self._changed = closed, changed
        self._originals = compared is not None
        self._compared = compared or (lambda entry, flat: None)
        self._waiting = _Waiting()
        self.later = Later(changed)
        self.decoded = Decoded(kept, room)

    def holds(self, storage: Any) -> bool:
        """Whether the storage behind a weak reference is kept here."""
        return storage.cdata in self._entries

    def known(self, t: Tensor) -> SavedStorage | None:
        entry = self._entries.get(storage_key(t))
        return entry if entry is not None and entry.version == version_of(t) else None

    def entry(self, t: Tensor) -> SavedStorage:
        """The entry of the tensor's storage at its present version, a new one if need be."""
        entry = self.known(t)
        if entry is None:
            entry = SavedStorage(t)
            if self._originals:
                entry.original = entry.alias
            self._entries[storage_key(t)] = entry
        return entry

    def wait(self, entry: SavedStorage) -> None:
        """Only signs are read so far; `settle_waiting` makes a mask unless another use turns up."""
        self._waiting.entries.append(ref(entry))

    def settle_waiting(self, everything: bool) -> None:
        """Makes masks of this thread's waiting entries that nobody else holds any more, or of all: the forward pass is over."""
        waiting, self._waiting.entries = self._waiting.entries, []
        for reference in waiting:
            entry = reference()
            if entry is None or entry.alias is None or entry.taken or entry.demand.whole:
                continue
            if everything or entry.alone:
                entry.become(states.MaskState(sign_mask(entry.alias)))
                self._changed(entry)
            else:
                self._waiting.entries.append(reference)

    def open(self, handle: Handle | PlainTensor) -> Tensor:
        """The tensor again, as often as asked. Raises RuntimeError where plain autograd would: it was changed in place; and
        DecodeFailed or torch.OutOfMemoryError where a copy cannot be read.
        """
        if isinstance(handle, PlainTensor):
            check_version(handle.tensor, handle.version, handle.tensor.shape, handle.tensor.dtype)
            return handle.tensor
        entry = handle.entry
        check_version(entry.probe, handle.version, handle.shape, handle.dtype)
        self.later.settle(entry, again=False)  # what is read now is no longer worth packing
        self._count(entry)
        entry.opened += not handle.opened  # measuring reads it more than once
        handle.opened = True
        if handle.use is Use.SHAPE:
            return handle.shape_only(entry.probe.device)
        return handle.view(self._flat(entry))

    def _count(self, entry: SavedStorage) -> None:
        if not entry.counted:
            # Where originals are kept for comparison nobody can tell whether others hold them as well.
            kept = entry.alias is not None or entry.original is not None
            self._closed(entry, not kept and not entry.storage.expired())
        entry.counted = True

    def source(self, handle: Handle | PlainTensor, *, backward: bool = True) -> tuple[Tensor, bool]:
        """What something else is computed from again, and whether this copy is nobody else's. Does not count as a reader.

        Raises as `open` does, but of a copy: changes in place of what was copied do it no harm.
        """
        if isinstance(handle, PlainTensor):
            return self.open(handle), False
        entry = handle.entry
        if not isinstance(entry.state, states.PackedState | states.PackedHostedState | states.DerivedState):
            check_version(entry.probe, handle.version, handle.shape, handle.dtype)
        self.later.settle(entry, again=not backward)
        if backward:
            self._count(entry)
        if isinstance(entry.state, states.HostedState | states.PackedHostedState):
            entry.landed(entry.state)
        if entry.copy is None:
            return handle.view(entry.alias), False
        if (flat := self.decoded.latest(entry)) is not None:
            return handle.view(flat), False
        made = isinstance(entry.state, states.PackedState | states.DerivedState)
        if isinstance(entry.state, states.DerivedState) and not backward:
            return handle.view(entry.state.copy.decode(self.looked_at)), True
        if not backward:
            return handle.view(self.decoded.decode(entry, entry.copy)), made
        flat = self.decoded.read(entry, entry.copy, _not_compared)
        return handle.view(flat), made and self.decoded.latest(entry) is None

    def looked_at(self, handle: Handle | PlainTensor) -> tuple[Tensor, bool]:
        """As `source`, while the forward pass runs: nothing is counted."""
        return self.source(handle, backward=False)

    def forget_recent(self) -> None:
        """Frees the copies decoded last, if a backward pass ended before all had read them: on whichever thread it ran."""
        self.decoded.forget()

    def _flat(self, entry: SavedStorage) -> Tensor:
        state = entry.state
        copy = states.copy_of(state)
        if copy is None:
            return states.alias_of(state)
        return self.decoded.read(entry, copy, self._compared)


def _not_compared(entry: SavedStorage, flat: Tensor) -> None:
    """Copies are compared when they are read for themselves."""


class _Waiting(threading.local):
    """Entries whose fate is open; forward passes of different threads do not wait for each other."""

    def __init__(self) -> None:
        self.entries: list[ref[SavedStorage]] = []
