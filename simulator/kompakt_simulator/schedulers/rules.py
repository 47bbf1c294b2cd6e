"""Rules that leased policies share."""

import math

from kompakt_core.placement.model import Level
from kompakt_simulator.cluster import GpuSet
from kompakt_simulator.schedulers.pool import Pool
from kompakt_simulator.task import Task
from kompakt_simulator.world import World


class Roomy:
    """All open GPUs are on offer at every event, any level will do, and the best fit is taken."""

    offers_all = True
    by_since = False

    def opens(self, world: World, task: Task, level: Level) -> float:
        """Whatever there is, at any time."""
        return -math.inf

    def changes(self, gpus: int) -> int:
        """Never."""
        return 0

    def place(self, world: World, pool: Pool, task: Task, level: Level) -> GpuSet:
        """The best fit."""
        return pool.best_fit(task.gpus, level)
