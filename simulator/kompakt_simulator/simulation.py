"""The event loop in virtual time.

At one instant: first all completions, then all arrivals, then one call of the scheduler (or one after each, see
SimulationRules), then the invariant is checked. Then the clock jumps to the next completion, arrival or wake-up.
"""

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass

from kompakt_core.errors import Bug, InvalidInput
from kompakt_simulator.cluster import ClusterState, GpuSet
from kompakt_simulator.jobs import Milliseconds, SimulatedJob, TraceJob
from kompakt_simulator.placements import Placement
from kompakt_simulator.policies import SchedulingPolicy
from kompakt_simulator.setting import Knowledge, Setting
from kompakt_simulator.world import SimulatedWorld, Stretch


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """A job that ran to its end; `start` is when it first got GPUs, `gpus` what it held last.

    `held`, `comm`, `restart`: milliseconds of holding GPUs, of the network's share of that, and of starting again.
    """

    job: TraceJob
    start: Milliseconds
    end: Milliseconds
    gpus: GpuSet
    held: int = 0
    comm: float = 0.0
    restart: float = 0.0


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """What became of all jobs. `dropped`: they need more GPUs than the cluster has and never entered the queue."""

    finished: tuple[FinishedJob, ...]
    dropped: tuple[TraceJob, ...]
    cluster_gpus: int = 0
    preemptions: int = 0
    gpu_ms: int = 0
    stretches: tuple[Stretch, ...] = ()
    events: int = 0


def simulate(
    jobs: Iterable[TraceJob], cluster: ClusterState, policy: SchedulingPolicy, place: Placement, setting: Setting | None = None
) -> SimulationResult:
    """Run all jobs on an empty cluster until the last has ended.

    Raises InvalidInput for a policy that needs more knowledge than the setting allows, a job whose communication is not known,
    or a job larger than the cluster where the rules do not just refuse it; Bug if the invariant ever breaks.
    """
    setting = setting or Setting()
    knowledge = known_to(policy, setting)
    ordered = sorted(jobs, key=lambda job: (job.submit, job.number))
    fitting = [job for job in ordered if job.gpus <= cluster.size]
    dropped = tuple(job for job in ordered if job.gpus > cluster.size)
    if dropped and not setting.rules.too_large_refused:
        raise InvalidInput(f"job {dropped[0].number} needs {dropped[0].gpus} GPUs; the largest possible is {cluster.size}")
    world = SimulatedWorld(cluster, setting, knowledge, policy.free_of_cost and setting.rules.srtf_is_free)
    finished, events = _run(world, policy, place, _tasks(fitting, setting))
    return SimulationResult(finished, dropped, cluster.size, world.preemptions, world.gpu_ms, tuple(world.stretches), events)


def known_to(policy: SchedulingPolicy, setting: Setting) -> Knowledge:
    """What the policy learns in this run. Raises InvalidInput when it needs more than the setting allows."""
    given = setting.knowledge
    if given is None:
        return policy.needs
    if given < policy.needs:
        raise InvalidInput(
            f"policy {policy.name} orders jobs by their durations; it needs --knowledge {policy.needs.name.lower()} or more"
        )
    return given if policy.uses_more else max(policy.needs, Knowledge.NONE)


def _tasks(jobs: list[TraceJob], setting: Setting) -> list[SimulatedJob]:
    chance = random.Random(setting.seed)
    spread = math.log(setting.declared_error)
    tasks = []
    for job in jobs:
        declared = job.duration * (math.exp(chance.gauss(0, spread)) if spread else 1.0)
        tasks.append(SimulatedJob(job, setting.network.ratio(job), job.submit, float(job.duration), declared))
    return tasks


def _run(
    world: SimulatedWorld, policy: SchedulingPolicy, place: Placement, arrivals: list[SimulatedJob]
) -> tuple[tuple[FinishedJob, ...], int]:
    scheduler = policy.scheduler(place, world.setting)
    upcoming, finished, events = arrivals[::-1], list[FinishedJob](), 0
    one_pass = world.setting.rules.one_pass
    while upcoming or world.next_event is not None:
        world.now = min(at for at in (upcoming[-1].job.submit if upcoming else None, world.next_event) if at is not None)
        instant = world.happen()
        while upcoming and upcoming[-1].job.submit == world.now and (one_pass or not instant):
            instant.arrived.append(upcoming.pop())
        world.arrivals_left = len(upcoming)
        if not instant:
            continue
        finished += [_finished(task, world) for task in instant.ended]
        scheduler.step(world, instant)
        world.check()
        events += len(instant.ended) + len(instant.arrived) + len(instant.due)
    if len(finished) < len(arrivals):
        raise Bug(f"{len(arrivals) - len(finished)} jobs are waiting on an empty cluster")
    return tuple(finished), events


def _finished(task: SimulatedJob, world: SimulatedWorld) -> FinishedJob:
    return FinishedJob(
        task.job, Milliseconds(task.first_start), Milliseconds(world.now), task.last, task.held_ms, task.comm_ms, task.restart_ms
    )
