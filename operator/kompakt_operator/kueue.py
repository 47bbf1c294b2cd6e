"""Workloads of Kueue: how a job's is written and read, and what its admission adds to the job's pods. Pure.

API kueue.x-k8s.io/v1beta1; how its conditions are to be set when quota is given back: Kueue v0.14, pkg/workload/workload.go
(UnsetQuotaReservationWithCondition) and pkg/controller/jobframework/reconciler.go.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from kompakt_core import contract
from kompakt_core.contract import job_owner, worker_labels
from kompakt_core.contract.conditions import MESSAGE_LIMIT
from kompakt_core.contract.job_owner import JobOwner
from kompakt_core.job.model import TrainingJob
from kompakt_core.job.quantity import parse_amount
from kompakt_core.job.workload import PodSet, Workload, WorkloadState
from kompakt_operator.pod_specs import sized
from kompakt_operator.projections import OwnedView, owned
from kompakt_operator.render import owner_of

Object = dict[str, Any]
GROUP: Final = "kueue.x-k8s.io"
API_VERSION: Final = f"{GROUP}/v1beta1"
KIND: Final = "Workload"
QUEUE_LABEL: Final = f"{GROUP}/queue-name"  # of a job: the LocalQueue of its namespace
PRIORITY_LABEL: Final = f"{GROUP}/priority-class"  # of a job: a WorkloadPriorityClass
PREEMPTED: Final = "Preempted"  # the one eviction after which Kueue wants the Workload back in the queue at once
RESERVED, ADMITTED, EVICTED, REQUEUED, READY, FINISHED = (
    "QuotaReserved", "Admitted", "Evicted", "Requeued", "PodsReady", "Finished",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PodSetUpdate:
    """What an admission adds to the pods of a role."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class WorkloadPriority:
    """`source`: the API group's kind that `name` is one of; "" without a name."""

    value: int
    name: str = ""
    source: str = ""


def workloads_path(namespace: str, name: str = "") -> str:
    """Path of Workloads; namespace "" means all."""
    inside = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{API_VERSION}{inside}/workloads{'/' if name else ''}{name}"


def cluster_path(plural: str, name: str) -> str:
    """Path of an object of Kueue's that belongs to the cluster."""
    return f"/apis/{API_VERSION}/{plural}/{name}"


def workload_name(job: JobOwner) -> str:
    """A job that was deleted and made again has another one."""
    return f"trainingjob-{job.name}-{job.uid[:5]}"


def workload(job: TrainingJob, queue: str, pods: Mapping[str, Object], priority: WorkloadPriority) -> Object:
    """What the job asks quota for. `pods`: one of each role, as the API server would admit it."""
    named = {"priorityClassName": priority.name, "priorityClassSource": priority.source} if priority.name else {}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": workload_name(owner_of(job)),
            "namespace": job.namespace,
            "labels": worker_labels.encode_job(job.name, job.uid),
            "ownerReferences": [job_owner.encode(owner_of(job))],
        },
        "spec": {
            "queueName": queue,
            "priority": priority.value,
            **named,
            "podSets": [
                {"name": role.name, "count": role.replicas, "template": {"spec": sized(pods[role.name])}} for role in job.roles
            ],
        },
    }


def read_workload(raw: bytes) -> OwnedView[Workload] | None:
    """None for a Workload of nobody's TrainingJob, and for one that somebody else made for the job."""
    obj = msgspec.json.decode(raw)
    found = owned(obj, workload_of(obj))
    return found if found is not None and obj["metadata"]["name"] == workload_name(found.job) else None


def workload_of(obj: Mapping[str, Any]) -> Workload:
    """As core decides by it."""
    spec, conditions = obj.get("spec") or {}, _conditions(obj)
    return Workload(
        queue=str(spec.get("queueName", "")),
        state=WorkloadState.DELETED if _is_deleted(obj) else _state(conditions),
        pod_sets={str(one.get("name")): _pod_set(one) for one in spec.get("podSets") or ()},
        message=_held(obj) if _is_deleted(obj) else _message(spec, conditions) or _checks(obj),
        finished=_holds(conditions, FINISHED),
        pods_ready=_holds(conditions, READY),
    )


def flavors_of(obj: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The ResourceFlavors that each role was admitted with."""
    admission = (obj.get("status") or {}).get("admission") or {}
    found = {one["name"]: one.get("flavors") or {} for one in admission.get("podSetAssignments") or ()}
    return {role: tuple(dict.fromkeys(flavors.values())) for role, flavors in found.items()}


def update_of(role: str, obj: Mapping[str, Any], flavors: Iterable[Mapping[str, Any]]) -> PodSetUpdate:
    """What flavors and admission checks add to the role's pods."""
    specs = [flavor.get("spec") or {} for flavor in flavors]
    checks = (obj.get("status") or {}).get("admissionChecks") or ()
    told = [one for check in checks for one in check.get("podSetUpdates") or () if one.get("name") == role]
    return PodSetUpdate(
        labels=_of_others(_merged(one.get("labels") for one in told)),
        annotations=_of_others(_merged(one.get("annotations") for one in told)),
        node_selector=_merged([*(spec.get("nodeLabels") for spec in specs), *(one.get("nodeSelector") for one in told)]),
        tolerations=tuple(toleration for one in [*specs, *told] for toleration in one.get("tolerations") or ()),
    )


def admitted(pod: Object, update: PodSetUpdate) -> Object:
    """The pod with what its admission adds; what we write ourselves stays."""
    meta, spec = pod["metadata"], pod["spec"]
    return {
        **pod,
        "metadata": {
            **meta,
            "labels": {**update.labels, **meta["labels"]},
            "annotations": {**update.annotations, **meta["annotations"]},
        },
        "spec": {
            **spec,
            **_given("nodeSelector", {**(spec.get("nodeSelector") or {}), **update.node_selector}),
            **_given("tolerations", [*(spec.get("tolerations") or ()), *update.tolerations]),
        },
    }


def without_quota(obj: Object, now: str) -> Object | None:
    """A status patch by which an evicted Workload gives its quota back, of this version only; None where it need not."""
    found = _conditions(obj)
    if not (_holds(found, EVICTED) and _holds(found, RESERVED)):
        return None
    evicted = found[EVICTED]
    reason, message = str(evicted.get("reason", "")), str(evicted.get("message", ""))
    changed = {
        REQUEUED: ("True" if reason == PREEMPTED else "False", reason, message),
        RESERVED: ("False", "Pending", message),
        ADMITTED: ("False", "NoReservation", "The workload has no reservation"),
        **({READY: ("False", "WaitForStart", "Not all pods are ready or succeeded")} if _holds(found, READY) else {}),
    }
    for type_, (status, why, words) in changed.items():
        found[type_] = condition_of(type_, status, why, words, now)
    meta = {"resourceVersion": obj["metadata"]["resourceVersion"]}
    return {"metadata": meta, "status": {"admission": None, "conditions": list(found.values())}}


def condition_of(type_: str, status: str, reason: str, message: str, now: str) -> Object:
    """In the standard shape (metav1.Condition)."""
    text = message[:MESSAGE_LIMIT]
    return {"type": type_, "status": status, "reason": reason, "message": text, "lastTransitionTime": now}


def _state(conditions: Mapping[str, Object]) -> WorkloadState:
    if _holds(conditions, EVICTED):
        return WorkloadState.EVICTED if _holds(conditions, RESERVED) else WorkloadState.PENDING
    return WorkloadState.ADMITTED if _holds(conditions, ADMITTED) else WorkloadState.PENDING


def _is_deleted(obj: Mapping[str, Any]) -> bool:
    return bool((obj.get("metadata") or {}).get("deletionTimestamp"))


def _held(obj: Mapping[str, Any]) -> str:
    """Who keeps a deleted Workload from being gone."""
    return f"the job's Workload is deleted, and kept by its finalizers {', '.join(obj['metadata'].get('finalizers') or ())}"


def _message(spec: Mapping[str, Any], conditions: Mapping[str, Object]) -> str:
    """Why it is not admitted."""
    if spec.get("active") is False:
        return "the job's Workload is not active (spec.active is false)"
    for type_, wanted in ((EVICTED, "True"), (RESERVED, "False"), (ADMITTED, "False")):
        found = conditions.get(type_) or {}
        if found.get("status") == wanted and found.get("message"):
            return str(found["message"])
    return ""


def _checks(obj: Mapping[str, Any]) -> str:
    """The first admission check that is not ready."""
    checks = (obj.get("status") or {}).get("admissionChecks") or ()
    words = (
        f"admission check {one.get('name')} is {one.get('state')}: {one.get('message')}"
        for one in checks
        if one.get("state") != "Ready"
    )
    return next(words, "").removesuffix(": ")


def _pod_set(one: Mapping[str, Any]) -> PodSet:
    containers = ((one.get("template") or {}).get("spec") or {}).get("containers") or ()
    asked = [((container.get("resources") or {}).get("limits") or {}) for container in containers]
    amounts = [parse_amount(str(limits[name])) for limits in asked for name in contract.RESOURCES if name in limits]
    return PodSet(int(one.get("count", 0)), int(sum(amount or 0 for amount in amounts)))


def _conditions(obj: Mapping[str, Any]) -> dict[str, Object]:
    return {str(one.get("type")): dict(one) for one in (obj.get("status") or {}).get("conditions") or ()}


def _holds(conditions: Mapping[str, Object], type_: str) -> bool:
    return (conditions.get(type_) or {}).get("status") == "True"


def _merged(parts: Iterable[Mapping[str, str] | None]) -> dict[str, str]:
    return {key: value for part in parts for key, value in (part or {}).items()}


def _of_others(named: Mapping[str, str]) -> dict[str, str]:
    """What is told of kompakt's own names is nobody's to say but ours."""
    return {key: value for key, value in named.items() if not key.startswith(f"{contract.GROUP}/")}


def _given(name: str, value: Any) -> Object:
    return {name: value} if value else {}
