"""The planner's loop: which gang gets its places, written first on the job, then on its pods.

A cycle never waits for the API server; writes run as tasks, at most one per job. What was decided counts at once (claims in the
ledger, records here), so that the next decision sees it before the cluster shows it. What becomes free during a cycle counts in
the next one (cycle.py).
"""

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeVar

from kompakt_core.contract.scheduling_record import State
from kompakt_core.ids import NodeName
from kompakt_core.placement.model import Level
from kompakt_extender.consolidation import DEFAULT, ClusterPolicy
from kompakt_extender.gang_state import AttemptResult, GangState
from kompakt_extender.jobs import Jobs
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.metrics import ExtenderMetrics
from kompakt_extender.planner.commit import Committer
from kompakt_extender.planner.cycle import PlanningCycle
from kompakt_extender.planner.nomination import Nomination, Unplannable
from kompakt_extender.planner.pending_writes import PendingWrites
from kompakt_extender.planner.plain_pods import PlainPods
from kompakt_extender.planner.planning_queue import PlanningQueue
from kompakt_extender.planner.planning_request import PlanningRequest
from kompakt_extender.planner.preemption import PreemptionPlanner
from kompakt_extender.planner.reconciliation import Reconciliation
from kompakt_extender.planner.released_gangs import ReleasedGangs
from kompakt_extender.planner.reserved_places import ReservedPlaces
from kompakt_extender.planner.scheduling_attempt import SchedulingAttempt, ThreadRunner
from kompakt_extender.planner.transitions import Transitions
from kompakt_extender.planner.waiting_status import count_is_worth_a_write
from kompakt_extender.release_writer import ReleaseWriter
from kompakt_extender.views import PodView

_LOG = logging.getLogger(__name__)
_BATCH_SECONDS = 0.005  # changes come in flocks: a gang's pods, a node's conditions
_REST_SECONDS = 0.2
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
        may_decide: Callable[[], bool] = lambda: True,
        at_once: int = 50,
    ) -> None:
        """`steady` counts seconds by a clock that nobody sets; `impossible`: see Transitions. No cycle begins while `may_decide`
        says no. `at_once`: gangs that are looked at before verbs and watches have their turn.
        """
        self._at_once = at_once
        self._ledger = ledger
        self._jobs = jobs
        self._metrics = metrics
        self._clock = clock
        self._may_preempt = policy.preemption
        self._may_decide = may_decide
        self._wake = asyncio.Event()
        self._transitions = moves = Transitions(ledger, metrics, impossible)
        self._writes = PendingWrites(ledger, jobs, releaser, metrics, clock, self.wake, moves)
        self._released = ReleasedGangs(ledger, jobs, self._writes, metrics, clock, steady, moves)
        self._plain = PlainPods(ledger, releaser, metrics, clock, bare=policy.bare_pods)
        self._preempting = PreemptionPlanner(ledger, jobs, self._writes, metrics, clock, self.wake, self._plain, moves)
        self._places = ReservedPlaces(ledger, jobs, self._writes, moves, clock, steady)
        self._reconciliation = Reconciliation(
            ledger, jobs, self._writes, self._released, self._places, self._preempting, moves, clock
        )
        self._queue = PlanningQueue(ledger, jobs, policy.overtaken_at_most)
        self._nomination = Nomination(ledger, jobs, policy)
        self._committer = Committer(jobs, self._writes, self._preempting, self._places, moves, self._queue, metrics, clock)
        self._attempts = SchedulingAttempt(
            ledger, jobs, self._writes, self._preempting, self._nomination, self._committer, levels, policy, in_thread
        )
        self._began = clock()
        self._asked_under: tuple[int, str] = 0, ""  # the version of Limits and for whom GPUs are reserved by count, a cycle ago
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
            if not self._may_decide():
                self._released.be_patient_anew()  # nobody binds meanwhile
                continue
            start = time.perf_counter()
            await self.run_cycle()
            self._metrics.plan_seconds.observe(took := time.perf_counter() - start)
            await asyncio.sleep(min(took, _REST_SECONDS))  # half of the time is for others, however fast things change

    def _pause(self) -> float:
        """How long to wait for a change: until a gang's timer runs out, and never longer than a tick."""
        timer = self._next_timer()
        return _TICK_SECONDS if timer is None else min(_TICK_SECONDS, timer - self._clock().timestamp())

    def _next_timer(self) -> float | None:
        """The first moment after the last cycle began, in seconds since the epoch, at which a result changes by time alone."""
        began = self._began.timestamp()
        return min((each for each in self._queue.ends() if each > began), default=None)

    async def run_cycle(self) -> None:
        """Go on with what is under way, then plan the gangs that wait. docs/planner.md says what each step may rely on."""
        due = await self._reconcile_all()
        cycle = self._snapshot()
        await self._nominate(due)
        self._order()
        for number in itertools.count(1):
            if not number % self._at_once:
                await asyncio.sleep(0)
            if (uid := self._queue.next_turn()) is None:
                break
            if not await self._take_turn(uid, cycle):
                break

    async def _take_turn(self, uid: str, cycle: PlanningCycle) -> bool:
        """False: the cycle ends."""
        on_time = True
        if not self._writes.resting(uid):
            on_time = await self._attempt(uid, cycle)
        elif self._writes.unsettled(uid) and uid in self._jobs.states:
            cycle.limit(self._jobs.states[uid].shown)
        self._end_turn(uid)
        self._let_urgent_in()
        return on_time

    def _end_turn(self, uid: str) -> None:
        """The gang rests until others that want the same are told something else, or has a turn in the next cycle."""
        result = self._lasting_result(uid)
        if result is not None and count_is_worth_a_write((gang := self._jobs.states[uid]).record, gang.written):
            self._writes.status(self._jobs.views[uid], gang.record)
            result = None
        elif result is None:
            self._jobs.touch(uid)
        else:
            self._jobs.rest(uid)
            self._jobs.states[uid].shown = ()
        self._queue.end_turn(uid, result)

    def _lasting_result(self, uid: str) -> AttemptResult | None:
        """The result of its turn, if that goes for others, and nothing has happened to the gang that was not looked at yet."""
        gang = self._jobs.states.get(uid)
        if gang is None or self._writes.resting(uid) or self._jobs.touched_after(uid, gang.reconciled):
            return None
        waits = gang.record.state is State.WAITING and not (gang.record.victims or gang.record.preempt)
        return gang.result if waits and gang.result is not None and gang.result.answer is not None else None

    async def _reconcile_all(self) -> list[str]:
        """The gangs that are due; what is under way for them goes on. Some may be gone at the end."""
        self._jobs.touched()
        due = self._jobs.due()
        for number, uid in enumerate(due, 1):
            if not number % self._at_once:
                await asyncio.sleep(0)
            if uid in self._jobs.views and not self._writes.resting(uid):
                self._guarded(self._reconciliation.reconcile, uid)
        return [uid for uid in due if uid in self._jobs.views]

    def _snapshot(self) -> PlanningCycle:
        """Step 1: the cluster as it is now, for all gangs of this cycle."""
        cycle = PlanningCycle(self._ledger, self._clock())
        self._began = cycle.began
        return cycle

    async def _nominate(self, due: list[str]) -> None:
        """Step 2: which of them wait for places, those that are being written about too: they keep their turn."""
        for number, uid in enumerate(due, 1):
            if not number % self._at_once:
                await asyncio.sleep(0)
            if uid in self._jobs.views and self._has_turn(uid):
                self._queue.add(uid)
            else:
                self._queue.remove(uid)
        self._metrics.gangs.labels(State.WAITING.value).set(len(self._queue))

    def _has_turn(self, uid: str) -> bool:
        return self._keeps_turn(uid) if self._writes.resting(uid) else bool(self._guarded(self._nomination.waits, uid))

    def _keeps_turn(self, uid: str) -> bool:
        """Whether those behind it must not pass it, though it is not planned now."""
        gang = self._jobs.states.get(uid)
        return gang is not None and bool(gang.shown) and gang.record.state is not State.RELEASED and not gang.places

    def _order(self) -> None:
        """Step 3: by priority, then by how long they wait. Who rests has a turn if its result could be another one."""
        before, self._asked_under = self._asked_under, (self._jobs.limits.version, self._ledger.reserved.counts_for)
        if before[0] != self._asked_under[0]:
            self._queue.wake(lambda uid: True)
        elif before != self._asked_under:
            self._queue.wake(self._nomination.was_overtaken_often)
        self._queue.begin(self._began.timestamp())

    def _let_urgent_in(self) -> None:
        """Steps 2 and 3 for gangs that came since the cycle began, and go before some that are left: a cycle may be long.

        They see no more than the others, so nobody whose turn is over loses anything to them.
        """
        for uid in self._jobs.touched():
            if self._queue.may_come_in(uid) and not self._writes.resting(uid):
                self._guarded(self._reconciliation.reconcile, uid)
                if not self._writes.resting(uid) and self._guarded(self._nomination.waits, uid):
                    self._queue.let_in(uid)

    async def _attempt(self, uid: str, cycle: PlanningCycle) -> bool:
        """Steps 4 to 6. False: the result came too late, and those behind would get what the gang is planned for again."""
        request = self._guarded(lambda uid: self._next_request(uid, cycle), uid)
        if request is None:
            return True
        gang = self._jobs.states[uid]
        gang.shown = cycle.limits
        holds = await self._attempts.run(request, cycle)
        if not holds:
            self.wake()
        if not self._jobs.knows(gang):
            return True
        gang.late = 0 if holds or gang.late >= LATE_AT_MOST else gang.late + 1
        if gang.record.victims:
            gang.shown += (self._ledger.cluster_view(),)  # what it holds now, others must not get should it be planned anew
        return gang.late == 0

    def _next_request(self, uid: str, cycle: PlanningCycle) -> PlanningRequest | None:
        """None where core need not be asked; why stands written then."""
        request = self._nomination.next_request(uid, cycle)
        if isinstance(request, Unplannable):
            self._committer.reject(request)
            return None
        return request

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
        self._queue.remove(gang.uid)
        self._transitions.unreserve_counts(gang)
        self._transitions.unreserve_places(gang)
        self._preempting.unreserve(gang)
        self._writes.drop_unwritten(gang)

    def adopt(self) -> None:
        """Take over what an earlier leader decided."""
        self._released.adopt()
        self._places.adopt()
        if self._may_preempt:
            self._preempting.adopt()

    def overtaken_by(self, pod: PodView) -> None:
        """A plain pod was bound: a gang of one that went before those that wait longer."""
        self._queue.passed_by_pod(pod)

    def exclude(self, job_uid: str, node: NodeName, reason: str) -> None:
        """A node failed a pod of this job before any container started: leave it out of the next plans."""
        self._released.exclude(job_uid, node, reason)
