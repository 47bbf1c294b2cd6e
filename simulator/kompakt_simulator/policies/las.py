"""Least attained service first, preemptive under leases: service = GPUs times wall time spent running, any level will do."""

from kompakt_simulator.policies.policy import Policy
from kompakt_simulator.schedulers.leased import Leased
from kompakt_simulator.schedulers.rules import Roomy
from kompakt_simulator.task import Task
from kompakt_simulator.world import World


class _Las(Roomy):
    def key(self, world: World, task: Task) -> float:
        return task.gpus * task.running(world.now)


las = Policy("las", lambda _, setting: Leased(_Las(), setting.lease_s))
