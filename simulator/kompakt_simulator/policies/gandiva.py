"""Gandiva (OSDI'18) as far as public facts go: time slicing, packing by size with chance, migration to better places.

At the end of a lease a job makes room for whoever waited longest. A job prefers machines that run jobs of its own number of
GPUs, in an order that `seed` shuffles. At every event a job on a level worse than it could have moves, when there is room.
"""

import random

from kompakt_core.placement.model import Level
from kompakt_simulator.cluster import GpuSet, lowest_of
from kompakt_simulator.policies.policy import Policy
from kompakt_simulator.schedulers.leased import Leased
from kompakt_simulator.schedulers.pool import Pool
from kompakt_simulator.schedulers.rules import Roomy
from kompakt_simulator.setting import Setting
from kompakt_simulator.task import Task
from kompakt_simulator.world import Instant, World


class _Slices(Roomy):
    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def key(self, world: World, task: Task) -> float:
        return float(world.now if task.held else task.since)

    def place(self, world: World, pool: Pool, task: Task, level: Level) -> GpuSet:
        if level is not Level.MACHINE:
            return pool.best_fit(task.gpus, level)
        return self.machine_for(world, pool, task.gpus)

    def machine_for(self, world: World, pool: Pool, gpus: int) -> GpuSet:
        """A machine of the pool that has so many GPUs, one that runs jobs of that size if there is one."""
        masks = world.cluster.shape.masks
        room = [mask for mask in masks if (pool.gpus & mask).bit_count() >= gpus]
        alike = 0
        for task in world.running.values():
            alike |= task.held if task.gpus == gpus else 0
        chosen = self._chance.choice([mask for mask in room if alike & mask] or room)
        return lowest_of(GpuSet(pool.gpus & chosen), gpus)


class Gandiva(Leased):
    """Leased, and it moves jobs that are spread without need."""

    def __init__(self, setting: Setting) -> None:
        self._slices = _Slices(setting.seed)
        super().__init__(self._slices, setting.lease_s)

    def step(self, world: World, instant: Instant) -> None:
        """Move first, then share out."""
        if instant.freed and not self._waiting:
            self._move(world)
        super().step(world, instant)

    def _move(self, world: World) -> None:
        shape = world.cluster.shape
        for task in sorted(world.running.values(), key=lambda task: task.number):
            fits = task.gpus <= max(shape.sizes) and shape.level_of(task.held) is not Level.MACHINE
            pool = Pool(shape, world.open) if fits else None
            if pool is not None and pool.level(task.gpus) is Level.MACHINE:
                gpus = self._slices.machine_for(world, pool, task.gpus)
                world.stop(task)
                world.assign(task, gpus)
                self._resting[task] = None


gandiva = Policy("gandiva", lambda _, setting: Gandiva(setting))
