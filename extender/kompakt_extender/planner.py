"""The planner's loop: which gang gets its places, written first on the job, then on its pods.

A round never waits for the API server; writes run as tasks, at most one per job. Core thinks in a thread of its own, on values
that nothing changes, because it takes tenths of a second on thousands of nodes and the verbs are served by this loop; its answer
counts only if it holds for the cluster as it is by then. What was decided counts at once (claims in the ledger, records here),
so that the next decision sees it before the cluster shows it.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import NodeName, PodUid
from kompakt_core.placement.gang import plan_gang
from kompakt_core.placement.model import Level, Plan, Reason, Refusal
from kompakt_extender import record as records
from kompakt_extender import words
from kompakt_extender.gangs import (
    gang_of,
    members,
    order,
    placed_message,
    plannable,
    replannable,
    waiting_message,
)
from kompakt_extender.jobs import Jobs
from kompakt_extender.ledger import Ledger, Source
from kompakt_extender.metrics import Metrics
from kompakt_extender.question import Mark, Question, same_gang, same_machines, stands
from kompakt_extender.record import Record, State
from kompakt_extender.release import Outcome, Releaser
from kompakt_extender.views import JobView, PodView
from kompakt_extender.writer import NotSent

_LOG = logging.getLogger(__name__)
WITHDRAW_SECONDS = 120.0  # a gang not bound that long after its release gives its places back
WITHDRAW_VOLUMES_SECONDS = 600.0  # if a pod mounts a claim: kube-scheduler itself waits so long for a volume (bindTimeoutSeconds)
EXCLUDE_SECONDS = 600.0  # a node that refused a gang is left out for so long
_BATCH_SECONDS = 0.005  # changes come in flocks: a gang's pods, a node's conditions
_TICK_SECONDS = 1.0
_RETRY_SECONDS = 10.0  # after a failed write, unless the job changes before
_T = TypeVar("_T")


class Think(Protocol):
    """Runs work that may take long, away from the loop."""

    async def __call__(self, work: Callable[[], _T], /) -> _T:
        """What the work gives; its errors are raised here."""
        ...


class Planner:
    """Plans while it runs; `stop` halts it at once."""

    def __init__(
        self,
        ledger: Ledger,
        jobs: Jobs,
        releaser: Releaser,
        metrics: Metrics,
        clock: Callable[[], datetime],
        levels: Mapping[Level, str],
        *,
        think: Think = asyncio.to_thread,
    ) -> None:
        self._ledger = ledger
        self._jobs = jobs
        self._releaser = releaser
        self._metrics = metrics
        self._clock = clock
        self._levels = levels
        self._think = think
        self._began = clock()
        self._wake = asyncio.Event()
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._tried: dict[str, Mark] = {}  # job uid -> what the last refusal was based on
        self._stale: dict[str, tuple[str, float]] = {}  # job uid -> resourceVersion with which a write failed, and when
        self._loop_task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._loop_task = asyncio.create_task(self._run())

    def stop(self) -> None:
        for task in (*self._busy.values(), *([self._loop_task] if self._loop_task else [])):
            task.cancel()

    def wake(self) -> None:
        """Something changed."""
        self._wake.set()

    @property
    def running(self) -> bool:
        """False once the loop ended by an error of ours."""
        return self._loop_task is not None and not self._loop_task.done()

    @property
    def busy(self) -> tuple[asyncio.Task[None], ...]:
        """The writes under way."""
        return tuple(self._busy.values())

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_TICK_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                pass
            await asyncio.sleep(_BATCH_SECONDS)
            self._wake.clear()
            start = time.perf_counter()
            await self.round()
            self._metrics.plan_seconds.observe(time.perf_counter() - start)

    async def round(self) -> None:
        """Look at every job that may need something, then plan the gangs that wait, one after the other."""
        waiting: list[tuple[tuple[int, str, str], str]] = []
        for uid in self._jobs.attention():
            if not self._resting(uid) and (key := self._guarded(self._look, uid)) is not None:
                waiting.append((key, uid))
        self._metrics.gangs.labels(State.WAITING.value).set(len(waiting))
        for _, uid in sorted(waiting):
            question = None if self._resting(uid) else self._guarded(self._ask, uid)
            if question is not None:
                await self._consider(question)

    def _resting(self, uid: str) -> bool:
        """A write is under way, or one failed and the job has not changed since."""
        job = self._jobs.views.get(uid)
        if job is None or uid in self._busy:
            return True
        version, when = self._stale.get(uid, ("", 0.0))
        return version == job.resource_version and time.monotonic() - when < _RETRY_SECONDS

    def _guarded(self, act: Callable[[str], _T], uid: str) -> _T | None:
        """One job that we stumble over must not stop the others."""
        try:
            return act(uid)
        except Exception:
            job = self._jobs.views[uid]
            _LOG.exception("%s/%s: planning failed", job.namespace, job.name)
            self._mark_stale(job)
            return None

    def _mark_stale(self, job: JobView) -> None:
        self._stale[job.uid] = (job.resource_version, time.monotonic())

    def forget(self, uid: str) -> None:
        """The job is gone."""
        self._tried.pop(uid, None)
        self._stale.pop(uid, None)

    def adopt(self) -> None:
        """Take over what an earlier leader decided: its plans hold GPUs, its withdrawn ones hold none."""
        for job in self._jobs.views.values():
            record = self._jobs.record(job)
            standing = record.plan if record.state is State.RELEASED and record.attempt == job.attempt else None
            places = {seat.uid: seat for seat in standing.pods} if standing else {}
            for pod in self._jobs.pods_of(job.uid):
                if pod.uid in places and pod.node is None and not pod.finished:
                    self._ledger.claim(Source.PLAN, pod, places[pod.uid].node, places[pod.uid].gpus)
                elif pod.node is None:
                    self._ledger.withdraw(pod.uid)

    def _look(self, uid: str) -> tuple[int, str, str] | None:
        """Attend to what is under way; gives the place in the queue of a gang that can be planned."""
        job = self._jobs.views[uid]
        record = self._jobs.record(job)
        pods = members(job, self._jobs.pods_of(uid))
        if not job.ours or job.suspended or job.finished or job.attempt == 0:
            self._jobs.rest(uid)
            return None
        if record.attempt != job.attempt:
            record = self._jobs.fresh(job, record)
        if record.state is State.RELEASED:
            self._attend(job, record, pods)
            return None
        if record.state is State.WITHDRAWN:
            return self._attend_withdrawn(job, record, pods)
        if not plannable(job, pods) and not replannable(job, pods):
            return None
        return order(job, pods, self._jobs.complete(job, record, records.stamp(self._clock())))

    def _ask(self, uid: str) -> Question | None:
        """What to think about for one gang; None where nothing has changed since the last refusal."""
        question = self._pose(uid)
        return None if question is None or self._tried.get(uid) == question.mark else question

    def _pose(self, uid: str) -> Question | None:
        """The question as it stands now; None where there is nothing to plan."""
        job = self._jobs.views[uid]
        record = self._jobs.record(job).without_expired(self._clock())
        mark = (self._ledger.version, job.resource_version, len(record.excluded))
        pods = members(job, self._jobs.pods_of(uid))
        if not self._still(job, record, pods):
            return None
        try:
            gang = gang_of(job, pods, record, self._clock())
        except InvalidInput as error:
            self._refuse(job, record, Reason.NEVER_FITS.value, str(error), mark)
            return None
        return Question(job, record, tuple(pods), gang, self._ledger.snapshot(), mark)

    async def _consider(self, question: Question) -> None:
        """Let core think, and act on its answer if it still holds."""
        try:
            answer = await self._think(lambda: plan_gang(question.snapshot, question.gang, self._levels))
            self._act(question, answer)
        except Exception:
            _LOG.exception("%s/%s: planning failed", question.job.namespace, question.job.name)
            self._mark_stale(question.job)

    def _act(self, then: Question, answer: Plan | Refusal) -> None:
        """Nothing that was true of the snapshot is taken to be true of now; what fails is asked again in the next round."""
        uid = then.job.uid
        now = None if self._resting(uid) else self._pose(uid)
        if now is None:
            return
        if not same_gang(then, now):
            self.wake()
        elif isinstance(answer, Refusal):
            self._turn_down(then, now, answer)
        elif stands(answer, then, now):
            self._tried.pop(uid, None)
            self._reserve(now, answer)
        else:
            self._metrics.plans_overtaken.inc()
            self.wake()

    def _turn_down(self, then: Question, now: Question, answer: Refusal) -> None:
        """Never is said only of a cluster that is fully known, and that is still the one that was thought about."""
        reason, message = answer.reason.value, waiting_message(answer)
        if answer.reason is Reason.DOES_NOT_FIT_NOW:
            reason = State.WAITING.value
        elif answer.reason is Reason.NEVER_FITS:
            if not same_machines(then, now):
                self.wake()
                return
            if self._ledger.awaits_reports:
                reason, message = State.WAITING.value, words.NOT_ALL_REPORTED
        self._refuse(now.job, now.record, reason, message, then.mark)

    def _still(self, job: JobView, record: Record, pods: list[PodView]) -> bool:
        """Whether the gang can be planned (still, when others were planned meanwhile)."""
        gone = job.suspended or job.finished or record.attempt != job.attempt
        return not gone and (plannable(job, pods) or replannable(job, pods))

    def _reserve(self, now: Question, answer: Plan) -> None:
        plan = records.plan_record(answer, now.snapshot, self._clock())
        by_uid = {pod.uid: pod for pod in now.pods}
        for seat in plan.pods:
            self._ledger.claim(Source.PLAN, by_uid[seat.uid], seat.node, seat.gpus)
        released = replace(now.record, state=State.RELEASED, reason="Released", message=placed_message(answer), plan=plan)
        self._start(now.job, self._release(now.job, released))

    def _refuse(self, job: JobView, record: Record, reason: str, message: str, mark: Mark) -> None:
        waiting = replace(record, state=State.WAITING, reason=reason, message=message, plan=None)
        self._tried[job.uid] = mark
        if waiting != self._jobs.written(job):
            self._start(job, self._write_only(job, waiting))

    def _attend(self, job: JobView, record: Record, pods: list[PodView]) -> None:
        """A released gang: finish its release as written, or take the plan back when it stays unbound."""
        if record.plan is None:
            return
        places = {seat.uid: seat for seat in record.plan.pods}
        unbound = [pod for pod in pods if pod.node is None and pod.uid in places]
        if not unbound:
            if len(pods) == job.workers:
                self._jobs.rest(job.uid)
            return
        if unfinished := [pod for pod in unbound if pod.gated]:
            self._start(job, self._releaser.release(record, unfinished))
            return
        since = max(records.moment(record.plan.released_at), self._began)
        patience = WITHDRAW_VOLUMES_SECONDS if any(pod.mounts_claims for pod in unbound) else WITHDRAW_SECONDS
        if self._clock() - since >= timedelta(seconds=patience):
            message = f"not bound within {patience:.0f} s after the release"
            self._withdraw(job, record, message, unbound, [places[pod.uid].node for pod in unbound])

    def _withdraw(self, job: JobView, record: Record, message: str, unbound: list[PodView], nodes: list[NodeName]) -> None:
        until = records.stamp(self._clock() + timedelta(seconds=EXCLUDE_SECONDS))
        withdrawn = replace(
            record.excluding(nodes, until, "NotBound"), state=State.WITHDRAWN, reason="Withdrawn", message=message
        )
        _LOG.warning("%s/%s: plan withdrawn, %s", job.namespace, job.name, message)
        self._metrics.withdrawals.inc()
        self._jobs.decide(job, withdrawn)  # from here on bind refuses this plan
        for pod in unbound:
            self._ledger.withdraw(pod.uid)
        self._start(job, self._write_only(job, withdrawn))

    def _attend_withdrawn(self, job: JobView, record: Record, pods: list[PodView]) -> tuple[int, str, str] | None:
        """All bound meanwhile: revoked. None bound: plan again. Some bound: the operator makes the next attempt."""
        if record != self._jobs.written(job):
            self._start(job, self._write_only(job, record))
            return None
        if any(self._ledger.claims_of(pod.uid, Source.BIND) for pod in pods):
            return None  # a bind is under way: its outcome decides
        if len(pods) == job.workers and all(pod.node for pod in pods):
            revoked = replace(record, state=State.RELEASED, reason="Released", message="bound after all")
            self._start(job, self._write_only(job, revoked))
            return None
        return order(job, pods, record) if replannable(job, pods) else None

    def exclude(self, job_uid: str, node: NodeName, reason: str) -> None:
        """A node failed a pod of this job before any container started: leave it out of the next plans."""
        job = self._jobs.views.get(job_uid)
        if job is not None:
            until = records.stamp(self._clock() + timedelta(seconds=EXCLUDE_SECONDS))
            self._jobs.decide(job, self._jobs.record(job).excluding([node], until, reason))

    def _start(self, job: JobView, work: Coroutine[Any, Any, None]) -> None:
        """Run a job's write; while it runs the job is left alone."""
        task = asyncio.create_task(work)
        self._busy[job.uid] = task

        def done(task: asyncio.Task[None]) -> None:
            self._busy.pop(job.uid, None)
            error = None if task.cancelled() else task.exception()
            if error is not None:
                self._mark_stale(job)
                if not isinstance(error, NotSent):
                    _LOG.error("%s/%s: %r", job.namespace, job.name, error, exc_info=error)
            self._jobs.touch(job.uid)
            self.wake()

        task.add_done_callback(done)

    async def _write_only(self, job: JobView, record: Record) -> None:
        await self._write(job, record)

    async def _write(self, job: JobView, record: Record) -> bool:
        outcome = await self._releaser.write(job, record, self._clock())
        if outcome is Outcome.DONE:
            self._jobs.confirm(job, record)
            self._stale.pop(job.uid, None)
            return True
        self._mark_stale(job)  # its next version tells more
        return False

    async def _release(self, job: JobView, record: Record) -> None:
        """First the job's status, and only after its answer the gates."""
        assert record.plan is not None
        uids = [seat.uid for seat in record.plan.pods]
        if not await self._write(job, record):
            for uid in uids:
                self._ledger.drop_claims(uid, Source.PLAN)
            return
        self._metrics.plans.inc()
        _LOG.info("%s/%s attempt %d: %s", job.namespace, job.name, job.attempt, record.message)
        for uid in uids:
            self._ledger.restore(uid)
        await self._releaser.release(record, [pod for uid in uids if (pod := self._ledger.pods.get(PodUid(uid)))])
