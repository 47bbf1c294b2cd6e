"""An hour of the cluster's GPUs and gangs, one sample every ten seconds, in memory of the process that decides."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from kompakt_core.contract.scheduling_record import State
from kompakt_core.ids import NodeName
from kompakt_core.placement.model import NodeState
from kompakt_core.topology.graph import HEALTHY
from kompakt_extender.jobs import Jobs
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.views import JobView

SECONDS: Final = 10.0
SAMPLES: Final = 360


@dataclass(frozen=True, slots=True)
class ClusterCounts:
    """GPUs of all nodes, and gangs. `held`: neither free nor unhealthy, so also what is planned or reserved."""

    nodes: int = 0
    gpus: int = 0
    free: int = 0
    held: int = 0
    unhealthy: int = 0
    waiting: int = 0
    running: int = 0


@dataclass(frozen=True, slots=True)
class CountsSample:
    """The counts at one moment, in seconds since 1970."""

    at: int
    counts: ClusterCounts


def unhealthy_of(state: NodeState) -> int:
    """How many GPUs of the node no pod may get; those that a pod still has count as well."""
    return sum(gpu.health != HEALTHY for gpu in state.graph.gpus) if state.graph is not None else 0


def counted(states: Iterable[NodeState], waiting: int, running: int) -> ClusterCounts:
    """The counts of these nodes, beside those of gangs."""
    nodes = gpus = free = unhealthy = 0
    for state in states:
        nodes += 1
        gpus += state.graph.size if state.graph is not None else 0
        free += state.free.bit_count()
        unhealthy += unhealthy_of(state)
    return ClusterCounts(nodes, gpus, free, max(gpus - free - unhealthy, 0), unhealthy, waiting, running)


def at_rest(job: JobView) -> bool:
    """Whether it neither waits nor runs."""
    return job.finished or job.suspended or not job.ours


def gangs_of(jobs: Jobs) -> tuple[int, int]:
    """How many gangs wait for places, and how many have them."""
    states = [jobs.record(job).state for job in jobs.views.values() if not at_rest(job)]
    running = sum(state is State.RELEASED for state in states)
    return len(states) - running, running


class CountsHistory:
    """Takes a sample now and then. What is read is read on the loop, and added up on a thread."""

    def __init__(self, ledger: GpuLedger, jobs: Jobs, now: Callable[[], datetime]) -> None:
        self._ledger, self._jobs, self._now = ledger, jobs, now
        self._task: asyncio.Task[None] | None = None
        self.samples: deque[CountsSample] = deque(maxlen=SAMPLES)

    def begin(self) -> None:
        """From now on."""
        self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def take(self) -> None:
        """One sample."""
        states: Mapping[NodeName, NodeState] = self._ledger.cluster_view().states
        waiting, running = gangs_of(self._jobs)
        at = int(self._now().timestamp())
        # Among the threads that write, one of which it takes for a millisecond.
        counts = await asyncio.to_thread(counted, states.values(), waiting, running)
        self.samples.append(CountsSample(at, counts))

    async def _run(self) -> None:
        while True:
            await self.take()
            await asyncio.sleep(SECONDS)
