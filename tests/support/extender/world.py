"""A small cluster in memory at the one seam to the API server, with builders for pods, nodes and jobs.

It does with our writes what a real API server was seen to do: optimistic concurrency, JSON patch tests, a Binding that lands node
and annotations in one write, 409 for a pod that is bound already. `outcomes` says what becomes of the next writes.
"""

import asyncio
import copy
import itertools
import json
from collections import deque
from typing import Any

import msgspec

from kompakt_client.errors import Throttled, Unreachable
from kompakt_client.requests import Answer
from kompakt_core import contract as c
from kompakt_core.contract import expected_pods
from kompakt_core.contract.expected_pods import ExpectedPods
from kompakt_core.errors import TryLater
from kompakt_extender.event_handlers import EventHandlers
from kompakt_extender.limits_in_force import read_limits, read_namespace
from kompakt_extender.project import read_node
from kompakt_extender.project_gang import read_gang
from kompakt_extender.project_job import read_job
from kompakt_extender.project_topology import TopologyReader
from kompakt_extender.unreadable_pods import read_pod_or_holding
from kompakt_extender.views import gang_uid
from tests.support.extender.made_objects import job, node, topology, worker


class World:
    """Objects as the API server holds them, the changes not yet delivered to a watcher, and what happens to writes."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.deleted: set[str] = set()  # uids of pods
        self.nodes: dict[str, dict[str, Any]] = {}
        self.topologies: dict[str, dict[str, Any]] = {}
        self.jobs: dict[str, dict[str, Any]] = {}
        self.gangs: dict[str, dict[str, Any]] = {}  # by gang_uid
        self.limits: dict[str, dict[str, Any]] = {}
        self.namespaces: dict[str, dict[str, Any]] = {}
        self.news: deque[tuple[str, str, bytes | None]] = deque()  # the object as it was then; None = gone
        self.outcomes: deque[str] = deque()  # "ok" (also when empty), "lost" (never arrives), "unheard", "late"
        self.late: list[tuple[str, str, Any]] = []
        self.sent: list[tuple[str, str]] = []
        self.events: list[dict[str, Any]] = []  # as they were made
        self.kept: set[str] = set()  # names of pods that a PodDisruptionBudget does not let end
        self._versions = itertools.count(1)
        self.readers = Readers()  # of all leader sessions: what they keep is read from nothing but the object

    # What users, operator, kubelet and device plugin do

    def put(self, store: str, key: str, made: dict[str, Any]) -> dict[str, Any]:
        """Create or replace an object."""
        made["metadata"]["resourceVersion"] = str(next(self._versions))
        getattr(self, store)[key] = made
        self.news.append((store, key, msgspec.json.encode(made)))
        return made

    def add_pod(self, made: dict[str, Any]) -> dict[str, Any]:
        """A pod of a name that was there before is another one, with a uid of its own."""
        while made["metadata"]["uid"] in self.deleted:
            made["metadata"]["uid"] += "-again"
        return self.put("pods", made["metadata"]["name"], made)

    def add_node(self, name: str, kind: str = "dgx1-v100", **labels: str) -> None:
        """`labels`: rack, block."""
        self.put("nodes", name, node(name, labels={f"{c.GROUP}/{key}": value for key, value in labels.items()}))
        self.put("topologies", name, topology(name, kind))

    def turn_ready(self, name: str) -> None:
        """A node that is Ready is not any more, or the other way round."""
        ready = self.nodes[name]["status"]["conditions"][0]
        ready["status"] = "True" if ready["status"] == "False" else "False"
        self.put("nodes", name, self.nodes[name])

    def break_gpu(self, node: str, index: int) -> None:
        """The node's device plugin reports a GPU as unhealthy."""
        self.topologies[node]["spec"]["gpus"][index]["health"] = "Unhealthy"
        self.put("topologies", node, self.topologies[node])

    def remove_node(self, name: str) -> None:
        """The Node object goes, and with it its GPUTopology and its pods: the garbage collector sees to both."""
        for bound in [key for key, pod in self.pods.items() if pod["spec"].get("nodeName") == name]:
            self.delete_pod(bound)
        for store in ("topologies", "nodes"):
            del getattr(self, store)[name]
            self.news.append((store, name, None))

    def add_gang(
        self, name: str, workers: int = 2, gpus: int = 2, consolidation: Any = None, *, namespace: str = "default", **more: Any
    ) -> None:
        """`more` goes into the pods' spec."""
        objects = [
            job(name, workers, gpus, consolidation=consolidation),
            *(worker(name, i, gpus, **more) for i in range(workers)),
        ]
        for made in objects:
            made["metadata"]["namespace"] = namespace
        self.put("jobs", name, objects[0])
        for made in objects[1:]:
            self.add_pod(made)

    def add_expected_gang(self, name: str, workers: int = 2, gpus: int = 2, *, namespace: str = "default", **more: Any) -> None:
        """A job of which the operator has said what its pods will be."""
        made = job(name, workers, gpus)
        made["metadata"]["namespace"] = namespace
        self.expect(made, worker(name, 0, gpus, **more))

    def expect(self, made: dict[str, Any], first: dict[str, Any]) -> None:
        """The operator writes on this job what its pods will be: as this one."""
        role = made["spec"]["roles"][0]["name"]
        expected = ExpectedPods(made["status"]["attempt"], "2026-01-31T12:00:00Z", {role: expected_pods.trimmed(first)})
        made["status"]["expectedPods"] = expected_pods.encode(expected)
        self.put("jobs", made["metadata"]["name"], made)

    def create_pods(self, name: str, count: int = 1 << 30, **more: Any) -> None:
        """The operator creates pods of the attempt that do not exist, so many at most. `more` goes into their spec."""
        made = self.jobs[name]
        attempt, role = made["status"]["attempt"], made["spec"]["roles"][0]
        pods = [worker(name, index, role["gpusPerReplica"], attempt, **more) for index in range(role["replicas"])]
        for one in [pod for pod in pods if pod["metadata"]["name"] not in self.pods][:count]:
            one["metadata"]["namespace"] = made["metadata"]["namespace"]
            one["metadata"]["uid"] += f"-{attempt}" if attempt > 1 else ""
            self.add_pod(one)

    def set_limits(self, name: str, **spec: Any) -> None:
        """The administrator writes one."""
        self.put("limits", name, {"metadata": {"name": name}, "spec": spec})

    def remove_limits(self, name: str) -> None:
        del self.limits[name]
        self.news.append(("limits", name, None))

    def add_namespace(self, name: str, **labels: str) -> None:
        self.put("namespaces", name, {"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name, **labels}}})

    def delete_pod(self, name: str) -> None:
        gone = self.pods.pop(name)
        self.deleted.add(gone["metadata"]["uid"])
        self.news.append(("pods", gone["metadata"]["uid"], None))

    def finish_pod(self, name: str, phase: str = "Succeeded") -> None:
        self.pods[name]["status"]["phase"] = phase
        self.add_pod(self.pods[name])

    def report(self, name: str) -> None:
        """The node's device plugin writes which GPUs its unfinished pods hold."""
        held = [
            {"uuid": uuid, "podUID": pod["metadata"]["uid"]}
            for pod in self.holders(name)
            for uuid in pod["metadata"]["annotations"].get(c.ANN_GPUS, "").split(",")
            if uuid
        ]
        self.topologies[name]["status"]["held"] = held
        self.put("topologies", name, self.topologies[name])

    def holders(self, name: str) -> list[dict[str, Any]]:
        """Unfinished pods bound to a node."""
        return [
            pod
            for pod in self.pods.values()
            if pod["spec"].get("nodeName") == name and pod["status"]["phase"] not in ("Succeeded", "Failed")
        ]

    # The API server's side of our writes

    async def send(self, method: str, path: str, *, body: Any = None, query: Any = None, content_type: str = "") -> Answer:
        """As Writer.send."""
        self.sent.append((method, path))
        await asyncio.sleep(0)  # an answer takes time: whatever else is ready runs first
        if method == "GET":
            return self._get(path)
        outcome = self.outcomes.popleft() if self.outcomes else "ok"
        if outcome in ("401", "429"):  # surely not done
            raise {"401": Unreachable, "429": Throttled}[outcome]("not now", int(outcome))
        if outcome == "lost":
            raise TryLater("no answer", 0.0)
        if outcome == "late":
            self.late.append((method, path, copy.deepcopy(body)))
            raise TryLater("no answer", 0.0)
        answer = self._write(method, path, body)
        if outcome == "unheard":
            raise TryLater("no answer", 0.0)
        return answer

    def arrive_late(self) -> None:
        """Writes that nobody heard an answer to reach the API server after all."""
        late, self.late = self.late, []
        for method, path, body in late:
            self._write(method, path, body)

    def _get(self, path: str) -> Answer:
        kind, name = path.split("/")[-2:]
        found = self.pods.get(name) if kind == "pods" else self._planned(path).get(self._key(path))
        return Answer(404, b"{}") if found is None else Answer(200, json.dumps(found).encode())

    def _write(self, method: str, path: str, body: Any) -> Answer:
        if path.endswith("/events"):
            self.events.append(copy.deepcopy(body))
            return Answer(201, b"{}")
        if path.endswith("/eviction"):
            return self._evict(path.split("/")[-2], body)
        if path.endswith("/binding"):
            return self._bind(path.split("/")[-2], body)
        if path.endswith("/status"):
            return self._apply(path.removesuffix("/status"), body)
        if path.split("/")[-2] == c.GANG_PLURAL:
            return self._remove_gang(self._key(path), body) if method == "DELETE" else self._write_gang(self._key(path), body)
        return self._patch(path.split("/")[-1], body)

    def _evict(self, name: str, body: dict[str, Any]) -> Answer:
        found = self.pods.get(name)
        if found is None:
            return _refusal(404, "not found")
        if found["metadata"]["uid"] != body["deleteOptions"]["preconditions"]["uid"]:
            return _refusal(409, "uid differs")
        if name in self.kept:
            raise Throttled("Cannot evict pod as it would violate the pod's disruption budget.", 429)
        found["metadata"]["deletionTimestamp"] = "2026-01-31T12:00:00Z"
        self.add_pod(found)
        return Answer(201, b"{}")

    def _bind(self, name: str, body: dict[str, Any]) -> Answer:
        found = self.pods.get(name)
        if found is None:
            return _refusal(404, "not found")
        if found["metadata"]["uid"] != body["metadata"]["uid"]:
            return _refusal(409, "uid differs")
        if found["spec"].get("nodeName"):
            return _refusal(409, "already assigned")
        if found["spec"].get("schedulingGates"):
            return _refusal(409, "gated")
        found["spec"]["nodeName"] = body["target"]["name"]
        found["metadata"]["annotations"] |= body["metadata"]["annotations"]
        self.add_pod(found)
        return Answer(201, b"{}")

    def _planned(self, path: str) -> dict[str, dict[str, Any]]:
        """What plans are written on."""
        return self.gangs if path.split("/")[-2] == c.GANG_PLURAL else self.jobs

    @staticmethod
    def _key(path: str) -> str:
        *_, namespace, kind, name = path.split("/")
        return gang_uid(namespace, name) if kind == c.GANG_PLURAL else name

    def _write_gang(self, key: str, body: dict[str, Any]) -> Answer:
        found = self.gangs.get(key)
        if found is None:
            uid = f"uid-gang-{body['metadata']['name']}-{next(self._versions)}"
            found = {"metadata": {**body["metadata"], "uid": uid, "generation": 1}, "status": {}}
        elif found["spec"] == body["spec"]:
            return Answer(200, json.dumps(found).encode())
        return Answer(200, json.dumps(self.put("gangs", key, {**found, "spec": body["spec"]})).encode())

    def _remove_gang(self, key: str, body: dict[str, Any]) -> Answer:
        found = self.gangs.get(key)
        if found is None:
            return _refusal(404, "not found")
        if any(found["metadata"][name] != value for name, value in body["preconditions"].items()):
            return _refusal(409, "the object has been modified")
        del self.gangs[key]
        self.news.append(("gangs", key, None))
        return Answer(200, b"{}")

    def _apply(self, path: str, body: dict[str, Any]) -> Answer:
        store, key = self._planned(path), self._key(path)
        found = store.get(key)
        if found is None:
            return _refusal(404, "not found")
        if found["metadata"]["uid"] != body["metadata"]["uid"]:
            return _refusal(409, "uid differs")
        if found["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            return _refusal(409, "the object has been modified")
        applied = json.loads(json.dumps(body["status"]))
        others = [one for one in found["status"].get("conditions", ()) if one["type"] not in ("Placed", "PreemptionRequested")]
        found["status"] = {**found["status"], **applied, "conditions": others + applied["conditions"]}
        return Answer(200, json.dumps(self.put("gangs" if store is self.gangs else "jobs", key, found)).encode())

    def _patch(self, name: str, operations: list[dict[str, Any]]) -> Answer:
        found = self.pods.get(name)
        if found is None:
            return _refusal(404, "not found")
        changed = json.loads(json.dumps(found))
        for operation in operations:
            *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:])
            at: Any = changed
            for part in parents:
                at = at[int(part)] if isinstance(at, list) else at.get(part, {})
            key: Any = int(last) if isinstance(at, list) else last
            if operation["op"] == "test":
                present = key < len(at) if isinstance(at, list) else key in at
                if not present or at[key] != operation["value"]:
                    return _refusal(422, "the server rejected our request due to an error in our request")
            elif operation["op"] == "remove":
                del at[key]
            else:
                at[key] = operation["value"]
        return Answer(200, json.dumps(self.add_pod(changed)).encode())

    # The watch

    def deliver(self, handlers: EventHandlers, readers: "Readers", count: int = 1 << 30) -> None:
        """Hand the oldest changes to the process under test."""
        sinks = {
            "pods": handlers.pods(),
            "nodes": handlers.nodes(),
            "topologies": handlers.topologies(),
            "jobs": handlers.training_jobs(),
            "gangs": handlers.gangs(),
            "limits": handlers.limits(),
            "namespaces": handlers.namespaces(),
        }
        for _ in range(min(count, len(self.news))):
            store, key, made = self.news.popleft()
            if made is None:
                sinks[store].remove(key)  # type: ignore[attr-defined]
            else:
                sinks[store].set(key, readers.read(store, made))  # type: ignore[attr-defined]

    def relist(self, handlers: EventHandlers, readers: "Readers") -> None:
        """One consistent list of everything, as at the beginning of a leader session."""
        self.news.clear()
        for store in ("namespaces", "limits", "nodes", "topologies", "jobs", "gangs", "pods"):
            for key, made in getattr(self, store).items():
                self.news.append((store, key, msgspec.json.encode(made)))
        self.deliver(handlers, readers)


class Readers:
    """Object to view, as the watches do it."""

    def __init__(self) -> None:
        self._topologies = TopologyReader()

    def read(self, store: str, raw: bytes) -> Any:
        others = {"gangs": read_gang, "limits": read_limits, "namespaces": read_namespace, "topologies": self._topologies}
        return {"pods": read_pod_or_holding, "nodes": read_node, "jobs": read_job, **others}[store](raw)


def _refusal(code: int, message: str) -> Answer:
    return Answer(code, json.dumps({"code": code, "message": message}).encode())
