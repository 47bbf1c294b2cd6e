"""What the operator keeps of the objects that it sees: projections, each made of the bytes of one object."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic

import msgspec

from kompakt_client.objects import version_of
from kompakt_client.store import Index, StoredObject, View
from kompakt_core.contract import worker_labels
from kompakt_core.job.pods import WorkerPod, read_pod
from kompakt_operator.workqueue import Key

BY_JOB: Final = "job"
BY_KEY: Final = "key"
Object = Mapping[str, Any]
JobId = tuple[str, str]  # namespace and uid: a label alone could be a stranger's in another namespace
Unhealthy = Mapping[str, str]
"""What is wrong with the GPUs of a node, by UUID."""


@dataclass(frozen=True, slots=True)
class OwnedView(Generic[View]):
    """What is kept of an object of a job."""

    job: JobId
    job_name: str
    view: View

    @property
    def key(self) -> Key:
        """Namespace and name of the job."""
        return self.job[0], self.job_name


OWNERS: Final[Mapping[str, Index[OwnedView[Any]]]] = {
    BY_JOB: lambda found: ["/".join(found.job)],
    BY_KEY: lambda found: ["/".join(found.key)],
}


def owned(obj: Object, view: View) -> OwnedView[View]:
    """The view with the job that the object's namespace and labels name."""
    meta = obj["metadata"]
    labels, namespace = meta.get("labels") or {}, str(meta.get("namespace", ""))
    return OwnedView((namespace, worker_labels.job_uid(labels)), worker_labels.job_name(labels), view)


def read_worker(raw: bytes) -> OwnedView[WorkerPod] | None:
    """None for a pod that is no worker of a TrainingJob."""
    obj = msgspec.json.decode(raw)
    view = read_pod(obj)
    return None if view is None else owned(obj, view)


def read_service(raw: bytes) -> OwnedView[str]:
    """Its name."""
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
