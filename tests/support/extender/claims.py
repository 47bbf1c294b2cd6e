"""ResourceClaims beside a World: what the API server and kube-scheduler do with them."""

import copy
import json
from collections.abc import Iterable, Mapping
from typing import Any

from kompakt_client.requests import Answer
from kompakt_core import contract as c
from kompakt_core.contract import gpu_claim
from kompakt_core.contract.gpu_claim import ClaimedDevices
from kompakt_extender.allocated_gpus import read_claim, read_slice
from tests.support.extender.leader import on_nodes
from tests.support.extender.made_objects import worker

DEVICES = ClaimedDevices("gpu.nvidia.com", "gpu.nvidia.com")


def a_slice(
    node: str = "n0",
    name: str = "",
    gpus: Iterable[int] = (0, 1, 2),
    *,
    pool: str = "",
    driver: str = DEVICES.driver,
    taints: Mapping[str, list[dict[str, str]]] | None = None,
) -> bytes:
    """Devices gpu-0 and so on of a node of the small cluster."""
    devices = [{"name": f"gpu-{one}", "attributes": {"uuid": {"string": f"GPU-{node}-{one}"}}} for one in gpus]
    tainted = [{**one, "taints": (taints or {}).get(str(one["name"]).replace("-", ""), [])} for one in devices]
    whole = {"name": pool or node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": node, "pool": whole, "devices": tainted}
    return json.dumps({"metadata": {"name": name or f"{node}-slice"}, "spec": spec}).encode()


def a_claim(*devices: str, node: str = "n0", uid: str = "theirs", pod: str = "", user: str = "", **more: Any) -> bytes:
    """One that was given these devices of a node; `pod`: the uid of the one that controls it, `user`: of the one that uses it."""
    results = [{"request": "r", "driver": DEVICES.driver, "pool": node, "device": device, **more} for device in devices]
    owners = [{"kind": "Pod", "uid": pod, "controller": True}] if pod else []
    meta = {"name": uid, "uid": uid, "ownerReferences": owners}
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": [{"resource": "pods", "uid": user}] if user else []}
    return json.dumps({"metadata": meta, "status": status}).encode()


class Claims:
    """A leader that plans for another scheduler, and the claims at its API server, by name. `full`: a quota has no room."""

    def __init__(self, nodes: int = 2) -> None:
        self.leader = on_nodes(nodes, devices=DEVICES)
        self.world = self.leader.world
        self.by_name: dict[str, dict[str, Any]] = {}
        self.full = False
        self.writes: list[str] = []  # in order: claims and gates
        for index in range(nodes):
            self.publish(f"n{index}")
        self._send = self.world.send
        self.world.send = self._answer  # type: ignore[method-assign]

    def publish(self, node: str, gpus: Iterable[int] = range(8), **taints: list[dict[str, str]]) -> None:
        """The driver's slice of a node with these GPUs; `taints` by the device's name without its dash."""
        self.leader.handlers.slices().set("", read_slice(a_slice(node, gpus=gpus, taints=taints)))

    def report_holders(self, node: str, pod: str, gpus: Iterable[int]) -> None:
        """The node's agent finds in kubelet's PodResources that the pod of that uid has these GPUs."""
        topology = self.world.topologies[node]
        topology["status"]["held"] = [{"uuid": f"GPU-{node}-{index}", "podUID": pod} for index in gpus]
        self.world.put("topologies", node, topology)

    async def _answer(self, method: str, path: str, *, body: Any = None, **more: Any) -> Answer:
        if f"/{gpu_claim.PLURAL}" not in path:
            if content := [one for one in body or () if isinstance(one, dict) and one.get("op") == "remove"]:
                self.writes.append(f"gate {path.split('/')[-1]} {len(content)}")
            return await self._send(method, path, body=body, **more)
        if method != "GET":
            self.writes.append(f"{method} {path.split('/')[-1] if method == 'DELETE' else body['metadata']['name']}")
        return {"POST": self._create, "GET": self._get, "DELETE": self._delete}[method](path.split("/")[-1], body)

    def _create(self, _: str, body: Any) -> Answer:
        name = body["metadata"]["name"]
        if self.full:
            return Answer(403, b'{"message": "exceeded quota: gpus"}')
        if name in self.by_name:
            return Answer(409, b'{"message": "already exists"}')
        self.by_name[name] = copy.deepcopy(body)
        self.by_name[name]["metadata"] |= {"uid": f"claim-{len(self.writes)}", "resourceVersion": str(len(self.writes))}
        return Answer(201, b"{}")

    def _get(self, name: str, _: Any) -> Answer:
        found = self.by_name.get(name)
        return Answer(404, b"{}") if found is None else Answer(200, json.dumps(found).encode())

    def _delete(self, name: str, body: Any) -> Answer:
        found = self.by_name[name]["metadata"]
        if any(found[key] != text for key, text in body["preconditions"].items()):
            return Answer(409, b'{"message": "changed"}')
        del self.by_name[name]
        return Answer(200, b"{}")

    def add_gang(self, name: str = "j", workers: int = 2, gpus: int = 4) -> None:
        """A job whose pods the operator created for another scheduler."""
        self.world.add_gang(name, 0, gpus)
        made = self.world.jobs[name]
        made["spec"]["roles"][0]["replicas"] = workers
        self.world.put("jobs", name, made)
        for index in range(workers):
            one = worker(name, index, gpus, schedulerName="default-scheduler")
            one["spec"]["containers"][0]["resources"] = {"claims": [{"name": gpu_claim.NAME}]}
            one["metadata"]["annotations"] |= gpu_claim.encode_size(gpus)
            self.world.add_pod(one)

    def bind(self, name: str, node: str = "", gpus: Iterable[int] | None = None) -> None:
        """The other scheduler binds a pod to where its claim lets it, or to what it had chosen for an older claim."""
        pod = self.world.pods[name]
        notes, uid = pod["metadata"]["annotations"], pod["metadata"]["uid"]
        pod["spec"]["nodeName"] = node or notes[c.ANN_PLANNED_NODE]
        self.by_name[name]["status"] = {"reservedFor": [{"resource": "pods", "name": name, "uid": uid}]}
        planned = [int(gpu.split("-")[-1]) for gpu in notes[c.ANN_PLANNED_GPUS].split(",")]
        devices = [f"gpu-{index}" for index in (planned if gpus is None else gpus)]
        claim = a_claim(*devices, node=pod["spec"]["nodeName"], uid=self.by_name[name]["metadata"]["uid"], pod=uid)
        self.leader.handlers.claims().set("", read_claim(claim))
        self.leader.add_pod(pod)

    def uuids(self, name: str) -> str:
        """The expression of a claim."""
        (request,) = self.by_name[name]["spec"]["devices"]["requests"]
        return str(request["exactly"]["selectors"][0]["cel"]["expression"])
