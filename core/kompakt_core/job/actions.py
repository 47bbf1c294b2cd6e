"""What the operator does next about one job: one idempotent reconciliation of everything, no memory but the object's status.

Contract of `next_actions`:
1. Pure: same job, status, pods, services and moment give the same actions.
2. Performing them in order and reconciling again comes to rest: then the answer is empty (apart from a Wake).
3. The status is written before what it announces is done: an attempt is raised before any of its pods exists.
4. Whatever an action finds already done (pod exists, pod gone) counts as done.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from kompakt_core.contract import timestamps
from kompakt_core.contract.conditions import Condition, ConditionReason, Type, condition
from kompakt_core.job import attempt_state, batches, figures, gradients, measured, places_first, progress, runtime_image, workload
from kompakt_core.job import provisioning as nodes
from kompakt_core.job import status as statuses
from kompakt_core.job.backoff import Restart, next_delay
from kompakt_core.job.model import CleanPodPolicy, TrainingJob
from kompakt_core.job.object_names import pod_name, service_name
from kompakt_core.job.phases import Phase
from kompakt_core.job.places_first import CreationStep
from kompakt_core.job.pods import Cause, WorkerPod
from kompakt_core.job.provisioning import Provisioning, RequestNodes
from kompakt_core.job.status import JobStatus
from kompakt_core.job.to_do import (
    Action,
    AskForPlaces,
    CreatePod,
    CreateService,
    DeleteJob,
    DeletePod,
    DeleteService,
    TryPod,
    Wake,
    WriteStatus,
)
from kompakt_core.job.verdict import Outcome, Verdict, judge
from kompakt_core.job.workload import Queueing

DISRUPTIONS_IN_A_ROW: Final = 20  # then the job is Stalled
STALL_SECONDS: Final = 600  # until the next try of a stalled job
LEAVING_SECONDS: Final = 5  # while old pods are on their way out: how often to ask whether their node is lost


def next_actions(
    job: TrainingJob,
    status: JobStatus,
    pods: Sequence[WorkerPod],
    services: Iterable[str],
    now: float,
    *,
    skipped: str = "",
    runtime: str = "",
    planner_patience: float = 0.0,
    queueing: Queueing | None = None,
    provisioning: Provisioning | None = None,
) -> list[Action]:
    """Everything to do now about `job`; `services` are the names of its Services, `skipped` says why nothing is injected.

    `runtime` is the image that a job which begins now gets. `planner_patience`: see places_first.next_step. `queueing`: None
    for a job that names no queue of Kueue. `provisioning`: None where no autoscaler is asked for nodes.
    """
    if status.finished:
        ended = [*workload.finished(queueing, status), *nodes.over(provisioning)]
        return [*ended, *_clean_up(job, status, pods, services, now)]
    after = _seen(status)
    if job.suspend:
        suspended = _suspend(job, status, after, pods, services, now)
        return [*suspended, *workload.suspended(queueing, pods), *nodes.over(provisioning)]
    after = replace(
        after,
        gradients=gradients.in_force(job, after.gradients, after.attempt),
        runtime=runtime_image.in_force(job, after.runtime, runtime),
    )
    after = _resumed(job, after)
    own = [pod for pod in pods if pod.attempt == after.attempt]
    verdict = judge(job, after, own, now)
    if verdict.outcome is Outcome.GO_ON:
        verdict = workload.verdict(job, queueing, after, own)
    if verdict.outcome in (Outcome.SUCCEEDED, Outcome.FAILED):
        return _finish(job, status, after, verdict, pods, services, now)
    if verdict.outcome is Outcome.RESTART:
        after, own = _restarted(job, after, verdict, now), []
    return _run(job, status, after, own, pods, services, now, skipped, planner_patience, queueing, provisioning)


def _seen(status: JobStatus) -> JobStatus:
    """A job seen for the first time gets the conditions that say what has not happened yet."""
    if status.phase is not Phase.NEW:
        return status
    first = [
        condition(type_, False, ConditionReason.NOT_YET)
        for type_ in (Type.SUSPENDED, Type.RUNNING, Type.COMPLETE, Type.FAILED, Type.STALLED)
    ]
    return status.with_conditions(*first, condition(Type.RECONCILING, True, ConditionReason.WORKERS_NOT_RUNNING))


def _suspend(
    job: TrainingJob, status: JobStatus, after: JobStatus, pods: Sequence[WorkerPod], services: Iterable[str], now: float
) -> list[Action]:
    """No pods; the deadline starts anew with the next start."""
    halted = _halted(after, now)
    after = replace(
        after.in_phase(Phase.SUSPENDED), start_time=None, disruptions=0, progress=halted, expected=None
    ).with_conditions(
        condition(Type.SUSPENDED, True, ConditionReason.SUSPEND_REQUESTED),
        condition(Type.RUNNING, False, ConditionReason.SUSPENDED),
        condition(Type.RECONCILING, False, ConditionReason.SUSPENDED),
        condition(Type.STALLED, False, ConditionReason.SUSPENDED),
        *attempt_state.mended(after, ConditionReason.SUSPENDED),
    )
    return [*_write(job, status, after, pods, now), *_delete(pods), *map(DeleteService, services)]


def _resumed(job: TrainingJob, after: JobStatus) -> JobStatus:
    """The first attempt, or the one after a suspension: pods are made from the spec as it stands now."""
    if after.attempt > 0 and not after.holds(Type.SUSPENDED):
        return after
    batch = batches.current(job, after.batch)
    return replace(
        after.in_phase(Phase.PENDING), attempt=after.attempt + 1, batch=batch, progress=progress.begun(after.progress), heard=None
    ).with_conditions(
        condition(Type.SUSPENDED, False, ConditionReason.NOT_SUSPENDED),
        condition(Type.RECONCILING, True, ConditionReason.WORKERS_NOT_RUNNING),
    )


def _restarted(job: TrainingJob, after: JobStatus, verdict: Verdict, now: float) -> JobStatus:
    """The next attempt of the whole gang."""
    disruptions = 0 if verdict.counted else after.disruptions + 1
    began = (after.since(Type.RUNNING) or now) if after.holds(Type.RUNNING) else now
    delay = next_delay(after.last_restart, now - began) if verdict.counted else 0
    last = Restart(float(int(now)), after.attempt + 1, verdict.reason, verdict.message, delay)
    after = replace(
        after.in_phase(Phase.RESTARTING),
        attempt=after.attempt + 1,
        restarts=after.restarts + verdict.counted,
        disruptions=disruptions,
        last_restart=last,
        batch=verdict.batch or batches.current(job, batches.after_failure(after.batch) if verdict.counted else after.batch),
        progress=progress.begun(_halted(after, now)),
        heard=None,
        expected=None,
    )
    then = f"; attempt {last.attempt} begins at {timestamps.encode(last.not_before)}" if delay else ""
    stalled = disruptions >= DISRUPTIONS_IN_A_ROW
    words = (
        f"{disruptions} restarts in a row for causes outside the job; next try {STALL_SECONDS} s later. Last: {verdict.message}"
    )
    return after.with_conditions(
        condition(Type.RUNNING, False, verdict.reason, verdict.message + then),
        *([condition(Type.DEGRADED, True, ConditionReason.GPU_UNHEALTHY, verdict.message)] if verdict.unhealthy else []),
        condition(Type.STALLED, True, ConditionReason.REPEATED_DISRUPTIONS, words)
        if stalled
        else condition(Type.STALLED, False, ConditionReason.RESTARTING),
    )


def _halted(after: JobStatus, now: float) -> dict[str, Any]:
    profile = after.written.get("profile") or {}
    return progress.halted(after.progress, measured.slowdown(profile, after.level), now)


def _finish(
    job: TrainingJob,
    status: JobStatus,
    after: JobStatus,
    verdict: Verdict,
    pods: Sequence[WorkerPod],
    services: Iterable[str],
    now: float,
) -> list[Action]:
    well = verdict.outcome is Outcome.SUCCEEDED
    ended = condition(Type.COMPLETE if well else Type.FAILED, True, verdict.reason, verdict.message)
    after = replace(
        after.in_phase(Phase.SUCCEEDED if well else Phase.FAILED), completion_time=now, expected=None
    ).with_conditions(
        ended,
        condition(Type.RUNNING, False, ConditionReason.FINISHED),
        condition(Type.RECONCILING, False, ConditionReason.FINISHED),
        *attempt_state.mended(after, ConditionReason.FINISHED),
        condition(
            Type.STALLED, not well, verdict.reason if not well else ConditionReason.FINISHED, verdict.message if not well else ""
        ),
    )
    return [*_write(job, status, after, pods, now), *_clean_up(job, after, pods, services, now)]


def _clean_up(
    job: TrainingJob, status: JobStatus, pods: Sequence[WorkerPod], services: Iterable[str], now: float
) -> list[Action]:
    """What cleanPodPolicy and ttlSecondsAfterFinished say about a finished job."""
    policy, ttl = job.run_policy.clean_pod_policy, job.run_policy.ttl_seconds_after_finished
    actions: list[Action] = []
    if policy is not CleanPodPolicy.NONE:
        actions += _delete([pod for pod in pods if policy is CleanPodPolicy.ALL or not pod.finished])
        actions += map(DeleteService, services)
    if ttl is not None and status.completion_time is not None:
        end = status.completion_time + ttl
        actions.append(DeleteJob() if now >= end else Wake(end))
    return actions


def _run(
    job: TrainingJob,
    status: JobStatus,
    after: JobStatus,
    own: Sequence[WorkerPod],
    pods: Sequence[WorkerPod],
    services: Iterable[str],
    now: float,
    skipped: str,
    planner_patience: float,
    queueing: Queueing | None,
    provisioning: Provisioning | None,
) -> list[Action]:
    """Bring the current attempt up: old pods first go, then the whole gang is made, then it is watched."""
    old = [pod for pod in pods if pod.attempt != after.attempt]
    names = set(services)
    held_back = None if own or any(not pod.node_lost for pod in old) else workload.to_do(job, queueing)
    create, wake = (held_back, []) if held_back is not None else _creation(job, after, own, old, names, now, planner_patience)
    waits = held_back == [] or (not own and places_first.expects_places(after))
    asked, again = nodes.next_step(job.name, provisioning, after, now)
    incomplete = bool(old) or (len(own) < job.workers and not waits) or any(isinstance(one, RequestNodes) for one in asked)
    after = workload.told(job, queueing, attempt_state.observed(job, after, own, incomplete, now), own)
    after = nodes.told(job.name, provisioning, after, now)
    after = figures.with_compression(job, after, figures.compression_of(job, after, own), False, skipped)
    removed = [DeleteService(name) for name in sorted(names - {service_name(job.name, after.attempt)})]
    going = _delete(old, _grace(job, after))
    ready = workload.running(queueing, after)
    wake = wake if again is None else [*wake, Wake(again)]
    return [*_write(job, status, after, pods, now), *going, *removed, *ready, *asked, *create, *wake, *_deadline(job, after)]


def _creation(
    job: TrainingJob,
    after: JobStatus,
    own: Sequence[WorkerPod],
    old: Sequence[WorkerPod],
    services: set[str],
    now: float,
    planner_patience: float,
) -> tuple[list[Action], list[Action]]:
    """What is missing of the current attempt, unless something has to be waited for first."""
    have = {pod.name for pod in own}
    names = [(role.name, index) for role in job.roles for index in range(role.replicas)]
    missing = [(role, index) for role, index in names if pod_name(job.name, role, index, after.attempt) not in have]
    leaving = [pod for pod in old if not pod.node_lost]
    if missing and leaving:
        return [], [Wake(now + LEAVING_SECONDS)]
    if not missing:
        return [], []
    resume = _not_before(after, now)
    if resume is not None and now < resume:
        return [], [Wake(resume)]
    if not own:
        step, until = places_first.next_step(after, now, planner_patience)
        if step is not CreationStep.CREATE:
            return [AskForPlaces(after.attempt)] if step is CreationStep.ASK else [], [] if until is None else [Wake(until)]
    first = [] if own or places_first.asked(after) else [TryPod(role.name, after.attempt) for role in job.roles]
    service = [] if service_name(job.name, after.attempt) in services else [CreateService(after.attempt)]
    return [*first, *service, *(CreatePod(role, index, after.attempt) for role, index in missing)], []


def _not_before(after: JobStatus, now: float) -> float | None:
    """When this attempt's pods may be made: a job that was disrupted too often, or failed more than once, waits.

    A condition not stamped yet begins now. One that begins in the future was stamped by another clock, or this one was set back
    since: nobody knows what is left of the wait, so there is none.
    """
    stalled, last = after.conditions.get(Type.STALLED), after.last_restart
    if stalled is None or not stalled.true or stalled.reason != ConditionReason.REPEATED_DISRUPTIONS:
        return last.not_before if last is not None and last.attempt == after.attempt and last.moment <= now else None
    since = after.since(Type.STALLED)
    return None if since is not None and since > now else (now if since is None else since) + STALL_SECONDS


def _deadline(job: TrainingJob, after: JobStatus) -> list[Action]:
    limit = job.run_policy.active_deadline_seconds
    return [] if limit is None or after.start_time is None else [Wake(after.start_time + limit)]


def _delete(pods: Iterable[WorkerPod], grace: int | None = None) -> list[Action]:
    return [DeletePod(pod.name, pod.uid, pod.version, grace) for pod in pods if not pod.deleting]


def _grace(job: TrainingJob, after: JobStatus) -> int | None:
    """How long the pods of earlier attempts have for a checkpoint, if the last one was preempted, by us or by Kueue."""
    last = after.last_restart
    preempted = last is not None and last.attempt == after.attempt and last.reason in (Cause.PREEMPTED, Cause.QUOTA_LOST)
    return job.run_policy.preemption.grace_period_seconds if preempted else None


def _write(job: TrainingJob, before: JobStatus, after: JobStatus, pods: Sequence[WorkerPod], now: float) -> list[Action]:
    """The status, if it would change. A finished or suspended job keeps its last figures."""
    own = [pod for pod in pods if pod.attempt == after.attempt]
    compression = figures.compression_to_show(job, before, after, pods)
    if after.finished:
        after = figures.with_compression(job, after, compression, True)
    pace = measured.at_the_end(own) or after.pace
    profile = measured.profile_of(job, pace, after.level, before.written.get("profile") or {})
    shown = statuses.figures_of(job, own, compression) | {
        "progress": progress.at_the_end(own) or dict(after.progress),
        "profile": profile,
    }
    wanted = statuses.to_write(job.generation, before, after, shown, now)
    return [WriteStatus(wanted)] if statuses.changed(before, wanted) else []


def rejected(
    job: TrainingJob,
    status: JobStatus,
    pods: Sequence[WorkerPod],
    told: Condition,
    now: float,
    *,
    final: bool,
    of_gang: bool = True,
) -> list[Action]:
    """What to do when the API server, or the operator itself, refuses the gang's pods: `told` says why.

    A gang of which only a part could be made is removed again. `final`: trying again would change nothing. `of_gang`: what was
    refused is a part of the gang; else it goes on waiting for places.
    """
    after = _seen(status)
    if final:
        return _finish(job, status, after, Verdict(Outcome.FAILED, told.reason, told.message), pods, (), now)
    own = [pod for pod in pods if pod.attempt == after.attempt and pod.gated]
    # No places are kept for pods that cannot be made.
    after = replace(after.with_conditions(told), expected=None if of_gang else after.expected)
    return [*_write(job, status, after, pods, now), *_delete(own)]


def invalid(generation: int, status: JobStatus, message: str, now: float) -> list[Action]:
    """A stored spec that the parser refuses: a new job fails; one that already has pods keeps them and is Stalled."""
    if status.finished:
        return []
    after = _seen(status).with_conditions(condition(Type.STALLED, True, ConditionReason.INVALID_SPEC, message))
    if status.attempt == 0:
        after = replace(after.in_phase(Phase.FAILED), completion_time=now).with_conditions(
            condition(Type.FAILED, True, ConditionReason.INVALID_SPEC, message),
            condition(Type.RECONCILING, False, ConditionReason.FINISHED),
        )
    kept = {name: status.written.get(name) for name in ("gpus", "nodes", "roles", "compression", "progress", "profile")}
    wanted = statuses.to_write(generation, status, after, kept, now)
    return [WriteStatus(wanted)] if statuses.changed(status, wanted) else []
