"""One gang's turn: core plans it, and the result is written if it still holds.

Planning runs on a worker thread, on values that nothing changes, because it takes tenths of a second on thousands of nodes and
the verbs are served by this loop; its result counts only if it holds for the cluster as it is by then.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple, Protocol, TypeVar

from kompakt_core.contract import timestamps
from kompakt_core.contract.scheduling_record import Record, State
from kompakt_core.errors import InvalidInput
from kompakt_core.placement.fit import selected
from kompakt_core.placement.model import Level, Plan, Reason, Rejection
from kompakt_core.policy.place_or_wait import GangReservation, LevelWait, accepted_levels, place_or_wait
from kompakt_core.policy.preempt import NotBefore, PreemptionPlan, RunningGang, freed, preempt
from kompakt_extender import record as records
from kompakt_extender.consolidation import ClusterPolicy, patience_of
from kompakt_extender.gang_state import AttemptResult, SeenVersions
from kompakt_extender.gangs import (
    asks_with,
    defends_with,
    gang_of,
    order,
    placed_message,
    preempts_with,
    waiting_message,
    worker_of,
)
from kompakt_extender.jobs import Jobs
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.metrics import ExtenderMetrics
from kompakt_extender.planner.cycle import PlanningCycle
from kompakt_extender.planner.pending_writes import PendingWrites
from kompakt_extender.planner.planning_request import (
    GangTurn,
    PlanningRequest,
    can_be_planned,
    same_gang,
    same_machines,
    stands,
)
from kompakt_extender.planner.preemption import PreemptionPlanner
from kompakt_extender.planner.reserved_counts import can_come, next_reservation
from kompakt_extender.planner.transitions import Transitions
from kompakt_extender.planner.waiting_status import (
    BEYOND_LIMITS,
    NOT_ALL_REPORTED,
    and_also,
    from_then_on,
    not_overtaken,
    not_waiting_for_level,
    passed,
    waiting_for_level,
    with_reserved_counts,
)
from kompakt_extender.views import JobView, PodView

_LOG = logging.getLogger(__name__)
_COUNTS_WORTH_A_WRITE = 10
PlanningResult = Plan | LevelWait | Rejection | GangReservation
_T = TypeVar("_T")


class ThreadRunner(Protocol):
    """Runs work that may take long, away from the loop."""

    async def __call__(self, work: Callable[[], _T], /) -> _T:
        """What the work gives; its errors are raised here."""
        ...


class _Lower(NamedTuple):
    """Running gangs of lower priority that may end, and why others may not."""

    may_end: list[RunningGang]
    kept: str = ""


class SchedulingAttempt:
    """Plans one gang at a time. `again` is called where a result came too late to count."""

    def __init__(
        self,
        ledger: GpuLedger,
        jobs: Jobs,
        writes: PendingWrites,
        preempting: PreemptionPlanner,
        metrics: ExtenderMetrics,
        clock: Callable[[], datetime],
        levels: Mapping[Level, str],
        policy: ClusterPolicy,
        again: Callable[[], None],
        transitions: Transitions,
        in_thread: ThreadRunner = asyncio.to_thread,
    ) -> None:
        self._ledger = ledger
        self._jobs = jobs
        self._writes = writes
        self._preempting = preempting
        self._metrics = metrics
        self._clock = clock
        self._levels = levels
        self._policy = policy
        self._wake = again
        self._transitions = transitions
        self._late = False
        self._in_thread = in_thread
        self.queue: list[str] = []  # uids of the gangs that wait, in order
        self._cycle = PlanningCycle(ledger, clock())

    def begin(self, this: PlanningCycle, queue: list[str]) -> None:
        """From here on all requests are those of this cycle; `queue`: uids of the gangs that wait, in order."""
        self._cycle, self.queue = this, queue

    def next_timer(self) -> float | None:
        """The first moment after the last cycle began, in seconds since the epoch, at which a result changes by time alone."""
        began = self._cycle.began.timestamp()
        results = (self._jobs.states[uid].result for uid in self.queue if uid in self._jobs.states)
        ends = (result.ends for result in results if result is not None and result.ends is not None)
        return min((each for each in ends if each > began), default=None)

    def next_request(self, uid: str) -> PlanningRequest | None:
        """What to plan for one gang; None where nothing has changed since it was last rejected, and no timer has run out."""
        turn, tried = self._turn(uid), self._jobs.states[uid].result
        if turn is None or (tried is not None and tried.stands(turn.mark, self._cycle.began.timestamp())):
            return None
        return self._request(turn)

    def _turn(self, uid: str) -> GangTurn | None:
        """A gang as it stands now, and what it may see; None where there is nothing to plan."""
        job, now = self._jobs.views[uid], self._cycle.began
        record, pods = self._jobs.record(job).without_expired(now), self._jobs.members(job)
        if not can_be_planned(job, record, pods):
            return None
        snapshot, version = self._cycle.snapshot_for(uid, asks_with(pods))
        known = self._jobs
        mark = SeenVersions(
            version,
            self._ledger.machines_version,
            job.resource_version,
            len(record.excluded),
            known.preemption_version,
            known.limits.version,
        )
        return GangTurn(job, record, pods, snapshot, mark)

    def _current_request(self, uid: str) -> PlanningRequest | None:
        """The request as it stands now; None where there is nothing to plan."""
        turn = self._turn(uid)
        return None if turn is None else self._request(turn)

    def _request(self, turn: GangTurn) -> PlanningRequest | None:
        """None where no cluster could take the gang, or no Limits let it: that is written at once."""
        (job, record, pods, snapshot, mark), now = turn, self._cycle.began
        if more := self._jobs.limits.beyond(job):
            self._write_rejection(job, record, BEYOND_LIMITS, more, mark)
            return None
        try:
            gang = gang_of(job, pods, record, now)
        except InvalidInput as error:
            self._write_rejection(job, record, Reason.NEVER_FITS.value, str(error), mark)
            return None
        weight, priority = asks_with(pods), preempts_with(pods) if self._policy.preemption else None
        patience = patience_of(job.consolidation, self._policy, pods, job.communication, job.remaining_s)
        since = timestamps.decode(record.placeable_since or timestamps.encode(now)).timestamp()
        overtaken = record.overtaken if self._ledger.reserved.counts_for in ("", job.uid) else 0
        at = now.timestamp()
        return PlanningRequest(job, record, tuple(pods), gang, snapshot, mark, patience, since, at, overtaken, weight, priority)

    async def run(self, request: PlanningRequest) -> bool:
        """Let core plan, and act on the result if it still holds; False where it does not, and the gang is planned again."""
        self._late = False
        try:
            result = await self._in_thread(lambda: self._place_or_wait(request))
            lower = self._preemptible(request, result)
            found = await self._in_thread(lambda: self._find_victims(request, result, lower.may_end)) if lower.may_end else None
            self._act(request, result, found, lower.kept)
        except Exception:
            _LOG.exception("%s/%s: planning failed", request.job.namespace, request.job.name)
            if request.job.uid in self._jobs.states:
                self._writes.mark_stale(self._jobs.states[request.job.uid], request.job.resource_version)
        return not self._late

    def _again(self) -> None:
        self._late = True
        self._wake()

    def _place_or_wait(self, request: PlanningRequest) -> PlanningResult:
        """Runs in the thread."""
        one = request
        return place_or_wait(one.snapshot, one.gang, one.patience, one.since, one.asked_at, self._levels, one.overtaken)

    def _preemptible(self, request: PlanningRequest, result: PlanningResult) -> _Lower:
        """The running gangs of lower priority, if this one has no place by time alone and may have some ended."""
        placeless = (
            isinstance(result, GangReservation)
            or (isinstance(result, LevelWait) and result.at is None)
            or (isinstance(result, Rejection) and result.reason is Reason.DOES_NOT_FIT_NOW)
        )
        if request.priority is None or request.record.victims or not placeless:
            return _Lower([])
        job, priority = request.job, request.priority
        return _Lower(self._preempting.running(job, priority), self._preempting.kept_from(job, priority))

    def _find_victims(
        self, one: PlanningRequest, result: PlanningResult, running: list[RunningGang]
    ) -> PreemptionPlan | NotBefore | None:
        """Runs in the thread. Plain pods end for a place at all, never for a better one, and only where jobs are not enough."""
        assert one.priority is not None
        accepts = accepted_levels(one.snapshot, one.gang, one.patience, one.since, one.asked_at, self._levels)
        jobs, priority, at = [each for each in running if each.attempt], one.priority, one.asked_at
        found = preempt(one.snapshot, one.gang, priority, jobs, accepts, at, self._levels)
        if isinstance(found, PreemptionPlan) or len(jobs) == len(running) or not isinstance(result, Rejection):
            return found
        return preempt(one.snapshot, one.gang, priority, running, accepts, at, self._levels) or found

    def _act(
        self, then: PlanningRequest, result: PlanningResult, others: PreemptionPlan | NotBefore | None = None, kept: str = ""
    ) -> None:
        """Nothing that was true of the snapshot is taken to be true of now; what fails is planned again in the next cycle."""
        uid = then.job.uid
        now = None if self._writes.resting(uid) else self._current_request(uid)
        if now is None:
            return
        may_end = others.at if isinstance(others, NotBefore) else None
        if not same_gang(then, now):
            self._again()
        elif now.record.victims and not isinstance(result, Plan):
            self._await_victims(then, now)
        elif isinstance(others, PreemptionPlan):
            self._preempt(then, now, others)
        elif isinstance(result, Rejection):
            self._reject(then, now, result, may_end, kept)
        elif isinstance(result, LevelWait):
            self._transitions.unreserve_counts(self._jobs.states[uid])
            ends = result.at if result.at is not None else may_end
            waiting = and_also(waiting_for_level(now.record, result, then.since), kept)
            self._write_waiting(now.job, waiting, AttemptResult(then.mark, ends))
        elif isinstance(result, GangReservation):
            self._reserve_counts(then, now, result, may_end, kept)
        elif stands(result, then, now):
            self._jobs.states[uid].result = None
            self._commit(now, result)
        else:
            self._metrics.plans_overtaken.inc()
            self._again()

    def _preempt(self, then: PlanningRequest, now: PlanningRequest, found: PreemptionPlan) -> None:
        """If the victims are still what they were, and so are the GPUs beside theirs."""
        assert now.priority is not None
        known = {one.job_uid: one for one in self._preempting.running(now.job, now.priority)}
        same = all(known.get(one.job_uid) == one for one in found.victims)
        if same and stands(found.plan, then, replace(now, snapshot=freed(now.snapshot, found.victims))):
            self._jobs.states[now.job.uid].result = AttemptResult(then.mark)
            self._preempting.begin(now, found)
        else:
            self._again()

    def _await_victims(self, then: PlanningRequest, now: PlanningRequest) -> None:
        """GPUs are reserved for it and not free yet; where they never will be, it is planned anew."""
        ends = timestamps.decode(now.record.decided_at).timestamp() + self._policy.reserved_seconds
        if now.asked_at < ends and self._preempting.goes_on(now):
            self._write_waiting(now.job, now.record, AttemptResult(then.mark, ends))
            return
        self._preempting.give_up(now.job.uid)
        self._jobs.states[now.job.uid].result = None
        self._again()

    def _reject(self, then: PlanningRequest, now: PlanningRequest, result: Rejection, may_end: float | None, kept: str) -> None:
        """Never is said only of a cluster that is fully known, and that is still the one that was planned for.

        `may_end`: when others may be ended for it, if that would help; `kept`: why some may not.
        """
        reason, message = result.reason.value, waiting_message(result, then.gang, kept=self._some_kept(then))
        if may_end is not None:
            message = from_then_on(message, may_end)
        message = f"{message}; {kept}" if kept else message
        if result.reason is Reason.DOES_NOT_FIT_NOW:
            reason = State.WAITING.value
        elif result.reason is Reason.NEVER_FITS:
            if not same_machines(then, now):
                self._again()
                return
            if self._ledger.awaits_reports:
                reason, message = State.WAITING.value, NOT_ALL_REPORTED
        never = result.reason is Reason.NEVER_FITS
        self._write_rejection(now.job, now.record, reason, message, then.mark, may_end, never_fits=never)

    def _some_kept(self, then: PlanningRequest) -> bool:
        """Whether GPUs that nobody has were hidden from it."""
        nodes = then.snapshot.nodes
        return any(node in nodes and nodes[node].kept for node in self._ledger.reserved.nodes)

    def _reserve_counts(
        self, then: PlanningRequest, now: PlanningRequest, result: GangReservation, may_end: float | None, others_kept: str
    ) -> None:
        """Reserve GPUs for a gang that was overtaken too often. The counts stay the same while their nodes can give them."""
        uid, has = now.job.uid, self._ledger.reserved.counts_for
        if has not in ("", uid):
            self._again()  # another was first
            return
        before = dict(now.record.reserved_counts)
        counts = before if before and can_come(before, now) else dict(result.gpus)
        written = timestamps.decode(now.record.until).timestamp() if counts == before and now.record.until else None
        seconds = self._policy.reserved_seconds
        gang = self._jobs.states[uid]
        gang.counted = kept = next_reservation(gang.counted if has == uid else None, counts, now, written, seconds)
        if kept.until <= now.asked_at:
            self._let_fall(now)
            return
        if has != uid or counts != before:
            self._transitions.reserve_counts(gang, counts, defends_with(now.pods))
        ends = kept.until if may_end is None else min(may_end, kept.until)
        reserved = and_also(with_reserved_counts(now.record, GangReservation(result.level, counts), kept.until), others_kept)
        self._write_waiting(now.job, reserved, AttemptResult(then.mark, ends))

    def _let_fall(self, now: PlanningRequest) -> None:
        """What it waits for does not come: others get the GPUs, and it is overtaken as often again before it is given any."""
        _LOG.info("%s/%s: the GPUs reserved for it did not become free; others get them", now.job.namespace, now.job.name)
        self._jobs.change(now.job, not_overtaken)
        self._transitions.unreserve_counts(self._jobs.states[now.job.uid])
        self._jobs.states[now.job.uid].result = None
        self._again()

    def _overtake(self, placed: PlanningRequest, plan: Plan) -> None:
        """Count for every gang that stands before this one in the queue: it was passed."""
        uid = placed.job.uid
        ahead = self.queue[: self.queue.index(uid)] if uid in self.queue else []
        self.queue = [one for one in self.queue if one != uid]
        labels = [placed.snapshot.nodes[node].labels for node in {seat.node for seat in plan.seats}]
        self._passed(ahead, labels, placed.job.namespace)

    def overtaken_by(self, pod: PodView) -> None:
        """The same for a plain pod that was bound, as if it had stood in the queue since it was made."""
        node = self._ledger.nodes.get(pod.node) if pod.node else None
        if node is not None and pod.created:
            mine = (-pod.priority, pod.created)
            self._passed([uid for uid in self.queue if (self._place(uid) or mine) < mine], [node.labels], pod.namespace)

    def _place(self, uid: str) -> tuple[int, str] | None:
        """Of a gang that waits, by what it goes before others: see gangs.order."""
        job = self._jobs.views.get(uid)
        if job is None:
            return None
        weight, since, _ = order(job, self._jobs.members(job), self._jobs.record(job))
        return weight, since

    def _passed(self, ahead: Iterable[str], labels: Sequence[Mapping[str, str]], namespace: str) -> None:
        """Count it for these gangs where one of the nodes could serve them.

        Not by their own namespace: who makes a hundred small jobs beside a large one would else have GPUs reserved at will.
        """
        for one in ahead:
            job = self._jobs.views.get(one)
            record = None if job is None else self._jobs.record(job)
            if job is None or record is None or record.attempt != job.attempt or job.namespace == namespace:
                continue
            pod = next((pod for pod in self._jobs.pods_of(one) if pod.gpus), None)
            if pod is not None and any(selected(each, worker_of(pod)) for each in labels):
                self._jobs.change(job, passed)

    def _commit(self, now: PlanningRequest, result: Plan) -> None:
        plan = records.plan_record(result, now.snapshot, self._clock())
        by_uid = {pod.uid: pod for pod in now.pods}
        self._preempting.take_over(now.asks_with, {gpu for seat in plan.pods for gpu in seat.gpus})
        self._transitions.plan(self._jobs.states[now.job.uid], plan.pods, by_uid)
        self._overtake(now, result)
        record = not_waiting_for_level(now.record)
        released = replace(record, state=State.RELEASED, reason="Released", message=placed_message(result), plan=plan)
        self._writes.plan(now.job, released)

    def _write_rejection(
        self,
        job: JobView,
        record: Record,
        reason: str,
        message: str,
        mark: SeenVersions,
        ends: float | None = None,
        *,
        never_fits: bool = False,
    ) -> None:
        self._transitions.unreserve_counts(self._jobs.states[job.uid])
        waiting = replace(not_waiting_for_level(record), state=State.WAITING, reason=reason, message=message, plan=None)
        self._write_waiting(job, waiting, AttemptResult(mark, ends, never_fits))

    def _write_waiting(self, job: JobView, waiting: Record, tried: AttemptResult) -> None:
        """Write why a gang waits, if that is not what stands there."""
        self._jobs.states[job.uid].result = tried
        before = self._jobs.written(job)
        # The count alone is worth a write now and then only: each gang that is placed would cost one for each that waits.
        same = before is not None and replace(waiting, overtaken=before.overtaken) == before
        if not same or (before is not None and waiting.overtaken - before.overtaken >= _COUNTS_WORTH_A_WRITE):
            self._writes.status(job, waiting)
