"""Running jobs hold a lease; when it ends while others wait, they compete for their GPUs with those who wait.

Order: the rule's key, lowest first; then fewer GPUs held; then the older last assignment (where the rules want it, not); then the
job number. A holder
keeps its GPUs if its turn comes before anybody took one of them; else it is stopped as a whole. Who takes them starts when
they have come back. While nobody waits, leases renew themselves and nothing happens.
"""

import math
from bisect import bisect_left, insort
from typing import Protocol

from kompakt_core.placement.model import Level
from kompakt_simulator.cluster import NOTHING, GpuSet
from kompakt_simulator.jobs import SimulatedJob
from kompakt_simulator.schedulers.pool import Pool
from kompakt_simulator.world import Instant, SimulatedWorld

_Turn = tuple[float, int, int, int]  # key, GPUs held, last assignment, number: unique
_Entry = tuple[float, int, int, int, SimulatedJob]  # a turn, and whose it is
RETRY_MS = 60_000  # when nothing is left to happen but jobs wait, everything is offered again after a minute


class LeaseRule(Protocol):
    """What tells one leased policy from another."""

    offers_all: bool  # all open GPUs at every event; else only the event's own, except at an arrival
    by_since: bool  # `opens` of jobs of one size differs by their `since` alone, and is never earlier for a later one

    def key(self, world: SimulatedWorld, task: SimulatedJob) -> float:
        """The lowest goes first. It must not change while a job waits."""

    def opens(self, world: SimulatedWorld, task: SimulatedJob, level: Level) -> float:
        """The second from which a waiting job takes a place at this level: -inf = at any time, inf = never.

        Only `place` may change it, for jobs of that size; `changes` tells.
        """

    def changes(self, gpus: int) -> int:
        """How often `opens` has changed for the waiting jobs of that size."""

    def takes(self, world: SimulatedWorld, pool: Pool, task: SimulatedJob, level: Level) -> bool:
        """Whether a job takes that level now, which the pool has; where `opens` and the pool's size decide together."""

    def place(self, world: SimulatedWorld, pool: Pool, task: SimulatedJob, level: Level) -> GpuSet:
        """Which GPUs of the pool, at a level that it has."""


class Leased:
    """Waiting jobs per number of GPUs in order; leases as wake-ups of the world."""

    def __init__(self, rule: LeaseRule, lease_s: float) -> None:
        self._rule = rule
        self._lease = max(1, round(lease_s * 1000))
        self._waiting: dict[int, list[_Entry]] = {}
        self._closed: dict[int, dict[Level, float]] = {}  # until that second nobody of that size takes that level
        self._retrying = False
        self._resting: dict[SimulatedJob, None] = {}  # running jobs whose lease nobody watches, since nobody waits; in order

    def step(self, world: SimulatedWorld, instant: Instant) -> None:
        """Offer what came free, then what leases end, in one order."""
        for task in instant.arrived:
            self._enqueue(world, task)
        due = [what for what in instant.due if isinstance(what, tuple) and what[0].held and what[0].started == what[1]]
        retry = any(what is None for what in instant.due)
        self._retrying = self._retrying and not retry
        if not self._waiting:
            self._resting.update((task, None) for task, _ in due)
            return
        self._watch(world)
        everything = self._rule.offers_all or retry or bool(instant.arrived)
        self._compete(world, world.open if everything else GpuSet(instant.freed & world.open), [task for task, _ in due])
        if self._waiting and world.quiet and not self._retrying:
            self._retrying = True
            world.wake(world.now + RETRY_MS, None)

    def _enqueue(self, world: SimulatedWorld, task: SimulatedJob) -> None:
        entry = (*self._turn(world, task, 0), task)
        insort(self._waiting.setdefault(task.gpus, []), entry)
        closed = self._closed.get(task.gpus, {})
        for level, until in closed.items():
            closed[level] = min(until, self._rule.opens(world, task, level))

    def _dequeue(self, entry: _Entry) -> None:
        size = entry[4].gpus
        entries = self._waiting[size]
        del entries[bisect_left(entries, entry)]
        if not entries:
            del self._waiting[size]

    def _turn(self, world: SimulatedWorld, task: SimulatedJob, held: int) -> _Turn:
        since = task.since if world.setting.rules.submission_breaks_ties else 0
        return self._rule.key(world, task), held, since, task.number

    def _watch(self, world: SimulatedWorld) -> None:
        for task in self._resting:
            if task.held:
                self._renew(world, task)
        self._resting.clear()

    def _renew(self, world: SimulatedWorld, task: SimulatedJob) -> None:
        leases = (world.now - task.begin) // self._lease + 1
        world.wake(task.begin + leases * self._lease, (task, task.started))

    def _compete(self, world: SimulatedWorld, free: GpuSet, due: list[SimulatedJob]) -> None:
        turns = sorted((self._turn(world, task, task.gpus), task) for task in due)
        held = NOTHING
        for _, task in turns:
            held = GpuSet(held | task.held)
        pool = Pool(world.cluster.shape, GpuSet(free | held))
        holders = {task.number: task for task in due}
        for turn, task in turns:
            self._serve(world, pool, holders, turn)
            if task.number in holders:  # nobody took one of its GPUs
                pool.take(task.held)
                del holders[task.number]
                self._renew(world, task)
        if pool.size:
            self._serve(world, pool, holders, None)

    def _serve(self, world: SimulatedWorld, pool: Pool, holders: dict[int, SimulatedJob], before: _Turn | None) -> None:
        """Place waiting jobs whose turn comes earlier than `before`, in order."""
        sizes = list(self._waiting)
        found: dict[int, tuple[_Entry, Level]] = {}
        while True:
            for size in sizes:
                hit = self._first(world, pool, size, before) if size <= pool.size and size in self._waiting else None
                if hit is not None:
                    found[size] = hit
                else:
                    found.pop(size, None)
            if not found:
                return
            entry, level = min(found.values())
            self._take(world, pool, holders, entry, level)
            sizes = list(found)

    def _first(self, world: SimulatedWorld, pool: Pool, size: int, before: _Turn | None) -> tuple[_Entry, Level] | None:
        """The first waiting job of that size that accepts the best level on offer, and the level."""
        entries = self._waiting[size]
        if before is not None and entries[0] > before:  # the number before the task in an entry is unique
            return None
        level = pool.level(size)
        if level is None:
            return None
        now = world.now / 1000
        if now < self._closed.get(size, {}).get(level, -math.inf):
            return None
        until, index = math.inf, 0
        while index < len(entries):
            entry = entries[index]
            if before is not None and entry[:4] >= before:
                return None
            opens = self._rule.opens(world, entry[4], level)
            if now >= opens:
                return entry, level
            until = min(until, opens)
            index = self._next_asked(world, entries, index)
        self._closed.setdefault(size, {})[level] = until
        return None

    def _next_asked(self, world: SimulatedWorld, entries: list[_Entry], refused: int) -> int:
        """Who is asked after a job that refused. Those of the same key stand by `since`: they would refuse for longer still."""
        following, key = refused + 1, entries[refused][0]
        if not self._rule.by_since or not world.setting.rules.submission_breaks_ties:
            return following
        if following == len(entries) or entries[following][0] != key:
            return following
        return bisect_left(entries, (key, math.inf), following)

    def _take(self, world: SimulatedWorld, pool: Pool, holders: dict[int, SimulatedJob], entry: _Entry, level: Level) -> None:
        task = entry[4]
        before = self._rule.changes(task.gpus)
        gpus = self._rule.place(world, pool, task, level)
        if self._rule.changes(task.gpus) != before:  # else who goes leaves the others as unwilling as they were
            self._closed.pop(task.gpus, None)
        self._dequeue(entry)
        for holder in [holder for holder in holders.values() if holder.held & gpus]:
            del holders[holder.number]
            world.stop(holder)
            self._enqueue(world, holder)
        pool.take(gpus)
        world.assign(task, gpus)
        if task.held:
            self._renew(world, task)
        else:
            world.on_start(task, self._renew)


class AnyLevelRule:
    """All open GPUs are on offer at every event, any level will do, and the best fit is taken."""

    offers_all: bool = True
    by_since: bool = False

    def opens(self, world: SimulatedWorld, task: SimulatedJob, level: Level) -> float:
        """Whatever there is, at any time."""
        return -math.inf

    def changes(self, gpus: int) -> int:
        """Never."""
        return 0

    def place(self, world: SimulatedWorld, pool: Pool, task: SimulatedJob, level: Level) -> GpuSet:
        """The best fit."""
        return pool.best_fit(task.gpus, level)

    def takes(self, world: SimulatedWorld, pool: Pool, task: SimulatedJob, level: Level) -> bool:
        """Whether a job takes that level now, which the pool has."""
        return world.now / 1000 >= self.opens(world, task, level)
