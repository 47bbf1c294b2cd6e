"""The scheduler of `kompakt`: waiting gangs in one order, each waiting for its best level as long as that pays; few preempted.

After every event all open GPUs are on offer to all who wait (waiting_queue), best fit; core says who takes them (consolidation).
Every five minutes it looks for victims (preemption) and moves badly placed jobs (consolidation). As in the cluster, a job without
a place preempts jobs of lower priority, and gets GPUs reserved when others have overtaken it too often (overtaking).
"""

import math
from collections.abc import Iterable

from kompakt_core.placement.model import Level
from kompakt_simulator.cluster import GpuSet
from kompakt_simulator.jobs import SimulatedJob
from kompakt_simulator.schedulers.consolidation import Acceptance, accepts, move
from kompakt_simulator.schedulers.overtaking import Overtaking
from kompakt_simulator.schedulers.pool import Pool
from kompakt_simulator.schedulers.preemption import PriorityPreemption, ServicePreemption
from kompakt_simulator.schedulers.waiting_queue import QueueEntry, WaitingQueue
from kompakt_simulator.world import Instant, SimulatedWorld

LOOK_EVERY_MS = 300_000  # for victims, and for better places


class KompaktScheduler:
    """The scheduler of the policy `kompakt`."""

    def __init__(self) -> None:
        self._queue = WaitingQueue()
        self._acceptance = Acceptance()
        self._overtaking = Overtaking()
        self._by_priority: PriorityPreemption | None = None
        self._priorities = set[int]()  # seen so far: most traces have one
        self._looked = -LOOK_EVERY_MS
        self._wake_at = -1

    def step(self, world: SimulatedWorld, instant: Instant) -> None:
        """Place, then stop, then say when to look again."""
        if self._queue.learn(world, instant.ended):
            self._acceptance.lined_up_anew()
        for task in instant.arrived:
            self._priorities.add(task.job.priority)
            self._enqueue(world, task)
        self._serve_kept(world)
        opens = self._place(world)
        opens = min(opens, self._end_lower(world))
        if world.now - self._looked >= LOOK_EVERY_MS:
            self._looked = world.now
            move(world)
            if self._queue.by_size:
                self._preempt(world)
        self._wake(world, opens)

    def _enqueue(self, world: SimulatedWorld, task: SimulatedJob) -> None:
        self._queue.add(world, task)
        self._acceptance.joined(task.gpus)

    def _assign(self, world: SimulatedWorld, entry: QueueEntry, gpus: GpuSet, victims: Iterable[SimulatedJob] = ()) -> None:
        """It waits no longer, and has passed who does; victims stop for it, and wait."""
        self._queue.remove(entry)
        self._overtaking.placed(world, entry, self._queue.by_size)
        for victim in victims:
            world.stop(victim)
            self._enqueue(world, victim)
        world.assign(entry[-1], gpus)

    def _serve_kept(self, world: SimulatedWorld) -> None:
        """Place the job that GPUs are kept for, if there is one: it has those on offer as well."""
        task = self._overtaking.keep(world, self._queue.by_size)
        if task is None:
            return
        pool = Pool(world.cluster.shape, world.open_to(task))
        level = pool.level(task.gpus)
        if level is not None and accepts(world, task, level):
            self._assign(world, self._queue.of(task), pool.best_fit(task.gpus, level))

    def _place(self, world: SimulatedWorld) -> float:
        """Place all who accept what is open, in order. When the next one would accept by time alone; inf = never."""
        pool = Pool(world.cluster.shape, world.open)
        found = self._firsts(world, pool, self._queue.by_size)
        while found:
            entry, level = min(found.values())
            gpus = pool.best_fit(entry[-1].gpus, level)
            pool.take(gpus)
            self._assign(world, entry, gpus)
            found = self._firsts(world, pool, found)
        return self._acceptance.opens(pool, self._queue.by_size)

    def _firsts(self, world: SimulatedWorld, pool: Pool, sizes: Iterable[int]) -> dict[int, tuple[QueueEntry, Level]]:
        """Of each of these sizes the first waiting job that takes what is on offer, and the level."""
        waiting = self._queue.by_size
        hits = ((size, self._acceptance.first(world, pool, size, waiting[size])) for size in sizes if size in waiting)
        return {size: hit for size, hit in hits if hit is not None}

    def _preempt(self, world: SimulatedWorld) -> None:
        """For the first few who wait: stop jobs with much more service, if their GPUs give the best level."""
        victims = ServicePreemption(world, self._queue)
        for entry in self._queue.heads():
            found = victims.for_entry(entry)
            if found is not None:
                self._assign(world, entry, found.place(world, entry[-1]), found.tasks)
                victims.stopped()

    def _end_lower(self, world: SimulatedWorld) -> float:
        """For the first few who have no place: stop jobs of lower priority. When that may change by time alone; inf = never."""
        at = math.inf
        if len(self._priorities) < 2:
            return at
        lowest = min((task.job.priority for task in world.running.values()), default=0)
        for entry in self._queue.heads():
            task = entry[-1]
            if task.job.priority <= lowest:
                break  # the heads stand by priority
            if world.open_to(task).bit_count() >= task.gpus:
                continue  # it has a place, and waits for a better one
            self._by_priority = self._by_priority or PriorityPreemption(world.cluster.shape)
            found = self._by_priority.victims(world, task)
            if isinstance(found, float):
                at = min(at, found * 1000)
            elif found is not None:
                victims, gpus = found
                self._assign(world, entry, gpus, victims)
        return at

    def _wake(self, world: SimulatedWorld, opens: float) -> None:
        if not self._queue.by_size:
            return
        at = self._looked + LOOK_EVERY_MS if world.running else math.inf
        at = min(at, max(opens, world.now + 1))
        if math.isinf(at) or world.now < self._wake_at <= at:
            return
        self._wake_at = math.ceil(at)
        world.wake(self._wake_at, None)
