"""TrainingJobs, their pods, and what the planner has decided about them, in memory."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kompakt_core.contract import scheduling_record
from kompakt_core.contract.plan_record import PlanRecord
from kompakt_core.contract.scheduling_record import Record, State
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import PodUid
from kompakt_extender.gang_state import NO_RECORD, Change, GangPhase, GangState
from kompakt_extender.gangs import members
from kompakt_extender.gated_by_gang import GatedByGang
from kompakt_extender.limits_in_force import LimitsInForce
from kompakt_extender.views import JobView, PodView

_WRITTEN_AS = {State.RELEASED: GangPhase.RELEASED, State.WITHDRAWN: GangPhase.WITHDRAWN}


class Jobs:
    """Index of jobs, and the Limits that hold them.

    A record is read from a job's status once, when the job is first seen; from then on memory leads, because nobody but the
    planner writes it.
    """

    def __init__(self) -> None:
        self.views: dict[str, JobView] = {}
        self.states: dict[str, GangState] = {}  # of exactly the jobs in views
        self.limits = LimitsInForce()
        self._pods: dict[str, dict[PodUid, PodView]] = {}
        self._gated = GatedByGang()
        self._members: dict[str, tuple[int, Sequence[PodView]]] = {}  # by uid: an attempt and its living pods; until one changes
        self._attention: dict[str, int] = {}  # in order; what number the last touch had
        self._touched: dict[str, None] = {}  # ordered set: since somebody asked
        self._asked: dict[str, int] = {}  # by uid: when a pod that asks for something else came or went; no number comes twice
        self._changes = 0
        self.touches = 0
        self.preemption_version = 0  # how often anything changed that tells whether a job may be ended, and from when on
        self._subscribed: list[set[str]] = []

    def set_job(self, job: JobView) -> None:
        if job.uid not in self.views:
            self.states[job.uid] = _adopted(job)
            self._drop_pods_elsewhere(job)
        before = self.views.get(job.uid)
        self.preemption_version += _turn(before) != _turn(job)
        if before is None or before.expected != job.expected:
            self._members.pop(job.uid, None)
        self.views[job.uid] = job
        self.touch(job.uid)

    def remove_job(self, uid: str) -> GangState | None:
        """Its state is for the planner, who has to give back what the gang still holds."""
        self.preemption_version += 1
        self.views.pop(uid, None)
        self.rest(uid)
        self._touched.pop(uid, None)
        self._members.pop(uid, None)
        self._asked.pop(uid, None)
        self._tell(uid)
        return self.states.pop(uid, None)

    def subscribe(self) -> set[str]:
        """A set into which the uid of every job is put that changes or is decided about; who reads it empties it."""
        changed = set(self.views)
        self._subscribed.append(changed)
        return changed

    def unsubscribe(self, changed: set[str]) -> None:
        """Stop filling the set."""
        self._subscribed = [one for one in self._subscribed if one is not changed]

    def _tell(self, uid: str) -> None:
        for changed in self._subscribed:
            changed.add(uid)

    def _drop_pods_elsewhere(self, job: JobView) -> None:
        """An owner is one of the same namespace: what names this job in another is none of its pods."""
        self._members.pop(job.uid, None)
        mine = {uid: pod for uid, pod in self._pods.get(job.uid, {}).items() if pod.namespace == job.namespace}
        if mine:
            self._pods[job.uid] = mine
        else:
            self._pods.pop(job.uid, None)

    def set_pod(self, pod: PodView) -> None:
        job = self.views.get(pod.job_uid)
        if job is not None and job.namespace != pod.namespace:
            return
        self._members.pop(pod.job_uid, None)
        mine = self._pods.setdefault(pod.job_uid, {})
        if pod.uid not in mine or _asks(mine[pod.uid]) != _asks(pod):
            self._pods_differ(pod.job_uid)
        mine[pod.uid] = pod
        self._gated.set_pod(pod)
        self.touch(pod.job_uid)

    def remove_pod(self, pod: PodView) -> None:
        self._gated.remove_pod(pod)
        self._members.pop(pod.job_uid, None)
        mine = self._pods.get(pod.job_uid, {})
        mine.pop(pod.uid, None)
        if not mine:
            self._pods.pop(pod.job_uid, None)
        self._pods_differ(pod.job_uid)
        self.touch(pod.job_uid)

    def _pods_differ(self, uid: str) -> None:
        if uid in self.views:
            self._changes += 1
            self._asked[uid] = self._changes

    def asked(self, uid: str) -> int:
        """Another number as soon as the gang's pods ask for something else."""
        return self._asked.get(uid, 0)

    def pods_of(self, uid: str) -> Iterable[PodView]:
        """The job's pods of any attempt."""
        return self._pods.get(uid, {}).values()

    def gated_pods(self) -> int:
        """How many pods that others made wait behind our gate, in gangs whose object is there: a plan is written on that."""
        return self._gated.count(self.views)

    def members(self, job: JobView) -> Sequence[PodView]:
        """As gangs.members: each cycle asks it of every gang that waits."""
        attempt, found = self._members.get(job.uid, (None, ()))
        if attempt != job.attempt:
            found = members(job, self.pods_of(job.uid))
            if job.uid in self.views:
                self._members[job.uid] = (job.attempt, found)
        return found

    def touch(self, uid: str) -> None:
        """The job is due in the next cycle."""
        if uid in self.views:
            self.touches += 1
            self._attention[uid], self._touched[uid] = self.touches, None
            self._tell(uid)

    def touched(self) -> list[str]:
        """Jobs that were touched since this was last asked."""
        found, self._touched = list(self._touched), {}
        return found

    def rest(self, uid: str) -> None:
        """The job needs nothing until it or one of its pods changes."""
        self._attention.pop(uid, None)

    def touched_after(self, uid: str, number: int) -> bool:
        """Whether it was touched when there had been so many touches already."""
        return self._attention.get(uid, 0) > number

    def due(self) -> list[str]:
        """Jobs that may need something."""
        return list(self._attention)

    def record(self, job: JobView) -> Record:
        """What is decided, written or about to be."""
        state = self.states.get(job.uid)
        return NO_RECORD if state is None else state.record

    def written(self, job: JobView) -> Record | None:
        """What surely stands in the job's status."""
        state = self.states.get(job.uid)
        return None if state is None else state.written

    def decide(self, job: JobView, record: Record) -> Record:
        """This counts from now on, though it is not written yet. Not to be called while the job is being written about."""
        state = self.states[job.uid]
        assert state.meanwhile is None, f"{job.namespace}/{job.name}: decided anew while it is being written about"
        self._set(state, record)
        self.touch(job.uid)
        return record

    def change(self, job: JobView, change: Change, *, due: bool = True) -> None:
        """This part of what is decided changes, also while the job is being written about: of what is being written as well.

        `due`: whether anything follows from it.
        """
        state = self.states[job.uid]
        self._set(state, change(state.record))
        if state.meanwhile is not None:
            state.meanwhile.append(change)
        if due:
            self.touch(job.uid)

    def begin_writing(self, job: JobView) -> GangState:
        """Until `end_writing` nothing but `change` touches what is decided about the job."""
        state = self.states[job.uid]
        state.meanwhile = []
        return state

    def end_writing(self, state: GangState) -> None:
        """The write came to its end, whatever that was."""
        state.meanwhile = None

    def confirm(self, state: GangState, record: Record) -> None:
        """This is written, and counts; what changed since it was sent goes for it too."""
        if not self.knows(state):
            return
        state.written = record
        for change in state.meanwhile or ():
            record = change(record)
        self._set(state, record)

    def knows(self, state: GangState) -> bool:
        """False once its job is gone, even if one with the same uid has come back."""
        return self.states.get(state.uid) is state

    def _set(self, state: GangState, record: Record) -> None:
        self.preemption_version += _stands(state.record) != _stands(record)
        state.record = record
        self._tell(state.uid)

    def fresh(self, job: JobView, record: Record) -> Record:
        """A new attempt begins: nodes stay left out, everything else starts anew."""
        return self.decide(job, Record(job.attempt, State.WAITING, "", "", "", record.excluded))

    def complete(self, job: JobView, record: Record, now: str) -> Record:
        """The gang is complete: from now on it waits."""
        if record.waiting_since:
            return record
        return self.decide(job, Record(record.attempt, State.WAITING, "", "", now, record.excluded))

    def look_up(self, job: JobView, plan: PlanRecord) -> None:
        """Its plan as it was read, with the GPUs that the indices stand for."""
        state = self.states[job.uid]
        state.record = replace(state.record, plan=plan)
        if state.written is not None and state.written.plan is not None:
            state.written = replace(state.written, plan=plan)

    def released(self, pod: PodView) -> bool:
        """Whether the plan that this pod carries still stands."""
        state = self.states.get(pod.job_uid)
        record = NO_RECORD if state is None else state.record
        if record.state is not State.RELEASED or record.plan is None:
            return False
        return any((seat.uid, seat.node, seat.gpus) == (pod.uid, pod.planned_node, pod.planned_gpus) for seat in record.plan.pods)


def _adopted(job: JobView) -> GangState:
    """A gang as it stands written in its job's status."""
    try:
        found = scheduling_record.decode(job.scheduling)
    except InvalidInput:
        found = None  # written over with the next decision
    if found is None:
        return GangState(job.uid)
    phase = _WRITTEN_AS.get(found.state, GangPhase.WAITING) if found.attempt == job.attempt else GangPhase.WAITING
    return GangState(job.uid, found, phase, written=found)


def _asks(pod: PodView) -> tuple[object, ...]:
    """What of a pod has a part in where it may go."""
    size = pod.gpus, pod.cpu_millis, pod.memory_bytes, pod.rules, pod.annotations
    return *size, pod.priority, pod.preempts, pod.ours, pod.gates, pod.gang, pod.problem, pod.deleting, pod.finished


def _turn(job: JobView | None) -> tuple[object, ...]:
    if job is None:
        return ()
    return job.attempt, job.running_since, job.min_runtime_seconds, job.workers, job.ours, job.suspended, job.finished


def _stands(record: Record) -> tuple[object, ...]:
    return record.state is State.RELEASED, record.attempt, record.plan.released_at if record.plan is not None else ""
