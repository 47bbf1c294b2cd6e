"""One optimizer step whose saved tensors are timed, by marks on the device that nobody waits for."""

from dataclasses import dataclass
from typing import Any, Final

import torch

from kompakt_runtime.codec import Packed
from kompakt_runtime.offload.plan import HostLink, OffloadPlan, Place, StorageTiming, plan
from kompakt_runtime.saved.carrier import Carrier
from kompakt_runtime.saved.entry import SavedStorage
from kompakt_runtime.saved.lane import Lane, Mark

PROBE: Final = 1 << 24  # bytes copied to learn the link's rate

Moment = Any


@dataclass(eq=False)
class Timed:
    """One storage. movable: by what the user asked for, and then by what is kept of it; nbytes: those; ready: when it might have
    gone; held: somebody else had it when it was opened.
    """

    place: Place
    storage: int
    movable: bool
    nbytes: int = 0
    ready: Moment = None
    opened: Moment = None
    held: bool = False


class TimedStep:
    """Begins before the step; `plan` may be asked for after it, as often as it takes the device to come so far."""

    def __init__(self, carrier: Carrier, probe: int) -> None:
        self._lane: Lane = carrier.lane
        self._budget, self._bytes = carrier.budget, probe
        self._probed = self._probe(carrier)
        self._origin = self._lane.clock.now()
        self.storages: list[Timed] = []

    @property
    def possible(self) -> bool:
        """Whether there is host memory at all."""
        return self._probed is not None

    def _probe(self, carrier: Carrier) -> tuple[Mark, Mark] | None:
        """A copy out and back; the second of two, because what is done once takes longer."""
        data = torch.empty(self._bytes, dtype=torch.uint8, device=self._lane.device)
        marks = None
        for _ in range(2):
            gone = carrier.out(data)
            if gone is None:
                return None
            gone[0].arrival = carrier.back(gone[0])
            marks = (gone[1], gone[0].arrival.mark)
        carrier.release(0)
        return marks

    def saved(self, entry: SavedStorage, place: Place, movable: bool) -> None:
        """For the first time."""
        entry.timed = Timed(place, entry.nbytes, movable)
        self.storages.append(entry.timed)

    def settled(self, entry: SavedStorage, timed: Timed) -> None:
        """It is known what is kept of it."""
        timed.ready, timed.nbytes = self._lane.clock.now(), entry.kept_bytes
        timed.movable = timed.movable and movable(entry)

    def opened(self, entry: SavedStorage, timed: Timed) -> None:
        """A backward pass is about to read it."""
        timed.opened = self._lane.clock.now()
        timed.held = entry.alias is not None and not entry.alone

    def plan(self, least: int) -> OffloadPlan | None:
        """None while the device has not come so far."""
        out, back = (mark.seconds() for mark in self._probed or ())
        rows = [self._row(timed) for timed in self.storages if timed.ready is not None]
        if not out or not back or None in rows:
            return None
        link = HostLink(self._bytes / out, self._bytes / back, self._budget, least)
        return plan([row for row in rows if row is not None], link)

    def _row(self, timed: Timed) -> StorageTiming | None:
        ready, opened = (self._seconds(moment) for moment in (timed.ready, timed.opened))
        if ready is None or (opened is None and timed.opened is not None):
            return None
        return StorageTiming(timed.place, timed.storage, timed.nbytes, ready, opened, timed.held, timed.movable)

    def _seconds(self, moment: Moment) -> float | None:
        return None if moment is None else self._lane.clock.seconds(self._origin, moment)


def movable(entry: SavedStorage) -> bool:
    """The storage itself, or a packed copy of it; not a mask, and not what is away already."""
    return entry.alias is not None or isinstance(entry.copy, Packed)
