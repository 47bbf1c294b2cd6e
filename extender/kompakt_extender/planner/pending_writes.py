"""The planner's writes under way: at most one per job, and a job whose write failed rests until it changes."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from datetime import datetime
from typing import Any

from kompakt_core.contract.scheduling_record import Record
from kompakt_core.ids import PodUid
from kompakt_extender.jobs import Jobs
from kompakt_extender.ledger import ClaimSource, GpuLedger
from kompakt_extender.metrics import ExtenderMetrics
from kompakt_extender.release_writer import ReleaseWriter, WriteOutcome
from kompakt_extender.views import JobView, PodView
from kompakt_extender.writer import NotSent

_LOG = logging.getLogger(__name__)
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
    ) -> None:
        self._ledger = ledger
        self._jobs = jobs
        self._releaser = releaser
        self._metrics = metrics
        self._clock = clock
        self._wake = wake
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._stale: dict[str, tuple[str, float]] = {}  # job uid -> resourceVersion with which a write failed, and when
        self._conflicted: set[str] = set()  # uids of those that failed because the job is newer than we knew
        self._unsure: dict[str, list[PodUid]] = {}  # by job uid: pods whose claims count only if the plan gets written

    @property
    def busy(self) -> tuple[asyncio.Task[None], ...]:
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
        version, when = self._stale.get(uid, ("", 0.0))
        return version == job.resource_version and time.monotonic() - when < _RETRY_SECONDS

    def unsettled(self, uid: str) -> bool:
        """A write is under way, or the job was newer than what we wrote: it is reconciled again soon."""
        return self.writing(uid) or (uid in self._conflicted and self.resting(uid))

    def mark_stale(self, job: JobView) -> None:
        """Leave the job alone until it changes, or for a while."""
        self._stale[job.uid] = (job.resource_version, time.monotonic())

    def forget(self, uid: str) -> None:
        """The job is gone."""
        self._stale.pop(uid, None)
        self._conflicted.discard(uid)
        self.drop_unwritten(uid)

    def drop_unwritten(self, uid: str) -> None:
        """End the claims of a plan that was not written. They last until the job is reconciled again: who is behind it in the
        order must not have its places meanwhile.
        """
        if not self.writing(uid):
            self._drop(self._unsure.pop(uid, []))

    def _drop(self, pods: Iterable[PodUid]) -> None:
        for uid in pods:
            self._ledger.drop_claims(uid, ClaimSource.PLAN)

    def stop(self) -> None:
        """Halt all at once."""
        for task in self._busy.values():
            task.cancel()

    def status(self, job: JobView, record: Record) -> None:
        """Write what is decided, nothing else."""
        self._start(job, self._write_only(job, record))

    def plan(self, job: JobView, record: Record) -> None:
        """Write a plan, and then release the gang's pods; its claims end where the status can not be written."""
        assert record.plan is not None
        self._unsure[job.uid] = [seat.uid for seat in record.plan.pods]
        self._start(job, self._release(job, record))

    def finish_release(self, job: JobView, record: Record, pods: list[PodView]) -> None:
        """Finish a release of which the status is written."""
        self._start(job, self._releaser.release(record, pods))

    def _start(self, job: JobView, work: Coroutine[Any, Any, None]) -> None:
        """Run a job's write; while it runs the job is left alone."""
        self._jobs.begin_writing(job)
        task = asyncio.create_task(work)
        self._busy[job.uid] = task

        def done(task: asyncio.Task[None]) -> None:
            self._busy.pop(job.uid, None)
            self._jobs.end_writing(job)
            error = None if task.cancelled() else task.exception()
            if error is not None:
                self.mark_stale(job)
                if not isinstance(error, NotSent):
                    _LOG.error("%s/%s: %r", job.namespace, job.name, error, exc_info=error)
            self._jobs.touch(job.uid)
            self._wake()

        task.add_done_callback(done)

    async def _write_only(self, job: JobView, record: Record) -> None:
        await self._write(job, record)

    async def _write(self, job: JobView, record: Record) -> WriteOutcome:
        self._conflicted.discard(job.uid)
        outcome = await self._releaser.write(job, record, self._clock())
        if outcome is WriteOutcome.DONE:
            self._jobs.confirm(job, record)
            self._stale.pop(job.uid, None)
            return outcome
        self.mark_stale(job)  # its next version shows more
        if outcome is WriteOutcome.CONFLICT:
            self._conflicted.add(job.uid)
        return outcome

    async def _release(self, job: JobView, record: Record) -> None:
        """First the job's status, and only after its answer the gates."""
        outcome = await self._write(job, record)
        if outcome is WriteOutcome.REFUSED or job.uid not in self._jobs.views:
            self._drop(self._unsure.pop(job.uid))
        if outcome is not WriteOutcome.DONE:
            return
        uids = self._unsure.pop(job.uid, [])
        self._metrics.plans.inc()
        _LOG.info("%s/%s attempt %d: %s", job.namespace, job.name, job.attempt, record.message)
        for uid in uids:
            self._ledger.restore(uid)
        await self._releaser.release(record, [pod for uid in uids if (pod := self._ledger.pods.get(uid))])
