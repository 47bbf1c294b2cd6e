"""The cluster in virtual time: what runs where, what it costs to stop and start, and what happens next.

A scheduler acts on it through `assign`, `stop` and `wake`; everything that was true before a call stays checked after it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from heapq import heappop, heappush

from kompakt_core.errors import Bug
from kompakt_simulator.cluster import NOTHING, ClusterState, GpuSet
from kompakt_simulator.jobs import Milliseconds, SimulatedJob
from kompakt_simulator.setting import Knowledge, Setting


class _Kind(IntEnum):
    """The order of events at one instant."""

    END = 0
    RETURN = 1
    WAKE = 2


@dataclass(frozen=True, slots=True)
class Stretch:
    """One job on one set of GPUs without a break."""

    number: int
    start: int
    end: int
    gpus: GpuSet


@dataclass(slots=True)
class Instant:
    """What happened at one moment, completions and arrivals together. `freed`: GPUs that came back, promised ones excluded."""

    ended: list[SimulatedJob] = field(default_factory=list)
    arrived: list[SimulatedJob] = field(default_factory=list)
    freed: GpuSet = NOTHING
    due: list[object] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.ended or self.arrived or self.freed or self.due)


class SimulatedWorld:
    """`free_of_cost`: preemption costs nothing, whatever the setting says (a bound rather than something to run)."""

    def __init__(self, cluster: ClusterState, setting: Setting, knowledge: Knowledge, free_of_cost: bool = False) -> None:
        self.now = 0
        self.cluster = cluster
        self.setting = setting
        self.knowledge = knowledge
        self.running: dict[int, SimulatedJob] = {}
        self.preemptions = 0
        self.gpu_ms = 0
        self.stretches: list[Stretch] = []
        self._restart = 0 if free_of_cost else round(setting.restart_s * 1000)
        self._checkpoint = 0.0 if free_of_cost else setting.checkpoint_s_per_gpu * 1000
        self._events: list[tuple[int, int, int, object]] = []
        self._sequence = 0
        self._claims: list[SimulatedJob] = []
        self._promised = NOTHING
        self._returning = NOTHING
        self._held = NOTHING
        self._on_start: dict[int, Callable[[SimulatedWorld, SimulatedJob], None]] = {}
        self._kept: tuple[SimulatedJob | None, GpuSet] = None, NOTHING
        self.arrivals_left = 0

    @property
    def quiet(self) -> bool:
        """Whether nothing will ever happen by itself: nobody runs, no GPUs are coming back, nobody will arrive."""
        return not self.running and not self._returning and not self.arrivals_left

    @property
    def open(self) -> GpuSet:
        """Free GPUs that are neither promised to anybody nor kept for a job."""
        return GpuSet(self.cluster.free & ~self._promised & ~self._kept[1])

    def open_to(self, task: SimulatedJob) -> GpuSet:
        """The same, with those that are kept for this job."""
        own = self._kept[1] if self._kept[0] is task else NOTHING
        return GpuSet(self.open | own)

    def keep(self, task: SimulatedJob | None, gpus: GpuSet) -> None:
        """From now on, until this is called again or the job starts, nobody else gets these; they are open now."""
        self._kept = task, gpus

    @property
    def next_event(self) -> int | None:
        """When something happens by itself, arrivals apart."""
        return self._events[0][0] if self._events else None

    def tie(self, task: SimulatedJob) -> tuple[int, int]:
        """What decides between jobs that stand alike in a queue; the lower goes first."""
        return task.job.submit if self.setting.rules.submission_breaks_ties else 0, task.number

    def remaining(self, task: SimulatedJob) -> float:
        """Milliseconds of computing that are left, as far as this run's policy may know. Raises Bug if it may not."""
        if self.knowledge is Knowledge.ORACLE:
            return task._left - (task.attained(self.now) - task.done)
        if self.knowledge is Knowledge.DECLARED:
            return max(0.0, task._declared - task.attained(self.now))
        raise Bug("a policy without knowledge of durations asked for one")

    def assign(self, task: SimulatedJob, gpus: GpuSet) -> None:
        """Give a waiting job these GPUs: at once, or all of them when those that are still being given up are back."""
        if task.held or task.claimed:
            raise Bug(f"job {task.number} has GPUs already")
        if gpus.bit_count() != task.gpus:
            raise Bug(f"a job that needs {task.gpus} GPUs holds {gpus.bit_count()}")
        if gpus & self._promised or gpus & ~(self.cluster.free | self._returning):
            raise Bug(f"GPUs {gpus:#x} were given away twice")
        if task is self._kept[0]:
            self.keep(None, NOTHING)
        if gpus & self._kept[1]:
            raise Bug(f"GPUs {gpus & self._kept[1]:#x} are kept for another job")
        task.since = Milliseconds(self.now)
        if gpus & ~self.cluster.free:
            task.claimed = gpus
            self._promised = GpuSet(self._promised | gpus)
            self._claims.append(task)
        else:
            self._start(task, gpus)

    def stop(self, task: SimulatedJob, free_at_once: bool = False) -> None:
        """Preempt a running job. Its GPUs come back when its checkpoint is written, or at once."""
        computed = task.attained(self.now) - task.done
        wall = task.running(self.now) - task.ran
        unfinished = min(self.now, task.computes_from) - task.begin
        interval = self.setting.checkpoint_interval_s * 1000
        kept = computed if not interval else math.floor((task.done + computed) / interval) * interval - task.done
        kept = max(0.0, kept)
        task.comm_ms += wall - computed
        task.restart_ms += unfinished + computed - kept
        task._left -= kept
        task.done += kept
        task.ran += wall
        self.preemptions += 1
        gpus = self._release(task)
        task.since = Milliseconds(self.now)
        delay = 0 if free_at_once else self.checkpoint(task)
        if delay:
            self.gpu_ms += delay * task.gpus
            self._returning = GpuSet(self._returning | gpus)
            self._push(self.now + delay, _Kind.RETURN, gpus)
        else:
            self.cluster = self.cluster.with_freed(gpus)

    def checkpoint(self, task: SimulatedJob) -> int:
        """Milliseconds until the GPUs that a job gives up are back."""
        return math.ceil(self._checkpoint * task.gpus)

    def wake(self, at: int, why: object) -> None:
        """Call the scheduler at this moment, with `why` among what is due."""
        self._push(max(at, self.now), _Kind.WAKE, why)

    def on_start(self, task: SimulatedJob, call: "Callable[[SimulatedWorld, SimulatedJob], None]") -> None:
        """Call this when a job that waits for promised GPUs gets them."""
        self._on_start[task.number] = call

    def happen(self) -> Instant:
        """Let all events of this moment happen, or the first of them where the rules want a pass after each."""
        instant = Instant()
        one_pass = self.setting.rules.one_pass
        while self._events and self._events[0][0] == self.now and (one_pass or not instant):
            _, kind, _, what = heappop(self._events)
            if kind == _Kind.WAKE:
                instant.due.append(what)
            elif kind == _Kind.RETURN:
                self._return(what, instant)
            else:
                self._end(what, instant)
        if instant.freed and self._claims:
            self._serve_claims()
            instant.freed = GpuSet(instant.freed & self.open)
        return instant

    def check(self) -> None:
        """Every GPU is free, held by one job, or being given up: exactly one of the three. Raises Bug."""
        free, every = self.cluster.free, (1 << self.cluster.size) - 1
        if free & self._held or free & self._returning or self._held & self._returning:
            raise Bug("a GPU is both free and held, or held twice")
        if free | self._held | self._returning != every:
            raise Bug("a GPU is neither free nor held")

    def _start(self, task: SimulatedJob, gpus: GpuSet) -> None:
        if gpus & self._held:
            raise Bug(f"GPUs {gpus & self._held:#x} are held twice")
        self.cluster = self.cluster.with_taken(gpus)
        self._held = GpuSet(self._held | gpus)
        restart = self._restart if task.started else 0
        task.started += 1
        task.held, task.begin, task.computes_from = gpus, self.now, self.now + restart
        task.slow = self.setting.network.slowdown(task.ratio, self.cluster.shape, gpus)
        if task.first_start < 0:
            task.first_start = self.now
        task._end = task.computes_from + math.ceil(task._left * (1 + task.slow) - 1e-6)
        self.running[task.number] = task
        self._push(task._end, _Kind.END, (task, task.started))

    def _end(self, what: object, instant: Instant) -> None:
        assert isinstance(what, tuple)
        task, started = what
        if task.started != started or not task.held:
            return  # it was stopped meanwhile
        wall = self.now - task.computes_from
        task.comm_ms += wall - task._left if task.slow else 0.0
        task.restart_ms += task.computes_from - task.begin
        task.done, task.ran, task._left = task.done + task._left, task.ran + wall, 0.0
        gpus = self._release(task)
        self.cluster = self.cluster.with_freed(gpus)
        instant.ended.append(task)
        instant.freed = GpuSet(instant.freed | gpus)

    def _release(self, task: SimulatedJob) -> GpuSet:
        gpus = task.held
        del self.running[task.number]
        self._held = GpuSet(self._held & ~gpus)
        self.stretches.append(Stretch(task.number, task.begin, self.now, gpus))
        task.held_ms += self.now - task.begin
        self.gpu_ms += (self.now - task.begin) * task.gpus
        task.held, task.last = NOTHING, gpus
        return gpus

    def _return(self, what: object, instant: Instant) -> None:
        assert isinstance(what, int)
        gpus = GpuSet(what)
        self._returning = GpuSet(self._returning & ~gpus)
        self.cluster = self.cluster.with_freed(gpus)
        instant.freed = GpuSet(instant.freed | gpus)

    def _serve_claims(self) -> None:
        for task in self._claims[:]:
            if not task.claimed & ~self.cluster.free:
                self._claims.remove(task)
                gpus, task.claimed = task.claimed, NOTHING
                self._promised = GpuSet(self._promised & ~gpus)
                self._start(task, gpus)
                if task.number in self._on_start:
                    self._on_start.pop(task.number)(self, task)

    def _push(self, at: int, kind: _Kind, what: object) -> None:
        self._sequence += 1
        heappush(self._events, (at, kind, self._sequence, what))
