"""The operator's part of a TrainingJob's status: reading it, changing it as a value, writing it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kompakt_core.contract import expected_pods, preempt_request, scheduling_record, timestamps
from kompakt_core.contract.conditions import OPERATORS, Condition, Type, read_conditions, stamped
from kompakt_core.contract.expected_pods import ExpectedPods
from kompakt_core.contract.preempt_request import PreemptRequest
from kompakt_core.job import backoff
from kompakt_core.job.backoff import Restart
from kompakt_core.job.batches import Batch, read_batch
from kompakt_core.job.gradients import read_gradients
from kompakt_core.job.measured import Pace
from kompakt_core.job.model import ActivationGradients, TrainingJob
from kompakt_core.job.phases import FINISHED, Phase, moved
from kompakt_core.job.pods import WorkerPod
from kompakt_core.job.reports import ReceivedReport
from kompakt_core.job.runtime_image import read_image

# Every field the operator owns; server-side apply deletes an owned field that a write leaves out.
FIELDS: Final = (
    "observedGeneration", "phase", "attempt", "restarts", "disruptions", "lastRestart", "startTime", "completionTime",
    "conditions", "gpus", "nodes", "roles", "compression", "activationGradients", "runtimeImage",
    "batch", "progress", "profile", "expectedPods",
)  # fmt: skip
SHOWN_NODES: Final = 4


@dataclass(frozen=True, slots=True)
class JobStatus:
    """What the operator remembers of a job between two reconciliations; all of it stands in the object's status.

    `restarts` counts failures towards backoffLimit; `disruptions` counts restarts in a row for other causes.
    `has_places` is that the planner keeps places for pods that do not exist yet, which will be as `expected`. `waiting_since` is
    from when on the gang waits in line.
    `preempt` is that the current attempt is asked to end; `batch` what its pods are told where batches are raised,
    `gradients` what they are told of gradients of activations, `runtime` the image that carries the runtime into them.
    `progress` is what is known of the current attempt's, as it is to be written; `pace` is what was heard of its steps, `heard`
    what rank 0's pod said of its compression, `level` how the gang was placed; `written` holds the operator's fields as they
    stand in the object.
    """

    phase: Phase = Phase.NEW
    attempt: int = 0
    restarts: int = 0
    disruptions: int = 0
    last_restart: Restart | None = None
    start_time: float | None = None
    completion_time: float | None = None
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    scheduling_attempt: int = 0
    scheduling_state: str = ""
    scheduling_reason: str = ""
    level: str = ""
    has_places: bool = False
    waiting_since: float | None = None
    expected: ExpectedPods | None = None
    preempt: PreemptRequest | None = None
    batch: Batch | None = None
    gradients: ActivationGradients | None = None
    runtime: str = ""
    progress: Mapping[str, Any] = field(default_factory=dict)
    pace: Pace | None = None
    heard: ReceivedReport | None = None
    written: Mapping[str, Any] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """Whether the job is over, well or badly."""
        return self.phase in FINISHED

    def holds(self, type_: Type) -> bool:
        """Whether a condition was True when last written."""
        found = self.conditions.get(type_)
        return found is not None and found.true

    def since(self, type_: Type) -> float | None:
        """When a condition last changed."""
        found = self.conditions.get(type_)
        return None if found is None else timestamps.seconds(found.since)

    def with_conditions(self, *changed: Condition) -> "JobStatus":
        """The same with these conditions in place of those of their types, moments still to be stamped."""
        return replace(self, conditions={**self.conditions, **{str(c.type): c for c in changed}})

    def in_phase(self, phase: Phase) -> "JobStatus":
        """The same, moved to a phase where the table allows it."""
        return replace(self, phase=moved(self.phase, phase))


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def read_status(obj: Mapping[str, Any]) -> JobStatus:
    """The status of a TrainingJob object; what is missing or malformed reads as not yet written."""
    status = obj.get("status") or {}
    scheduling = status.get("scheduling") or {}
    asked, gang = preempt_request.readable(scheduling.get("preempt")), scheduling_record.standing(scheduling)
    owned = {type_: c for type_, c in read_conditions(status.get("conditions")).items() if type_ in OPERATORS}
    written = {name: status[name] for name in FIELDS if name in status and name != "conditions"}
    written["conditions"] = [c for c in status.get("conditions") or () if c.get("type") in OPERATORS]
    return JobStatus(
        phase=Phase(status["phase"]) if status.get("phase") in set(Phase) else Phase.NEW,
        attempt=_count(status.get("attempt")),
        restarts=_count(status.get("restarts")),
        disruptions=_count(status.get("disruptions")),
        last_restart=backoff.read_restart(status.get("lastRestart")),
        start_time=timestamps.seconds(status.get("startTime")),
        completion_time=timestamps.seconds(status.get("completionTime")),
        conditions=owned,
        scheduling_attempt=gang.attempt,
        scheduling_state=gang.state,
        scheduling_reason=gang.reason,
        level=gang.level,
        has_places=gang.has_places,
        waiting_since=timestamps.seconds(gang.waiting_since),
        expected=expected_pods.readable(status.get("expectedPods")),
        preempt=asked if asked is not None and asked.attempt == status.get("attempt") else None,
        batch=read_batch(status.get("batch")),
        gradients=read_gradients(status.get("activationGradients")),
        runtime=read_image(status.get("runtimeImage")),
        progress=written.get("progress") or {},
        written=written,
    )


def to_write(generation: int, before: JobStatus, after: JobStatus, figures: Mapping[str, Any], now: float) -> dict[str, Any]:
    """The operator's whole part of the status, ready for server-side apply. Empty fields are left out.

    `figures` are the fields that are no decision of ours: gpus, nodes, roles, compression, progress, profile.
    """
    ordered = [after.conditions[t] for t in OPERATORS if t in after.conditions]
    moments = {"startTime": after.start_time, "completionTime": after.completion_time}
    return {
        "observedGeneration": generation,
        "phase": str(after.phase),
        "attempt": after.attempt,
        "restarts": after.restarts,
        "disruptions": after.disruptions,
        **({"lastRestart": backoff.written(after.last_restart)} if after.last_restart else {}),
        **{name: timestamps.encode(moment) for name, moment in moments.items() if moment is not None},
        "conditions": stamped(ordered, before.conditions, timestamps.encode(now), generation),
        **({"activationGradients": str(after.gradients)} if after.gradients else {}),
        **({"runtimeImage": after.runtime} if after.runtime else {}),
        **({"batch": after.batch.written()} if after.batch else {}),
        **({"expectedPods": expected_pods.encode(after.expected)} if after.expected else {}),
        **{name: value for name, value in figures.items() if value},
    }


def changed(before: JobStatus, wanted: Mapping[str, Any]) -> bool:
    """Whether a write would change data; the order of conditions is none."""

    def plain(status: Mapping[str, Any]) -> dict[str, Any]:
        return {**status, "conditions": {c["type"]: c for c in status.get("conditions", ())}}

    return plain(before.written) != plain(wanted)


def figures_of(job: TrainingJob, pods: Sequence[WorkerPod], compression: Mapping[str, Any]) -> dict[str, Any]:
    """What the status shows of the current attempt beside phase and conditions."""
    return {
        "gpus": sum(role.replicas * role.gpus_per_replica for role in job.roles),
        "nodes": shortened(sorted({pod.node for pod in pods if pod.node})),
        "roles": roles_of(job, pods),
        "compression": dict(compression),
    }


def shortened(nodes: Sequence[str]) -> str:
    """A few names for a column, and how many more there are."""
    return ",".join([*nodes[:SHOWN_NODES], *([f"+{len(nodes) - SHOWN_NODES}"] if len(nodes) > SHOWN_NODES else [])])


def roles_of(job: TrainingJob, pods: Iterable[WorkerPod]) -> list[dict[str, Any]]:
    """status.roles: counts and places of the current attempt's pods."""
    result = []
    for role in job.roles:
        own = sorted((pod for pod in pods if pod.role == role.name), key=lambda pod: pod.worker_index)
        counts = {
            "active": sum(not pod.finished and not pod.deleting for pod in own),
            "ready": sum(pod.ready and not pod.finished for pod in own),
            "succeeded": sum(pod.succeeded for pod in own),
            "failed": sum(pod.phase == "Failed" for pod in own),
        }
        result.append({"name": role.name, **counts, "pods": [_place(pod) for pod in own]})
    return result


def _place(pod: WorkerPod) -> dict[str, Any]:
    return {
        "name": pod.name,
        **({"node": pod.node} if pod.node else {}),
        **({"gpuIndices": pod.gpu_indices} if pod.gpu_indices else {}),
    }
