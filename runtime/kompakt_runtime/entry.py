"""One storage that a backward pass will read, and what is kept of it.

An entry keeps the storage itself (`alias`) or a compressed copy of all of it, and may change from one to the other while the
forward pass runs.
"""

import math
from typing import Any, Final

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from kompakt_runtime.carrier import Hosted
from kompakt_runtime.codec import Packed, Pending, Room, begin, encode
from kompakt_runtime.lossless import Indices, Mask
from kompakt_runtime.replay import Replay

Tensor = Any
Copy = Packed | Mask | Indices | Replay | Hosted


def _wrapped() -> int:
    """What a storage's Python object, which lives as long as the storage, counts among those that use it: 1 in newer versions."""
    t = torch.empty(1)
    return int(torch._C._storage_Use_Count(t.untyped_storage()._cdata)) - 1


WRAPPED: Final = _wrapped()


class SavedStorage:
    """One storage as it was at one version."""

    __slots__ = (
        "__weakref__", "alias", "bound", "ceiling", "copy", "exact", "fixed", "handles", "layer", "linear", "nbytes", "opened",
        "original", "pending", "probe", "readers", "reason", "signs", "storage", "timed", "version",
    )  # fmt: skip

    def __init__(self, t: Tensor) -> None:
        storage = t.untyped_storage()
        # The weak reference also keeps the address from being used again while this entry lives: it is the key.
        self.storage = StorageWeakRef(storage)
        self.nbytes = int(storage.nbytes())
        self.version = int(t._version)
        self.alias: Tensor | None = whole_storage(t)
        self.probe: Tensor = self.alias
        self.copy: Copy | None = None  # with neither alias nor copy, nothing but the tensor's shape is read
        self.exact = False  # the copy gives every bit back
        self.pending: Pending | None = None  # being packed; `alias` stays until that is settled
        self.bound = 0.0
        self.ceiling = math.inf  # the tightest bound that any operation asked for
        self.readers = 0  # handles whose operation reads the values as they are
        self.linear = 0  # handles whose operation an error-bounded copy serves
        self.signs = 0  # handles whose operation reads only which elements are zero
        self.fixed = False  # packing failed or was no gain
        self.reason = ""
        self.layer = ""
        self.handles = 0
        self.opened = 0
        self.original: Tensor | None = None  # kept only to compare copies with it
        self.timed: Any = None  # in a step that is timed to find what may wait in host memory

    @property
    def packed(self) -> Packed | None:
        """The error-bounded copy, if that is what is kept; without its tensors while these are in host memory."""
        copy = self.copy.packed if isinstance(self.copy, Hosted) else self.copy
        return copy if isinstance(copy, Packed) else None

    @property
    def plain(self) -> bool:
        """The storage is kept as it is, here or in host memory."""
        return self.alias is not None or (isinstance(self.copy, Hosted) and self.copy.packed is None)

    @property
    def whole(self) -> bool:
        """Somebody needs every bit: the storage itself or an exact copy of it must stay."""
        return self.fixed or self.readers > 0

    def compress(self, t: Tensor, bound: float) -> bool:
        """Keep a compressed copy instead of the storage; False where packing is no gain (then nothing changes)."""
        source = self.alias if self.alias is not None else whole_storage(t)
        packed = encode(source, bound)
        if packed.nbytes >= self.nbytes:
            return False
        self.replace(packed, source, bound=bound)
        return True

    def start(self, t: Tensor, bound: float, room: Room) -> bool:
        """The same without waiting for the device; False where nothing could be gained. `settle` must follow."""
        source = self.alias if self.alias is not None else whole_storage(t)
        self.pending, self.bound = begin(source, bound, room), bound
        if self.pending is not None:
            self.alias = self.probe = source
        return self.pending is not None

    def settle(self, again: bool) -> Room | None:
        """Lets the original go if its copy is whole; the room that was needed, None where nothing was pending.

        again: where the room did not suffice it is packed once more, now that its sizes are known; else the original stays.
        """
        if self.pending is None:
            return None
        pending, self.pending = self.pending, None
        try:
            packed, room = pending.settle()
            if packed is None and again:
                packed, room = self._packed_again(room)
        except Exception as error:
            self.fixed, self.reason = True, f"EncodeFailed{type(error).__name__}"
            return None
        if packed is not None:
            self.replace(packed, self.alias, bound=self.bound)
        else:
            self.fixed, self.reason = True, self.reason or ("NoGain" if again else "NoRoom")
        return room

    def _packed_again(self, room: Room) -> tuple[Packed | None, Room]:
        packed = encode(self.alias, self.bound)
        if packed.nbytes >= self.nbytes:
            return None, room
        return packed, Room.of(packed)

    def replace(self, copy: Copy | None, source: Tensor, *, bound: float = 0.0, exact: bool = False) -> None:
        """Keeps `copy` instead of the storage, whose alias `source` is; None where only the shape is read."""
        if self.alias is not None:
            # Shares the version counter, not the storage: sees later writes and pins nothing.
            probe = self.probe.detach()
            probe.data = self.probe.new_empty(0)
            self.probe = probe
        if self.original is not None:
            self.original = source
        self.copy, self.bound, self.exact, self.alias = copy, bound, exact, None

    def moved(self, hosted: Hosted) -> None:
        """What was kept is on its way to host memory, which gives the same bits back."""
        if self.alias is not None:
            self.replace(hosted, self.alias, exact=True)
        else:
            self.copy = hosted

    def keep(self, t: Tensor) -> None:
        """Back to the storage itself, which `t` (another view of it, at the same version) still holds."""
        if self.alias is None:
            self.alias = self.probe = whole_storage(t)
        self.copy, self.pending, self.bound = None, None, 0.0

    @property
    def taken(self) -> bool:
        """Compressed within `bound`, or being compressed."""
        return self.packed is not None or self.pending is not None

    @property
    def kept_bytes(self) -> int:
        if self.alias is not None:
            return self.nbytes
        return self.copy.nbytes if self.copy is not None else 0

    @property
    def alone(self) -> bool:
        """Nobody else holds the storage, so no operation can save it any more."""
        ours = 0 if self.alias is None else 1 + (self.alias._base is not None)
        return bool(torch._C._storage_Use_Count(self.storage.cdata) <= ours + WRAPPED)


def whole_storage(t: Tensor) -> Tensor:
    """The tensor's storage as a 1-D tensor of its type; shares memory and version counter with it."""
    storage = t.untyped_storage()
    return t.detach().as_strided((storage.nbytes() // t.element_size(),), (1,), 0)
