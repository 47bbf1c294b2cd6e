"""What the operator knows of the cluster: Reflectors keep worker pods, Services and unhealthy GPUs as the API server has them.

Of each object a projection is kept. TrainingJobs are not kept, and it is kopf who watches them; here is noted how far.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Final, Generic

from kompakt_client.objects import WatchedKind
from kompakt_client.reflector import Reflector, Source
from kompakt_client.store import ObjectChange, Store, StoredObject, View
from kompakt_core import contract
from kompakt_core.contract import worker_labels
from kompakt_core.contract.job_owner import JobOwner
from kompakt_core.job.pods import WorkerPod
from kompakt_core.job.provisioning import NodeRequest
from kompakt_core.job.workload import Workload
from kompakt_operator import kueue, provisioning
from kompakt_operator.api import PAGE, core_path
from kompakt_operator.projections import (
    BY_JOB,
    BY_KEY,
    OWNERS,
    Object,
    OwnedView,
    Unhealthy,
    bare,
    index_of,
    read_service,
    read_unhealthy,
    read_worker,
)
from kompakt_operator.workqueue import Key, WorkQueue

WORKLOADS: Final = "workloads"
COMPARE_SECONDS: Final = 300.0
# Connections that may be silent one after the other before a watch counts as stuck: 72 s each; the server ends each before that.
SILENCES: Final = 2.5
WATCH_SECONDS: Final = 55.0
TOPOLOGIES: Final = f"/apis/{contract.API_VERSION}/{contract.TOPOLOGY_PLURAL}"


@dataclass(frozen=True, slots=True)
class ChangeListener(Generic[View]):
    """Hears of all there is as of changes."""

    tell: Callable[[Sequence[ObjectChange[View]]], None]

    def replace(self, objects: Iterable[StoredObject[View]]) -> None:
        self.tell([ObjectChange(None, found) for found in objects])

    def change(self, changes: Sequence[ObjectChange[View]]) -> None:
        self.tell(changes)


class Observed:
    """Read on the loop; Reflectors write in their threads, and the queue gets the keys of jobs of which something changed."""

    def __init__(
        self,
        source: Source,
        queue: WorkQueue,
        namespace: str = "",
        patience: float = 180.0,
        with_kueue: bool = False,
        with_autoscaler: bool = False,
    ) -> None:
        """`namespace` "": all; a watch that shows nothing for `patience` seconds was connected anew at least twice.
        `with_kueue`: Workloads are watched too; `with_autoscaler`: ProvisioningRequests.
        """
        self._source, self._queue, self._loop = source, queue, asyncio.get_running_loop()
        self._silence, self._listed = patience / SILENCES, dict[str, asyncio.Event]()
        self.left = asyncio.Event()
        """Set where etcd was restored: nothing that is known here can be trusted any more."""
        self._pods = self._worker_objects("pods", namespace, read_worker)
        self._services = self._worker_objects("services", namespace, read_service)
        self._watching: list[Reflector[Any]] = [self._pods, self._services]
        self._workloads: Reflector[OwnedView[Workload]] | None = None
        if with_kueue:
            path = kueue.workloads_path(namespace)
            self._workloads = self._reflector(WORKLOADS, path, kueue.read_workload, self._owners_changed)
            self._watching.append(self._workloads)
        self.kueue = self._listed.pop(WORKLOADS, asyncio.Event())
        """Set once Workloads were listed: where Kueue is gone, jobs that name no queue still run."""
        self._node_requests: Reflector[OwnedView[NodeRequest]] | None = None
        if with_autoscaler:
            path = provisioning.requests_path(namespace)
            reflector = self._reflector(provisioning.PLURAL, path, provisioning.read_request, self._owners_changed)
            self._node_requests = reflector
            self._watching.append(reflector)
        self.autoscaler = self._listed.pop(provisioning.PLURAL, asyncio.Event())
        """Set once ProvisioningRequests were listed: where nobody serves them, jobs that need no further nodes still run."""
        self._topologies: Reflector[Unhealthy] | None = None
        if not namespace:  # GPUTopologies belong to the cluster; with rights in one namespace they cannot be read
            self._topologies = self._reflector(contract.TOPOLOGY_PLURAL, TOPOLOGIES, read_unhealthy, self._health_changed, True)
            self._watching.append(self._topologies)
        self._jobs: Store[Any] = Store()  # keeps nothing: how far the watch of TrainingJobs has come
        self._stores: dict[str, Callable[[], AbstractContextManager[Store[Any]]]] = {
            contract.JOB_KIND: lambda: nullcontext(self._jobs),
            "Pod": self._pods.held,
            "Service": self._services.held,
            **({kueue.KIND: self._workloads.held} if self._workloads else {}),
            **({provisioning.KIND: self._node_requests.held} if self._node_requests else {}),
        }

    def start(self) -> None:
        """Begin to watch."""
        for reflector in self._watching:
            reflector.start()

    def stop(self) -> None:
        """Stop watching."""
        for reflector in self._watching:
            reflector.stop()

    async def ready(self, seconds: float | None = None) -> Sequence[str]:
        """Returns when all has been listed once: a pod not seen yet must not count as missing. What was not listed in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for listed in self._listed.values():
                    await listed.wait()
        return [name for name, listed in self._listed.items() if not listed.is_set()]

    # What is known

    def pods(self, job: JobOwner) -> tuple[WorkerPod, ...]:
        """A job's pods."""
        return tuple(found.view for found in _found(self._pods, BY_JOB, index_of(job)))

    def services(self, job: JobOwner) -> tuple[str, ...]:
        """Names of a job's Services."""
        return tuple(found.view for found in _found(self._services, BY_JOB, index_of(job)))

    @property
    def without_kueue(self) -> str:
        """Why jobs in queues cannot begin; "" where Workloads are watched."""
        if self._workloads is None:
            return "this release does not work with Kueue; set kueue.enabled, or take the label off the job"
        return "" if self.kueue.is_set() else f"Workloads of Kueue ({kueue.API_VERSION}) cannot be listed: is Kueue installed?"

    def workload(self, job: JobOwner) -> Workload | None:
        """A job's Workload; None where it has none."""
        found = _found(self._workloads, BY_JOB, index_of(job)) if self._workloads else ()
        return next((one.view for one in found), None)

    def node_request(self, job: JobOwner) -> NodeRequest | None:
        """A job's ProvisioningRequest; None where it has none."""
        found = _found(self._node_requests, BY_JOB, index_of(job)) if self._node_requests else ()
        return next((one.view for one in found), None)

    def jobs_named(self, key: Key) -> list[JobOwner]:
        """All jobs of that namespace and name of which anything is there: one, and older ones that are being removed."""
        name = "/".join(key)
        pods, services = _found(self._pods, BY_KEY, name), _found(self._services, BY_KEY, name)
        return list(dict.fromkeys([*(found.job for found in pods), *(found.job for found in services)]))

    def knows(self, job: JobOwner) -> bool:
        """Whether anything of the job is there."""
        return bool(self.pods(job) or self.services(job))

    def unhealthy_reason(self, pod: WorkerPod) -> str:
        """What is wrong with the first unhealthy GPU of a pod that has not ended; "" while all are well."""
        if pod.finished or self._topologies is None:
            return ""
        with self._topologies.held() as store:
            found = store.get(pod.node)
        unhealthy = found.view if found is not None and found.view is not None else {}
        return next((unhealthy[gpu] for gpu in pod.gpus if gpu in unhealthy), "")

    # What is heard

    def answered(self, found: Object, raw: bytes) -> None:
        """An object that the answer to a request shows; others than the watches choose are none of ours."""
        if found.get("kind") == contract.JOB_KIND:
            self.job_answered(found)
        elif worker_labels.job_uid((found.get("metadata") or {}).get("labels") or {}):
            if found["kind"] == "Pod":
                self._pods.answered(raw)
            elif found["kind"] == "Service":
                self._services.answered(raw)
            elif found["kind"] == kueue.KIND and self._workloads:
                self._workloads.answered(raw)
            elif found["kind"] == provisioning.KIND and self._node_requests:
                self._node_requests.answered(raw)

    def job_answered(self, obj: Object) -> None:
        """A TrainingJob that an answer shows."""
        self._jobs.answered(bare(obj))

    def job_seen(self, obj: Object) -> None:
        """A TrainingJob as kopf's watch shows it, as it is, changed or gone."""
        self._jobs.watched(bare(obj))

    def owed(self) -> dict[str, StoredObject[Any]]:
        """By kind the first object that an answer has shown, and its watch not yet."""
        found = {}
        for kind, held in self._stores.items():
            with held() as store:
                if store.owed is not None:
                    found[kind] = store.owed
        return found

    def acquit(self, kind: str) -> None:
        """The object that is owed is there no more: a watch that began anew meanwhile need never show it."""
        with self._stores[kind]() as store:
            store.owed = None

    def _worker_objects(
        self, plural: str, namespace: str, read: Callable[[bytes], OwnedView[View] | None]
    ) -> Reflector[OwnedView[View]]:
        return self._reflector(plural, core_path(plural, namespace), read, self._owners_changed)

    def _reflector(
        self,
        name: str,
        path: str,
        read: Callable[[bytes], View | None],
        tell: Callable[[Sequence[ObjectChange[View]]], None],
        optional: bool = False,
    ) -> Reflector[View]:
        listed = self._listed[name] = asyncio.Event()
        kind = WatchedKind(
            name,
            path,
            read,
            {} if optional else {"labelSelector": contract.LABEL_JOB_UID},
            optional,
            watch_seconds=int(min(WATCH_SECONDS, 0.75 * self._silence)),
            silence_seconds=self._silence,
            page=PAGE,
            indexes={} if optional else OWNERS,
        )
        return Reflector(
            self._source,
            kind,
            ChangeListener(tell),
            listed=lambda: self._on_loop(listed.set),
            left=lambda _: self._on_loop(self.left.set),
            compare_seconds=COMPARE_SECONDS,
        )

    # Called in the Reflectors' threads

    def _owners_changed(self, changes: Sequence[ObjectChange[OwnedView[Any]]]) -> None:
        states = [state.view for change in changes for state in (change.before, change.after) if state is not None]
        self._on_loop(self._enqueue, [view.key for view in states if view is not None])

    def _health_changed(self, changes: Sequence[ObjectChange[Unhealthy]]) -> None:
        """Puts the jobs in line that hold GPUs which are unhealthy now and were well before."""
        for before, after in ((change.before, change.after) for change in changes):
            known = (before.view if before else None) or {}
            if after is not None and after.view is not None and (news := after.view.keys() - known.keys()):
                self._on_loop(self._enqueue, self._holders(after.name, news))

    def _holders(self, node: str, gpus: Collection[str]) -> list[Key]:
        with self._pods.held() as store:
            views = [found.view for found in store if found.view is not None]
        return [found.key for found in views if found.view.node == node and not set(gpus).isdisjoint(found.view.gpus)]

    def _on_loop(self, act: Callable[..., None], *what: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed: the process ends
            self._loop.call_soon_threadsafe(act, *what)

    def _enqueue(self, keys: Iterable[Key]) -> None:
        for key in dict.fromkeys(keys):
            if key[1]:
                self._queue.add(key)


def _found(kind: Reflector[OwnedView[View]], index: str, value: str) -> Sequence[OwnedView[View]]:
    with kind.held() as store:
        return store.by(index, value)
