"""One gang's turn in a cycle: decide, validate, commit.

Only deciding takes time, and only while it does, anything else may happen. Validating and committing are one moment of the loop.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from kompakt_core.placement.model import Level, Plan, Reason, Rejection
from kompakt_core.policy.preempt import PreemptionPlan, RunningGang
from kompakt_extender.consolidation import ClusterPolicy
from kompakt_extender.gang_state import GangKind
from kompakt_extender.jobs import Jobs
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.planner.commit import Committer
from kompakt_extender.planner.cycle import PlanningCycle
from kompakt_extender.planner.decision import (
    GangDecision,
    LowerGangs,
    decide,
    decide_who_ends,
    wants_others_ended,
)
from kompakt_extender.planner.known_rejections import kind_of
from kompakt_extender.planner.nomination import Nomination, Unplannable
from kompakt_extender.planner.pending_writes import PendingWrites
from kompakt_extender.planner.planning_request import PlanningRequest
from kompakt_extender.planner.preemption import PreemptionPlanner
from kompakt_extender.planner.validation import Present, validate

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")


class ThreadRunner(Protocol):
    """Runs work that may take long, away from the loop."""

    async def __call__(self, work: Callable[[], _T], /) -> _T:
        """What the work gives; its errors are raised here."""
        ...


class SchedulingAttempt:
    """Plans one gang at a time."""

    def __init__(
        self,
        ledger: GpuLedger,
        jobs: Jobs,
        writes: PendingWrites,
        preempting: PreemptionPlanner,
        nomination: Nomination,
        committer: Committer,
        levels: Mapping[Level, str],
        policy: ClusterPolicy,
        in_thread: ThreadRunner,
    ) -> None:
        self._ledger = ledger
        self._jobs = jobs
        self._writes = writes
        self._preempting = preempting
        self._nomination = nomination
        self._committer = committer
        self._levels = levels
        self._reserved_seconds = policy.reserved_seconds
        self._in_thread = in_thread

    async def run(self, request: PlanningRequest, cycle: PlanningCycle) -> bool:
        """False where what was decided does not hold any more, and the gang is planned again."""
        try:
            kind = self._kind_of(request)
            known = cycle.rejections.of(kind, request)
            if known is None:
                decision = await self._decide(request)
            else:
                await asyncio.sleep(0)  # of thousands of gangs each may be known: verbs and watches go on between them
                request, decision = replace(request, mark=request.mark.after(known.mark)), known.decision
            cycle.rejections.note(kind, request, decision)
            return self._act(request, decision, cycle, kind)
        except Exception:
            _LOG.exception("%s/%s: planning failed", request.job.namespace, request.job.name)
            if request.job.uid in self._jobs.states:
                self._writes.mark_stale(self._jobs.states[request.job.uid], request.job.resource_version)
            return True

    def _kind_of(self, request: PlanningRequest) -> GangKind | None:
        below = request.priority is not None and self._ledger.any_below(request.priority)
        return kind_of(request, anybody_below=below, limited=bool(self._jobs.limits.limits))

    async def _decide(self, request: PlanningRequest) -> GangDecision:
        result = await self._in_thread(lambda: decide(request, self._levels))
        lower = self._lower(request) if wants_others_ended(request, result) else LowerGangs()
        if not lower.may_end:
            nobody = request.priority is None or not self._ledger.any_below(request.priority)
            return GangDecision(result, kept=lower.kept, nobody_below=nobody)
        others = await self._in_thread(lambda: decide_who_ends(request, result, lower.may_end, self._levels))
        return GangDecision(result, others, lower.kept)

    def _lower(self, request: PlanningRequest) -> LowerGangs:
        assert request.priority is not None
        job, priority = request.job, request.priority
        return LowerGangs(self._preempting.running(job, priority), self._preempting.kept_from(job, priority))

    def _act(self, then: PlanningRequest, decision: GangDecision, cycle: PlanningCycle, kind: GangKind | None) -> bool:
        now = None if self._writes.resting(then.job.uid) else self._nomination.current_request(then.job.uid, cycle)
        if isinstance(now, Unplannable):
            self._committer.reject(now)
        if not isinstance(now, PlanningRequest):
            return True  # there is nothing to plan any more
        return self._committer.commit(then, now, validate(then, decision, self._present(now, decision)), kind)

    def _present(self, now: PlanningRequest, decision: GangDecision) -> Present:
        """Reads only what this decision is held against: some of it is read node by node."""
        result, reserved = decision.result, self._ledger.reserved
        never = isinstance(result, Rejection) and result.reason is Reason.NEVER_FITS
        awaits_victims = bool(now.record.victims) and not isinstance(result, Plan)
        return Present(
            now,
            running={one.job_uid: one for one in self._still_running(now, decision)},
            victims_end=awaits_victims and self._preempting.goes_on(now),
            counts_for=reserved.counts_for,
            counted=self._jobs.states[now.job.uid].counted,
            reserved_on=reserved.nodes if isinstance(result, Rejection) else (),
            reserved_seconds=self._reserved_seconds,
            awaits_reports=never and self._ledger.awaits_reports,
        )

    def _still_running(self, now: PlanningRequest, decision: GangDecision) -> Sequence[RunningGang]:
        """Where others are to end for it: who still may."""
        if now.priority is None or not isinstance(decision.others, PreemptionPlan):
            return ()
        return self._preempting.running(now.job, now.priority)
