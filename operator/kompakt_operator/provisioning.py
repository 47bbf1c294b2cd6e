"""ProvisioningRequests of cluster-autoscaler: how a job's is written and read, and how its pods name it. Pure.

API autoscaling.x-k8s.io/v1; what its conditions mean: kubernetes/autoscaler, cluster-autoscaler, proposal provisioning-request.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kompakt_core.contract import job_owner, timestamps, worker_labels
from kompakt_core.job.model import TrainingJob
from kompakt_core.job.provisioning import NodeRequest, RequestState, request_name
from kompakt_operator.pod_specs import sized
from kompakt_operator.projections import OwnedView, owned
from kompakt_operator.render import owner_of

Object = dict[str, Any]
GROUP: Final = "autoscaling.x-k8s.io"
API_VERSION: Final = f"{GROUP}/v1"
KIND: Final = "ProvisioningRequest"
PLURAL: Final = "provisioningrequests"
TEMPLATES: Final = "podtemplates"
CONSUMES: Final = f"{GROUP}/consume-provisioning-request"  # of a pod: the request that made room for it
OF_CLASS: Final = f"{GROUP}/provisioning-class-name"  # of a pod: that request's class
PROVISIONED: Final = "Provisioned"
FAILURES: Final = ("Failed", "CapacityRevoked", "BookingExpired")  # the room is not there, or not there any more
TOLD: Final = (*FAILURES, PROVISIONED, "Accepted")  # in the order in which their messages count


def requests_path(namespace: str, name: str = "") -> str:
    """Path of ProvisioningRequests; namespace "" means all."""
    inside = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{API_VERSION}{inside}/{PLURAL}{'/' if name else ''}{name}"


def template_name(job: str, role: str, attempt: int) -> str:
    """Of a role's PodTemplate."""
    return f"{job}-{role}-a{attempt}"


def templates(job: TrainingJob, attempt: int, pods: Mapping[str, Object]) -> list[Object]:
    """What the request points at. `pods`: one of each role, as the API server would admit it."""
    return [
        {
            "apiVersion": "v1",
            "kind": "PodTemplate",
            "metadata": _metadata(job, template_name(job.name, role.name, attempt)),
            "template": {"metadata": {"labels": pods[role.name]["metadata"]["labels"]}, "spec": _ungated(sized(pods[role.name]))},
        }
        for role in job.roles
    ]


def request(job: TrainingJob, attempt: int, class_name: str) -> Object:
    """For all pods of the attempt."""
    sets = [
        {"count": role.replicas, "podTemplateRef": {"name": template_name(job.name, role.name, attempt)}} for role in job.roles
    ]
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": _metadata(job, request_name(job.name, attempt)),
        "spec": {"provisioningClassName": class_name, "podSets": sets},
    }


def read_request(raw: bytes) -> OwnedView[NodeRequest] | None:
    """None for a ProvisioningRequest of nobody's TrainingJob."""
    obj = msgspec.json.decode(raw)
    return owned(obj, request_of(obj))


def request_of(obj: Mapping[str, Any]) -> NodeRequest:
    """As core decides by it."""
    meta, spec = obj.get("metadata") or {}, obj.get("spec") or {}
    conditions = {str(one.get("type")): one for one in (obj.get("status") or {}).get("conditions") or ()}
    failed = next((conditions[type_] for type_ in FAILURES if _holds(conditions, type_)), None)
    said = (str(conditions[type_].get("message", "")) for type_ in TOLD if type_ in conditions)
    return NodeRequest(
        name=str(meta.get("name", "")),
        class_name=str(spec.get("provisioningClassName", "")),
        state=RequestState.DELETED if meta.get("deletionTimestamp") else _state(conditions, failed is not None),
        message=str(failed.get("message", "")) if failed is not None else next(filter(None, said), ""),
        since=timestamps.seconds(failed.get("lastTransitionTime")) if failed is not None else None,
        templates=tuple(str((one.get("podTemplateRef") or {}).get("name", "")) for one in spec.get("podSets") or ()),
    )


def consuming(pod: Object, found: NodeRequest) -> Object:
    """The pod with the name of the request that made room for it."""
    meta = pod["metadata"]
    told = {CONSUMES: found.name, OF_CLASS: found.class_name}
    return {**pod, "metadata": {**meta, "annotations": {**(meta.get("annotations") or {}), **told}}}


def _metadata(job: TrainingJob, name: str) -> Object:
    owner = owner_of(job)
    labels = worker_labels.encode_job(job.name, job.uid)
    return {"name": name, "namespace": job.namespace, "labels": labels, "ownerReferences": [job_owner.encode(owner)]}


def _ungated(spec: Mapping[str, Any]) -> Object:
    """What has room is no pod that still waits for places."""
    return {name: value for name, value in spec.items() if name != "schedulingGates"}


def _state(conditions: Mapping[str, Mapping[str, Any]], failed: bool) -> RequestState:
    if failed:
        return RequestState.FAILED
    return RequestState.PROVISIONED if _holds(conditions, PROVISIONED) else RequestState.PENDING


def _holds(conditions: Mapping[str, Mapping[str, Any]], type_: str) -> bool:
    return (conditions.get(type_) or {}).get("status") == "True"
