"""What the watches have shown, projected to what decisions need: worker pods and Services by job, and sick GPUs."""

from collections.abc import Iterable, Mapping
from typing import Any

from kompakt_core import contract
from kompakt_core.job.pods import PodView, read_pod

JobId = tuple[str, str]  # namespace and uid: a label alone could be a stranger's in another namespace


def job_id(obj: Mapping[str, Any]) -> JobId:
    """The job an object belongs to, by its namespace and label; uid "" for none."""
    meta = obj.get("metadata") or {}
    return str(meta.get("namespace", "")), str((meta.get("labels") or {}).get(contract.LABEL_JOB_UID, ""))


class Cache:
    """Pods and Service names by job, and what is wrong with GPUs by UUID. Holds views, never whole objects."""

    def __init__(self) -> None:
        self._pods: dict[JobId, dict[str, PodView]] = {}
        self._services: dict[JobId, dict[str, str]] = {}
        self._names: dict[JobId, str] = {}
        self._sick: dict[str, dict[str, str]] = {}  # node -> GPU -> words

    def pods(self, job: JobId) -> tuple[PodView, ...]:
        return tuple(self._pods.get(job, {}).values())

    def services(self, job: JobId) -> tuple[str, ...]:
        return tuple(self._services.get(job, {}))

    def sickness(self, pod: PodView) -> str:
        """What is wrong with the first sick GPU of a pod that has not ended; "" while all are well."""
        sick = self._sick.get(pod.node, {})
        return "" if pod.finished else next((sick[gpu] for gpu in pod.gpus if gpu in sick), "")

    def see_pod(self, obj: Mapping[str, Any], *, gone: bool = False) -> None:
        view, job = read_pod(obj), job_id(obj)
        if view is None:
            return
        own = self._pods.setdefault(job, {})
        if not gone:
            own[view.name] = view
            self._names[job] = obj["metadata"]["labels"].get(contract.LABEL_JOB_NAME, "")
        elif view.name in own and own[view.name].uid == view.uid:
            del own[view.name]
        if not own:
            del self._pods[job]
            self._names.pop(job, None)

    def see_service(self, obj: Mapping[str, Any], *, gone: bool = False) -> None:
        meta, job = obj["metadata"], job_id(obj)
        own = self._services.setdefault(job, {})
        if not gone:
            own[meta["name"]] = meta["uid"]
        elif own.get(meta["name"]) == meta["uid"]:
            del own[meta["name"]]
        if not own:
            del self._services[job]

    def see_topology(self, obj: Mapping[str, Any], *, gone: bool = False) -> list[tuple[str, str]]:
        """Namespace and name of the jobs that hold GPUs which are sick on this node now and were well before."""
        node = obj["metadata"]["name"]
        gpus = () if gone else (obj.get("spec") or {}).get("gpus") or ()
        before, now = self._sick.pop(node, {}), {gpu["uuid"]: words_of(gpu) for gpu in gpus if words_of(gpu)}
        if now:
            self._sick[node] = now
        return self._holders(node, now.keys() - before.keys())

    def _holders(self, node: str, gpus: Iterable[str]) -> list[tuple[str, str]]:
        wanted = set(gpus)
        held = {job for job, pods in self._pods.items() for pod in pods.values() if pod.node == node and wanted & set(pod.gpus)}
        return sorted((namespace, self._names[namespace, uid]) for namespace, uid in held) if wanted else []

    def replace_pods(self, job: JobId, objects: Iterable[Mapping[str, Any]]) -> None:
        """One job's pods as just listed: what the watch has missed is mended."""
        self._pods.pop(job, None)
        for obj in objects:
            self.see_pod(obj)

    def replace_all_pods(self, objects: Iterable[Mapping[str, Any]]) -> None:
        self._pods.clear()
        self._names.clear()
        for obj in objects:
            self.see_pod(obj)


def words_of(gpu: Mapping[str, Any]) -> str:
    """What is wrong with one GPU of a GPUTopology, such as "GPU-1234 (index 3): XID 79"; "" for a healthy one."""
    if gpu.get("health", "Healthy") == "Healthy":
        return ""
    cause = f"XID {gpu['xid']}" if gpu.get("xid") else gpu.get("healthReason") or "reported unhealthy"
    return f"{gpu.get('uuid')} (index {gpu.get('index')}): {cause}"
