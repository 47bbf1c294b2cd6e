"""The states of a saved storage: what each carries, and which may follow which.

Anything can be made of a storage that is there, so all ways lead through Pending: one more operation that saves the storage has
the original, and what was kept is given up again unless it gives every bit back.
"""

from dataclasses import dataclass
from typing import Any, Final

from kompakt_runtime import codec
from kompakt_runtime.saved import carrier, derived
from kompakt_runtime.saved.lossless import Indices, Mask
from kompakt_runtime.saved.replay import Replay

Tensor = Any
Copy = codec.Packed | Mask | Indices | Replay | carrier.Hosted | derived.Derived


class ImpossibleTransition(RuntimeError):
    """A state that cannot follow the one that there is. Nothing was changed."""


@dataclass(frozen=True, eq=False)
class PlainState:
    """The storage stays as it is."""

    alias: Tensor


@dataclass(frozen=True, eq=False)
class PackedState:
    """An error-bounded copy: no element is off by more than `bound`."""

    copy: codec.Packed
    bound: float


@dataclass(frozen=True, eq=False)
class Making:
    """An error-bounded copy that the device makes; nobody may rely on it."""

    copy: codec.Pending
    bound: float


@dataclass(frozen=True, eq=False)
class PendingState:
    """The storage is there until it is known what reads it, and what then is kept is whole.

    aside: a copy that was made before one more operation saved the storage; derivation: how it was computed.
    """

    alias: Tensor
    making: Making | None = None
    aside: PackedState | None = None
    derivation: derived.Derivation | None = None


@dataclass(frozen=True, eq=False)
class MaskState:
    """A small stand-in: a bit an element, places inside windows, or how it is drawn again. exact: it gives every bit back; else
    only signs.
    """

    copy: Mask | Indices | Replay
    exact: bool = False


@dataclass(frozen=True, eq=False)
class ShapeOnlyState:
    """Nobody reads a number of it."""


@dataclass(frozen=True, eq=False)
class DerivedState:
    """It is computed again. exact: every bit; else no element is off by more than `bound`."""

    copy: derived.Derived
    bound: float
    exact: bool


@dataclass(frozen=True, eq=False)
class HostedState:
    """The storage is in host memory."""

    copy: carrier.Hosted


@dataclass(frozen=True, eq=False)
class PackedHostedState:
    """The error-bounded copy is in host memory."""

    copy: carrier.Hosted
    bound: float


State = PlainState | PendingState | PackedState | MaskState | ShapeOnlyState | DerivedState | HostedState | PackedHostedState

# When each follows: (from, to). What is not here must not happen.
TRANSITIONS: Final[dict[tuple[type[State], type[State]], str]] = {
    (PendingState, PendingState): "packing begins, or its copy lies aside for readers that are not known yet",
    (PendingState, PlainState): "a reader needs every bit, or packing is no gain",
    (PendingState, PackedState): "all readers bear errors within a bound",
    (PendingState, MaskState): "it has two values, or only signs or places in windows are read",
    (PendingState, ShapeOnlyState): "only its shape is read",
    (PendingState, DerivedState): "it can be computed again from what is kept anyway",
    (PendingState, HostedState): "it is copied to host memory",
    (PlainState, PendingState): "one more operation saves it",
    (PlainState, HostedState): "it is copied to host memory",
    (PackedState, PendingState): "one more operation saves it, and has the original",
    (PackedState, PackedHostedState): "the copy is copied to host memory",
    (MaskState, PendingState): "one more operation saves it, and has the original; not where the mask gives every bit back",
    (ShapeOnlyState, PendingState): "one more operation saves it, and has the original",
    (DerivedState, PendingState): "one more operation saves it, and has the original; not where every bit is computed again",
    (DerivedState, PlainState): "a weight that it is cast from is about to change",
    (HostedState, PlainState): "a backward pass fetched it to compute with it more than once",
    (PackedHostedState, PackedState): "a backward pass fetched it to compute with it more than once",
    (PackedHostedState, PendingState): "one more operation saves it, and has the original",
}


def name(state: type[State]) -> str:
    """In words that people read."""
    return state.__name__.removesuffix("State")


def check(now: State, then: State) -> None:
    """Raises ImpossibleTransition where `then` cannot follow `now`."""
    if (type(now), type(then)) not in TRANSITIONS or (type(then) is PendingState and gives_every_bit(now)):
        raise ImpossibleTransition(f"a saved storage that is {name(type(now))} cannot become {name(type(then))}")


def alias_of(state: State) -> Tensor | None:
    """The storage itself, 1-D, where it is on its device."""
    return state.alias if isinstance(state, PlainState | PendingState) else None


def copy_of(state: State) -> Copy | None:
    """What is kept instead of the storage."""
    return state.copy if isinstance(state, PackedState | MaskState | DerivedState | HostedState | PackedHostedState) else None


def packed_of(state: State) -> codec.Packed | None:
    """The error-bounded copy, if that is what is kept; without its tensors while these are in host memory."""
    if isinstance(state, PackedHostedState):
        return state.copy.packed
    return state.copy if isinstance(state, PackedState) else None


def bound_of(state: State) -> float:
    """How far an element may be off, or will once the copy is made; 0 where errors are none, or nobody reads numbers."""
    if isinstance(state, PendingState):
        return state.making.bound if state.making is not None else 0.0
    return state.bound if isinstance(state, PackedState | DerivedState | PackedHostedState) else 0.0


def gives_every_bit(state: State) -> bool:
    """What is kept instead of the storage serves whoever reads it."""
    return isinstance(state, HostedState) or (isinstance(state, MaskState | DerivedState) and state.exact)


def within_a_bound(state: State) -> bool:
    """What is kept gives every element within `bound_of` it."""
    return isinstance(state, PackedState | PackedHostedState) or (isinstance(state, DerivedState) and not state.exact)


def bytes_aside(state: State) -> int:
    """Beside the storage: of a copy that is being made, or was made before."""
    if not isinstance(state, PendingState):
        return 0
    return sum(one.copy.nbytes for one in (state.making, state.aside) if one is not None)
