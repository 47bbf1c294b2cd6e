"""The planner's writes under way: at most one per job, and a job whose write failed rests until it changes."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from kompakt_core.contract.bound_gpus import BoundGpus
from kompakt_core.contract.scheduling_record import Record
from kompakt_extender.gang_state import FailedWrite, GangState
from kompakt_extender.gangs import placed_message
from kompakt_extender.jobs import Jobs
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.metrics import ExtenderMetrics
from kompakt_extender.planner.transitions import Transitions
from kompakt_extender.release_writer import ReleaseWriter, WriteOutcome
from kompakt_extender.views import JobView, PodView
from kompakt_extender.writer import NotSent

_LOG = logging.getLogger(__name__)
CLAIM_REFUSED: Final = "ClaimRefused"  # the reason of a gang that has its places, and not the ResourceClaims for them
_RETRY_SECONDS = 10.0  # after a failed write, unless the job changes before


class PendingWrites:
    """Starts them, and knows which jobs must be left alone meanwhile. `wake` is called when one has ended."""

    def __init__(
        self,
        ledger: GpuLedger,
        jobs: Jobs,
        releaser: ReleaseWriter,
        metrics: ExtenderMetrics,
        clock: Callable[[], datetime],
        wake: Callable[[], None],
        transitions: Transitions,
    ) -> None:
        self._ledger = ledger
        self._jobs = jobs
        self._releaser = releaser
        self._metrics = metrics
        self._clock = clock
        self._wake = wake
        self._transitions = transitions
        self._busy: dict[str, asyncio.Task[object]] = {}  # by job uid

    @property
    def busy(self) -> tuple[asyncio.Task[object], ...]:
        """The writes under way."""
        return tuple(self._busy.values())

    def writing(self, uid: str) -> bool:
        """A write is under way."""
        return uid in self._busy

    def resting(self, uid: str) -> bool:
        """A write is under way, or one failed and the job has not changed since."""
        job = self._jobs.views.get(uid)
        if job is None or self.writing(uid):
            return True
        failed = self._jobs.states[uid].failed
        return failed is not None and failed.version == job.resource_version and time.monotonic() - failed.when < _RETRY_SECONDS

    def unsettled(self, uid: str) -> bool:
        """A write is under way, or the job was newer than what we wrote: it is reconciled again soon."""
        if self.writing(uid):
            return True
        failed = self._jobs.states[uid].failed if uid in self._jobs.states else None
        return failed is not None and failed.conflict and self.resting(uid)

    def mark_stale(self, gang: GangState, version: str, *, conflict: bool = False) -> None:
        """Leave the job alone until it has another resourceVersion, or for a while."""
        gang.failed = FailedWrite(version, time.monotonic(), conflict)

    def drop_unwritten(self, gang: GangState) -> None:
        """End the claims of a plan that was not written. They last until the job is reconciled again: who is behind it in the
        order must not have its places meanwhile.
        """
        if not self.writing(gang.uid):
            self._transitions.drop_plan(gang)

    def stop(self) -> None:
        """Halt all at once."""
        for task in self._busy.values():
            task.cancel()

    def status(self, job: JobView, record: Record) -> None:
        """Write what is decided, nothing else."""
        self._start(job, self._write(job, record, self._jobs.states[job.uid]))

    def places(self, job: JobView, record: Record) -> None:
        """Write places of pods that do not exist yet; they are kept no longer where that can not be written."""
        self._start(job, self._keep(job, record, self._jobs.states[job.uid]))

    def plan(self, job: JobView, record: Record) -> None:
        """Write a plan, and then release the gang's pods; its claims end where the status can not be written."""
        self._start(job, self._release(job, record, self._jobs.states[job.uid]))

    def finish_release(self, job: JobView, record: Record, pods: list[PodView]) -> None:
        """Finish a release of which the status is written."""
        self._start(job, self._finish_release(job, record, pods))

    def withdraw(self, job: JobView, record: Record, pods: Sequence[PodView]) -> None:
        """Write that a plan is taken back, and then delete what stands for it beside the status."""
        self._start(job, self._withdraw(job, record, pods, self._jobs.states[job.uid]))

    def note(self, job: JobView, given: Sequence[tuple[PodView, BoundGpus]]) -> None:
        """Write on bound pods which GPUs they have."""
        self._start(job, self._releaser.note(given))

    def _start(self, job: JobView, work: Coroutine[Any, Any, object]) -> None:
        """Run a job's write; while it runs the job is left alone."""
        gang = self._jobs.begin_writing(job)
        task = asyncio.create_task(work)
        self._busy[job.uid] = task

        def done(task: asyncio.Task[object]) -> None:
            self._busy.pop(job.uid, None)
            self._jobs.end_writing(gang)
            if not self._jobs.knows(gang):
                self._transitions.drop_plan(gang)
            error = None if task.cancelled() else task.exception()
            if error is not None:
                self.mark_stale(gang, job.resource_version)
                if not isinstance(error, NotSent):
                    _LOG.error("%s/%s: %r", job.namespace, job.name, error, exc_info=error)
            self._jobs.touch(job.uid)
            self._wake()

        task.add_done_callback(done)

    async def _write(self, job: JobView, record: Record, gang: GangState) -> WriteOutcome:
        outcome = await self._releaser.write(job, record, self._clock())
        if outcome is WriteOutcome.DONE:
            self._jobs.confirm(gang, record)
            self._transitions.written(gang)
            gang.failed = None
        else:  # its next version shows more
            self.mark_stale(gang, job.resource_version, conflict=outcome is WriteOutcome.CONFLICT)
        return outcome

    async def _keep(self, job: JobView, record: Record, gang: GangState) -> None:
        if await self._write(job, record, gang) in (WriteOutcome.REFUSED, WriteOutcome.GIVEN_UP):
            self._transitions.unreserve_places(gang)

    async def _release(self, job: JobView, record: Record, gang: GangState) -> None:
        """First the job's status, and only after its answer the gates."""
        outcome = await self._write(job, record, gang)
        if outcome in (WriteOutcome.REFUSED, WriteOutcome.GIVEN_UP):
            self._transitions.drop_plan(gang)
        if outcome is not WriteOutcome.DONE or not self._jobs.knows(gang):
            return
        uids = self._transitions.release(gang)
        self._metrics.plans.inc()
        _LOG.info("%s/%s attempt %d: %s", job.namespace, job.name, job.attempt, record.message)
        await self._finish_release(job, record, [pod for uid in uids if (pod := self._ledger.pods.get(uid))])

    async def _finish_release(self, job: JobView, record: Record, pods: list[PodView]) -> None:
        """What is in the way of the pods' ResourceClaims stands in the job's status, and goes from there with them."""
        words, gang = await self._releaser.release(record, pods), self._jobs.states.get(job.uid)
        told = self._told(record, words)
        now = self._jobs.views.get(job.uid)
        if told != record and gang is not None and now is not None:
            await self._write(now, told, gang)

    @staticmethod
    def _told(record: Record, words: str) -> Record:
        if words:
            return replace(record, reason=CLAIM_REFUSED, message=f"its ResourceClaims cannot be written: {words}")
        if record.reason == CLAIM_REFUSED and record.plan is not None:
            return replace(record, reason="Released", message=placed_message(record.plan))
        return record

    async def _withdraw(self, job: JobView, record: Record, pods: Sequence[PodView], gang: GangState) -> None:
        if await self._write(job, record, gang) is WriteOutcome.DONE:
            await self._releaser.take_back(pods)
