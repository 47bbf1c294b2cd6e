"""An API server in memory that an operator under test reads and writes, and that shows it each change as a watch would."""

import copy
import itertools
from collections.abc import AsyncIterator, Mapping
from typing import Any

from kompakt_client.errors import rejection
from kompakt_core import contract
from kompakt_operator.api import OperatorApi
from kompakt_operator.events import EventAnnouncer
from kompakt_operator.observed import Observed
from kompakt_operator.reconcile import Reconciler
from kompakt_operator.scrape import Scraper
from kompakt_operator.workqueue import Key, WorkQueue
from tests.support.operator.known import PlayedApi, encoded

Object = dict[str, Any]
FOLDERS = {
    "Pod": "/api/v1/namespaces/{}/pods",
    "Service": "/api/v1/namespaces/{}/services",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    contract.JOB_KIND: f"/apis/{contract.API_VERSION}/namespaces/{{}}/{contract.JOB_PLURAL}",
    "Event": "/apis/events.k8s.io/v1/namespaces/{}/events",
}


def path_of(obj: Object) -> str:
    """Where the object is read."""
    meta = obj["metadata"]
    return f"{FOLDERS[obj['kind']].format(meta['namespace'])}/{meta['name']}"


class Server(OperatorApi):
    """Optimistic concurrency and preconditions as Kubernetes has them; a deleted object is gone at once."""

    def __init__(self, pull_secrets: tuple[str, ...] = ()) -> None:
        self.objects: dict[str, Object] = {}
        self.deletions: list[tuple[str, str, str]] = []
        """Of each request that deletes: path, uid and resourceVersion that it names."""
        self.queue = WorkQueue()
        self.observed = Observed(PlayedApi(), self.queue)
        self._versions = itertools.count(1)
        self.operate("runtime", pull_secrets)

    def operate(self, image: str, pull_secrets: tuple[str, ...] = ()) -> None:
        """Another operator takes over, which offers this image."""
        scraper, announcer = Scraper(self.queue, 0), EventAnnouncer(self, "pod-a")
        told = image, True, pull_secrets
        self._reconciler = Reconciler(self, self.observed, self.queue, scraper, announcer, *told)

    # What others do

    def put(self, obj: Object) -> Object:
        """Create or replace."""
        meta = obj["metadata"]
        meta["resourceVersion"] = str(next(self._versions))
        meta.setdefault("uid", f"uid-{meta['resourceVersion']}")
        self.objects[path_of(obj)] = obj
        self.observed.answered(obj, encoded(obj))
        return copy.deepcopy(obj)

    def remove(self, path: str) -> None:
        """Nobody asks for preconditions here."""
        found = self.objects.pop(path)
        for reflector in (self.observed._pods, self.observed._services):
            reflector.gone(found["metadata"]["uid"])

    def change(self, path: str, **parts: Any) -> None:
        """Somebody writes these parts of an object."""
        self.put({**copy.deepcopy(self.objects[path]), **parts})

    async def settle(self, *keys: Key) -> None:
        """Reconcile until no object comes or goes any more, and no job says anything new."""
        for _ in range(12):
            before = self._shown()
            for key in keys:
                await self._reconciler.reconcile(key)
            if self._shown() == before:
                return
        raise AssertionError(f"never comes to rest: {before}, then {self._shown()}")

    def _shown(self) -> dict[str, Any]:
        """Uids by path. Of a job also what its conditions say: a gang that cannot be made is made in part and taken back."""
        return {path: (obj["metadata"]["uid"], _told(obj)) for path, obj in self.objects.items()}

    # The operator's side

    async def get(self, path: str, accept: str = "", **query: str) -> Object:
        if path not in self.objects:
            raise rejection(404, "NotFound", f"{path} not found")
        return copy.deepcopy(self.objects[path])

    async def create(self, path: str, body: Mapping[str, Any], *, dry_run: bool = False) -> Object:
        obj = copy.deepcopy(dict(body))
        if dry_run or obj["kind"] == "Event":
            return obj
        if path_of(obj) in self.objects:
            raise rejection(409, "AlreadyExists", f"{path_of(obj)} already exists")
        return self.put(obj)

    async def apply(self, path: str, body: Mapping[str, Any]) -> Object:
        path = path.removesuffix("/status")
        self._fresh(path, body["metadata"]["uid"], body["metadata"]["resourceVersion"])
        kept = {part: found for part, found in self.objects[path].get("status", {}).items() if part == "scheduling"}
        self.change(path, status={**copy.deepcopy(dict(body["status"])), **kept})
        return copy.deepcopy(self.objects[path])

    async def delete(self, path: str, uid: str = "", version: str = "", *_: Any, **__: Any) -> Object:
        self.deletions.append((path, uid, version))
        self._fresh(path, uid, version)
        found = self.objects[path]
        self.remove(path)
        return found

    async def listed(self, path: str, **query: str) -> AsyncIterator[Object]:
        key, _, value = query.get("labelSelector", "").partition("=")
        for name, obj in list(self.objects.items()):
            label = (obj["metadata"].get("labels") or {}).get(key)
            if name.rpartition("/")[0] == path and (not key or label == value):
                yield copy.deepcopy(obj)

    def _fresh(self, path: str, uid: str, version: str) -> None:
        if path not in self.objects:
            raise rejection(404, "NotFound", f"{path} not found")
        meta = self.objects[path]["metadata"]
        if (uid or meta["uid"], version or meta["resourceVersion"]) != (meta["uid"], meta["resourceVersion"]):
            raise rejection(409, "Conflict", f"{path} is another one, or was changed")


def _told(obj: Object) -> list[Any]:
    status = obj.get("status") or {}
    conditions = [(one["type"], one["status"], one["reason"]) for one in status.get("conditions") or ()]
    return [status.get("phase"), status.get("attempt"), conditions]
