"""Phase and conditions of a job as the pods of its current attempt show them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kompakt_core.contract.conditions import Condition, ConditionReason, Type, condition
from kompakt_core.job.model import TrainingJob
from kompakt_core.job.phases import Phase
from kompakt_core.job.pods import WorkerPod
from kompakt_core.job.status import JobStatus


def observed(job: TrainingJob, after: JobStatus, own: Sequence[WorkerPod], incomplete: bool, now: float) -> JobStatus:
    """Phase and conditions from the pods of the current attempt."""
    bound = sum(bool(pod.node) for pod in own)
    up = sum(pod.phase in ("Running", "Succeeded") for pod in own)
    if bound == job.workers:
        after = replace(after, start_time=now if after.start_time is None else after.start_time, expected=None)
    if up == job.workers:
        return replace(after.in_phase(Phase.RUNNING), disruptions=0).with_conditions(
            condition(Type.RUNNING, True, ConditionReason.ALL_WORKERS_RAN, f"all {job.workers} workers run or have ended well"),
            condition(Type.RECONCILING, False, ConditionReason.ALL_WORKERS_RAN),
            condition(Type.STALLED, False, ConditionReason.ALL_WORKERS_RAN),
            *mended(after, ConditionReason.ALL_WORKERS_RAN),
        )
    if bound == job.workers:
        after = _starting(after.in_phase(Phase.STARTING), own)
    elif not incomplete:
        after = after.in_phase(Phase.PENDING)
    return (
        after if incomplete else _unblocked(after, ConditionReason.WORKERS_EXIST if own else ConditionReason.WORKERS_NOT_RUNNING)
    )


def _starting(after: JobStatus, own: Iterable[WorkerPod]) -> JobStatus:
    """Why it takes long, where a container waits for somebody to do something."""
    told = (f"{pod.stuck} (kubectl describe pod {pod.name} tells more)" for pod in own if pod.stuck)
    return after.with_conditions(condition(Type.RECONCILING, True, ConditionReason.WORKERS_NOT_RUNNING, next(told, "")))


def mended(after: JobStatus, reason: str) -> list[Condition]:
    """The job holds no unhealthy GPU any more."""
    return [condition(Type.DEGRADED, False, reason)] if after.holds(Type.DEGRADED) else []


def _unblocked(after: JobStatus, reason: str) -> JobStatus:
    """All pods exist, or can be made: whatever kept them from being made is over."""
    result = after
    reconciling, stalled = after.conditions.get(Type.RECONCILING), after.conditions.get(Type.STALLED)
    if reconciling is not None and reconciling.true and reconciling.reason != ConditionReason.WORKERS_NOT_RUNNING:
        result = result.with_conditions(condition(Type.RECONCILING, True, ConditionReason.WORKERS_NOT_RUNNING))
    if stalled is not None and stalled.true:
        result = result.with_conditions(condition(Type.STALLED, False, reason))
    return result
