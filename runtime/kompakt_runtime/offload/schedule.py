"""Saved tensors that are in host memory between forward and backward pass: which, from when on, and when they come back.

One optimizer step is timed, and `plan` decides from it what goes in the steps after. A tensor is known again by its place:
the number of the forward pass in the step, and its own in that.
"""

import functools
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from weakref import ref

import torch

from kompakt_runtime.compat.tensors import device_of, version_of
from kompakt_runtime.figures.counted import Figures
from kompakt_runtime.offload.host_memory import may_pin
from kompakt_runtime.offload.plan import AHEAD, HOST_MEMORY, LEAVING, SMALL, OffloadPlan, Place
from kompakt_runtime.offload.timed import PROBE, Timed, TimedStep, movable
from kompakt_runtime.saved.carrier import Carrier, Hosted
from kompakt_runtime.saved.entry import SavedStorage
from kompakt_runtime.saved.handle import Handle, PlainTensor
from kompakt_runtime.saved.lane import Lane, lane_of

LEAST: Final = 1 << 20  # bytes below which a copy costs the host more than it is worth
FIRST: Final = 3  # optimizer steps before one is timed: bounds settle, allocators find their size
RENEWALS: Final = 8  # times that another step is timed because tensors are no longer as they were

NO_GPU: Final = "NoGpu"
NOT_MEASURED: Final = "NotMeasured"
CHANGED: Final = "Changed"
OTHER_SHAPE: Final = "OtherShape"
OTHER_THREAD: Final = "OtherThread"
OTHER_DEVICE: Final = "OtherDevice"
CAPTURED: Final = "GraphCapture"


@dataclass(frozen=True)
class Item:
    """A storage that waits for the end of the module call that saved it: what becomes of it is settled only then."""

    entry: "ref[SavedStorage]"
    place: Place


def _safely(method: Callable[..., Any]) -> Callable[..., Any]:
    """Nothing here is worth a training: what fails is counted, and nothing goes out any more."""

    @functools.wraps(method)
    def safe(self: "Offloading", *what: Any) -> Any:
        try:
            with self.lock, torch.no_grad():
                return method(self, *what)
        except Exception as error:
            self.give_up(f"OffloadFailed{type(error).__name__}")
            return None

    return safe


class Offloading:
    """Forward passes of the thread that ran the first one, on the device of that."""

    def __init__(
        self,
        figures: Figures,
        lanes: Callable[[Any], Lane | None] = lane_of,
        least: int = LEAST,
        probe: int = PROBE,
        carriers: Callable[[Lane], Carrier] | None = None,
    ) -> None:
        self.lock = threading.RLock()
        self._figures, self._lanes, self._least, self._probe = figures, lanes, least, probe
        self._carriers = carriers or (lambda lane: Carrier(lane, may_pin(_ranks())))
        self._reason = NOT_MEASURED
        self._thread: int | None = None
        self._lane: Lane | None = None
        self._carrier: Carrier | None = None
        self._optimizer: ref[Any] | None = None
        self._steps = self._timed_steps = 0
        self._pass = self._place = self._met = 0
        self._timing: TimedStep | None = None  # the step that runs
        self._over: TimedStep | None = None  # one whose marks the device may not have reached
        self._plan = OffloadPlan()
        self._away: list[ref[Hosted]] = []  # in the order in which they left
        self._coming: list[ref[Hosted]] = []

    def give_up(self, reason: str) -> None:
        """What is away comes back when it is asked for."""
        self._reason, self._plan, self._lane = reason, OffloadPlan(), None
        self._timing = self._over = None
        self._figures.away.count(reason)

    @_safely
    def entered(self, module: Any) -> None:
        """A forward pass of the outermost module begins."""
        if self._thread is None:
            device = device_of(module)
            self._thread, self._lane = threading.get_ident(), self._lanes(device)
            self._reason = NOT_MEASURED if self._lane is not None else NO_GPU
        if self._thread == threading.get_ident():
            self._pass, self._place = self._pass + 1, 0
            self._away = [hosted for hosted in self._away if hosted() is not None]

    @_safely
    def placed(self, entry: SavedStorage, items: list[Item], allowed: bool) -> None:
        """A storage is saved for the first time. items: of the innermost module call; allowed: the user did not leave it out."""
        if obstacle := self._foreign(entry):
            return self._stays(entry.nbytes, obstacle)
        place, self._place = (self._pass, self._place), self._place + 1
        if self._timing is not None:
            self._timing.saved(entry, place, allowed)
        elif self._plan.chosen.get(place) != entry.nbytes or not allowed:
            return self._stays(entry.nbytes, self._why(place))
        items.append(Item(ref(entry), place))
        return None

    def _foreign(self, entry: SavedStorage) -> str:
        if self._thread != threading.get_ident():
            return OTHER_THREAD
        return OTHER_DEVICE if self._lane is not None and entry.probe.device != self._lane.device else ""

    def _why(self, place: Place) -> str:
        planned = self._plan.chosen or self._plan.reasons
        return self._plan.reasons.get(place, OTHER_SHAPE) if planned else self._reason

    def _stays(self, nbytes: int, reason: str) -> None:
        if nbytes >= self._least or reason == NO_GPU:
            self._figures.away.count(reason)

    def settled(self, items: list[Item], everything: bool) -> list[Item]:
        """A module call is over, everything: the outermost one. Returns those that are not settled yet."""
        return self._settled(items, everything) or []

    @_safely
    def _settled(self, items: list[Item], everything: bool) -> list[Item]:
        left = []
        for item in items:
            entry = item.entry()
            if entry is not None and _open(entry) and not everything:
                left.append(item)
            elif entry is not None and self._timing is not None and entry.timed is not None:
                self._timing.settled(entry, entry.timed)
                self._stays(entry.nbytes, NOT_MEASURED)
            elif entry is not None:
                self._send(entry)
        return left

    def _send(self, entry: SavedStorage) -> None:
        if self._lane is None or self._carrier is None:
            return None
        obstacle = self._obstacle(entry)
        gone = None if obstacle else self._carrier.out(entry.alias if entry.alias is not None else entry.copy)
        if gone is None:
            return self._stays(entry.nbytes, obstacle or HOST_MEMORY)
        entry.moved(gone[0])
        self._met += 1
        self._away.append(ref(gone[0]))
        self._figures.away.left(gone[0].nbytes)
        return self._carrier.release(LEAVING)

    def _obstacle(self, entry: SavedStorage) -> str:
        if self._lane is not None and self._lane.capturing():
            return CAPTURED
        if not movable(entry) or entry.making is not None:
            return SMALL
        return CHANGED if entry.alias is not None and version_of(entry.alias) != entry.version else ""

    def opening(self, handle: Handle | PlainTensor) -> None:
        """A backward pass is about to read it."""
        timed = handle.entry.timed if isinstance(handle, Handle) else None
        if timed is not None and timed.opened is None:
            self._opened(handle, timed)

    @_safely
    def _opened(self, handle: Handle, timed: Timed) -> None:
        if self._timing is not None:
            self._timing.opened(handle.entry, timed)

    def opened(self) -> None:
        """It was read. The next ones may come."""
        if self._carrier is not None and (self._away or self._carrier.held):
            self._fetch(self._carrier)

    @_safely
    def _fetch(self, carrier: Carrier) -> None:
        carrier.release(0)
        self._coming = [each for each in self._coming if (hosted := each()) is not None and hosted.arrival is not None]
        while self._away and len(self._coming) < AHEAD:
            hosted = self._away.pop()()
            if hosted is not None and not hosted.opened:
                hosted.arrival = carrier.back(hosted)
                self._coming.append(ref(hosted))

    @_safely
    def stepped(self, optimizer: Any, observing: bool) -> None:
        """An optimizer step is over. observing: the next one measures bounds, which takes time that others do not."""
        if self._optimizer is None or self._optimizer() is None:
            self._optimizer = ref(optimizer)  # of several the first tells where a step ends
        if self._optimizer() is not optimizer or self._lane is None:
            return
        self._steps += 1
        if self._carrier is not None:
            self._figures.away.late = self._carrier.late
        self._follow(observing)
        self._pass = self._place = self._met = 0

    def _follow(self, observing: bool) -> None:
        if self._timing is not None:
            self._timing, self._over = (None, self._timing) if self._timing.storages else (self._timing, None)
        if self._over is not None:
            found = self._over.plan(self._least)
            self._plan, self._over = (self._plan, self._over) if found is None else (found, None)
        elif self._steps >= FIRST and not observing and self._wanted():
            self._begin()

    def _wanted(self) -> bool:
        """Whether a step must be timed: none was, or tensors are others by now. One without our forward passes tells nothing."""
        outdated = self._pass and 2 * self._met < len(self._plan.chosen)
        return self._timing is None and (self._timed_steps == 0 or bool(outdated and self._timed_steps <= RENEWALS))

    def _begin(self) -> None:
        """The next step is timed."""
        assert self._lane is not None
        self._carrier = self._carrier or self._carriers(self._lane)
        self._timed_steps += 1
        self._plan, self._timing = OffloadPlan(), TimedStep(self._carrier, self._probe)
        if not self._timing.possible:
            self.give_up(HOST_MEMORY)


def _open(entry: SavedStorage) -> bool:
    """It may still be packed, or become a mask."""
    return entry.making is not None or entry.demand.unresolved > 0 or (entry.alias is not None and not entry.demand.whole)


def _ranks() -> int:
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return int(ranks) if ranks.isdigit() else 1
