"""TrainingJobs, their pods, and what the planner has decided about them, in memory."""

from collections.abc import Iterable

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import PodUid
from kompakt_extender import record as records
from kompakt_extender.record import Record, State
from kompakt_extender.views import JobView, PodView

_NO_RECORD = Record(attempt=0, state=State.WAITING, reason="", message="", waiting_since="")


class Jobs:
    """Index of jobs. A record is read from a job's status once, when the job is first seen; from then on memory leads,
    because nobody but the planner writes it.
    """

    def __init__(self) -> None:
        self.views: dict[str, JobView] = {}
        self._pods: dict[str, dict[PodUid, PodView]] = {}
        self._records: dict[str, Record] = {}
        self._written: dict[str, Record] = {}
        self._attention: dict[str, None] = {}  # ordered set
        self.turns = 0  # how often a job began to run, ceased to, or changed how long it must not be ended

    def set_job(self, job: JobView) -> None:
        if job.uid not in self.views:
            self._adopt(job)
        self.turns += _turn(self.views.get(job.uid)) != _turn(job)
        self.views[job.uid] = job
        self.touch(job.uid)

    def remove_job(self, uid: str) -> None:
        self.turns += 1
        for store in (self.views, self._records, self._written, self._attention):
            store.pop(uid, None)

    def set_pod(self, pod: PodView) -> None:
        self._pods.setdefault(pod.job_uid, {})[pod.uid] = pod
        self.touch(pod.job_uid)

    def remove_pod(self, pod: PodView) -> None:
        mine = self._pods.get(pod.job_uid, {})
        mine.pop(pod.uid, None)
        if not mine:
            self._pods.pop(pod.job_uid, None)
        self.touch(pod.job_uid)

    def pods_of(self, uid: str) -> Iterable[PodView]:
        """The job's pods of any attempt."""
        return self._pods.get(uid, {}).values()

    def touch(self, uid: str) -> None:
        """The job needs a look in the next round."""
        if uid in self.views:
            self._attention[uid] = None

    def rest(self, uid: str) -> None:
        """The job needs nothing until it or one of its pods changes."""
        self._attention.pop(uid, None)

    def attention(self) -> list[str]:
        """Jobs that may need something."""
        return list(self._attention)

    def record(self, job: JobView) -> Record:
        """What is decided, written or about to be."""
        return self._records.get(job.uid, _NO_RECORD)

    def written(self, job: JobView) -> Record | None:
        """What surely stands in the job's status."""
        return self._written.get(job.uid)

    def decide(self, job: JobView, record: Record) -> Record:
        """This counts from now on, though it is not written yet."""
        self._records[job.uid] = record
        self.touch(job.uid)
        return record

    def confirm(self, job: JobView, record: Record) -> None:
        """This is written."""
        self._records[job.uid] = self._written[job.uid] = record

    def fresh(self, job: JobView, record: Record) -> Record:
        """A new attempt begins: nodes stay left out, everything else starts anew."""
        return self.decide(job, Record(job.attempt, State.WAITING, "", "", "", record.excluded))

    def complete(self, job: JobView, record: Record, now: str) -> Record:
        """The gang is complete: from now on it waits."""
        if record.waiting_since:
            return record
        return self.decide(job, Record(record.attempt, State.WAITING, "", "", now, record.excluded))

    def released(self, pod: PodView) -> bool:
        """Whether the plan that this pod carries still stands."""
        record = self._records.get(pod.job_uid)
        if record is None or record.state is not State.RELEASED or record.plan is None:
            return False
        return any((seat.uid, seat.node, seat.gpus) == (pod.uid, pod.planned_node, pod.planned_gpus) for seat in record.plan.pods)

    def _adopt(self, job: JobView) -> None:
        try:
            found = records.read(job.scheduling)
        except InvalidInput:
            found = None  # written over with the next decision
        if found is not None:
            self._records[job.uid] = self._written[job.uid] = found


def _turn(job: JobView | None) -> tuple[object, ...]:
    return () if job is None else (job.attempt, job.running_since, job.min_runtime_seconds)
