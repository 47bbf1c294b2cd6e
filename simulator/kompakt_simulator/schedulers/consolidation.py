"""Which level a job of the policy `kompakt` takes, and when it moves to a better one, by what kompakt_core.policy says.

An answer changes by time, and when somebody joins. So a rejection by all of a size is kept until the first of them would accept.
What moving saves is what waiting saves: the gain of the level over the predicted work. What it costs is a checkpoint and a
restart, with all GPUs of the job idle.
"""

import math
from collections.abc import Iterable, Sequence

from kompakt_core.placement.model import Level
from kompakt_core.policy.delay import gain, predicted_work
from kompakt_core.policy.delay import kompakt as decide
from kompakt_core.policy.model import LevelOffer, PlaceAt, WaitingGang, WaitUntil
from kompakt_simulator.cluster import GpuSet
from kompakt_simulator.jobs import SimulatedJob
from kompakt_simulator.schedulers.pool import Pool
from kompakt_simulator.schedulers.waiting_queue import QueueEntry
from kompakt_simulator.setting import Knowledge
from kompakt_simulator.world import SimulatedWorld


class Acceptance:
    """Keeps which levels are closed to which sizes, and until when."""

    def __init__(self) -> None:
        self._closed: dict[int, dict[Level, float]] = {}  # until that millisecond nobody of that size accepts that level

    def joined(self, size: int) -> None:
        """Another job of this size waits: what its size has refused may be accepted."""
        self._closed.pop(size, None)

    def lined_up_anew(self) -> None:
        """All sizes are asked again."""
        self._closed.clear()

    def first(
        self, world: SimulatedWorld, pool: Pool, size: int, entries: Sequence[QueueEntry]
    ) -> tuple[QueueEntry, Level] | None:
        """The first of these waiting jobs, all of that size, that accepts the best level on offer, and the level."""
        level, levels = pool.level(size), world.cluster.shape.levels
        if level is None:
            return None
        if not levels.worse_than(level, levels.ideal(size)):
            return entries[0], level
        if world.now < self._closed.get(size, {}).get(level, -math.inf):
            return None
        until = math.inf
        for entry in entries:
            answer = decide(as_waiting(world, entry[-1]), LevelOffer(levels, level), world.now / 1000)
            if isinstance(answer, PlaceAt):
                return entry, level
            if isinstance(answer, WaitUntil) and answer.at is not None:
                until = min(until, answer.at * 1000)
        self._closed.setdefault(size, {})[level] = until
        return None

    def opens(self, pool: Pool, sizes: Iterable[int]) -> float:
        """When the first of these sizes takes by time alone what is on offer; inf = never."""
        closed = ((self._closed[size], pool.level(size)) for size in sizes if size in self._closed)
        return min((until.get(level, math.inf) for until, level in closed if level is not None), default=math.inf)


def accepts(world: SimulatedWorld, task: SimulatedJob, level: Level) -> bool:
    """Whether a waiting job would take a place at this level now."""
    offer = LevelOffer(world.cluster.shape.levels, level)
    return isinstance(decide(as_waiting(world, task), offer, world.now / 1000), PlaceAt)


WORTH = 2.0  # times its cost that a move must save: predictions are off by such a factor


def move(world: SimulatedWorld) -> None:
    """Move running jobs to their best level where it is open, those first that save most."""
    found = [(saved(world, task), task) for task in world.running.values() if task.slow]
    for saves, task in sorted(found, key=lambda one: (-one[0], one[1].number)):
        if saves <= WORTH * cost(world, task):
            continue
        pool = Pool(world.cluster.shape, GpuSet(world.open | task.held))
        level, levels = pool.level(task.gpus), world.cluster.shape.levels
        if level is not None and not levels.worse_than(level, levels.ideal(task.gpus)):
            gpus = pool.best_fit(task.gpus, level)
            world.stop(task)
            world.assign(task, gpus)


def saved(world: SimulatedWorld, task: SimulatedJob) -> float:
    """Seconds that the rest of a running job would take less at its best level; 0 where it has it."""
    shape = world.cluster.shape
    here, ideal = shape.level_of(task.held), shape.levels.ideal(task.gpus)
    if not shape.levels.worse_than(here, ideal):
        return 0.0
    waiting = as_waiting(world, task)
    return predicted_work(waiting) * gain(waiting, ideal, here)


def cost(world: SimulatedWorld, task: SimulatedJob) -> float:
    """Seconds of a checkpoint and a restart."""
    return world.setting.restart_s + world.setting.checkpoint_s_per_gpu * task.gpus


def as_waiting(world: SimulatedWorld, task: SimulatedJob, overtaken: int = 0) -> WaitingGang:
    """A waiting or running job in the words of kompakt_core.policy, as far as this run may know it."""
    remaining = None if world.knowledge is Knowledge.NONE else world.remaining(task) / 1000
    slowdown = world.setting.network.slowdowns(task.ratio, world.cluster.shape, task.gpus)
    attained = task.attained(world.now) / 1000
    return WaitingGang(
        task.gpus,
        task.since / 1000,
        slowdown=slowdown,
        attained_s=attained,
        remaining_s=remaining,
        overtaken=overtaken,
        overtaken_at_most=world.setting.overtaken_at_most,
    )
