"""Running jobs are started again at their best level, once it is open and the rest of the job pays for that.

What moving saves is what waiting saves (core.policy.delay): the gain of the level over the predicted work. What it costs
is a checkpoint and a restart, with all GPUs of the job idle.
"""

from kompakt_core.policy.delay import gain, predicted_work
from kompakt_core.policy.model import Waiting
from kompakt_simulator.cluster import GpuSet
from kompakt_simulator.schedulers.pool import Pool
from kompakt_simulator.setting import Knowledge
from kompakt_simulator.task import Task
from kompakt_simulator.world import World

WORTH = 2.0  # times its cost that a move must save: predictions are off by such a factor


def move(world: World) -> None:
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


def saved(world: World, task: Task) -> float:
    """Seconds that the rest of a running job would take less at its best level; 0 where it has it."""
    shape = world.cluster.shape
    here, ideal = shape.level_of(task.held), shape.levels.ideal(task.gpus)
    if not shape.levels.worse_than(here, ideal):
        return 0.0
    waiting = as_waiting(world, task)
    return predicted_work(waiting) * gain(waiting, ideal, here)


def cost(world: World, task: Task) -> float:
    """Seconds of a checkpoint and a restart."""
    return world.setting.restart_s + world.setting.checkpoint_s_per_gpu * task.gpus


def as_waiting(world: World, task: Task, overtaken: int = 0) -> Waiting:
    """A waiting or running job in the words of kompakt_core.policy, as far as this run may know it."""
    remaining = None if world.knowledge is Knowledge.NONE else world.remaining(task) / 1000
    slowdown = world.setting.network.slowdowns(task.ratio, world.cluster.shape, task.gpus)
    attained = task.attained(world.now) / 1000
    return Waiting(
        task.gpus,
        task.since / 1000,
        slowdown=slowdown,
        attained_s=attained,
        remaining_s=remaining,
        overtaken=overtaken,
        overtaken_at_most=world.setting.overtaken_at_most,
    )
