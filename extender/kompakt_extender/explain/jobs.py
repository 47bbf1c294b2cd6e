"""What is decided about a job, and for a waiting one what each node says to its largest worker."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kompakt_core.contract.conditions import ConditionReason
from kompakt_core.contract.scheduling_record import Record, State, encode
from kompakt_core.placement.model import Gang, NodeState, Snapshot
from kompakt_core.placement.spread import offer
from kompakt_extender.explain.models import JobAnswer, JobLife, NodeRejections, NodeRoom, PodOfJob, Workers
from kompakt_extender.explain.survey import survey
from kompakt_extender.views import JobView, PodView


@dataclass(frozen=True, slots=True)
class JobExplanation:
    """All that is known of one job at one moment; `pods`: the living ones of its attempt. `trouble`: why there is no gang."""

    job: JobView
    record: Record
    pods: tuple[PodView, ...]
    gang: Gang | None
    trouble: str
    snapshot: Snapshot


def state_of(job: JobView, record: Record) -> tuple[str, str]:
    """Where it stands, as a word and as a sentence: how it ended counts for more than what was planned for it."""
    if job.ended is not None:
        return job.ended
    if job.suspended:
        return "Suspended", "spec.suspend is true; set it to false, and the next attempt begins"
    if job.queued:  # the planner is not asked before it is admitted
        return ConditionReason.WAITING_FOR_QUOTA, job.queued
    asked = job.nodes_asked if record.state is State.WAITING else ""
    return record.state.value, f"{record.message}; {asked}" if asked else record.message


def explain(case: JobExplanation) -> JobAnswer:
    """The answer about one job."""
    job, pods = case.job, case.pods
    fits, rejections, rooms = 0, list[NodeRejections](), list[NodeRoom]()
    if case.record.state in (State.WAITING, State.RESERVED) and case.gang is not None:
        fits, rejections, rooms = _room(case.snapshot, case.gang)
    elif case.trouble:
        rejections = [NodeRejections(reason="InvalidRequest", message=case.trouble, nodes=len(case.snapshot.nodes), examples=[])]
    return JobAnswer(
        job=f"{job.namespace}/{job.name}",
        state=(state := state_of(job, case.record))[0],
        message=state[1],
        attempt=job.attempt,
        suspended=job.suspended,
        workers=Workers(expected=job.workers, present=len(pods), bound=sum(pod.node is not None for pod in pods)),
        scheduling=encode(case.record),
        pods=[_pod(pod) for pod in pods],
        fits=fits,
        rejections=rejections,
        rooms=rooms,
    )


_PARTS: Final = ("lastRestart", "progress", "compression", "profile", "batch")


def life(status: Mapping[str, Any]) -> JobLife:
    """A job's life from its status, as its operator wrote it; what is absent or of another type is empty."""
    texts = {key: str(status.get(key) or "") for key in ("phase", "startTime", "completionTime")}
    numbers = {key: found if isinstance(found := status.get(key), int) else 0 for key in ("attempt", "restarts", "disruptions")}
    parts = {key: found if isinstance(found := status.get(key), dict) else {} for key in _PARTS}
    conditions = [one for one in status.get("conditions") or () if isinstance(one, dict)]
    return JobLife.model_validate({**texts, **numbers, **parts, "conditions": conditions})


def _pod(pod: PodView) -> PodOfJob:
    return PodOfJob(name=pod.name, node=pod.node or "", gpus=list(pod.written_gpus or pod.planned_gpus), asks=pod.gpus)


def _room(snapshot: Snapshot, gang: Gang) -> tuple[int, list[NodeRejections], list[NodeRoom]]:
    """How many nodes could take the gang's largest worker, why the others could not, and what each of the nearest has."""
    largest = max(gang.workers, key=lambda worker: worker.gpus)
    if not largest.gpus:
        return 0, [], []
    alike = sum(worker.gpus == largest.gpus for worker in gang.workers)

    def takes(state: NodeState) -> int:
        found = offer(state, largest, gang, alike)
        return len(found.values) if found is not None else 0

    seen = survey(snapshot.nodes.values(), largest, gang.gpu_request, gang)
    return len(seen.found), seen.rejections(), seen.rooms(takes)
