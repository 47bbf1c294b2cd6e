"""What the watches have shown, projected to what decisions need: worker pods and Services by job, and unhealthy GPUs."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kompakt_core.contract import worker_labels
from kompakt_core.job.pods import WorkerPod, read_pod, version_of
from kompakt_operator.names import Names
from kompakt_operator.views import JobId, View, Views
from kompakt_operator.workqueue import Key

Object = Mapping[str, Any]
Listing = TypeVar("Listing")


@dataclass(frozen=True, slots=True)
class Listed(Generic[Listing]):
    """A whole list and the version of the moment it shows."""

    objects: list[Listing]
    version: int


@dataclass(frozen=True, slots=True)
class ServiceView:
    name: str
    uid: str
    version: int


@dataclass(frozen=True, slots=True)
class Entry(Generic[View]):
    """A view and the job it belongs to: all that is kept of an object."""

    job: JobId
    job_name: str
    view: View


def pod_entry(obj: Object) -> Entry[WorkerPod] | None:
    """None for a pod that is no worker of a TrainingJob."""
    view = read_pod(obj)
    return None if view is None else Entry(job_id(obj), _job_name(obj), view)


def service_entry(obj: Object) -> Entry[ServiceView]:
    meta = obj["metadata"]
    return Entry(job_id(obj), _job_name(obj), ServiceView(meta["name"], meta["uid"], version_of(meta)))


def job_id(obj: Object) -> JobId:
    """The job an object belongs to, by its namespace and label; uid "" for none."""
    meta = obj.get("metadata") or {}
    return str(meta.get("namespace", "")), worker_labels.job_uid(meta.get("labels") or {})


def _job_name(obj: Object) -> str:
    return worker_labels.job_name(obj["metadata"].get("labels") or {})


class Cache:
    """Pods and Service names by job, and what is wrong with GPUs by UUID. Holds views, never whole objects."""

    def __init__(self) -> None:
        self._pods: Views[WorkerPod] = Views()
        self._services: Views[ServiceView] = Views()
        self._names = Names()
        self._unhealthy: dict[str, dict[str, str]] = {}  # node -> GPU -> words

    def pods(self, job: JobId) -> tuple[WorkerPod, ...]:
        return tuple(self._pods.of(job).values())

    def services(self, job: JobId) -> tuple[str, ...]:
        return tuple(self._services.of(job))

    def unhealthy_reason(self, pod: WorkerPod) -> str:
        """What is wrong with the first unhealthy GPU of a pod that has not ended; "" while all are well."""
        unhealthy = self._unhealthy.get(pod.node, {})
        return "" if pod.finished else next((unhealthy[gpu] for gpu in pod.gpus if gpu in unhealthy), "")

    def jobs_named(self, key: Key) -> list[JobId]:
        """All jobs of that namespace and name of which anything is there: one, and older ones that are being removed."""
        return self._names.jobs(key)

    def knows(self, job: JobId) -> bool:
        """Whether anything of the job is there."""
        return job in self._names

    def see_pod(self, obj: Object, *, gone: bool = False) -> None:
        entry = pod_entry(obj)
        if entry is not None:
            self._see(self._pods, entry, gone)

    def see_service(self, obj: Object, *, gone: bool = False) -> None:
        self._see(self._services, service_entry(obj), gone)

    def _see(self, views: Views[View], entry: Entry[View], gone: bool = False) -> None:
        if gone:
            views.drop(entry.job, entry.view.name, entry.view.uid)
        else:
            views.put(entry.job, entry.view)
        # The job's name is known as long as anything of it is there.
        if self._pods.of(entry.job) or self._services.of(entry.job):
            self._names.put(entry.job, entry.job_name)
        else:
            self._names.drop(entry.job)

    def see_topology(self, obj: Object, *, gone: bool = False) -> list[Key]:
        """Namespace and name of the jobs that hold GPUs which are unhealthy on this node now and were well before."""
        node = obj["metadata"]["name"]
        gpus = () if gone else (obj.get("spec") or {}).get("gpus") or ()
        before, now = self._unhealthy.pop(node, {}), {gpu["uuid"]: words_of(gpu) for gpu in gpus if words_of(gpu)}
        if now:
            self._unhealthy[node] = now
        return self._holders(node, now.keys() - before.keys())

    def _holders(self, node: str, gpus: Iterable[str]) -> list[Key]:
        wanted = set(gpus)
        held = {job for job in self._pods for pod in self.pods(job) if pod.node == node and wanted & set(pod.gpus)}
        return sorted(map(self._names.key, held)) if wanted else []

    @contextmanager
    def listing(self) -> Iterator[None]:
        """While a list is asked for and taken in: what is seen to go meanwhile does not come back with it."""
        with self._pods.listing(), self._services.listing():
            yield

    def replace_pods(self, listed: Listed[Entry[WorkerPod]], job: JobId | None = None) -> set[Key]:
        """The pods, of one job or all, as just listed: what the watch has missed is mended.

        Returns the jobs of which one has vanished unseen.
        """
        return self._replace(self._pods, listed, job)

    def replace_services(self, listed: Listed[Entry[ServiceView]]) -> set[Key]:
        """All Services, likewise."""
        return self._replace(self._services, listed)

    def _replace(self, views: Views[View], listed: Listed[Entry[View]], job: JobId | None = None) -> set[Key]:
        lost = views.keep((entry.view.uid for entry in listed.objects), listed.version, job)
        for entry in listed.objects:
            self._see(views, entry)
        return self._after_loss(lost)

    def _after_loss(self, lost: set[JobId]) -> set[Key]:
        keys = {self._names.key(job) for job in lost}
        for job in lost:
            if not self._pods.of(job) and not self._services.of(job):
                self._names.drop(job)
        return keys


def words_of(gpu: Object) -> str:
    """What is wrong with one GPU of a GPUTopology, such as "GPU-1234 (index 3): XID 79"; "" for a healthy one."""
    if gpu.get("health", "Healthy") == "Healthy":
        return ""
    cause = f"XID {gpu['xid']}" if gpu.get("xid") else gpu.get("healthReason") or "reported unhealthy"
    return f"{gpu.get('uuid')} (index {gpu.get('index')}): {cause}"
