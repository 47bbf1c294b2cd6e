"""What an operator under test knows of the cluster, and an API server that is played."""

import itertools
import json
import queue
from collections.abc import Iterator, Mapping
from typing import Any

from kompakt_client.requests import Answer, ApiRequest
from kompakt_core import contract
from kompakt_core.contract import job_owner
from kompakt_core.contract.job_owner import JobOwner
from kompakt_operator.observed import Observed
from kompakt_operator.workqueue import WorkQueue

Object = dict[str, Any]
VERSIONS = itertools.count(1000)
LABELS = {
    contract.LABEL_JOB_UID: "u",
    contract.LABEL_JOB_NAME: "j",
    contract.LABEL_ATTEMPT: "1",
    contract.LABEL_WORKER_INDEX: "0",
    contract.LABEL_ROLE: "worker",
}
JOB = JobOwner("ml", "j", "u")
OWNER = job_owner.encode(JOB)


def pod(name: str = "j-worker-0-a1", uid: str = "p", phase: str = "Running", gpus: str = "", **meta: Any) -> Object:
    """A worker of job ml/j, whose uid is u."""
    notes = {contract.ANN_GPUS: gpus} if gpus else {}
    own = {"name": name, "namespace": "ml", "uid": uid, "labels": LABELS, "annotations": notes, "ownerReferences": [OWNER]}
    return {"kind": "Pod", "metadata": {**own, **meta}, "spec": {"nodeName": "n1"}, "status": {"phase": phase}}


def service(name: str = "j-a1") -> Object:
    own = {"name": name, "namespace": "ml", "uid": f"uid-{name}", "labels": LABELS, "ownerReferences": [OWNER]}
    return {"kind": "Service", "metadata": own}


def encoded(obj: Object) -> bytes:
    """With a version, newer than all before, unless it has one."""
    obj.setdefault("metadata", {}).setdefault("resourceVersion", str(next(VERSIONS)))
    return json.dumps(obj).encode()


def tell(observed: Observed, *objects: Object) -> Observed:
    """As answers to requests of the operator's own."""
    for obj in objects:
        raw = encoded(obj)
        observed.answered(obj, raw)
    return observed


def knowing(*objects: Object, queue: WorkQueue | None = None) -> Observed:
    """An operator that watches nothing and has seen these."""
    return tell(Observed(PlayedApi(), queue or WorkQueue()), *objects)


class PlayedStream:
    def __init__(self) -> None:
        self.lines: queue.Queue[list[bytes] | None] = queue.Queue()

    def batches(self) -> Iterator[list[bytes]]:
        while (lines := self.lines.get()) is not None:
            yield lines

    def stop(self) -> None:
        self.lines.put(None)


class PlayedApi:
    """Lists of one version, and watches that show what a test puts into them; both by the last part of their path."""

    def __init__(self, version: int = 100, **lists: list[Object]) -> None:
        self.version, self.lists, self.asked = version, lists, 0
        self.streams = {plural: PlayedStream() for plural in ("pods", "services", contract.TOPOLOGY_PLURAL)}

    def exchange(self, request: ApiRequest) -> Answer:
        self.asked += 1
        items = self.lists.get(request.path.rsplit("/", 1)[-1], [])
        self.version = next(VERSIONS) if self.asked > len(self.streams) else self.version
        return Answer(200, json.dumps({"metadata": {"resourceVersion": str(self.version)}, "items": items}).encode())

    def watch(self, path: str, query: Mapping[str, str | int], silence: float) -> PlayedStream:
        return self.streams[path.rsplit("/", 1)[-1]]

    def show(self, plural: str, kind: str, obj: Object) -> int:
        """The version of the event."""
        obj["metadata"]["resourceVersion"] = str(version := next(VERSIONS))
        self.streams[plural].lines.put([json.dumps({"type": kind, "object": obj}).encode()])
        return version
