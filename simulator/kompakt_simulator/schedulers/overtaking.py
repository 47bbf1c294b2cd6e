"""Others may pass a waiting job a bounded number of times; then GPUs are kept for it as they come free, as in the cluster.

Who is placed passes all that stand before it in the order and wait on. Whether GPUs are kept says kompakt_core.policy (Reserve):
for a job without any place that was passed too often. They are kept on the member of its best level that lacks the fewest,
until it is placed, anywhere. For one job at a time, so that no two wait for each other; none while a more important one waits.
"""

from collections.abc import Mapping, Sequence

from kompakt_core.policy.delay import kompakt as decide
from kompakt_core.policy.model import LevelOffer, Reserve
from kompakt_simulator.cluster import NOTHING, GpuSet, lowest_of
from kompakt_simulator.jobs import SimulatedJob
from kompakt_simulator.schedulers.consolidation import as_waiting
from kompakt_simulator.schedulers.pool import Pool, members
from kompakt_simulator.schedulers.waiting_queue import QueueEntry
from kompakt_simulator.world import SimulatedWorld

Waiting = Mapping[int, Sequence[QueueEntry]]  # by number of GPUs, each in order
COUNTED = 30  # waiting jobs of each number of GPUs, the first in the order


class Overtaking:
    """Who was passed how often, and for whom GPUs are kept where."""

    def __init__(self) -> None:
        self._passed: dict[SimulatedJob, int] = {}
        self._due: set[SimulatedJob] = set()
        self._kept_for: SimulatedJob | None = None
        self._member = 0

    def placed(self, world: SimulatedWorld, entry: QueueEntry, waiting: Waiting) -> None:
        """This one waits no longer."""
        task = entry[-1]
        self._passed.pop(task, None)
        self._due.discard(task)
        if self._kept_for is task:
            self._kept_for = None
        for entries in waiting.values():
            for one in entries[:COUNTED]:
                if one > entry:
                    break
                passed = self._passed[one[-1]] = self._passed.get(one[-1], 0) + 1
                if passed >= world.setting.overtaken_at_most:
                    self._due.add(one[-1])

    def keep(self, world: SimulatedWorld, waiting: Waiting) -> SimulatedJob | None:
        """Keep what is open now for who was passed too often, first in the order; for whom."""
        world.keep(None, NOTHING)
        if self._kept_for is None and self._due:
            found = sorted(entry for entries in waiting.values() for entry in entries[:COUNTED] if entry[-1] in self._due)
            self._kept_for = next((entry[-1] for entry in found if self._reserves(world, entry[-1])), None)
            self._member = 0 if self._kept_for is None else _least_lacking(world, self._kept_for.gpus)
        task = self._kept_for
        if task is None or task.job.priority < max(-entries[0][0] for entries in waiting.values()):
            return None
        here = GpuSet(world.open & self._member)
        world.keep(task, lowest_of(here, min(task.gpus, here.bit_count())))
        return task

    def _reserves(self, world: SimulatedWorld, task: SimulatedJob) -> bool:
        level = Pool(world.cluster.shape, world.open).level(task.gpus)
        waiting = as_waiting(world, task, self._passed[task])
        return isinstance(decide(waiting, LevelOffer(world.cluster.shape.levels, level), world.now / 1000), Reserve)


def _least_lacking(world: SimulatedWorld, gpus: int) -> int:
    """The member of the best level where the most GPUs are open; of those that are large enough, the first on ties."""
    shape = world.cluster.shape
    large = [member for member in members(shape, shape.levels.ideal(gpus)) if _size(world, member) >= gpus]
    return max(large, key=lambda member: (world.open & member).bit_count())


def _size(world: SimulatedWorld, member: int) -> int:
    return (member & (1 << world.cluster.size) - 1).bit_count()
