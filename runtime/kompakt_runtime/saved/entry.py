"""One storage that a backward pass will read, and what is kept of it.

An entry is in one of the states of `states.py` and may change it while the forward pass runs.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final
from weakref import WeakSet

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from kompakt_runtime import codec
from kompakt_runtime.codec import Channels, Room, begin, encode
from kompakt_runtime.codec.rounding import WIDER
from kompakt_runtime.compat.streams import stream_on
from kompakt_runtime.compat.tensors import base_of, storage_key, users_of, version_of
from kompakt_runtime.saved import carrier, states
from kompakt_runtime.saved.demand import Demand
from kompakt_runtime.saved.derived import Derivation

Tensor = Any


def _wrapped() -> int:
    """What a storage's Python object, which lives as long as the storage, counts among those that use it: 1 in newer versions."""
    t = torch.empty(1)
    return users_of(storage_key(t)) - 1


WRAPPED: Final = _wrapped()


class SavedStorage:
    """One storage as it was at one version. state: what is kept of it; demand: what its readers ask for."""

    __slots__ = (
        "__weakref__", "constant", "counted", "demand", "handles", "layer", "nbytes", "opened", "original", "probe",
        "results", "share", "state", "storage", "stream", "timed", "version",
    )  # fmt: skip

    def __init__(self, t: Tensor) -> None:
        storage = t.untyped_storage()
        # The weak reference also keeps the address from being used again while this entry lives: it is the key.
        self.storage = StorageWeakRef(storage)
        self.stream = stream_of(t)  # on which the operation ran that saved it first
        self.nbytes = int(storage.nbytes())
        self.constant = t.grad_fn is None  # computed from no weight that is trained: a step may see the same numbers again
        self.version = version_of(t)
        self.probe: Tensor = whole_storage(t)
        self.state: states.State = states.PendingState(self.probe)
        self.demand = Demand()
        self.layer = ""
        self.handles = 0
        self.opened = 0  # handles that were read
        self.results: WeakSet[SavedStorage] | None = None  # what is computed from it again
        self.counted = False  # a backward pass asked for it, or for something that is computed from it
        self.original: Tensor | None = None  # kept only to compare copies with it
        self.timed: Any = None  # in a step that is timed to find what may wait in host memory
        self.share: Any = None  # of what is held, as Holding counts it

    def become(self, state: states.State) -> None:
        """Raises ImpossibleTransition, and stays what it is, where the table has no such transition."""
        states.check(self.state, state)
        alias = self.alias
        if alias is not None and states.alias_of(state) is None:
            # Shares the version counter, not the storage: sees later writes and pins nothing.
            probe = self.probe.detach()
            probe.data = self.probe.new_empty(0)
            self.probe = probe
            if self.original is not None:
                self.original = alias
        self.state = state

    def back(self, t: Tensor) -> None:
        """Pending: nothing is decided, and the storage is there, which `t` (a view of it, at the same version) still holds.

        An error-bounded copy that was made before may serve again.
        """
        state, alias = self.state, self.alias
        if not isinstance(state, states.PendingState):
            again = whole_storage(t) if alias is None else alias
            self.become(states.PendingState(again, aside=state if isinstance(state, states.PackedState) else None))
            if alias is None:
                self.probe = again

    def hold(self, t: Tensor) -> None:
        """The storage itself, until it is known what one more operation reads; `t` is a view of it at the same version."""
        if not self.same:
            self.back(t)
        self.demand.unresolved += 1

    def learn(self, how: Callable[[], Derivation | None]) -> None:
        """How it was computed, which is known for as long as it is open what becomes of it."""
        if isinstance(self.state, states.PendingState) and self.state.derivation is None:
            self.become(replace(self.state, derivation=how()))

    def forget(self) -> None:
        """What it was computed from need not live for its sake."""
        if isinstance(self.state, states.PendingState):
            self.become(replace(self.state, derivation=None))

    def compress(self, t: Tensor, bound: float, seed: int | None = None, channels: Channels | None = None) -> bool:
        """Keep a compressed copy instead of the storage; False where packing is no gain (then nothing changes)."""
        source = self.alias if self.alias is not None else whole_storage(t)
        bound = bound if seed is None else bound * WIDER
        packed = encode(source, bound, seed=seed, channels=channels)
        if packed.nbytes >= self.nbytes:
            return False
        self.back(t)
        self.become(states.PackedState(packed, bound))
        return True

    def start(self, t: Tensor, bound: float, room: Room) -> bool:
        """The same without waiting for the device; False where nothing could be gained. `settle` must follow."""
        source = self.alias if self.alias is not None else whole_storage(t)
        copy = begin(source, bound, room)
        if copy is not None:
            self.back(t)
            self.become(states.PendingState(source, states.Making(copy, bound)))
        return copy is not None

    def settle(self, again: bool) -> Room | None:
        """Lets the original go if its copy is whole; the room that was needed, None where nothing was pending.

        again: where the room did not suffice it is packed once more, now that its sizes are known; else the original stays.
        """
        state = self.state
        if not isinstance(state, states.PendingState) or state.making is None:
            return None
        try:
            packed, room = state.making.copy.settle()
            if packed is None and again:
                packed, room = self._packed_again(state.alias, state.making.bound, room)
        except Exception as error:
            self.demand.reason = f"EncodeFailed{type(error).__name__}"
            self.stay(self.demand.reason)
            return None
        if packed is None:
            self.stay("NoGain" if again else "NoRoom")
        else:
            made = states.PackedState(packed, state.making.bound)
            self.become(replace(state, making=None, aside=made) if self.demand.unresolved else made)
        return room

    def _packed_again(self, alias: Tensor, bound: float, room: Room) -> tuple[codec.Packed | None, Room]:
        packed = encode(alias, bound)
        if packed.nbytes >= self.nbytes:
            return None, room
        return packed, Room.of(packed)

    def stay(self, reason: str = "") -> None:
        """Pending or plain, the storage stays as it is. reason: why packing was in vain."""
        if reason:
            self.demand.in_vain(reason)
        if isinstance(self.state, states.PendingState):
            alias, derivation = self.state.alias, self.state.derivation
            self.become(states.PendingState(alias, derivation=derivation) if self.demand.unresolved else states.PlainState(alias))

    def computed(self, t: Tensor) -> None:
        """What it was to be computed from is about to change: from now on it is the storage of `t`, which nobody else has."""
        alias = whole_storage(t)
        self.become(states.PlainState(alias))
        self.probe = alias

    def moved(self, hosted: carrier.Hosted) -> None:
        """What was kept is on its way to host memory, which gives the same bits back."""
        self.become(
            states.PackedHostedState(hosted, self.state.bound)
            if isinstance(self.state, states.PackedState)
            else states.HostedState(hosted)
        )

    def landed(self, gone: states.HostedState | states.PackedHostedState) -> None:
        """What was in host memory is on the device again, and stays: it is about to be read more than once."""
        what = gone.copy.land()
        if self.state is gone:  # no other thread came first
            self.become(
                states.PackedState(what, gone.bound) if isinstance(gone, states.PackedHostedState) else states.PlainState(what)
            )

    @property
    def alias(self) -> Tensor | None:
        """The storage itself, 1-D."""
        return states.alias_of(self.state)

    @property
    def copy(self) -> states.Copy | None:
        """What is kept instead of it."""
        return states.copy_of(self.state)

    @property
    def packed(self) -> codec.Packed | None:
        """The error-bounded copy, if that is what is kept; without its tensors while these are in host memory."""
        return states.packed_of(self.state)

    @property
    def making(self) -> states.Making | None:
        """The error-bounded copy that is being made."""
        return self.state.making if isinstance(self.state, states.PendingState) else None

    @property
    def derivation(self) -> Derivation | None:
        """How it was computed, until it is decided what becomes of it."""
        return self.state.derivation if isinstance(self.state, states.PendingState) else None

    @property
    def bound(self) -> float:
        """How far an element may be off, or will once the copy is made; 0 where errors are none, or nobody reads numbers."""
        return states.bound_of(self.state)

    @property
    def bounded(self) -> bool:
        """What is kept gives every element within `bound`."""
        return states.within_a_bound(self.state)

    @property
    def plain(self) -> bool:
        """The storage is kept as it is, here or in host memory."""
        return isinstance(self.state, states.PlainState | states.PendingState | states.HostedState)

    @property
    def same(self) -> bool:
        """What is kept instead gives every bit back, so it serves whoever reads it."""
        return states.gives_every_bit(self.state)

    @property
    def taken(self) -> bool:
        """Kept within `bound`, or being compressed."""
        return self.bounded or self.making is not None

    @property
    def kept_bytes(self) -> int:
        if self.alias is not None:
            return self.nbytes
        return self.copy.nbytes if self.copy is not None else 0

    @property
    def held_bytes(self) -> int:
        """What it takes now: also a copy that is being made, or lies aside."""
        return self.kept_bytes + states.bytes_aside(self.state)

    @property
    def sought(self) -> bool:
        """Somebody will read it again: an operation, or one that reads what is computed from it."""
        return self.opened < self.handles or any(one.sought for one in self.results or ())

    def gives(self, result: "SavedStorage") -> None:
        """It is read again when `result` is."""
        self.results = self.results or WeakSet()
        self.results.add(result)

    @property
    def alone(self) -> bool:
        """Nobody else holds the storage, so no operation can save it any more."""
        ours = 0 if self.alias is None else 1 + (base_of(self.alias) is not None)
        return users_of(self.storage.cdata) <= ours + WRAPPED


def stream_of(t: Tensor) -> int:
    """The stream that operations on the tensor's device run on now, for this thread."""
    return stream_on(t.device) or 0


def whole_storage(t: Tensor) -> Tensor:
    """The tensor's storage as a 1-D tensor of its type; shares memory and version counter with it."""
    storage = t.untyped_storage()
    return t.detach().as_strided((storage.nbytes() // t.element_size(),), (1,), 0)
