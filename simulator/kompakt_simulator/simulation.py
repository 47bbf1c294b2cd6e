"""The event loop in virtual time.

At one instant: first all completions, then all arrivals, then one pass over the queue, then the invariant is checked.
Then the clock jumps to the next completion or arrival.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush

from kompakt_core.errors import Bug
from kompakt_simulator.cluster import Cluster, GpuSet, check_invariant
from kompakt_simulator.placements.table import Placement
from kompakt_simulator.policies.policy import Policy, Waiting
from kompakt_simulator.trace import Job, Milliseconds
from kompakt_simulator.waiting import Queue


@dataclass(frozen=True, slots=True)
class Finished:
    """A job that ran to its end; `start` is when it first got GPUs, `gpus` what it held last."""

    job: Job
    start: Milliseconds
    end: Milliseconds
    gpus: GpuSet


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of all jobs. `dropped`: they need more GPUs than the cluster has and never entered the queue."""

    finished: tuple[Finished, ...]
    dropped: tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class _Running:
    job: Job
    end: Milliseconds
    gpus: GpuSet


def simulate(jobs: Iterable[Job], cluster: Cluster, policy: Policy, place: Placement) -> Outcome:
    """Run all jobs on an empty cluster until the last has ended. Raises Bug if the invariant ever breaks."""
    ordered = sorted(jobs, key=lambda job: (job.submit, job.number))
    fitting = [job for job in ordered if job.gpus <= cluster.size]
    dropped = tuple(job for job in ordered if job.gpus > cluster.size)
    return Outcome(_Simulation(cluster, policy, place).run(fitting), dropped)


class _Simulation:
    def __init__(self, cluster: Cluster, policy: Policy, place: Placement) -> None:
        self._now = Milliseconds(0)
        self._cluster = cluster
        self._policy = policy
        self._place = place
        self._queue = Queue(policy)
        self._running: dict[int, _Running] = {}
        self._ends: list[tuple[Milliseconds, int]] = []  # heap of (end, job number)
        self._starts: dict[int, Milliseconds] = {}
        self._finished: list[Finished] = []

    def run(self, arrivals: list[Job]) -> tuple[Finished, ...]:
        upcoming = arrivals[::-1]
        while upcoming or self._ends:
            self._now = min([job.submit for job in upcoming[-1:]] + [end for end, _ in self._ends[:1]])
            self._complete()
            while upcoming and upcoming[-1].submit == self._now:
                job = upcoming.pop()
                self._queue.push(Waiting(job, job.duration))
            if self._policy.preempts:
                self._preempt()
            self._queue.admit(self._start)
            check_invariant(self._cluster, ((run.job.gpus, run.gpus) for run in self._running.values()))
        if self._queue:
            raise Bug("jobs are waiting on an empty cluster")
        return tuple(self._finished)

    def _complete(self) -> None:
        while self._ends and self._ends[0][0] == self._now:
            _, number = heappop(self._ends)
            done = self._running.pop(number)
            self._cluster = self._cluster.with_freed(done.gpus)
            self._finished.append(Finished(done.job, self._starts[number], self._now, done.gpus))

    def _preempt(self) -> None:
        """Everybody back into the queue with what remains; who is still first gets GPUs again in the same instant."""
        for run in self._running.values():
            self._cluster = self._cluster.with_freed(run.gpus)
            self._queue.push(Waiting(run.job, Milliseconds(run.end - self._now)))
        self._running.clear()
        self._ends.clear()

    def _start(self, waiting: Waiting) -> bool:
        job = waiting.job
        gpus = self._place(self._cluster, job.gpus)
        if gpus is None:
            return False
        self._cluster = self._cluster.with_taken(gpus)
        end = Milliseconds(self._now + waiting.remaining)
        self._running[job.number] = _Running(job, end, gpus)
        heappush(self._ends, (end, job.number))
        self._starts.setdefault(job.number, self._now)
        return True
