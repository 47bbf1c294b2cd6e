"""What tells one policy with leases from another: who goes first, which level it takes, which GPUs it gets."""

import math
import random
from collections import Counter

from kompakt_core.placement.model import Level
from kompakt_core.policy.delay import dally
from kompakt_core.policy.model import DelayPolicy, LevelOffer, PlaceAt, Timers, WaitingGang, WaitUntil
from kompakt_core.policy.tuner import WaitHistory, timers_in_leases, tuned_timers
from kompakt_simulator.cluster import GpuSet, lowest_of
from kompakt_simulator.jobs import SimulatedJob
from kompakt_simulator.schedulers.leased import AnyLevelRule, Leased
from kompakt_simulator.schedulers.pool import Pool
from kompakt_simulator.setting import Setting, SimulationRules
from kompakt_simulator.world import Instant, SimulatedWorld


class Las(AnyLevelRule):
    """Least attained service first: GPUs times wall time spent running; any level will do."""

    def __init__(self, rules: SimulationRules = SimulationRules()) -> None:  # noqa: B008 - frozen
        self.offers_all = rules.all_to_las

    def key(self, world: SimulatedWorld, task: SimulatedJob) -> float:
        """GPUs times milliseconds of running."""
        return task.gpus * task.running(world.now)


# 16 GPU-hours, as in the Tiresias in the simulator of Pollux (OSDI'21 artifact); its own default of 3,250 fits traces of minutes.
QUEUE_GPU_S = 57_600
SKEWED_FROM = 0.1
# Who may spread in the Tiresias of cluster-sim, the simulator of Dally's authors; all others must consolidate.
MAY_SPREAD = frozenset({"ResNet50", "ResNet18", "BERT"})
_LATER = 1e15  # milliseconds: more than any submission


class Tiresias(AnyLevelRule):
    """Tiresias (NSDI'19) as far as public facts go: 2D-LAS in two queues under leases, and consolidation by skew.

    Two queues by GPUs times wall time: below QUEUE_GPU_S first, each by submission. Skew: jobs that communicate much wait for the
    innermost level that can hold them; all others take any. The original looks at the skew of tensor sizes, which traces do not
    tell; here SKEWED_FROM of the network model's c stands for it. Order and skew can be switched (SimulationRules).
    """

    def __init__(self, rules: SimulationRules = SimulationRules()) -> None:  # noqa: B008 - frozen
        self.offers_all = rules.all_to_las
        self._two_queues = rules.two_queues
        self._by_ratio = rules.skew_by_ratio

    def key(self, world: SimulatedWorld, task: SimulatedJob) -> float:
        """By queue, then by submission; or by service alone."""
        service = task.gpus * task.running(world.now)
        if not self._two_queues:
            return service
        return task.job.submit + (_LATER if service >= QUEUE_GPU_S * 1000 else 0.0)

    def opens(self, world: SimulatedWorld, task: SimulatedJob, level: Level) -> float:
        """At once, but for skewed jobs: never outside their best level."""
        levels = world.cluster.shape.levels
        spreads = task.ratio < SKEWED_FROM if self._by_ratio else task.job.model in MAY_SPREAD
        takes = spreads or not levels.worse_than(level, levels.ideal(task.gpus))
        return -math.inf if takes else math.inf

    def takes(self, world: SimulatedWorld, pool: Pool, task: SimulatedJob, level: Level) -> bool:
        """By skew; by the list of models, also one rack where a machine's worth of GPUs is on offer, as there is written."""
        if not self._by_ratio and level is Level.RACK and pool.size >= max(world.cluster.shape.sizes):
            return True
        return super().takes(world, pool, task, level)


class DallyRule:
    """Dally (arXiv 2401.16492) as its published scheduler works: delay timers, manual or tuned, network-sensitive preemption.

    What an event frees is offered, nothing else; an arrival offers all that is free. The lowest efficiency so far goes first.
    The first place that fits is taken, not the best. Offers and fit can be switched (SimulationRules). Two accepted levels and
    the tuner: kompakt_core.policy. `decide` is the delay policy; `setting.timers` None: R and N are tuned before each decision
    about a worse level.
    """

    by_since = True

    def __init__(self, setting: Setting, decide: DelayPolicy = dally) -> None:
        self._decide = decide
        self.offers_all = not setting.rules.offers_of_events
        self._first_fits = setting.rules.first_fits
        self._halves = not setting.rules.whole_machines
        self._manual = None if setting.timers is None else timers_in_leases(*setting.timers, setting.lease_s)
        self._lease_s = setting.lease_s
        self._window = setting.history
        self._history = WaitHistory(setting.lease_s)
        self._tuned: dict[int, Timers] = {}  # by size; valid until the history changes
        self._changes: Counter[int] = Counter()  # of the timers of each size
        self._patience: dict[tuple[int, Level], float] = {}  # by size and level; valid until the timers change

    def key(self, world: SimulatedWorld, task: SimulatedJob) -> float:
        """Average efficiency so far."""
        return task.efficiency(world.now)

    def opens(self, world: SimulatedWorld, task: SimulatedJob, level: Level) -> float:
        """When the delay policy says so."""
        place = task.gpus, level
        if place not in self._patience:
            self._patience[place] = self._insists(world, *place)
        return task.since / 1000 + self._patience[place]

    def _insists(self, world: SimulatedWorld, gpus: int, level: Level) -> float:
        """Seconds for which any job of that size would rather wait than take this level: the policy knows no other difference."""
        levels = world.cluster.shape.levels
        if level is Level.MACHINE or not levels.worse_than(level, levels.ideal(gpus)):
            return -math.inf
        answer = self._decide(WaitingGang(gpus, 0.0, self._timers(gpus)), LevelOffer(levels, level), 0.0)
        if isinstance(answer, PlaceAt):
            return -math.inf
        return answer.at if isinstance(answer, WaitUntil) and answer.at is not None else math.inf

    def changes(self, gpus: int) -> int:
        """How often its timers have."""
        return self._changes[gpus]

    def place(self, world: SimulatedWorld, pool: Pool, task: SimulatedJob, level: Level) -> GpuSet:
        """The first that fits, or where the rules want it the best; the wait that ends here goes into the tuner's history."""
        if self._manual is None:
            waited = (world.now - task.since) / 1000
            after = self._history.with_wait(level, task.gpus, world.now / 1000, waited, self._window)
            if after is not self._history:
                self._history = after
                self._tune(task.gpus)
        half = pool.first_half(task.gpus) if self._halves and level is Level.MACHINE else None
        if half is not None:
            return half
        return pool.first_fit(task.gpus, level) if self._first_fits else pool.best_fit(task.gpus, level)

    def takes(self, world: SimulatedWorld, pool: Pool, task: SimulatedJob, level: Level) -> bool:
        """Once its timers let it."""
        return world.now / 1000 >= self.opens(world, task, level)

    def _tune(self, gpus: int) -> None:
        """The history of this size has changed, and perhaps its timers: they are whole leases."""
        before = self._tuned.pop(gpus, None)
        if self._timers(gpus) != before:
            self._changes[gpus] += 1
            self._patience = {place: wait for place, wait in self._patience.items() if place[0] != gpus}

    def _timers(self, gpus: int) -> Timers:
        if self._manual is not None:
            return self._manual
        if gpus not in self._tuned:
            self._tuned[gpus] = timers_in_leases(*tuned_timers(self._history, gpus, self._window), self._lease_s)
        return self._tuned[gpus]


class _Slices(AnyLevelRule):
    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def key(self, world: SimulatedWorld, task: SimulatedJob) -> float:
        return float(world.now if task.held else task.since)

    def place(self, world: SimulatedWorld, pool: Pool, task: SimulatedJob, level: Level) -> GpuSet:
        if level is not Level.MACHINE:
            return pool.best_fit(task.gpus, level)
        return self.machine_for(world, pool, task.gpus)

    def machine_for(self, world: SimulatedWorld, pool: Pool, gpus: int) -> GpuSet:
        """A machine of the pool that has so many GPUs, one that runs jobs of that size if there is one."""
        masks = world.cluster.shape.masks
        room = [mask for mask in masks if (pool.gpus & mask).bit_count() >= gpus]
        alike = 0
        for task in world.running.values():
            alike |= task.held if task.gpus == gpus else 0
        chosen = self._chance.choice([mask for mask in room if alike & mask] or room)
        return lowest_of(GpuSet(pool.gpus & chosen), gpus)


class Gandiva(Leased):
    """Gandiva (OSDI'18) as far as public facts go: time slicing, packing by size with chance, migration to better places.

    At the end of a lease a job makes room for whoever waited longest. A job prefers machines that run jobs of its own number of
    GPUs, in an order that `seed` shuffles. At every event a job on a level worse than it could have moves, when there is room.
    """

    def __init__(self, setting: Setting) -> None:
        self._slices = _Slices(setting.seed)
        super().__init__(self._slices, setting.lease_s)

    def step(self, world: SimulatedWorld, instant: Instant) -> None:
        """Move first, then share out."""
        if instant.freed and not self._waiting:
            self._move(world)
        super().step(world, instant)

    def _move(self, world: SimulatedWorld) -> None:
        shape = world.cluster.shape
        for task in sorted(world.running.values(), key=lambda task: task.number):
            fits = task.gpus <= max(shape.sizes) and shape.level_of(task.held) is not Level.MACHINE
            pool = Pool(shape, world.open) if fits else None
            if pool is not None and pool.level(task.gpus) is Level.MACHINE:
                gpus = self._slices.machine_for(world, pool, task.gpus)
                world.stop(task)
                world.assign(task, gpus)
                self._resting[task] = None
