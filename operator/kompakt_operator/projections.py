"""What the operator keeps of the objects that it sees: projections, each made of the bytes of one object."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic

import msgspec

from kompakt_client.objects import version_of
from kompakt_client.store import Index, StoredObject, View
from kompakt_core.contract import job_owner
from kompakt_core.contract.job_owner import JobOwner
from kompakt_core.job.pods import WorkerPod, read_pod
from kompakt_operator.workqueue import Key

BY_JOB: Final = "job"
BY_KEY: Final = "key"
Object = Mapping[str, Any]
Unhealthy = Mapping[str, str]
"""What is wrong with the GPUs of a node, by UUID."""


@dataclass(frozen=True, slots=True)
class OwnedView(Generic[View]):
    """What is kept of an object of a job."""

    job: JobOwner
    view: View

    @property
    def key(self) -> Key:
        """Namespace and name of the job."""
        return self.job.namespace, self.job.name


OWNERS: Final[Mapping[str, Index[OwnedView[Any]]]] = {
    BY_JOB: lambda found: [index_of(found.job)],
    BY_KEY: lambda found: ["/".join(found.key)],
}


def index_of(job: JobOwner) -> str:
    """What the index BY_JOB finds its objects under."""
    return f"{job.namespace}/{job.name}/{job.uid}"


def owned(obj: Object, view: View | None) -> OwnedView[View] | None:
    """The view with the job that the object belongs to; None for what belongs to none, whatever its labels say."""
    owner = job_owner.readable(obj["metadata"])
    return None if owner is None or view is None else OwnedView(owner, view)


def read_worker(raw: bytes) -> OwnedView[WorkerPod] | None:
    """None for a pod that is no worker of a TrainingJob."""
    obj = msgspec.json.decode(raw)
    return owned(obj, read_pod(obj))


def read_service(raw: bytes) -> OwnedView[str] | None:
    """Its name; None for a Service of nobody's job."""
    obj = msgspec.json.decode(raw)
    return owned(obj, str(obj["metadata"]["name"]))


def read_unhealthy(raw: bytes) -> Unhealthy | None:
    """Of a GPUTopology; None where all are well."""
    gpus = (msgspec.json.decode(raw).get("spec") or {}).get("gpus") or ()
    return {gpu["uuid"]: words_of(gpu) for gpu in gpus if words_of(gpu)} or None


def words_of(gpu: Object) -> str:
    """What is wrong with one GPU of a GPUTopology, such as "GPU-1234 (index 3): XID 79"; "" for a healthy one."""
    if gpu.get("health", "Healthy") == "Healthy":
        return ""
    cause = f"XID {gpu['xid']}" if gpu.get("xid") else gpu.get("healthReason") or "reported unhealthy"
    return f"{gpu.get('uuid')} (index {gpu.get('index')}): {cause}"


def bare(obj: Object) -> StoredObject[Any]:
    """Which object that is, and of which version."""
    meta = obj.get("metadata") or {}
    namespace, name, uid = (str(meta.get(part, "")) for part in ("namespace", "name", "uid"))
    return StoredObject(namespace, name, uid, version_of(str(meta.get("resourceVersion", ""))))
