"""Which saved tensors go to host memory between the forward and the backward pass: decided from one timed step. No torch.

What the runtime would do is played through on the times of that step: one link that carries one copy after another, out as soon
as a tensor is ready, back in reverse order and a bounded number ahead of the backward pass. A tensor goes only if nobody waits.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

AHEAD: Final = 2  # tensors that are on the device again, or on their way, before they are read
LEAVING: Final = 2  # copies out under way; the device waits for what is before them and takes its memory back
LAST: Final = 2  # tensors saved last before a backward pass begins: they would be wanted at once
LOOKED_AT: Final = 256  # the largest tensors of a step; the rest stays
SHARE: Final = 0.8  # of the link's measured rate: data loaders and other ranks use it too

SMALL: Final = "Small"
NOT_HIDDEN: Final = "NotHidden"
HOST_MEMORY: Final = "HostMemory"
HELD_ELSEWHERE: Final = "HeldElsewhere"
NOT_READ: Final = "NotRead"

Place = tuple[int, int]


@dataclass(frozen=True)
class StorageTiming:
    """One storage of the timed step. place: number of the forward pass in the step, and of the tensor in that; storage: its
    bytes; nbytes: what would be moved (less, where it is packed); ready, opened: seconds, when it could have gone and when a
    backward pass asked for it; held: somebody else had it then, so that nothing would have been won; movable: False for what is a
    mask or nothing but a shape by then, or was left out by the user.
    """

    place: Place
    storage: int
    nbytes: int
    ready: float
    opened: float | None
    held: bool = False
    movable: bool = True


@dataclass(frozen=True)
class HostLink:
    """Bytes a second out and back, as measured; `budget`: bytes of host memory; `least`: bytes below which none is moved."""

    out: float
    back: float
    budget: int
    least: int


@dataclass(frozen=True)
class OffloadPlan:
    """chosen: the storage's bytes by place; reasons: why the others stay."""

    chosen: dict[Place, int] = field(default_factory=dict)
    reasons: dict[Place, str] = field(default_factory=dict)


def plan(rows: Sequence[StorageTiming], link: HostLink) -> OffloadPlan:
    """In the order in which they are saved, since the first are away longest; each goes if nobody waits and memory suffices."""
    reasons = {row.place: reason for row in rows if (reason := _unfit(row, link))}
    fit = [row for row in rows if row.place not in reasons]
    for row in _late(fit, rows):
        reasons[row.place] = NOT_HIDDEN
    looked_at = sorted((row for row in fit if row.place not in reasons), key=lambda row: -row.nbytes)[:LOOKED_AT]
    events = list(_events(rows))
    chosen: set[Place] = set()
    for row in sorted(looked_at, key=lambda row: row.ready):
        obstacle = _obstacle(events, chosen | {row.place}, link)
        if obstacle:
            reasons[row.place] = obstacle
        else:
            chosen.add(row.place)
    reasons.update({row.place: SMALL for row in rows if row.place not in chosen and row.place not in reasons})
    return OffloadPlan({row.place: row.storage for row in rows if row.place in chosen}, reasons)


def _unfit(row: StorageTiming, link: HostLink) -> str:
    if not row.movable or row.nbytes < link.least:
        return SMALL
    if row.opened is None:
        return NOT_READ
    return HELD_ELSEWHERE if row.held else ""


def _late(fit: Sequence[StorageTiming], rows: Sequence[StorageTiming]) -> list[StorageTiming]:
    """Those saved as the last before a backward pass reads anything."""
    opens = sorted(row.opened for row in rows if row.opened is not None)
    between: dict[int, list[StorageTiming]] = {}
    for row in sorted(fit, key=lambda row: row.ready):
        between.setdefault(bisect_right(opens, row.ready), []).append(row)
    return [row for group in between.values() for row in group[-LAST:]]


Event = tuple[float, bool, StorageTiming]


def _events(rows: Sequence[StorageTiming]) -> list[Event]:
    """(time, whether it is read then, row), in order of time; at one time what is saved comes first."""
    saved = [(row.ready, False, row) for row in rows]
    read = [(row.opened, True, row) for row in rows if row.opened is not None]
    return sorted([*saved, *read], key=lambda event: event[:2])


def _obstacle(events: Sequence[Event], chosen: set[Place], link: HostLink) -> str:
    """What goes wrong if these are moved; "" if nothing does."""
    played = _Played(link)
    for time, read, row in events:
        if not read and row.place not in chosen:
            continue
        if not (played.open(time, row, row.place in chosen) if read else played.save(time, row)):
            return NOT_HIDDEN
    return HOST_MEMORY if played.most > link.budget else ""


class _Played:
    """The link, and what the runtime would do with it."""

    def __init__(self, link: HostLink) -> None:
        self._link = link
        self._free = 0.0  # when the link has carried all that was given to it
        self._leaving: list[float] = []  # when copies out are over
        self._away: list[StorageTiming] = []
        self._coming: dict[Place, float] = {}  # when they are there again
        self._there = 0
        self.most = 0  # bytes of host memory

    def save(self, time: float, row: StorageTiming) -> bool:
        """False if the device waits for an earlier copy out."""
        self._leaving.append(self._carry(time, row.nbytes / (SHARE * self._link.out)))
        self._away.append(row)
        self._there += row.nbytes
        self.most = max(self.most, self._there)
        return len(self._leaving) <= LEAVING or self._leaving[-1 - LEAVING] <= time

    def open(self, time: float, row: StorageTiming, chosen: bool) -> bool:
        """False if what went out is not gone yet, and takes memory at the peak, or what is wanted is not back."""
        if self._leaving and self._leaving[-1] > time:
            return False
        if chosen:
            if self._coming.pop(row.place, time + 1) > time:
                return False
            self._there -= row.nbytes
        while self._away and len(self._coming) < AHEAD:
            next_row = self._away.pop()
            self._coming[next_row.place] = self._carry(time, next_row.nbytes / (SHARE * self._link.back))
        return True

    def _carry(self, time: float, seconds: float) -> float:
        self._free = max(time, self._free) + seconds
        return self._free
