"""Waiting by timers, and the tuner that sets them from past waits.

Source of every rule and constant: the scheduler of Dally (arXiv 2401.16492) as published in aakash-sharma/cluster-sim,
classes DallyIntraJobScheduler and DallyInterJobScheduler, read as facts; the words and the code here are ours.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from kompakt_core.delay.levels import Levels
from kompakt_core.delay.model import Decision, Offer, Place, Reserve, Waiting, WaitUntil
from kompakt_core.errors import InvalidInput
from kompakt_core.placement.model import Level

FLOOR_MACHINE, FLOOR_RACK = 6, 12  # leases
CAP_MACHINE = 0.8  # of the window


def by_timers(waiting: Waiting, offer: Offer, now: float) -> Decision:
    """One machine: at once. A worse level: when the timer of the level within has run out, or nothing within could hold it.

    Who would else wait without end and was passed over often enough gets what would serve it reserved. (That is not Dally's.)
    """
    levels, need = offer.levels, waiting.gpus
    ideal = levels.ideal(need)
    if offer.level is None:
        return Reserve(ideal) if waiting.passed_over else WaitUntil(None, ideal)
    opens = acceptable_from(waiting, levels, offer.level)
    if now >= opens:
        return Place(offer.level)
    if not math.isinf(opens):
        return WaitUntil(opens, levels.within(offer.level))
    return Reserve(ideal) if waiting.passed_over else WaitUntil(None, levels.within(offer.level))


def acceptable_from(waiting: Waiting, levels: Levels, level: Level) -> float:
    """The moment from which this level is good enough, on the clock of `since`; the comparison with it is >=."""
    if not levels.worse_than(level, levels.ideal(waiting.gpus)):
        return -math.inf
    return waiting.since + waiting.timers.of(levels.within(level))


@dataclass(frozen=True, slots=True)
class Wait:
    """One past wait in leases, and when it ended in seconds."""

    at: float
    leases: float


@dataclass(frozen=True, slots=True)
class History:
    """Past waits by number of GPUs: of allocations inside one machine, and of those inside one rack."""

    lease_s: float
    machine: Mapping[int, tuple[Wait, ...]] = field(default_factory=dict)
    rack: Mapping[int, tuple[Wait, ...]] = field(default_factory=dict)

    def with_wait(self, level: Level, demand: int, at: float, waited_s: float, window: float) -> "History":
        """The history after an allocation. Waits below one lease, and allocations across racks, leave no trace.

        Entries older than `window` leases are dropped only now. As in the original, the walk that drops them skips the
        neighbour of each one it removes.
        """
        leases = waited_s / self.lease_s
        if leases < 1 or level not in (Level.MACHINE, Level.RACK):
            return self
        old = self.machine if level is Level.MACHINE else self.rack
        kept = _pruned(old.get(demand, ()), at - self.lease_s * window)
        new = {**old, demand: (*kept, Wait(at, leases))}
        return History(self.lease_s, new, self.rack) if level is Level.MACHINE else History(self.lease_s, self.machine, new)


def _pruned(waits: tuple[Wait, ...], oldest: float) -> tuple[Wait, ...]:
    kept, index = list(waits), 0
    while index < len(kept):
        if kept[index].at < oldest:
            del kept[index]
        index += 1
    return tuple(kept)


def tuned_timers(history: History, demand: int, window: float) -> tuple[int, int]:
    """(R, N) in leases for gangs of this many GPUs: how long to insist on one machine, and on one rack.

    Each follows mean + 2 population standard deviations of the past waits of that demand, between a floor and a cap that
    depends on `window` (leases). Raises InvalidInput for a window below 1.
    """
    if window < 1:
        raise InvalidInput(f"a window of {window} leases; expected at least 1")
    machine = estimate(history.machine.get(demand, ()))
    rack = estimate(history.rack.get(demand, ()))
    r = min(math.ceil(CAP_MACHINE * window), max(FLOOR_MACHINE, math.ceil(machine)))
    n = min(math.ceil(window), max(FLOOR_RACK, math.ceil(rack)))
    return r, n


def estimate(waits: tuple[Wait, ...]) -> float:
    """mean + 2 population standard deviations, in leases; 1 where nothing was recorded."""
    values = [wait.leases for wait in waits]
    if not sum(values):
        return 1.0
    mean = math.fsum(values) / len(values)
    return mean + 2 * math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
