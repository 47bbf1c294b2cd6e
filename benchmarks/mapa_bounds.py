"""How much of the ideal any policy could give in MAPA's experiment while no job waits that fits.

`foresight`: who knows all jobs and when each of them ends. The starts and ends are given; over all ways to place the jobs
the greatest total is found exactly, by dynamic programming over what the running jobs hold.

`Lookahead`: who knows how jobs are drawn (sizes 2 to 5, two of three sensitive), but neither the next job nor when one ends.
Every running job is equally likely to end next, as if service times were exponential; theirs are uniform, so this is the
best policy of a model and no strict bound. Found by relative value iteration.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from statistics import fmean

SIZES = range(2, 6)
SENSITIVE = 2 / 3
STEPS = 24  # after which the gain stood still to five digits on the three machines

Held = tuple[int, ...]  # the GPU sets of the running jobs, as bitmasks


@dataclass(frozen=True, slots=True)
class Start:
    """A job that starts: its GPUs, whether its share counts, and which earlier starts have ended since the one before it."""

    gpus: int
    counts: bool
    ended: frozenset[int]


@cache
def sets_of(free: int, size: int) -> tuple[int, ...]:
    """All sets of `size` GPUs within `free`."""
    bits = [1 << i for i in range(free.bit_length()) if free >> i & 1]
    return tuple(map(sum, combinations(bits, size)))


def foresight(all_gpus: int, starts: Sequence[Start], shares: Sequence[float]) -> float:
    """The greatest sum of the shares (by set, of 1) of the jobs that count, over all ways to place them."""
    totals: dict[Held, float] = {(): 0.0}
    running: list[int] = []
    for number, start in enumerate(starts):
        kept = [place for place, job in enumerate(running) if job not in start.ended]
        running = [running[place] for place in kept] + [number]
        freed = _greatest((tuple(held[place] for place in kept), total) for held, total in totals.items())
        totals = _greatest(
            ((*held, mask), total + start.counts * shares[mask])
            for held, total in freed.items()
            for mask in sets_of(all_gpus & ~sum(held), start.gpus)
        )
    return max(totals.values())


def _greatest(totals: Iterable[tuple[Held, float]]) -> dict[Held, float]:
    found: dict[Held, float] = {}
    for held, total in totals:
        if total > found.get(held, -1.0):
            found[held] = total
    return found


class Lookahead:
    """The policy with the greatest mean share of sensitive jobs in the model above."""

    def __init__(self, all_gpus: int, shares: Sequence[float]) -> None:
        self._all, self._shares = all_gpus, shares
        states = sorted(self._reachable(), key=len)
        self._worth: Mapping[Held, float] = dict.fromkeys(states, 0.0)
        for _ in range(STEPS):
            worth = self._step(states)
            self._worth = {held: worth[held] - worth[()] for held in states}

    def choose(self, held: Sequence[int], size: int, sensitive: bool) -> int:
        """The set for a job of `size`, which must fit beside what is held."""
        return max(sets_of(self._all & ~sum(held), size), key=lambda mask: self._after(held, mask, sensitive))

    def _after(self, held: Sequence[int], mask: int, sensitive: bool) -> float:
        return sensitive * self._shares[mask] + self._worth[tuple(sorted((*held, mask)))]

    def _reachable(self) -> set[Held]:
        found: set[Held] = {()}
        new: set[Held] = {()}
        while new:
            new = {
                tuple(sorted((*held, mask))) for held in new for size in SIZES for mask in sets_of(self._all & ~sum(held), size)
            }
            found |= new
        return found

    def _step(self, states: Iterable[Held]) -> dict[Held, float]:
        """One sweep, the states of fewer jobs first: a job that does not fit waits until one of the others ends."""
        fitted: dict[tuple[Held, int], float] = {}
        for held in states:
            for size in SIZES:
                if sets_of(self._all & ~sum(held), size):
                    fitted[held, size] = self._expected(held, size)
                else:
                    fitted[held, size] = fmean(fitted[held[:i] + held[i + 1 :], size] for i in range(len(held)))
        return {held: fmean(fitted[held, size] for size in SIZES) for held in states}

    def _expected(self, held: Held, size: int) -> float:
        masks = sets_of(self._all & ~sum(held), size)
        with_share, without = (max(self._after(held, mask, sensitive) for mask in masks) for sensitive in (True, False))
        return SENSITIVE * with_share + (1 - SENSITIVE) * without
