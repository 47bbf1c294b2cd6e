"""Step 6 of a cycle, commit: what a valid decision changes: memory at once, the cluster by a write that no cycle waits for."""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from kompakt_core.contract.scheduling_record import Record, State
from kompakt_core.placement.model import Level, Plan
from kompakt_extender import record as records
from kompakt_extender.gang_state import AttemptResult, GangKind
from kompakt_extender.gangs import defends_with, placed_message
from kompakt_extender.jobs import Jobs
from kompakt_extender.metrics import ExtenderMetrics
from kompakt_extender.planner import validation as v
from kompakt_extender.planner.known_rejections import common_answer
from kompakt_extender.planner.newcomers import PODS_WAIT, joined
from kompakt_extender.planner.nomination import Unplannable
from kompakt_extender.planner.pending_writes import PendingWrites
from kompakt_extender.planner.planning_queue import PlanningQueue
from kompakt_extender.planner.planning_request import PlanningRequest
from kompakt_extender.planner.preemption import PreemptionPlanner
from kompakt_extender.planner.reserved_places import ReservedPlaces
from kompakt_extender.planner.transitions import Transitions
from kompakt_extender.planner.waiting_status import (
    and_also,
    count_is_worth_a_write,
    not_overtaken,
    not_waiting_for_level,
    waiting_for_level,
    with_reserved_counts,
)
from kompakt_extender.views import JobView

_LOG = logging.getLogger(__name__)


class Committer:
    """Carries outcomes out."""

    def __init__(
        self,
        jobs: Jobs,
        writes: PendingWrites,
        preempting: PreemptionPlanner,
        places: ReservedPlaces,
        transitions: Transitions,
        queue: PlanningQueue,
        metrics: ExtenderMetrics,
        clock: Callable[[], datetime],
    ) -> None:
        self._jobs = jobs
        self._writes = writes
        self._preempting = preempting
        self._places = places
        self._transitions = transitions
        self._queue = queue
        self._metrics = metrics
        self._clock = clock

    def commit(self, then: PlanningRequest, now: PlanningRequest, outcome: v.Outcome, kind: GangKind | None = None) -> bool:
        """Carry out what was decided on `then` and holds `now`; False where the gang is planned again. `kind`: see kind_of."""
        gang = self._jobs.states[now.job.uid]
        if now.beside and not isinstance(outcome, v.PlanAgain | v.Place):
            level = now.gang.required_level
            where = "" if level is Level.CLUSTER else f" at the level {level} that the gang needs"
            self._let_wait(now.job, now.record, f"there is no room for them now{where}", AttemptResult(then.mark))
            return True
        match outcome:
            case v.PlanAgain(conflict):
                if conflict:
                    self._metrics.plans_overtaken.inc()
                return False
            case v.Place(plan):
                self._place(now, plan)
            case v.EndOthers(found):
                gang.result = AttemptResult(then.mark)
                self._preempting.begin(now, found)
            case v.AwaitVictims(until):
                self._write_waiting(now.job, now.record, AttemptResult(then.mark, until))
            case v.GiveUpVictims():
                self._preempting.give_up(now.job.uid)
                gang.result = None
                return False
            case v.WaitForLevel(wait, ends, kept):
                self._transitions.unreserve_counts(gang)
                waiting = and_also(waiting_for_level(now.record, wait, then.since), kept)
                self._write_waiting(now.job, waiting, AttemptResult(then.mark, ends))
            case v.ReserveCounts():
                self._reserve(then, now, outcome)
            case v.LetCountsFall():
                self._let_fall(now)
                return False
            case v.Reject(reason, message, ends, depends):
                answer = common_answer(kind, then, outcome)
                self._reject(now.job, now.record, reason, message, AttemptResult(then.mark, ends, depends, answer))
        return True

    def reject(self, one: Unplannable) -> None:
        """Write why core was not asked."""
        self._reject(one.job, one.record, one.reason, one.message, AttemptResult(one.mark))

    def _place(self, now: PlanningRequest, result: Plan) -> None:
        self._jobs.states[now.job.uid].result = None
        plan = records.plan_record(result, now.snapshot, self._clock())
        self._preempting.take_over(now.asks_with, {gpu for seat in plan.pods for gpu in seat.gpus})
        self._queue.passed_by_gang(now, result)
        if not all(pod.exists for pod in now.pods):
            self._places.reserve(now, plan)
            return
        self._transitions.plan(self._jobs.states[now.job.uid], plan.pods, {pod.uid: pod for pod in now.pods})
        if now.beside and now.record.plan is not None:
            gpus = {name: records.uuids_of(state.graph) for name, state in now.snapshot.nodes.items()}
            plan = joined(now.record.plan, now.beside, plan, gpus)
        record = not_waiting_for_level(now.record)
        released = replace(record, state=State.RELEASED, reason="Released", message=placed_message(plan), plan=plan)
        self._writes.plan(now.job, released)

    def _reserve(self, then: PlanningRequest, now: PlanningRequest, outcome: v.ReserveCounts) -> None:
        gang, counts = self._jobs.states[now.job.uid], outcome.reservation.gpus
        gang.counted = outcome.counted
        self._transitions.reserve_counts(gang, counts, defends_with(now.pods))
        reserved = with_reserved_counts(now.record, outcome.reservation, outcome.counted.until)
        self._write_waiting(now.job, and_also(reserved, outcome.kept), AttemptResult(then.mark, outcome.ends))

    def _let_fall(self, now: PlanningRequest) -> None:
        """Others get the GPUs, and it is overtaken as often again before it is given any."""
        _LOG.info("%s/%s: the GPUs reserved for it did not become free; others get them", now.job.namespace, now.job.name)
        gang = self._jobs.states[now.job.uid]
        self._jobs.change(now.job, not_overtaken)
        self._transitions.unreserve_counts(gang)
        gang.result = None

    def _let_wait(self, job: JobView, record: Record, why: str, tried: AttemptResult) -> None:
        """Newcomers of a gang find no place; the others keep theirs."""
        self._jobs.states[job.uid].result = tried
        waiting = replace(record, reason=PODS_WAIT, message=f"pods that were made anew wait beside those that run: {why}")
        if waiting != self._jobs.written(job):
            self._writes.status(job, waiting)

    def _reject(self, job: JobView, record: Record, reason: str, message: str, tried: AttemptResult) -> None:
        if record.state is State.RELEASED:
            self._let_wait(job, record, message, tried)
            return
        self._transitions.unreserve_counts(self._jobs.states[job.uid])
        waiting = replace(not_waiting_for_level(record), state=State.WAITING, reason=reason, message=message, plan=None)
        self._write_waiting(job, waiting, tried)

    def _write_waiting(self, job: JobView, waiting: Record, tried: AttemptResult) -> None:
        """Write why a gang waits, if that is not what stands there."""
        self._jobs.states[job.uid].result = tried
        before = self._jobs.written(job)
        same = before is not None and replace(waiting, overtaken=before.overtaken) == before
        if not same or count_is_worth_a_write(waiting, before):
            self._writes.status(job, waiting)
