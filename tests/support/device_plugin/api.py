"""An API server of dictionaries."""

import copy
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kompakt_client.errors import Conflict, NotFound
from kompakt_client.requests import Answer, ApiRequest
from kompakt_core import contract
from tests.support.device_plugin.kubelet import NODE


class FakeApi:
    """Objects by path, with resourceVersions; watches see every change. Apply replaces what it names, key by key."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.calls: list[tuple[str, str, Any]] = []
        self.fail: Callable[[str, str], Exception | None] = lambda verb, path: None
        self._version = 0
        self._changed = threading.Condition()
        self._events: list[tuple[int, str, str, dict[str, Any]]] = []

    def put(self, path: str, obj: Mapping[str, Any]) -> dict[str, Any]:
        """Creates or replaces an object, as somebody else would."""
        with self._changed:
            self._version += 1
            new = copy.deepcopy(dict(obj))
            new["metadata"]["resourceVersion"] = str(self._version)
            new["metadata"].setdefault("uid", f"uid-{self._version}")
            kind = "MODIFIED" if path in self.objects else "ADDED"
            self.objects[path] = new
            self._tell(kind, path, new)
            return copy.deepcopy(new)

    def remove(self, path: str) -> None:
        with self._changed:
            self._version += 1
            self._tell("DELETED", path, {**self.objects.pop(path), "removed": True})

    def get(self, path: str) -> dict[str, Any]:
        self._call("get", path, None)
        if path not in self.objects:
            raise NotFound(path, 404, "NotFound")
        return copy.deepcopy(self.objects[path])

    def list(self, path: str, query: Mapping[str, Any] | None = None, *, seconds: float = 30.0) -> dict[str, Any]:
        self._call("list", path, query)
        with self._changed:
            found = [copy.deepcopy(obj) for where, obj in self.objects.items() if self._under(where, path, obj, query)]
            return {"items": found, "metadata": {"resourceVersion": str(self._version)}}

    def exchange(self, request: ApiRequest) -> Answer:
        return Answer(200, json.dumps(self.list(request.path, request.query)).encode())

    def watch(self, path: str, query: Mapping[str, Any], silence: float) -> "FakeStream":
        return FakeStream(self, path, query)

    def next_events(self, path: str, query: Mapping[str, Any], seen: int) -> "tuple[int, Sequence[bytes]]":
        """Waits for what happens after a version; the version that it leads to, and the lines of a watch."""
        with self._changed:
            while self._version <= seen:
                self._changed.wait()
            fresh = [event for event in self._events if event[0] > seen]
            lines = [{"type": kind, "object": obj} for _, kind, where, obj in fresh if self._under(where, path, obj, query)]
            return self._version, [json.dumps(line).encode() for line in lines]

    def apply(self, path: str, body: Mapping[str, Any], *, manager: str) -> dict[str, Any]:
        self._call("apply", path, body)
        where, _, sub = path.removesuffix("/status"), None, path.endswith("/status")
        live = self.objects.get(where)
        wanted = body["metadata"].get("resourceVersion")
        if wanted and (live is None or live["metadata"]["resourceVersion"] != wanted):
            raise Conflict("the object has been modified", 409, "Conflict")
        if body["metadata"].get("uid", (live or {}).get("metadata", {}).get("uid")) != (live or {}).get("metadata", {}).get(
            "uid"
        ):
            raise Conflict("uid mismatch", 409, "Conflict")
        new = copy.deepcopy(live) if live else {"metadata": {"name": body["metadata"]["name"]}}
        for key in ("status",) if sub else ("spec",):
            if key in body:
                new[key] = copy.deepcopy(body[key])
        meta = copy.deepcopy({k: v for k, v in body["metadata"].items() if k not in ("resourceVersion", "annotations")})
        notes = {**new["metadata"].get("annotations", {}), **body["metadata"].get("annotations", {})}
        new["metadata"] = {**new["metadata"], **({} if sub else meta), **({"annotations": notes} if notes else {})}
        if live == new:
            return copy.deepcopy(new)
        return self.put(where, new)

    def merge(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Only noted."""
        self._call("merge", path, body)
        return dict(body)

    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self._call("create", path, body)
        return dict(body)

    def made(self, verb: str, part: str) -> tuple[Any, ...]:
        """The bodies of all calls of one verb whose path contains `part`."""
        return tuple(body for was, path, body in self.calls if was == verb and part in path)

    def _call(self, verb: str, path: str, body: Any) -> None:
        self.calls.append((verb, path, copy.deepcopy(body)))
        if error := self.fail(verb, path):
            raise error

    def _tell(self, kind: str, path: str, obj: dict[str, Any]) -> None:
        self._events.append(
            (self._version, kind, path, {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self._version)}})
        )
        self._changed.notify_all()

    @staticmethod
    def _under(where: str, path: str, obj: Mapping[str, Any], query: Mapping[str, str] | None) -> bool:
        if path.rsplit("/", 1)[-1] != where.rsplit("/", 2)[-2]:
            return False
        field, _, value = str((query or {}).get("fieldSelector", "")).partition("=")
        found: Any = obj
        for part in field.split(".") if field else ():
            found = found.get(part, "")
        return not field or found == value


class FakeStream:
    """One watch of a FakeApi; it never ends, as its thread is a daemon's."""

    def __init__(self, api: FakeApi, path: str, query: Mapping[str, Any]) -> None:
        self._api, self._path, self._query = api, path, query

    def batches(self) -> Iterator[Sequence[bytes]]:
        seen = int(self._query["resourceVersion"])
        while True:
            seen, lines = self._api.next_events(self._path, self._query, seen)
            if lines:
                yield list(lines)

    def stop(self) -> None:
        """Nothing to end."""


def pod_object(
    name: str,
    size: int = 2,
    gpus: tuple[str, ...] = (),
    *,
    node: str = NODE,
    phase: str = "Pending",
    uid: str = "",
    **annotations: str,
) -> dict[str, Any]:
    """A bound pod with one container that asks for `size` GPUs; annotations without their prefix."""
    notes = {f"kompakt.dev/{key}": value for key, value in annotations.items()}
    if gpus:
        notes[contract.ANN_GPUS] = ",".join(gpus)
    return {
        "metadata": {"name": name, "namespace": "default", "uid": uid or f"uid-{name}", "annotations": notes},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"limits": {contract.RESOURCE: str(size)}}}]},
        "status": {"phase": phase},
    }
