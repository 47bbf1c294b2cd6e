"""What the API server's record of pods and GPUTopologies says about which GPUs were free when a pod was bound. Pure.

Every object carries the revision of the write that made it, and revisions order all writes of a cluster. A decider sees writes a
little later, and decides a little before its own write lands; so about GPUs that changed hands just around a bind there are
two truths, and `free_masks` gives each of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

FINISHED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Moment:
    """A write: its revision, and when a watch showed it on our clock."""

    revision: int
    seen: float


@dataclass(frozen=True, slots=True)
class Stay:
    """A pod's time on a node: when it was bound, and since when neither pod nor report hold its GPUs (None: they still do)."""

    pod: str
    node: str
    gpus: frozenset[str]
    bound: Moment
    free: Moment | None


def free_masks(stay: Stay, others: Sequence[Stay], index: dict[str, int], lag: float) -> Iterator[int]:
    """The sets of free GPUs, as masks, that a decider may have seen when it chose for `stay`.

    `others`: all other stays on the node. `lag`: seconds within which a decider may not have seen a write yet, or may have
    decided about another pod before that one's Binding landed.
    """
    taken, doubtful = 0, []
    for other in others:
        mask = sum(1 << index[uuid] for uuid in other.gpus)
        match _held(stay, other, lag):
            case True:
                taken |= mask
            case None:
                doubtful.append(mask)
    everything = (1 << len(index)) - 1
    for chosen in product((False, True), repeat=len(doubtful)):
        held = taken
        for mask, counts in zip(doubtful, chosen, strict=True):
            held |= mask if counts else 0
        yield everything & ~held


def _held(stay: Stay, other: Stay, lag: float) -> bool | None:
    """Whether the other pod's GPUs were taken when `stay` was decided; None where that cannot be told."""
    at = stay.bound
    if other.bound.revision > at.revision:
        return None if other.bound.seen - at.seen < lag else False
    if other.free is None or other.free.revision > at.revision:
        return True
    return None if at.seen - other.free.seen < lag else False
