"""The planner's loop: which gang gets its places, written first on the job, then on its pods.

A cycle never waits for the API server; writes run as tasks, at most one per job. What was decided counts at once (claims in the
ledger, records here), so that the next decision sees it before the cluster shows it. What becomes free during a cycle counts in
the next one (cycle.py).
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeVar

from kompakt_core.contract import timestamps
from kompakt_core.contract.scheduling_record import State
from kompakt_core.ids import NodeName
from kompakt_core.placement.model import Level
from kompakt_extender.consolidation import DEFAULT, ClusterPolicy
from kompakt_extender.gang_state import GangState
from kompakt_extender.gangs import order, plannable, replannable
from kompakt_extender.jobs import Jobs
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.metrics import ExtenderMetrics
from kompakt_extender.planner.cycle import PlanningCycle
from kompakt_extender.planner.pending_writes import PendingWrites
from kompakt_extender.planner.plain_pods import PlainPods
from kompakt_extender.planner.preemption import PreemptionPlanner
from kompakt_extender.planner.released_gangs import ReleasedGangs
from kompakt_extender.planner.scheduling_attempt import SchedulingAttempt, ThreadRunner
from kompakt_extender.planner.transitions import Transitions
from kompakt_extender.release_writer import ReleaseWriter
from kompakt_extender.views import PodView

_LOG = logging.getLogger(__name__)
_BATCH_SECONDS = 0.005  # changes come in flocks: a gang's pods, a node's conditions
_TICK_SECONDS = 1.0
LATE_AT_MOST = 3  # cycles in a row that end early since core's result for one gang came too late; then those behind go on
_T = TypeVar("_T")


class Planner:
    """Plans while it runs; `stop` halts it at once."""

    def __init__(
        self,
        ledger: GpuLedger,
        jobs: Jobs,
        releaser: ReleaseWriter,
        metrics: ExtenderMetrics,
        clock: Callable[[], datetime],
        levels: Mapping[Level, str],
        policy: ClusterPolicy = DEFAULT,
        *,
        in_thread: ThreadRunner = asyncio.to_thread,
        steady: Callable[[], float] = time.monotonic,
        impossible: Callable[[str], None] | None = None,
    ) -> None:
        """`steady` counts seconds by a clock that nobody sets; `impossible`: see Transitions."""
        self._ledger = ledger
        self._jobs = jobs
        self._metrics = metrics
        self._clock = clock
        self._may_preempt = policy.preemption
        self._wake = asyncio.Event()
        self._transitions = moves = Transitions(ledger, metrics, impossible)
        self._writes = PendingWrites(ledger, jobs, releaser, metrics, clock, self.wake, moves)
        self._released = ReleasedGangs(ledger, jobs, self._writes, metrics, clock, steady, moves)
        self._plain = PlainPods(ledger, releaser, metrics, clock, bare=policy.bare_pods)
        self._preempting = PreemptionPlanner(ledger, jobs, self._writes, metrics, clock, self.wake, self._plain, moves)
        self._attempts = SchedulingAttempt(
            ledger, jobs, self._writes, self._preempting, metrics, clock, levels, policy, self.wake, moves, in_thread
        )
        self._loop_task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._loop_task = asyncio.create_task(self._run())

    def stop(self) -> None:
        self._writes.stop()
        self._plain.stop()
        if self._loop_task is not None:
            self._loop_task.cancel()

    def wake(self) -> None:
        """Something changed."""
        self._wake.set()

    @property
    def running(self) -> bool:
        """False once the loop ended by an error of ours."""
        return self._loop_task is not None and not self._loop_task.done()

    @property
    def busy(self) -> tuple[asyncio.Task[object], ...]:
        """The writes under way."""
        return (*self._writes.busy, *self._plain.busy)

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._pause()):
                    await self._wake.wait()
            except TimeoutError:
                pass
            await asyncio.sleep(_BATCH_SECONDS)
            self._wake.clear()
            start = time.perf_counter()
            await self.run_cycle()
            self._metrics.plan_seconds.observe(time.perf_counter() - start)

    def _pause(self) -> float:
        """How long to wait for a change: until a gang's timer runs out, and never longer than a tick."""
        timer = self._attempts.next_timer()
        return _TICK_SECONDS if timer is None else min(_TICK_SECONDS, timer - self._clock().timestamp())

    async def run_cycle(self) -> None:
        """Reconcile every job that may need something, then plan the gangs that wait, one after the other, all on one view."""
        waiting: list[tuple[tuple[int, str, str], str]] = []
        for uid in self._jobs.due():
            key = self._behind(uid) if self._writes.resting(uid) else self._guarded(self._reconcile, uid)
            if key is not None:
                waiting.append((key, uid))
        self._metrics.gangs.labels(State.WAITING.value).set(len(waiting))
        queue = [uid for _, uid in sorted(waiting)]
        this = PlanningCycle(self._ledger, self._clock())
        self._attempts.begin(this, queue)
        for uid in queue:
            if not self._writes.resting(uid):
                if not await self._plan(uid, this):
                    break
            elif self._writes.unsettled(uid) and uid in self._jobs.states:
                this.limit(self._jobs.states[uid].shown)

    async def _plan(self, uid: str, this: PlanningCycle) -> bool:
        """Plan one gang. False: the result came too late, and those behind would get what it is planned for again."""
        request = self._guarded(self._attempts.next_request, uid)
        if request is None:
            return True
        gang = self._jobs.states[uid]
        gang.shown = this.limits
        counts = await self._attempts.run(request)
        if not self._jobs.knows(gang):
            return True
        gang.late = 0 if counts or gang.late >= LATE_AT_MOST else gang.late + 1
        if gang.record.victims:
            gang.shown += (self._ledger.cluster_view(),)  # what it holds now, others must not get should it be planned anew
        return gang.late == 0

    def _behind(self, uid: str) -> tuple[int, str, str] | None:
        """The place in the queue of a gang that waits while it is written about; those behind it must not pass it meanwhile."""
        job, gang = self._jobs.views.get(uid), self._jobs.states.get(uid)
        if job is None or gang is None or not gang.shown or gang.record.state is State.RELEASED:
            return None
        return order(job, self._jobs.members(job), gang.record)

    def _guarded(self, act: Callable[[str], _T], uid: str) -> _T | None:
        """One job that we stumble over must not stop the others."""
        try:
            return act(uid)
        except Exception:
            job = self._jobs.views[uid]
            _LOG.exception("%s/%s: planning failed", job.namespace, job.name)
            self._writes.mark_stale(self._jobs.states[uid], job.resource_version)
            return None

    def forget(self, gang: GangState) -> None:
        """The job is gone: what it held is given back."""
        self._transitions.unreserve_counts(gang)
        self._preempting.unreserve(gang)
        self._writes.drop_unwritten(gang)

    def adopt(self) -> None:
        """Take over what an earlier leader decided."""
        self._released.adopt()
        if self._may_preempt:
            self._preempting.adopt()

    def overtaken_by(self, pod: PodView) -> None:
        """A plain pod was bound: a gang of one that went before those that wait longer."""
        self._attempts.overtaken_by(pod)

    def exclude(self, job_uid: str, node: NodeName, reason: str) -> None:
        """A node failed a pod of this job before any container started: leave it out of the next plans."""
        self._released.exclude(job_uid, node, reason)

    def _reconcile(self, uid: str) -> tuple[int, str, str] | None:
        """Go on with what is under way; returns the place in the queue of a gang that can be planned."""
        job, gang = self._jobs.views[uid], self._jobs.states[uid]
        self._writes.drop_unwritten(gang)
        gang.shown = ()
        record = gang.record
        pods = self._jobs.members(job)
        if job.uid == self._ledger.reserved.counts_for and not (plannable(job, pods) or replannable(job, pods)):
            self._transitions.unreserve_counts(gang)
        goes_on = job.ours and not (job.suspended or job.finished) and record.attempt == job.attempt
        self._preempting.settle(job, record, waits=goes_on and (plannable(job, pods) or replannable(job, pods)))
        if self._preempting.write_request(job, record):
            return None
        if not job.ours or job.suspended or job.finished or job.attempt == 0:
            self._jobs.rest(uid)
            return None
        if record.attempt != job.attempt:
            record = self._jobs.fresh(job, record)
            self._transitions.start(gang)
        if record.state is State.RELEASED:
            self._released.reconcile(job, record, pods)
            return None
        if record.state is State.WITHDRAWN:
            return self._released.reconcile_withdrawn(job, record, pods)
        if not plannable(job, pods) and not replannable(job, pods):
            return None
        return order(job, pods, self._jobs.complete(job, record, timestamps.encode(self._clock())))
