"""One gang's question to core, and what follows from the answer.

Core thinks in a thread of its own, on values that nothing changes, because it takes tenths of a second on thousands of nodes and
the verbs are served by this loop; its answer counts only if it holds for the cluster as it is by then.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Protocol, TypeVar

from kompakt_core.errors import InvalidInput
from kompakt_core.placement.gang import plan_gang
from kompakt_core.placement.model import Level, Plan, Reason, Refusal
from kompakt_extender import record as records
from kompakt_extender import words
from kompakt_extender.gangs import gang_of, members, placed_message, plannable, replannable, waiting_message
from kompakt_extender.jobs import Jobs
from kompakt_extender.ledger import Ledger, Source
from kompakt_extender.metrics import Metrics
from kompakt_extender.planner.question import Mark, Question, same_gang, same_machines, stands
from kompakt_extender.planner.writes import Writes
from kompakt_extender.record import Record, State
from kompakt_extender.views import JobView, PodView

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")


class Think(Protocol):
    """Runs work that may take long, away from the loop."""

    async def __call__(self, work: Callable[[], _T], /) -> _T:
        """What the work gives; its errors are raised here."""
        ...


class Thinking:
    """Asks and acts for one gang at a time. `again` is called where an answer came too late to count."""

    def __init__(
        self,
        ledger: Ledger,
        jobs: Jobs,
        writes: Writes,
        metrics: Metrics,
        clock: Callable[[], datetime],
        levels: Mapping[Level, str],
        again: Callable[[], None],
        think: Think = asyncio.to_thread,
    ) -> None:
        self._ledger = ledger
        self._jobs = jobs
        self._writes = writes
        self._metrics = metrics
        self._clock = clock
        self._levels = levels
        self._again = again
        self._think = think
        self._tried: dict[str, Mark] = {}  # job uid -> what the last refusal was based on

    def forget(self, uid: str) -> None:
        """The job is gone."""
        self._tried.pop(uid, None)

    def ask(self, uid: str) -> Question | None:
        """What to think about for one gang; None where nothing has changed since the last refusal."""
        question = self._pose(uid)
        return None if question is None or self._tried.get(uid) == question.mark else question

    def _pose(self, uid: str) -> Question | None:
        """The question as it stands now; None where there is nothing to plan."""
        job = self._jobs.views[uid]
        record = self._jobs.record(job).without_expired(self._clock())
        mark = (self._ledger.version, job.resource_version, len(record.excluded))
        pods = members(job, self._jobs.pods_of(uid))
        if not _still(job, record, pods):
            return None
        try:
            gang = gang_of(job, pods, record, self._clock())
        except InvalidInput as error:
            self._refuse(job, record, Reason.NEVER_FITS.value, str(error), mark)
            return None
        return Question(job, record, tuple(pods), gang, self._ledger.snapshot(), mark)

    async def consider(self, question: Question) -> None:
        """Let core think, and act on its answer if it still holds."""
        try:
            answer = await self._think(lambda: plan_gang(question.snapshot, question.gang, self._levels))
            self._act(question, answer)
        except Exception:
            _LOG.exception("%s/%s: planning failed", question.job.namespace, question.job.name)
            self._writes.mark_stale(question.job)

    def _act(self, then: Question, answer: Plan | Refusal) -> None:
        """Nothing that was true of the snapshot is taken to be true of now; what fails is asked again in the next round."""
        uid = then.job.uid
        now = None if self._writes.resting(uid) else self._pose(uid)
        if now is None:
            return
        if not same_gang(then, now):
            self._again()
        elif isinstance(answer, Refusal):
            self._turn_down(then, now, answer)
        elif stands(answer, then, now):
            self._tried.pop(uid, None)
            self._reserve(now, answer)
        else:
            self._metrics.plans_overtaken.inc()
            self._again()

    def _turn_down(self, then: Question, now: Question, answer: Refusal) -> None:
        """Never is said only of a cluster that is fully known, and that is still the one that was thought about."""
        reason, message = answer.reason.value, waiting_message(answer)
        if answer.reason is Reason.DOES_NOT_FIT_NOW:
            reason = State.WAITING.value
        elif answer.reason is Reason.NEVER_FITS:
            if not same_machines(then, now):
                self._again()
                return
            if self._ledger.awaits_reports:
                reason, message = State.WAITING.value, words.NOT_ALL_REPORTED
        self._refuse(now.job, now.record, reason, message, then.mark)

    def _reserve(self, now: Question, answer: Plan) -> None:
        plan = records.plan_record(answer, now.snapshot, self._clock())
        by_uid = {pod.uid: pod for pod in now.pods}
        for seat in plan.pods:
            self._ledger.claim(Source.PLAN, by_uid[seat.uid], seat.node, seat.gpus)
        released = replace(now.record, state=State.RELEASED, reason="Released", message=placed_message(answer), plan=plan)
        self._writes.plan(now.job, released)

    def _refuse(self, job: JobView, record: Record, reason: str, message: str, mark: Mark) -> None:
        waiting = replace(record, state=State.WAITING, reason=reason, message=message, plan=None)
        self._tried[job.uid] = mark
        if waiting != self._jobs.written(job):
            self._writes.status(job, waiting)


def _still(job: JobView, record: Record, pods: list[PodView]) -> bool:
    """Whether the gang can be planned (still, when others were planned meanwhile)."""
    gone = job.suspended or job.finished or record.attempt != job.attempt
    return not gone and (plannable(job, pods) or replannable(job, pods))
