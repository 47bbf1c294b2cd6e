"""A policy, a placement and a trace of its own for `kompakt simulate`; pyproject.toml registers them as entry points."""

from kompakt_simulator.cluster import ClusterState, GpuSet, lowest_of
from kompakt_simulator.jobs import Milliseconds, SimulatedJob, Trace, TraceJob
from kompakt_simulator.policies import SchedulingPolicy
from kompakt_simulator.schedulers.queues import Queued
from kompakt_simulator.world import SimulatedWorld


def most_gpus(world: SimulatedWorld, job: SimulatedJob) -> float:
    """The key of the queue: the lowest goes first."""
    return -job.gpus


# A policy is a row: its name, and what makes the scheduler of one run. `skips`: who finds no place does not block the others.
largest_first = SchedulingPolicy("largest-first", lambda place, setting: Queued(place, most_gpus, skips=True))


def spread(cluster: ClusterState, gpus: int) -> GpuSet | None:
    """A placement: as many machines as possible, one GPU of each in turn; None while too few GPUs are free."""
    chosen, rest = GpuSet(0), cluster
    if cluster.free.bit_count() < gpus:
        return None
    while chosen.bit_count() < gpus:
        machine = max(range(cluster.machines), key=lambda machine: (rest.counts[machine], -machine))
        taken = lowest_of(GpuSet(rest.free & cluster.shape.masks[machine]), 1)
        chosen, rest = GpuSet(chosen | taken), rest.with_taken(taken)
    return chosen


def rush_hour() -> Trace:
    """A trace: forty jobs at once, in turn of 1, 2, 4 and 8 GPUs, half an hour each."""
    jobs = (TraceJob(n, Milliseconds(0), Milliseconds(1_800_000), gpus=1 << n % 4) for n in range(40))
    return Trace("rush-hour", tuple(jobs), work="half an hour")
