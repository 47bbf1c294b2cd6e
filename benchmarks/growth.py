"""How work grows with the length of a trace: three ways to lengths, work that no clock measures, and exponents."""

import cProfile
import gc
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from kompakt_simulator.jobs import Milliseconds, TraceJob

T = TypeVar("T")
WAYS: Final = ("first", "thin", "repeat")

# Functions by the end of their file's name and their own: what a waiting job (or all of one size) is asked by, and what looks
# for a place among free GPUs.
_ASKED: Final = (
    ("schedulers/lease_rules.py", "opens"),
    ("schedulers/leased.py", "opens"),
    ("policy/delay.py", "kompakt"),
    ("kompakt_simulator/placements.py", "levels"),
)
_PLACES: Final = (
    ("schedulers/pool.py", "level"),
    ("kompakt_simulator/placements.py", "best_level"),
    ("kompakt_simulator/placements.py", "at_level"),
)


@dataclass(frozen=True, slots=True)
class Work:
    """What a run did. `asked`: waiting jobs whether they go now. `places`: looks for a place. `calls`: of all functions."""

    asked: int
    places: int
    calls: int


def of_length(jobs: Sequence[TraceJob], way: str, index: int, parts: int) -> list[TraceJob]:
    """The jobs of the length `index` of `parts`, each twice the one before; by `first` and `thin` the last has all."""
    part = parts - 1 - index
    if way == "repeat":
        return repeated(jobs[: len(jobs) >> parts - 1], 1 << index)
    if way == "first":
        return list(jobs[: len(jobs) >> part])
    return [replace(job, submit=Milliseconds(job.submit >> part)) for job in jobs[:: 1 << part]]


def repeated(jobs: Sequence[TraceJob], times: int) -> list[TraceJob]:
    """These jobs so many times in a row, each copy with numbers of its own.

    A copy begins one mean gap between submissions after the last submission of the one before: as many jobs an hour as ever.
    It does not wait until the cluster is empty: who still runs or waits goes on into it, so that only the first finds nobody.
    """
    gaps = max(1, len(jobs) - 1)
    period = math.ceil((jobs[-1].submit - jobs[0].submit) * len(jobs) / gaps)
    numbers = max(job.number for job in jobs) + 1
    return [
        replace(job, number=job.number + copy * numbers, submit=Milliseconds(job.submit + copy * period))
        for copy in range(times)
        for job in jobs
    ]


def counted(call: Callable[[], T]) -> tuple[T, Work]:
    """What the call returns, and its work. The same call gives the same figures whatever else the machine does."""
    profile = cProfile.Profile()
    collects = gc.isenabled()
    gc.disable()  # when it runs depends on the past of the process, and it calls whoever asked to be told
    try:
        result = profile.runcall(call)
    finally:
        if collects:
            gc.enable()
    calls = dict.fromkeys((*_ASKED, *_PLACES), 0)
    every = 0
    for entry in profile.getstats():
        every += entry.callcount
        if not isinstance(entry.code, str):
            place = "/".join(entry.code.co_filename.split("/")[-2:]), entry.code.co_name
            if place in calls:
                calls[place] += entry.callcount
    return result, Work(sum(calls[one] for one in _ASKED), sum(calls[one] for one in _PLACES), every)


def exponent(growth: float, ratio: float) -> float:
    """x, where a quantity grew as n^x while n grew by `ratio`."""
    return math.log(growth) / math.log(ratio)


def n_log_n(before: int, after: int) -> float:
    """The exponent of n log n between these two n."""
    return exponent(after * math.log(after) / (before * math.log(before)), after / before)
