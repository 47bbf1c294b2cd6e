"""Dally's tuner: how long to insist on a level, from past waits.

Source of every rule and constant: the scheduler of Dally (arXiv 2401.16492) as published in aakash-sharma/cluster-sim,
classes DallyIntraJobScheduler and DallyInterJobScheduler, read as facts; the words and the code here are ours.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from kompakt_core.errors import InvalidInput
from kompakt_core.placement.model import Level
from kompakt_core.policy.model import Timers

FLOOR_MACHINE, FLOOR_RACK = 6, 12  # leases
CAP_MACHINE = 0.8  # of the window
_UNITS = 1 << 52


def timers_in_leases(r: float, n: float, lease_s: float) -> Timers:
    """Dally's two timers, counted in leases, in seconds. A block counts as a rack's outside: N opens both."""
    return Timers(r * lease_s, n * lease_s, n * lease_s)


@dataclass(frozen=True, slots=True)
class PastWait:
    """One past wait in leases, and when it ended in seconds."""

    at: float
    leases: float


@dataclass(frozen=True, slots=True)
class PastWaits:
    """Past waits of gangs of one size, in the order in which they ended, with their exact sums.

    `total`, `squares`: of the waits and of their squares, in units of 2^-52 leases. A wait is at least one lease, so that each
    is a whole number of these. With the sums an estimate costs the same however many waits there were.
    """

    entries: tuple[PastWait, ...] = ()
    total: int = 0
    squares: int = 0

    def with_wait(self, wait: PastWait) -> "PastWaits":
        """One more, which ended after all others."""
        units = _units(wait)
        return PastWaits((*self.entries, wait), self.total + units, self.squares + units * units)

    def without_older(self, oldest: float) -> "PastWaits":
        """Without those that ended before; as in the original, the walk skips the neighbour of each one that it drops.

        They ended in order, so those that are too old stand first, and of these every other one is dropped.
        """
        old = next((index for index, wait in enumerate(self.entries) if wait.at >= oldest), len(self.entries))
        if not old:
            return self
        dropped = [_units(wait) for wait in self.entries[:old:2]]
        kept = (*self.entries[1:old:2], *self.entries[old:])
        return PastWaits(kept, self.total - sum(dropped), self.squares - sum(units * units for units in dropped))


def _units(wait: PastWait) -> int:
    return int(wait.leases * _UNITS)


@dataclass(frozen=True, slots=True)
class WaitHistory:
    """Past waits by number of GPUs: of allocations inside one machine, and of those inside one rack."""

    lease_s: float
    machine: Mapping[int, PastWaits] = field(default_factory=dict)
    rack: Mapping[int, PastWaits] = field(default_factory=dict)

    def with_wait(self, level: Level, demand: int, at: float, waited_s: float, window: float) -> "WaitHistory":
        """The history after an allocation, at a moment not before any other. Waits below one lease, and allocations across
        racks, leave no trace. Entries older than `window` leases are dropped only now.
        """
        leases = waited_s / self.lease_s
        if leases < 1 or level not in (Level.MACHINE, Level.RACK):
            return self
        old = self.machine if level is Level.MACHINE else self.rack
        kept = old.get(demand, PastWaits()).without_older(at - self.lease_s * window)
        new = {**old, demand: kept.with_wait(PastWait(at, leases))}
        return (
            WaitHistory(self.lease_s, new, self.rack) if level is Level.MACHINE else WaitHistory(self.lease_s, self.machine, new)
        )


def tuned_timers(history: WaitHistory, demand: int, window: float) -> tuple[int, int]:
    """(R, N) in leases for gangs of this many GPUs: how long to insist on one machine, and on one rack.

    Each follows mean + 2 population standard deviations of the past waits of that demand, between a floor and a cap that
    depends on `window` (leases). Raises InvalidInput for a window below 1.
    """
    if window < 1:
        raise InvalidInput(f"a window of {window} leases; expected at least 1")
    machine = estimate(history.machine.get(demand, PastWaits()))
    rack = estimate(history.rack.get(demand, PastWaits()))
    r = min(math.ceil(CAP_MACHINE * window), max(FLOOR_MACHINE, math.ceil(machine)))
    n = min(math.ceil(window), max(FLOOR_RACK, math.ceil(rack)))
    return r, n


def estimate(waits: PastWaits) -> float:
    """mean + 2 population standard deviations, in leases; 1 where nothing was recorded."""
    number = len(waits.entries)
    if not number:
        return 1.0
    mean = waits.total / (number * _UNITS)
    variance = (number * waits.squares - waits.total * waits.total) / (
        number * number * _UNITS * _UNITS
    )  # exact before the division
    return mean + 2 * math.sqrt(variance)
