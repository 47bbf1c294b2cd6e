"""In which order gangs are served, and who may be stopped for whom, where durations are unknown.

First goes who is likeliest to end for the GPU time it is given: the Gittins index (J. C. Gittins, J. R. Stat. Soc. B 41, 1979),
over GPU time as in Tiresias (NSDI'19). How long jobs live is learnt from those that have ended; those that have not count for
what they have lived so far (E. L. Kaplan, P. Meier, J. Am. Stat. Assoc. 53, 1958), else the long ones would go unseen.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

from kompakt_core.errors import InvalidInput

# GPU-hours at which bins begin: from a minute on, each wider than the one before by the square root of two.
BINS: Final = (0.0, *(2 ** (half / 2) for half in range(-12, 34)))
PRIOR: Final = 20.0  # jobs, spread evenly over the bins, that count as having ended before any did: heavy-tailed
# Ranks are indices rounded down to a power of this, so that jobs of like prospects seldom take turns. They still do where a bin
# ranks behind the one before it: docs/benchmarks/policies.md.
RANK_BASE: Final = 3.0


def ranks(ended: Iterable[float], alive: Iterable[float]) -> tuple[int, ...]:
    """For each of BINS the rank of a job whose service (GPUs times hours of running) lies in it; lower ranks go first.

    `ended`: the whole service of the jobs that have ended; `alive`: what all others have had so far. In GPU-hours; raises
    InvalidInput below 0.
    """
    lives = _lives(_counts(ended), _counts(alive))
    return tuple(_rank(lives, at) for at in range(len(BINS)))


def bin_of(gpu_hours: float) -> int:
    """The position in BINS of so much service. Raises InvalidInput below 0."""
    if not gpu_hours >= 0:
        raise InvalidInput(f"{gpu_hours} GPU-hours; expected a number from 0 up")
    return bisect_right(BINS, gpu_hours) - 1


def _counts(services: Iterable[float]) -> list[int]:
    counts = [0] * len(BINS)
    for service in services:
        counts[bin_of(service)] += 1
    return counts


def _lives(ended: Sequence[int], alive: Sequence[int]) -> list[float]:
    """The share of jobs that end in each bin. Who is still alive in a bin has, on average, lived through half of it."""
    prior = PRIOR / len(BINS)
    last = len(BINS) - 1
    ends = [count + prior for count in ended]
    reached = list(accumulate(reversed([end + going for end, going in zip(ends, alive, strict=True)])))[::-1]
    lives, left = [], 1.0
    for at, end in enumerate(ends):
        share = left if at == last else left * end / (reached[at] - alive[at] / 2)
        lives.append(share)
        left -= share
    return lives


def _rank(lives: Sequence[float], at: int) -> int:
    """floor(-log of the index): ends per GPU-hour, over the span from the bin's beginning on in which they are most."""
    left, ends, hours, best = math.fsum(lives[at:]), 0.0, 0.0, 0.0
    for end in range(at, len(BINS)):
        begins, stops = BINS[end], _end_of(end)
        ends += lives[end]
        left = max(0.0, left - lives[end])
        hours += lives[end] * ((begins + stops) / 2 - BINS[at])
        best = max(best, ends / (hours + left * (stops - BINS[at])))
    return math.floor(-math.log(best, RANK_BASE))


def _end_of(at: int) -> float:
    return BINS[at + 1] if at + 1 < len(BINS) else BINS[at] * math.sqrt(2)
