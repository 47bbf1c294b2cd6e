"""Dally (arXiv 2401.16492) as its published scheduler works: delay timers, manual or tuned, network-sensitive preemption.

What an event frees is offered, nothing else; an arrival offers all that is free. The lowest efficiency so far goes first.
The first place that fits is taken, not the best. Offers and fit can be switched (rules.py). Two accepted levels and the tuner:
kompakt_core.policy.
"""

import math
from collections import Counter

from kompakt_core.placement.model import Level
from kompakt_core.policy.delay import dally as decide
from kompakt_core.policy.model import Decide, Offer, Place, Timers, Waiting, WaitUntil
from kompakt_core.policy.tuner import History, timers_in_leases, tuned_timers
from kompakt_simulator.cluster import GpuSet
from kompakt_simulator.policies.policy import Policy
from kompakt_simulator.schedulers.leased import Leased
from kompakt_simulator.schedulers.pool import Pool
from kompakt_simulator.setting import Setting
from kompakt_simulator.task import Task
from kompakt_simulator.world import World


class DallyRule:
    """`decide` is the delay policy; `setting.timers` None: R and N are tuned before each decision about a worse level."""

    by_since = True

    def __init__(self, setting: Setting, decide: Decide = decide) -> None:
        self._decide = decide
        self.offers_all = not setting.rules.offers_of_events
        self._first_fits = setting.rules.first_fits
        self._manual = None if setting.timers is None else timers_in_leases(*setting.timers, setting.lease_s)
        self._lease_s = setting.lease_s
        self._window = setting.history
        self._history = History(setting.lease_s)
        self._tuned: dict[int, Timers] = {}  # by size; valid until the history changes
        self._changes: Counter[int] = Counter()  # of the timers of each size
        self._patience: dict[tuple[int, Level], float] = {}  # by size and level; valid until the timers change

    def key(self, world: World, task: Task) -> float:
        """Average efficiency so far."""
        return task.efficiency(world.now)

    def opens(self, world: World, task: Task, level: Level) -> float:
        """When the delay policy says so."""
        place = task.gpus, level
        if place not in self._patience:
            self._patience[place] = self._insists(world, *place)
        return task.since / 1000 + self._patience[place]

    def _insists(self, world: World, gpus: int, level: Level) -> float:
        """Seconds for which any job of that size would rather wait than take this level: the policy knows no other difference."""
        levels = world.cluster.shape.levels
        if level is Level.MACHINE or not levels.worse_than(level, levels.ideal(gpus)):
            return -math.inf
        answer = self._decide(Waiting(gpus, 0.0, self._timers(gpus)), Offer(levels, level), 0.0)
        if isinstance(answer, Place):
            return -math.inf
        return answer.at if isinstance(answer, WaitUntil) and answer.at is not None else math.inf

    def changes(self, gpus: int) -> int:
        """How often its timers have."""
        return self._changes[gpus]

    def place(self, world: World, pool: Pool, task: Task, level: Level) -> GpuSet:
        """The first that fits, or where the rules want it the best; the wait that ends here goes into the tuner's history."""
        if self._manual is None:
            waited = (world.now - task.since) / 1000
            after = self._history.with_wait(level, task.gpus, world.now / 1000, waited, self._window)
            if after is not self._history:
                self._history = after
                self._tune(task.gpus)
        return pool.first_fit(task.gpus, level) if self._first_fits else pool.best_fit(task.gpus, level)

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


dally = Policy("dally", lambda _, setting: Leased(DallyRule(setting), setting.lease_s))
