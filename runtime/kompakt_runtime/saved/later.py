"""Copies whose sizes are known later, as on a GPU: originals stay beside them until then, up to a budget of bytes."""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any
from weakref import ref

from kompakt_runtime.codec import Channels, Room
from kompakt_runtime.codec.pending import most_waiting
from kompakt_runtime.saved.entry import SavedStorage

Tensor = Any


class Later:
    """Packs, at once or so that nobody waits for the device."""

    def __init__(self, changed: Callable[[SavedStorage], None]) -> None:
        """changed: what an entry keeps is something else now."""
        self._changed = changed
        # What each layer's last tensor needed, and at which bound.
        self.rooms: dict[str, tuple[float, Room]] = {}
        self.flying: deque[ref[SavedStorage]] = deque()
        self._lock = threading.Lock()
        self._landing = threading.Lock()  # of forward passes on several threads one at a time looks at who flies

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
        known = self.rooms.get(layer)
        if at_once or channels is not None or not defers(t) or known is None or known[0] != bound:
            gained = entry.compress(t, bound, seed, channels)
            if gained and entry.packed is not None:
                self.rooms[layer] = (bound, Room.of(entry.packed))
            return gained
        with self._landing:
            self._land(entry.nbytes, most_waiting(t.device))
        entry.layer = layer
        if not entry.start(t, bound, known[1]):
            return False
        with self._landing:
            self.flying.append(ref(entry))
        return True

    def _land(self, coming: int, most: int) -> None:
        """Settles what has arrived, and the oldest while originals of more than `most` bytes would wait."""
        while self.flying:
            entry = self.flying[0]()
            making = entry.making if entry is not None else None
            if making is not None and not making.copy.ready and self._waiting_bytes() + coming <= most:
                return
            self.flying.popleft()
            if entry is not None:
                self.settle(entry, again=True)

    def _waiting_bytes(self) -> int:
        entries = (reference() for reference in self.flying)
        return sum(entry.nbytes for entry in entries if entry is not None and entry.making is not None)

    def settle(self, entry: SavedStorage, again: bool) -> None:
        """Its copy is whole, or the original stays."""
        # A backward pass on another thread may want the same entry.
        with self._lock:
            making, room = entry.making, entry.settle(again)
        if making is not None and room is not None:
            self.rooms[entry.layer] = (making.bound, room)
            self._changed(entry)


def defers(t: Tensor) -> bool:
    """Whether sizes of this tensor's copy are not at hand at once: reading them back would make the host wait."""
    return bool(t.is_cuda)
