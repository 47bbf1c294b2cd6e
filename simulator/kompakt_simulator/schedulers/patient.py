"""Waiting gangs in one order, each waiting for its best level as long as that pays; running jobs are stopped sparingly.

Order: by priority, then by rank, which says how soon a job of that service is likely to end, then by submission; or, where jobs
declare their work, least GPU service left first.
After every event all open GPUs are on offer to all who wait, best fit. What each accepts says kompakt_core.delay; this file
finds places, victims and the next moment at which an answer changes by time alone.
Who was placed badly is moved (moves.py). As in the cluster a job without a place has some of lower priority stopped (urgent.py),
and gets GPUs kept when others have passed it too often (overtaking.py).
"""

from bisect import bisect_left, insort
from dataclasses import dataclass

from kompakt_core.delay.kompakt import kompakt as decide
from kompakt_core.delay.model import Offer, Place, Preempt, WaitUntil
from kompakt_core.placement.model import Level
from kompakt_simulator.cluster import NOTHING, GpuSet
from kompakt_simulator.schedulers.history import History
from kompakt_simulator.schedulers.moves import as_waiting, move
from kompakt_simulator.schedulers.overtaking import Entry as _Entry
from kompakt_simulator.schedulers.overtaking import Overtaking
from kompakt_simulator.schedulers.pool import Pool, members
from kompakt_simulator.schedulers.urgent import Urgent
from kompakt_simulator.setting import Knowledge
from kompakt_simulator.task import Task
from kompakt_simulator.world import Instant, World

HOUR_MS = 3_600_000
MIN_RUN_MS = 2 * HOUR_MS  # nobody is stopped earlier for another
TWICE = 2.0  # a victim has declared that much more work than who gets its GPUs
CLASS = 1e15  # part of a key; more milliseconds than any submission
LOOK_EVERY_MS = 300_000  # for victims, and for better places
LOOK_AT_MOST = 30  # waiting jobs, in order, whenever victims are looked for


@dataclass(slots=True)
class _Closed:
    """Nobody of one size accepts this level before `until`, as long as no one joins."""

    until: float


class Patient:
    """The scheduler of the policy `kompakt`."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[_Entry]] = {}
        self._closed: dict[tuple[int, Level], _Closed] = {}
        self._looked = -LOOK_EVERY_MS
        self._wake_at = -1
        self._history = History()
        self._overtaking = Overtaking()
        self._urgent: Urgent | None = None
        self._priorities = set[int]()  # seen so far: most traces have one

    def step(self, world: World, instant: Instant) -> None:
        """Place, then stop, then say when to look again."""
        self._learn(world, instant)
        for task in instant.arrived:
            self._priorities.add(task.job.priority)
            self._enqueue(world, task)
        kept_for = self._overtaking.keep(world, self._waiting)
        if kept_for is not None:
            self._serve_kept(world, kept_for)
        opens = self._place(world)
        opens = min(opens, self._end_lower(world))
        if world.now - self._looked >= LOOK_EVERY_MS:
            self._looked = world.now
            move(world)
            if self._waiting:
                self._preempt(world)
        self._wake(world, opens)

    def _learn(self, world: World, instant: Instant) -> None:
        """From the jobs that ended; where that changes ranks, those who wait line up anew."""
        if world.knowledge is not Knowledge.NONE:
            return
        for task in instant.ended:
            self._history.add(_service(world, task))
        if self._history.due:
            waiting = [entry[-1] for entries in self._waiting.values() for entry in entries]
            self._history.learn(_service(world, task) for task in (*waiting, *world.running.values()))
            self._waiting.clear()
            for task in waiting:
                self._enqueue(world, task)

    def _enqueue(self, world: World, task: Task) -> None:
        entry = -task.job.priority, self._key(world, task), task.since, task.number, task
        insort(self._waiting.setdefault(task.gpus, []), entry)
        for key in [key for key in self._closed if key[0] == task.gpus]:
            del self._closed[key]

    def _dequeue(self, world: World, entry: _Entry) -> None:
        """It has a place now."""
        size = entry[-1].gpus
        self._waiting[size].remove(entry)
        if not self._waiting[size]:
            del self._waiting[size]
        self._overtaking.placed(world, entry, self._waiting)

    def _key(self, world: World, task: Task) -> float:
        if world.knowledge is Knowledge.NONE:
            return self._history.rank(_service(world, task)) * CLASS + task.job.submit
        shape = world.cluster.shape
        slowdown = world.setting.network.slowdowns(task.ratio, shape, task.gpus).get(shape.levels.ideal(task.gpus), 0.0)
        return task.gpus * world.remaining(task) * (1 + slowdown)

    def _may_stop(self, world: World, victim: float, waiting: float) -> bool:
        """By their keys: a victim stands behind in the order, or has declared twice as much work left."""
        if world.knowledge is Knowledge.NONE:
            return victim > waiting
        return victim >= TWICE * waiting

    def _serve_kept(self, world: World, task: Task) -> None:
        """Place the job that GPUs are kept for: it has those on offer as well."""
        pool, levels = Pool(world.cluster.shape, world.open_to(task)), world.cluster.shape.levels
        level = pool.level(task.gpus)
        if level is not None and isinstance(decide(as_waiting(world, task), Offer(levels, level), world.now / 1000), Place):
            self._dequeue(world, next(entry for entry in self._waiting[task.gpus] if entry[-1] is task))
            world.assign(task, pool.best_fit(task.gpus, level))

    def _place(self, world: World) -> float:
        """Place all who accept what is open, in order. When the next one would accept by time alone; inf = never."""
        pool = Pool(world.cluster.shape, world.open)
        found = {size: self._first(world, pool, size) for size in self._waiting if size <= pool.size}
        while True:
            turns = [
                (entry[:-1], size, entry, level) for size, hit in found.items() if hit is not None for entry, level in (hit,)
            ]
            if not turns:
                break
            *_, entry, level = min(turns)
            gpus = pool.best_fit(entry[-1].gpus, level)
            self._dequeue(world, entry)
            pool.take(gpus)
            world.assign(entry[-1], gpus)
            sizes = [size for size, hit in found.items() if hit is not None and size <= pool.size and size in self._waiting]
            found = {size: self._first(world, pool, size) for size in sizes}
        return self._opens(pool)

    def _opens(self, pool: Pool) -> float:
        levels = {size: pool.level(size) for size in self._waiting}
        closed = (self._closed.get((size, level)) for size, level in levels.items() if level is not None)
        return min((each.until for each in closed if each is not None), default=float("inf"))

    def _first(self, world: World, pool: Pool, size: int) -> tuple[_Entry, Level] | None:
        """The first waiting job of that size that accepts the best level on offer, and the level."""
        level = pool.level(size)
        if level is None:
            return None
        levels = world.cluster.shape.levels
        entries = self._waiting[size]
        if not levels.worse_than(level, levels.ideal(size)):
            return entries[0], level
        closed = self._closed.get((size, level))
        if closed is not None and world.now < closed.until:
            return None
        until = float("inf")
        for entry in entries:
            answer = decide(as_waiting(world, entry[-1]), Offer(levels, level), world.now / 1000)
            if isinstance(answer, Place):
                return entry, level
            if isinstance(answer, WaitUntil) and answer.at is not None:
                until = min(until, answer.at * 1000)
        self._closed[size, level] = _Closed(until)
        return None

    def _preempt(self, world: World) -> None:
        """For the first few who wait: stop jobs with much more service, if their GPUs give the best level."""
        victims = [task for task in world.running.values() if world.now - task.begin >= MIN_RUN_MS]
        if not victims:
            return
        by_key = sorted(((self._key(world, task), task.number, task) for task in victims), reverse=True)
        hopeless = set[
            tuple[int, int]
        ]()  # for which nothing was found: those behind of that priority and size may stop no others
        for entry in self._heads():
            key, task = entry[1], entry[-1]
            kind = task.job.priority, task.gpus
            allowed = [] if kind in hopeless else self._allowed(world, by_key, key, task.job.priority)
            found = _cheapest(world, task, allowed) if allowed else None
            if found is None:
                hopeless.add(kind)
                continue
            levels = world.cluster.shape.levels
            answer = decide(as_waiting(world, task), Offer(levels, None, levels.ideal(task.gpus)), world.now / 1000)
            if isinstance(answer, Preempt):
                self._dequeue(world, entry)
                self._replace(world, task, *found)
                hopeless.clear()

    def _heads(self) -> list[_Entry]:
        return sorted(entry for entries in self._waiting.values() for entry in entries[:LOOK_AT_MOST])[:LOOK_AT_MOST]

    def _allowed(self, world: World, by_key: list[tuple[float, int, Task]], key: float, priority: int) -> list[Task]:
        """Who may be stopped for a job of this key: the first by key, the highest first; nobody of higher priority."""
        end = bisect_left(by_key, True, key=lambda one: not self._may_stop(world, one[0], key))
        return [victim for _, _, victim in by_key[:end] if victim.held and victim.job.priority <= priority]

    def _end_lower(self, world: World) -> float:
        """For the first few who have no place: stop jobs of lower priority. When that may change by time alone; inf = never."""
        at = float("inf")
        if len(self._priorities) < 2:
            return at
        lowest = min((task.job.priority for task in world.running.values()), default=0)
        for entry in self._heads():
            task = entry[-1]
            if task.job.priority <= lowest:
                break  # the heads stand by priority
            if world.open_to(task).bit_count() >= task.gpus:
                continue  # it has a place, and waits for a better one
            self._urgent = self._urgent or Urgent(world.cluster.shape)
            found = self._urgent.victims(world, task)
            if isinstance(found, float):
                at = min(at, found * 1000)
            elif found is not None:
                victims, gpus = found
                self._dequeue(world, entry)
                self._stop(world, victims)
                world.assign(task, gpus)
        return at

    def _stop(self, world: World, victims: list[Task]) -> None:
        for victim in victims:
            world.stop(victim)
            self._enqueue(world, victim)

    def _replace(self, world: World, task: Task, victims: list[Task], member: int) -> None:
        freed = NOTHING
        for victim in victims:
            freed = GpuSet(freed | victim.held)
        self._stop(world, victims)
        pool = Pool(world.cluster.shape, GpuSet((freed | world.open_to(task)) & member))
        level = pool.level(task.gpus)
        assert level is not None
        world.assign(task, pool.best_fit(task.gpus, level))

    def _wake(self, world: World, opens: float) -> None:
        if not self._waiting:
            return
        at = self._looked + LOOK_EVERY_MS if world.running else float("inf")
        at = min(at, max(opens, world.now + 1))
        if at == float("inf") or world.now < self._wake_at <= at:
            return
        self._wake_at = int(-(-at // 1))
        world.wake(self._wake_at, None)


def _service(world: World, task: Task) -> float:
    """GPUs times hours of running."""
    return task.gpus * task.running(world.now) / HOUR_MS


def _cheapest(world: World, task: Task, allowed: list[Task]) -> tuple[list[Task], int] | None:
    """Victims, most service first, whose GPUs make room at the best level; the member where they leave the fewest GPUs idle.

    None where no member would have room.
    """
    shape, now, gpus = world.cluster.shape, world.open_to(task), task.gpus
    best: tuple[int, int, list[Task], int] | None = None
    for index, member in enumerate(members(shape, shape.levels.ideal(gpus))):
        room = (now & member).bit_count()
        chosen, freed = [], 0
        for victim in allowed:
            if room >= gpus:
                break
            here = (victim.held & member).bit_count()
            if here:
                room += here
                freed += victim.gpus
                chosen.append(victim)
        if room >= gpus and chosen and (best is None or (freed, index) < best[:2]):
            best = freed, index, chosen, member
    return None if best is None else best[2:]
