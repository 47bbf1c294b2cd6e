"""What the pods of the current attempt say about the whole gang: go on, done, failed, or start anew."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from kompakt_core.job import batches
from kompakt_core.job.batches import Batch, BatchState
from kompakt_core.job.model import SuccessOperator, TrainingJob
from kompakt_core.job.phases import Phase
from kompakt_core.job.pods import COUNTED, Cause, WorkerPod, told, why_failed
from kompakt_core.job.status import JobStatus


class Outcome(StrEnum):
    GO_ON = "GoOn"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    RESTART = "Restart"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`counted`: whether a restart counts towards backoffLimit. `unhealthy`: whether a GPU is why. `batch`: what was measured."""

    outcome: Outcome
    reason: str = ""
    message: str = ""
    counted: bool = False
    unhealthy: bool = False
    batch: Batch | None = None


GO_ON = Verdict(Outcome.GO_ON)


def judge(job: TrainingJob, status: JobStatus, pods: Sequence[WorkerPod], now: float) -> Verdict:
    """Judge the current attempt by its pods. Success is looked at first: what is reached cannot be lost again."""
    found = batches.measured(job, status.batch, pods)
    if found is not None:
        return Verdict(Outcome.RESTART, batches.MEASURED, batches.words(found), batch=found)
    if _succeeded(job, status, pods):
        return Verdict(Outcome.SUCCEEDED, "WorkersSucceeded", _success_words(job))
    broken = _first_broken(job, pods)
    if broken is not None:
        return _after_break(job, status, *broken)
    if status.preempt is not None and pods:
        return Verdict(Outcome.RESTART, str(Cause.PREEMPTED), status.preempt.message)
    if _past_deadline(job, status, now):
        limit = job.run_policy.active_deadline_seconds
        return Verdict(Outcome.FAILED, "DeadlineExceeded", f"still running {limit} s after all workers had their nodes")
    return _by_presence(job, status, pods)


def _succeeded(job: TrainingJob, status: JobStatus, pods: Sequence[WorkerPod]) -> bool:
    measuring = status.batch is not None and status.batch.state is BatchState.MEASURING
    policy = job.run_policy.success
    targets = [role for role in job.roles if not policy.roles or role.name in policy.roles]
    done = [pod for pod in pods if pod.succeeded and pod.role in {role.name for role in targets}]
    done = [pod for pod in done if not (measuring and batches.measures(pod))]
    if policy.operator is SuccessOperator.ANY:
        return bool(done)
    return len(done) == sum(role.replicas for role in targets)


def _success_words(job: TrainingJob) -> str:
    policy = job.run_policy.success
    who = f"of role {', '.join(policy.roles)}" if policy.roles else "of every role"
    return f"{policy.operator.lower()} workers {who} ended with exit code 0"


def _first_broken(job: TrainingJob, pods: Sequence[WorkerPod]) -> tuple[Cause, WorkerPod] | None:
    """The pod that broke the gang: one that a rule fails the job for, else the earliest to end.

    When one worker fails, its peers fail soon after for the broken connection; the first one says why.
    """
    released = any(not pod.gated for pod in pods)
    causes = [(why_failed(pod, job.run_policy.failure_rules), pod) for pod in pods if released]
    broken = [(cause, pod) for cause, pod in causes if cause is not None]
    key = {Cause.FAIL_JOB: 0}
    return min(broken, key=lambda b: (key.get(b[0], 1), b[1].finished_at or "9", b[1].worker_index), default=None)


def _after_break(job: TrainingJob, status: JobStatus, cause: Cause, pod: WorkerPod) -> Verdict:
    if cause is Cause.FAIL_JOB:
        return Verdict(Outcome.FAILED, str(cause), told(pod))
    counted = cause in COUNTED
    limit = job.run_policy.backoff_limit
    if counted and status.restarts >= limit:
        words = f"{told(pod)}; backoffLimit {limit} is used up"
        return Verdict(Outcome.FAILED, "BackoffLimitExceeded", words)
    return Verdict(Outcome.RESTART, str(cause), told(pod), counted, unhealthy=bool(pod.unhealthy))


def _past_deadline(job: TrainingJob, status: JobStatus, now: float) -> bool:
    limit = job.run_policy.active_deadline_seconds
    return limit is not None and status.start_time is not None and now >= status.start_time + limit


def _by_presence(job: TrainingJob, status: JobStatus, pods: Sequence[WorkerPod]) -> Verdict:
    """A released gang that lost a pod, or whose plan was withdrawn with some of it bound, starts anew."""
    bound = sum(bool(pod.node) for pod in pods)
    planned = status.scheduling_state if status.scheduling_attempt == status.attempt else ""
    released = planned == "Released" or status.phase in (Phase.STARTING, Phase.RUNNING) or any(not pod.gated for pod in pods)
    if released and len(pods) < job.workers:
        return Verdict(Outcome.RESTART, str(Cause.DISRUPTION), f"{job.workers - len(pods)} of {job.workers} pods are gone")
    if planned == "Withdrawn" and 0 < bound < job.workers:
        words = f"the plan was withdrawn with {bound} of {job.workers} pods bound"
        return Verdict(Outcome.RESTART, str(Cause.PLACEMENT), words)
    return GO_ON
