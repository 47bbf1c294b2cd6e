"""A job's place in a queue of Kueue: what its Workload says, and what follows for the job. Pure.

Kueue decides when a job may run, by quota; the planner decides where. Until its Workload is admitted a job has no pods, and the
planner is not asked. How a Workload is to be treated: Kueue v0.14, pkg/controller/jobframework/reconciler.go (steps 1 to 7).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple, TypeGuard

from kompakt_core.contract.conditions import ConditionReason, Type, condition
from kompakt_core.job.model import TrainingJob
from kompakt_core.job.pods import Cause, WorkerPod
from kompakt_core.job.status import JobStatus
from kompakt_core.job.verdict import GO_ON, Outcome, Verdict


class WorkloadState(Enum):
    """Whether the job may run."""

    PENDING = auto()  # no quota, or not all admission checks are ready
    ADMITTED = auto()
    EVICTED = auto()  # it has quota, and is to give it back
    DELETED = auto()  # it is gone as soon as nobody holds it by a finalizer


class PodSet(NamedTuple):
    """What quota is asked for: so many pods with so many GPUs each."""

    pods: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Workload:
    """`pod_sets`: by role. `message`: why it is not admitted, in Kueue's words. `pods_ready`: Kueue knows that all pods ran."""

    queue: str
    state: WorkloadState
    pod_sets: Mapping[str, PodSet] = field(default_factory=dict)
    message: str = ""
    finished: bool = False
    pods_ready: bool = False


@dataclass(frozen=True, slots=True)
class Queueing:
    """`queue`: the LocalQueue that the job names. `workload`: None while there is none. `unserved`: why nobody works with Kueue
    now; "" where somebody does.
    """

    queue: str
    workload: Workload | None = None
    unserved: str = ""


@dataclass(frozen=True, slots=True)
class QueueJob:
    """Ask for quota: make the Workload, or move it to another queue."""

    queue: str


@dataclass(frozen=True, slots=True)
class ReleaseQuota:
    """Of an evicted Workload: no pod of the job is left."""


@dataclass(frozen=True, slots=True)
class MarkPodsReady:
    """Tell Kueue that all pods ran."""


@dataclass(frozen=True, slots=True)
class FinishWorkload:
    """Tell Kueue that the job is over."""

    succeeded: bool
    message: str


@dataclass(frozen=True, slots=True)
class DeleteWorkload:
    """The job does not ask for quota any more."""


Action = QueueJob | ReleaseQuota | MarkPodsReady | FinishWorkload | DeleteWorkload


def verdict(job: TrainingJob, queueing: Queueing | None, after: JobStatus, own: Sequence[WorkerPod]) -> Verdict:
    """An attempt that was let run, and may not any more, ends; that counts towards no limit. Where nobody works with Kueue, what
    runs goes on.
    """
    began = bool(own) or (after.expected is not None and after.expected.attempt == after.attempt)
    if queueing is None or queueing.unserved or not began or _admitted(job, queueing):
        return GO_ON
    return Verdict(Outcome.RESTART, str(Cause.QUOTA_LOST), _why_lost(job, queueing.workload))


def to_do(job: TrainingJob, queueing: Queueing | None) -> list[Action] | None:
    """What to do before pods of a job without pods may be made; None: they may be."""
    if queueing is None:
        return None
    found = queueing.workload
    if queueing.unserved:
        return []
    if found is not None and found.state is WorkloadState.DELETED:  # its name is not free yet
        return []
    if found is None or (found.state is WorkloadState.PENDING and found.queue != queueing.queue):
        return [QueueJob(queueing.queue)]
    if not asks_for(job, found):
        return [DeleteWorkload()]
    if found.state is WorkloadState.EVICTED:
        return [ReleaseQuota()]
    return [] if found.state is WorkloadState.PENDING else None


def told(job: TrainingJob, queueing: Queueing | None, after: JobStatus, own: Sequence[WorkerPod]) -> JobStatus:
    """The status that says for whom a job without pods waits."""
    if queueing is None or own or _admitted(job, queueing):
        return after
    if queueing.unserved:
        words = f"queue {queueing.queue}: {queueing.unserved}"
        return after.with_conditions(condition(Type.STALLED, True, ConditionReason.QUEUES_NOT_SERVED, words))
    if queueing.workload is None:  # whatever keeps it from being made is told already
        return after
    words = queueing.workload.message
    return after.with_conditions(
        condition(
            Type.RECONCILING, True, ConditionReason.WAITING_FOR_QUOTA, f"queue {queueing.queue}: {words or 'not answered yet'}"
        )
    )


def running(queueing: Queueing | None, after: JobStatus) -> list[Action]:
    """What Kueue is to hear of a job that has its pods."""
    found = queueing.workload if queueing is not None else None
    ready = found is not None and found.state is WorkloadState.ADMITTED and after.holds(Type.RUNNING)
    return [MarkPodsReady()] if found is not None and ready and not found.pods_ready else []


def finished(queueing: Queueing | None, status: JobStatus) -> list[Action]:
    """What Kueue is to hear of a job that is over."""
    if queueing is None or not _stands(queueing.workload) or queueing.workload.finished:
        return []
    well = status.conditions.get(Type.COMPLETE if status.holds(Type.COMPLETE) else Type.FAILED)
    return [FinishWorkload(status.holds(Type.COMPLETE), well.message if well is not None else "")]


def suspended(queueing: Queueing | None, pods: Sequence[WorkerPod]) -> list[Action]:
    """A suspended job keeps its quota until its last pod is gone."""
    return [DeleteWorkload()] if queueing is not None and _stands(queueing.workload) and not pods else []


def _stands(found: Workload | None) -> TypeGuard[Workload]:
    return found is not None and found.state is not WorkloadState.DELETED


def _admitted(job: TrainingJob, queueing: Queueing) -> bool:
    found = queueing.workload
    return found is not None and found.state is WorkloadState.ADMITTED and asks_for(job, found) and not queueing.unserved


def asks_for(job: TrainingJob, found: Workload) -> bool:
    """Whether the Workload asks for what the job needs: others may write it too."""
    return dict(found.pod_sets) == {role.name: PodSet(role.replicas, role.gpus_per_replica) for role in job.roles}


def _why_lost(job: TrainingJob, found: Workload | None) -> str:
    if not _stands(found):
        return "the job's Workload was deleted"
    if not asks_for(job, found):
        return "the job's Workload does not ask for what the job needs"
    return found.message or "the job's Workload is not admitted any more"
