"""What is kept for the backward pass: one entry per storage, however many operations save it.

Autograd holds handles; a handle holds its entry and says which view of the storage it was. An entry keeps the storage
itself (`alias`) or a compressed copy of all of it, and may change from one to the other while the forward pass runs.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary, ref

from torch.multiprocessing.reductions import StorageWeakRef

from kompakt_runtime.codec import Packed, Pending, Room, begin, decode, encode

Tensor = Any

# Tensors that may wait for their sizes at a time: so many originals live a little longer.
IN_FLIGHT = 2


class Entry:
    """One storage as it was at one version."""

    __slots__ = (
        "__weakref__", "alias", "bound", "exact", "handles", "layer", "nbytes", "opened", "packed", "pending", "probe",
        "reason", "storage", "version",
    )  # fmt: skip

    def __init__(self, t: Tensor) -> None:
        storage = t.untyped_storage()
        # The weak reference also keeps the address from being used again while this entry lives: it is the key.
        self.storage = StorageWeakRef(storage)
        self.nbytes = int(storage.nbytes())
        self.version = int(t._version)
        self.alias: Tensor | None = whole_storage(t)
        self.probe: Tensor = self.alias
        self.packed: Packed | None = None
        self.pending: Pending | None = None  # being packed; `alias` stays until that is settled
        self.bound = 0.0
        self.exact = False  # an operation reads the values: never compress
        self.reason = ""
        self.layer = ""
        self.handles = 0
        self.opened = 0

    def compress(self, t: Tensor, bound: float) -> bool:
        """Keep a compressed copy instead of the storage; False where packing is no gain (then nothing changes)."""
        source = self.alias if self.alias is not None else whole_storage(t)
        packed = encode(source, bound)
        if packed.nbytes >= self.nbytes:
            return False
        self._replace(packed, bound)
        return True

    def start(self, t: Tensor, bound: float, room: Room) -> bool:
        """The same without waiting for the device; False where nothing could be gained. `settle` must follow."""
        source = self.alias if self.alias is not None else whole_storage(t)
        self.pending, self.bound = begin(source, bound, room), bound
        if self.pending is not None:
            self.alias = self.probe = source
        return self.pending is not None

    def settle(self) -> Room | None:
        """Lets the original go if its copy is whole; the room that was needed, None where nothing was pending."""
        if self.pending is None:
            return None
        pending, self.pending = self.pending, None
        try:
            packed, room = pending.settle()
        except Exception as error:
            self.exact, self.reason = True, f"EncodeFailed{type(error).__name__}"
            return None
        if packed is not None:
            self._replace(packed, self.bound)
        else:
            self.exact, self.reason = True, self.reason or "NoRoom"
        return room

    def _replace(self, packed: Packed, bound: float) -> None:
        # Shares the version counter, not the storage: sees later writes and pins nothing.
        probe = self.probe.detach()
        probe.data = self.probe.new_empty(0)
        self.packed, self.bound = packed, bound
        self.probe, self.alias = probe, None

    def keep(self, t: Tensor) -> None:
        """Back to the storage itself, which `t` (another view of it, at the same version) still holds."""
        if self.alias is None:
            self.alias = self.probe = whole_storage(t)
        self.packed, self.pending, self.bound = None, None, 0.0

    @property
    def taken(self) -> bool:
        """Compressed, or being compressed."""
        return self.packed is not None or self.pending is not None

    @property
    def kept_bytes(self) -> int:
        return self.nbytes if self.packed is None else self.packed.nbytes


class Handle:
    """What autograd gets instead of a tensor: a view of an entry's storage."""

    __slots__ = ("dtype", "entry", "offset", "shape", "strides", "version")

    def __init__(self, entry: Entry, t: Tensor) -> None:
        entry.handles += 1
        self.entry = entry
        self.version = int(t._version)
        self.dtype, self.shape, self.strides, self.offset = t.dtype, t.shape, t.stride(), t.storage_offset()

    def view(self, flat: Tensor) -> Tensor:
        if flat.dtype != self.dtype:
            flat = flat.view(self.dtype)
        return flat.as_strided(self.shape, self.strides, self.offset)


class Plain:
    """A tensor that is kept as it is, outside the accounts: parameters, or what the ledger cannot describe."""

    __slots__ = ("tensor", "version")

    def __init__(self, t: Tensor) -> None:
        # A leaf has no history, so holding it makes no cycle; and whoever exchanges its data sees what plain autograd sees.
        self.tensor = t if t.is_leaf else t.detach()
        self.version = int(t._version)


class Ledger:
    """The living entries, and the copy decoded last (several operations that saved one storage read it in a row)."""

    def __init__(self, closed: Callable[[Entry, bool], None]) -> None:
        self._entries: WeakValueDictionary[int, Entry] = WeakValueDictionary()
        self._closed = closed
        self._recent = threading.local()
        # What each layer's last tensor needed, and at which bound.
        self._rooms: dict[str, tuple[float, Room]] = {}
        self._flying: deque[ref[Entry]] = deque()
        self._lock = threading.Lock()

    def known(self, t: Tensor) -> Entry | None:
        entry = self._entries.get(t.untyped_storage()._cdata)
        return entry if entry is not None and entry.version == t._version else None

    def entry(self, t: Tensor) -> Entry:
        """The entry of the tensor's storage at its present version, a new one if need be."""
        entry = self.known(t)
        if entry is None:
            entry = Entry(t)
            self._entries[t.untyped_storage()._cdata] = entry
        return entry

    def compress(self, entry: Entry, t: Tensor, bound: float, layer: str, at_once: bool) -> bool:
        """Keeps a compressed copy, now or (on a GPU, unless `at_once`) when its size is known; False where it is no gain."""
        known = self._rooms.get(layer)
        if at_once or not defers(t) or known is None or known[0] != bound:
            gained = entry.compress(t, bound)
            if gained and entry.packed is not None:
                self._rooms[layer] = (bound, Room.of(entry.packed.sizes, entry.packed.layout.stored))
            return gained
        self._land()
        entry.layer = layer
        if not entry.start(t, bound, known[1]):
            return False
        self._flying.append(ref(entry))
        return True

    def _land(self) -> None:
        """Settles what has arrived, and the oldest if too many wait."""
        while self._flying:
            entry = self._flying[0]()
            pending = entry.pending if entry is not None else None
            if pending is not None and len(self._flying) < IN_FLIGHT and not pending.ready:
                return
            self._flying.popleft()
            if entry is not None:
                self._settle(entry)

    def _settle(self, entry: Entry) -> None:
        # A backward pass on another thread may want the same entry.
        with self._lock:
            room = entry.settle()
        if room is not None:
            self._rooms[entry.layer] = (entry.bound, room)

    def open(self, handle: Handle | Plain) -> Tensor:
        """The tensor again, as often as asked. Raises RuntimeError where plain autograd would: it was changed in place."""
        if isinstance(handle, Plain):
            check_version(handle.tensor, handle.version, handle.tensor.shape, handle.tensor.dtype)
            return handle.tensor
        entry = handle.entry
        check_version(entry.probe, handle.version, handle.shape, handle.dtype)
        self._settle(entry)
        if not entry.opened:
            self._closed(entry, entry.packed is not None and not entry.storage.expired())
        entry.opened += 1
        return handle.view(self._flat(entry))

    def _flat(self, entry: Entry) -> Tensor:
        if entry.packed is None:
            return entry.alias
        latest, flat = getattr(self._recent, "pair", (None, None))
        if latest is not entry:
            flat = decode(entry.packed)
        self._recent.pair = (entry, flat) if entry.opened < entry.handles else (None, None)
        return flat

    def forget_recent(self) -> None:
        """Frees the copy decoded last on this thread, if a backward pass ended before all had read it."""
        self._recent.pair = (None, None)


def defers(t: Tensor) -> bool:
    """Whether sizes of this tensor's copy are not at hand at once: reading them back would make the host wait."""
    return bool(t.is_cuda)


def whole_storage(t: Tensor) -> Tensor:
    """The tensor's storage as a 1-D tensor of its type; shares memory and version counter with it."""
    storage = t.untyped_storage()
    return t.detach().as_strided((storage.nbytes() // t.element_size(),), (1,), 0)


def check_version(now: Tensor, version: int, shape: Any, dtype: Any) -> None:
    """Saved-tensor hooks switch off autograd's own check, so we do it, in words that people search for."""
    if now._version != version:
        raise RuntimeError(
            f"one of the variables needed for gradient computation has been modified by an inplace operation: "
            f"a tensor of {dtype}, shape {list(shape)}, is at version {now._version}; expected version {version} instead."
        )
