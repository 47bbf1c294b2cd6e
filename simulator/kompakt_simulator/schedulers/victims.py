"""Who is stopped so that a waiting job gets its best level: jobs behind it in the order that have run for a while."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from kompakt_simulator.cluster import NOTHING, GpuSet
from kompakt_simulator.schedulers.line import Entry, Line
from kompakt_simulator.schedulers.pool import Pool, members
from kompakt_simulator.setting import Knowledge
from kompakt_simulator.task import Task
from kompakt_simulator.world import World

MIN_RUN_MS = 7_200_000  # nobody is stopped earlier for another
TWICE = 2.0  # a victim has declared that much more work than who gets its GPUs


@dataclass(frozen=True, slots=True)
class Found:
    """Victims, and the machine, rack or block (as a mask) that has room for the waiting job without them."""

    tasks: Sequence[Task]
    member: int

    def place(self, world: World, task: Task) -> GpuSet:
        """The GPUs for the waiting job; asked before the victims are stopped."""
        freed = NOTHING
        for victim in self.tasks:
            freed = GpuSet(freed | victim.held)
        pool = Pool(world.cluster.shape, GpuSet((freed | world.open_to(task)) & self.member))
        level = pool.level(task.gpus)
        assert level is not None
        return pool.best_fit(task.gpus, level)


class Victims:
    """Looks for victims at one moment, for one waiting job after the other."""

    def __init__(self, world: World, line: Line) -> None:
        self._world = world
        running = (task for task in world.running.values() if world.now - task.begin >= MIN_RUN_MS)
        self._by_key = sorted(((line.key(world, task), task.number, task) for task in running), reverse=True)
        # For which nothing was found, by priority and size: those behind of that kind may stop no others.
        self._hopeless = set[tuple[int, int]]()

    def for_entry(self, entry: Entry) -> Found | None:
        """Whose GPUs would give this job its best level; None where nobody's would."""
        task = entry[-1]
        kind = task.job.priority, task.gpus
        allowed = [] if kind in self._hopeless else self._allowed(entry)
        found = _cheapest(self._world, task, allowed) if allowed else None
        if found is None:
            self._hopeless.add(kind)
        return found

    def stopped(self) -> None:
        """Some have been: those who wait are looked at anew."""
        self._hopeless.clear()

    def _allowed(self, entry: Entry) -> list[Task]:
        """Who may be stopped for a waiting job: the first by key, the highest first; nobody of higher priority."""
        _, key, *_, task = entry
        end = bisect_left(self._by_key, True, key=lambda one: not self._may_stop(one[0], key))
        return [victim for _, _, victim in self._by_key[:end] if victim.held and victim.job.priority <= task.job.priority]

    def _may_stop(self, victim: float, waiting: float) -> bool:
        """By their keys: a victim stands behind in the order, or has declared twice as much work left."""
        if self._world.knowledge is Knowledge.NONE:
            return victim > waiting
        return victim >= TWICE * waiting


def _cheapest(world: World, task: Task, allowed: Sequence[Task]) -> Found | None:
    """Victims, most service first, whose GPUs make room at the best level, where they leave the fewest GPUs idle.

    None where no member of that level would have room.
    """
    shape, now, gpus = world.cluster.shape, world.open_to(task), task.gpus
    best: tuple[int, int, Found] | None = None
    for index, member in enumerate(members(shape, shape.levels.ideal(gpus))):
        room = (now & member).bit_count()
        chosen, freed = [], 0
        for victim in allowed:
            if room >= gpus:
                break
            here = (victim.held & member).bit_count()
            if here:
                room += here
                freed += victim.gpus
                chosen.append(victim)
        if room >= gpus and chosen and (best is None or (freed, index) < best[:2]):
            best = freed, index, Found(chosen, member)
    return None if best is None else best[2]
