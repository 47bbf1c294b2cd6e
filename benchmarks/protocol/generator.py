"""Traces drawn from distributions that are fitted to a public one.

Fitted are, each by itself: gaps between submissions (gamma), GPUs of a job (how often each number occurs), durations by GPUs
(lognormal), models (how often each occurs; none where the trace names none, then the network picks a ratio by job number). What
hangs together in the source is lost, but that durations go with GPUs: no users, no days and nights, no repeated jobs.

The sources are traces that come with the simulator (simulator/kompakt_simulator/data/README.md has their licences). Times in
milliseconds, as everywhere in the simulator. The same seed gives the same trace on every machine.
"""

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, pstdev

from kompakt_core.errors import InvalidInput
from kompakt_simulator.jobs import Milliseconds, TraceJob

SHORTEST_MS = 1000  # traces count in seconds; jobs of 0 s and gaps of 0 s have no logarithm
ENOUGH = 20  # jobs of one number of GPUs, for a distribution of their own


@dataclass(frozen=True, slots=True)
class FittedDurations:
    """ln of milliseconds: mean and standard deviation; drawn ones lie within the shortest and the longest that were seen."""

    mean: float
    spread: float
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class FittedTrace:
    """`burstiness`: shape of the gamma of gaps, 1 = Poisson, less = bursts. `gpus`, `models`: how many jobs of each."""

    burstiness: float
    gpus: Mapping[int, int]
    durations: Mapping[int, FittedDurations]
    models: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class WantedTrace:
    """`load`: GPU time of all jobs over the cluster's between first and last submission. `gang_factor`: times a job's GPUs."""

    jobs: int
    cluster_gpus: int
    load: float
    gang_factor: int = 1

    def __post_init__(self) -> None:
        for name, least, most in (("jobs", 2, 1_000_000), ("load", 0.01, 100), ("gang_factor", 1, 1024)):
            if not least <= getattr(self, name) <= most:
                raise InvalidInput(f"{name} {getattr(self, name)}; expected a number from {least} to {most}")


def fitted(jobs: Sequence[TraceJob]) -> FittedTrace:
    """The distributions of a trace. Raises InvalidInput for one too short, or submitted at once."""
    if len(jobs) < ENOUGH or jobs[0].submit == jobs[-1].submit:
        raise InvalidInput(
            f"{len(jobs)} jobs within {jobs[-1].submit - jobs[0].submit if jobs else 0} ms: too few to fit, or all at once"
        )
    gaps = [max(after.submit - job.submit, SHORTEST_MS // 2) for job, after in pairwise(jobs)]
    gpus = Counter(job.gpus for job in jobs)
    return FittedTrace(
        _gamma_shape(gaps),
        dict(sorted(gpus.items())),
        {size: _durations(jobs, size) for size in sorted(gpus)},
        dict(sorted(Counter(job.model for job in jobs).items())),
    )


def generated(source: FittedTrace, wanted: WantedTrace, seed: int) -> tuple[TraceJob, ...]:
    """A trace of exactly the wanted load (within the rounding to milliseconds). Raises InvalidInput if a job fits nowhere."""
    largest = max(source.gpus) * wanted.gang_factor
    if largest > wanted.cluster_gpus:
        raise InvalidInput(f"jobs of {largest} GPUs on a cluster of {wanted.cluster_gpus}; expected a larger cluster or factor 1")
    chance = random.Random(seed)
    sizes = chance.choices(list(source.gpus), list(source.gpus.values()), k=wanted.jobs)
    models = chance.choices(list(source.models), list(source.models.values()), k=wanted.jobs)
    durations = [_drawn(source.durations[size], chance) for size in sizes]
    gpus = [size * wanted.gang_factor for size in sizes]
    work = sum(each * duration for each, duration in zip(gpus, durations, strict=True))
    submits = _submits(source.burstiness, work / (wanted.cluster_gpus * wanted.load), wanted.jobs, chance)
    rows = enumerate(zip(submits, durations, gpus, models, strict=True))
    return tuple(
        TraceJob(number, Milliseconds(submit), Milliseconds(duration), size, model)
        for number, (submit, duration, size, model) in rows
    )


def load_of(jobs: Sequence[TraceJob], cluster_gpus: int) -> float:
    """GPU time that the jobs ask for, over the cluster's from the first to the last submission; infinite for all at once."""
    span = jobs[-1].submit - jobs[0].submit
    return sum(job.gpus * job.duration for job in jobs) / (cluster_gpus * span) if span else math.inf


def _gamma_shape(values: Sequence[float]) -> float:
    """Shape of largest likelihood, by the closed form that is within 1.5 % of it."""
    lack = math.log(fmean(values)) - fmean(math.log(value) for value in values)
    if lack < 1e-9:
        return 1e9  # equal gaps
    return (3 - lack + math.sqrt((lack - 3) ** 2 + 24 * lack)) / (12 * lack)


def _durations(jobs: Sequence[TraceJob], size: int) -> FittedDurations:
    """Of the jobs of this many GPUs; of those of more than one, or of all, where there are few."""
    alike = [job for job in jobs if job.gpus == size]
    for some in (alike, [job for job in jobs if job.gpus > 1] if size > 1 else [], jobs):
        if len(some) >= ENOUGH:
            alike = list(some)
            break
    times = [max(job.duration, SHORTEST_MS) for job in alike]
    logs = [math.log(time) for time in times]
    return FittedDurations(fmean(logs), pstdev(logs), min(times), max(times))


def _drawn(durations: FittedDurations, chance: random.Random) -> int:
    drawn = math.exp(min(chance.gauss(durations.mean, durations.spread), math.log(durations.most)))
    return round(min(max(drawn, durations.least), durations.most))


def _submits(shape: float, span: float, count: int, chance: random.Random) -> list[int]:
    gaps = [chance.gammavariate(shape, 1.0) for _ in range(count - 1)]
    total, at, submits = sum(gaps), 0.0, [0]
    for gap in gaps:
        at += gap
        submits.append(round(at / total * span))
    return submits
