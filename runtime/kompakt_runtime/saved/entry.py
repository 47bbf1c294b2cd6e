"""One storage that a backward pass will read, and what is kept of it.

An entry keeps the storage itself (`alias`) or a compressed copy of all of it, and may change from one to the other while the
forward pass runs.
"""

import math
from typing import Any, Final

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from kompakt_runtime.codec import Channels, Packed, Pending, Room, begin, encode
from kompakt_runtime.codec.features import BoundsWanted
from kompakt_runtime.codec.rounding import WIDER
from kompakt_runtime.saved.carrier import Hosted
from kompakt_runtime.saved.derived import Derivation, Derived
from kompakt_runtime.saved.lossless import Indices, Mask
from kompakt_runtime.saved.replay import Replay

Tensor = Any
Copy = Packed | Mask | Indices | Replay | Hosted | Derived


def _wrapped() -> int:
    """What a storage's Python object, which lives as long as the storage, counts among those that use it: 1 in newer versions."""
    t = torch.empty(1)
    return int(torch._C._storage_Use_Count(t.untyped_storage()._cdata)) - 1


WRAPPED: Final = _wrapped()


class SavedStorage:
    """One storage as it was at one version."""

    __slots__ = (
        "__weakref__", "alias", "asked", "asked_by", "askers", "bound", "ceiling", "constant", "copy", "counted", "covered",
        "derivation", "exact", "fixed", "handles", "largest", "layer", "nbytes", "opened", "original", "own", "pending", "probe",
        "readers", "reason", "scales", "share", "signs", "spare", "storage", "stream", "timed", "unresolved", "version",
        "watching",
    )  # fmt: skip

    def __init__(self, t: Tensor) -> None:
        storage = t.untyped_storage()
        # The weak reference also keeps the address from being used again while this entry lives: it is the key.
        self.storage = StorageWeakRef(storage)
        self.stream = stream_of(t)  # on which the operation ran that saved it first
        self.nbytes = int(storage.nbytes())
        self.constant = t.grad_fn is None  # computed from no weight that is trained: a step may see the same numbers again
        self.version = int(t._version)
        self.alias: Tensor | None = whole_storage(t)
        self.probe: Tensor = self.alias
        self.copy: Copy | None = None  # with neither alias nor copy, nothing but the tensor's shape is read
        self.exact = False  # the copy gives every bit back
        self.pending: Pending | None = None  # being packed; `alias` stays until that is settled
        self.bound = 0.0
        self.ceiling = math.inf  # the tightest bound that any operation asked for
        self.unresolved = 0  # handles of which nobody knows yet what reads them: the storage stays for so long
        self.readers = 0  # handles whose operation reads the values as they are
        self.signs = 0  # handles whose operation reads only which elements are zero
        self.covered = 0  # bytes of the handles that an error-bounded copy serves
        self.asked: list[BoundsWanted] = []
        self.asked_by: Any = None  # the layer or operation whose bound is the ceiling
        self.askers: list[tuple[Any, str]] = []  # who asked for a bound, and in which slot
        self.own = math.inf  # the bound that it would be packed with if nothing else were computed from it
        self.derivation: Derivation | None = None  # how it was computed, until that is decided about
        self.scales = False  # its magnitude tells how far errors of something else reach in a product
        self.largest: float | None = None  # that magnitude
        self.spare: tuple[Packed, float] | None = None  # an error-bounded copy and its bound, while the storage is back
        self.watching: list[
            tuple[Any, Any]
        ] = []  # handles that an error-bounded copy serves in a measured step, and who measures
        self.fixed = False  # packing failed or was no gain
        self.reason = ""
        self.layer = ""
        self.handles = 0
        self.opened = 0
        self.counted = False  # a backward pass asked for it, or for something that is computed from it
        self.original: Tensor | None = None  # kept only to compare copies with it
        self.timed: Any = None  # in a step that is timed to find what may wait in host memory
        self.share: Any = None  # of what is held, as Holding counts it

    @property
    def packed(self) -> Packed | None:
        """The error-bounded copy, if that is what is kept; without its tensors while these are in host memory."""
        copy = self.copy.packed if isinstance(self.copy, Hosted) else self.copy
        return copy if isinstance(copy, Packed) else None

    @property
    def bounded(self) -> bool:
        """What is kept gives every element within `bound`."""
        return self.packed is not None or (isinstance(self.copy, Derived) and not self.exact)

    @property
    def plain(self) -> bool:
        """The storage is kept as it is, here or in host memory."""
        return self.alias is not None or (isinstance(self.copy, Hosted) and self.copy.packed is None)

    @property
    def whole(self) -> bool:
        """Somebody needs every bit, or may: the storage itself or an exact copy of it must stay."""
        return self.fixed or self.readers > 0 or self.unresolved > 0

    @property
    def same(self) -> bool:
        """What is kept instead gives every bit back, so it serves whoever reads it."""
        return self.copy is not None and self.exact

    def hold(self, t: Tensor) -> None:
        """The storage itself, until it is known what one more operation reads; `t` is a view of it at the same version.

        An error-bounded copy that was made before may serve that one too.
        """
        self.unresolved += 1
        if self.alias is None and not self.same:
            packed, bound = self.copy, self.bound
            self.keep(t)
            self.spare = (packed, bound) if isinstance(packed, Packed) else None

    def ask(self, asked: BoundsWanted, by: Any, slot: str, nbytes: int) -> None:
        """An operation that reads so many bytes of it in this slot bears such errors."""
        self.covered += nbytes
        self.asked.append(asked)
        self.askers.append((by, slot))
        bound = asked.bound
        if self.asked_by is None or bound < self.ceiling:
            self.ceiling, self.asked_by = bound, by

    def compress(self, t: Tensor, bound: float, seed: int | None = None, channels: Channels | None = None) -> bool:
        """Keep a compressed copy instead of the storage; False where packing is no gain (then nothing changes)."""
        source = self.alias if self.alias is not None else whole_storage(t)
        bound = bound if seed is None else bound * WIDER
        packed = encode(source, bound, seed=seed, channels=channels)
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
        if packed is not None and self.unresolved:
            self.spare = (packed, self.bound)
        elif packed is not None:
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
        self.copy, self.bound, self.exact, self.alias, self.spare = copy, bound, exact, None, None

    def moved(self, hosted: Hosted) -> None:
        """What was kept is on its way to host memory, which gives the same bits back."""
        if self.alias is not None:
            self.replace(hosted, self.alias, exact=True)
        else:
            self.copy = hosted

    def landed(self, what: Tensor | Packed) -> None:
        """What was in host memory is on the device again, and stays: it is about to be read more than once."""
        if isinstance(what, Packed):
            self.copy = what
        else:
            self.alias, self.copy, self.exact = what, None, False

    def keep(self, t: Tensor) -> None:
        """Back to the storage itself, which `t` (another view of it, at the same version) still holds."""
        if self.alias is None:
            self.alias = self.probe = whole_storage(t)
        self.copy, self.pending, self.bound = None, None, 0.0

    @property
    def taken(self) -> bool:
        """Kept within `bound`, or being compressed."""
        return self.bounded or self.pending is not None

    @property
    def kept_bytes(self) -> int:
        if self.alias is not None:
            return self.nbytes
        return self.copy.nbytes if self.copy is not None else 0

    @property
    def held_bytes(self) -> int:
        """What it takes now: also a copy that is being made, or lies aside."""
        aside = self.spare[0].nbytes if self.spare is not None else 0
        return self.kept_bytes + aside + (self.pending.nbytes if self.pending is not None else 0)

    @property
    def alone(self) -> bool:
        """Nobody else holds the storage, so no operation can save it any more."""
        ours = 0 if self.alias is None else 1 + (self.alias._base is not None)
        return bool(torch._C._storage_Use_Count(self.storage.cdata) <= ours + WRAPPED)


def stream_of(t: Tensor) -> int:
    """The stream that operations on the tensor's device run on now, for this thread."""
    return int(torch.cuda.current_stream(t.device).cuda_stream) if t.is_cuda else 0


def whole_storage(t: Tensor) -> Tensor:
    """The tensor's storage as a 1-D tensor of its type; shares memory and version counter with it."""
    storage = t.untyped_storage()
    return t.detach().as_strided((storage.nbytes() // t.element_size(),), (1,), 0)
