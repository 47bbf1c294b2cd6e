"""Tiresias (NSDI'19) as far as public facts go: 2D-LAS in two queues under leases, and consolidation by skew.

Two queues by GPUs times wall time: below QUEUE_GPU_S first, each by submission. The threshold of 16 GPU-hours is that of the
Tiresias in the simulator of Pollux (OSDI'21 artifact); Tiresias's own default of 3,250 fits traces of minutes.
Skew: jobs that communicate much wait for the innermost level that can hold them; all others take any. The original looks at
the skew of tensor sizes, which traces do not tell; here SKEWED_FROM of the network model's c stands for it.
"""

import math

from kompakt_core.placement.model import Level
from kompakt_simulator.policies.policy import Policy
from kompakt_simulator.schedulers.leased import Leased
from kompakt_simulator.schedulers.rules import Roomy
from kompakt_simulator.task import Task
from kompakt_simulator.world import World

QUEUE_GPU_S = 57_600
SKEWED_FROM = 0.1
_LATER = 1e15  # milliseconds: more than any submission


class _Tiresias(Roomy):
    def key(self, world: World, task: Task) -> float:
        served = task.gpus * task.running(world.now) >= QUEUE_GPU_S * 1000
        return task.job.submit + (_LATER if served else 0.0)

    def opens(self, world: World, task: Task, level: Level) -> float:
        levels = world.cluster.shape.levels
        takes = task.ratio < SKEWED_FROM or not levels.worse_than(level, levels.ideal(task.gpus))
        return -math.inf if takes else math.inf


tiresias = Policy("tiresias", lambda _, setting: Leased(_Tiresias(), setting.lease_s))
