"""A control plane with thousands of simulated nodes, stripped to what schedules a pod, and a stand-in for their device plugins.

kwok makes the nodes Ready and is ended then; controller manager and the control plane's own scheduler are ended before: on a real
cluster the work of kubelets and controllers lies on other machines, here it would take processor time from what is measured.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from kompakt_client.errors import Expired
from kompakt_client.requests import Answer
from kompakt_client.transport import ApiClient, connect
from kompakt_core.contract import API_VERSION, RESOURCE, TOPOLOGY_KIND, TOPOLOGY_PLURAL, bound_gpus
from kompakt_core.errors import TryLater
from kompakt_core.ids import NodeName
from kompakt_core.topology.describe import read_description
from kompakt_core.topology.wire import graph_to_spec
from kompakt_extender.objects import Pod, RawEvent, RawList
from tools.kube import control_plane, kwok
from tools.kube.binaries import find_all
from tools.kube.control_plane import ControlPlane
from tools.kube.ports import free_ports
from tools.kube.processes import launch_tied, wait_until
from tools.kube.programs import SIMULATED
from tools.kube.session import ClusterSession

MACHINE, GPUS = "dgx1-v100", 8
WORKERS = 4  # requests to the API server at once, of a kind
LOOK_SECONDS = 0.001  # a node, between two looks at all of them, which take the API server from kwok
SECONDS = 60.0  # for an answer, on a machine that others use as well
TOPOLOGIES = f"/apis/{API_VERSION}/{TOPOLOGY_PLURAL}"
MERGE = "application/merge-patch+json"
_EVENT = msgspec.json.Decoder(RawEvent)
_POD = msgspec.json.Decoder(Pod)
_LIST = msgspec.json.Decoder(RawList)
Say = Callable[[str], None]


def name_of(number: int) -> NodeName:
    return NodeName(f"node-{number:05}")


@contextmanager
def fleet(folder: Path, nodes: int, values: Mapping[str, str], say: Say) -> Iterator[ClusterSession]:
    """The API server with so many Ready nodes of eight GPUs, definitions and rights of the chart (`values`: its settings)."""
    find = find_all([*SIMULATED, "helm"], say).__getitem__
    plane = control_plane.start(folder, find, launch=launch_tied)
    cluster = ClusterSession(plane, find)
    try:
        cluster.parts.install(values)
        for name in ("kube-controller-manager", "kube-scheduler"):
            plane.stop_component(name)
        plane.start_component(kwok.component(find, plane.kubeconfig, folder, free_ports(1)[0], lease_seconds=4000))
        add_nodes(plane, nodes)
        api = connect(str(plane.kubeconfig))
        await_nodes(api, nodes)
        plane.stop_component("kwok")
        say(f"{nodes} nodes are Ready")
        yield cluster
    finally:
        cluster.stop()


def add_nodes(plane: ControlPlane, nodes: int) -> None:
    api = connect(str(plane.kubeconfig))

    def create(number: int) -> None:
        name = name_of(number)
        expect(api.request("POST", "/api/v1/nodes", body=kwok.node(name, GPUS, MACHINE), seconds=SECONDS))
        # Admission puts the taint of an unready node on it, which the controller manager takes off: 10 nodes a second.
        bare = {"spec": {"taints": None}}
        expect(api.request("PATCH", f"/api/v1/nodes/{name}", body=bare, content_type=MERGE, seconds=SECONDS))

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(create, range(nodes)))


def await_nodes(api: ApiClient, nodes: int) -> None:
    """Until so many are Ready. Raises SystemExit when for two minutes none became so; a busy machine may take longer over all."""
    ready = 0
    while ready < nodes:
        before = ready
        if not wait_until(lambda: ready_nodes(api) > before, 120):  # noqa: B023 - asked before the next turn
            raise SystemExit(f"only {before} of {nodes} nodes are Ready, and for two minutes no more")
        ready = ready_nodes(api)
        time.sleep(nodes * LOOK_SECONDS)


def listed(api: ApiClient, path: str) -> list[bytes]:
    """All objects of a kind."""
    answer = api.request("GET", path, seconds=60.0)
    return [bytes(raw) for raw in _LIST.decode(answer.body).items or ()]


def ready_nodes(api: ApiClient) -> int:
    return sum(map(_is_ready, listed(api, "/api/v1/nodes")))


def _is_ready(raw: bytes) -> bool:
    """Ready, and without the taint that new nodes get."""
    node = msgspec.json.decode(raw)
    conditions = node["status"].get("conditions") or ()
    return not node["spec"].get("taints") and any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


class Plugins:
    """Plays the device plugins: every node has a GPUTopology, and after each bound pod it says which GPUs the node's pods hold.

    A pod without the annotation (no extender chose for it) gets the first free GPUs, so that every run costs the API server
    the same writes.
    """

    def __init__(self, kubeconfig: Path) -> None:
        self._api = connect(str(kubeconfig))
        self._held: dict[NodeName, dict[str, tuple[Pod, list[str]]]] = {}
        self._uuids: dict[NodeName, list[str]] = {}
        self._pools = [ThreadPoolExecutor(1) for _ in range(WORKERS)]  # a node's reports come one after the other
        self._broken: list[Exception] = []

    def report_all(self) -> None:
        """Write a GPUTopology for every node."""

        def create(raw: bytes) -> None:
            meta = msgspec.json.decode(raw)["metadata"]
            name = NodeName(meta["name"])
            graph = read_description(MACHINE, name)
            self._uuids[name], self._held[name] = [gpu.uuid for gpu in graph.gpus], {}
            identity = {"apiVersion": API_VERSION, "kind": TOPOLOGY_KIND, "metadata": {"name": name}}
            spec = graph_to_spec(graph, node_uid=meta["uid"], source="text")
            expect(self._api.request("POST", TOPOLOGIES, body={**identity, "spec": spec}, seconds=SECONDS))

        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(create, listed(self._api, "/api/v1/nodes")))

    def bound(self, pod: Pod) -> None:
        """A pod is bound: its node reports its GPUs."""
        name = NodeName(pod.spec.node_name or "")
        self._pools[hash(name) % WORKERS].submit(self._guarded, name, pod)

    def _guarded(self, name: NodeName, pod: Pod) -> None:
        try:
            self._hold(name, pod)
        except Exception as error:  # a thread of a pool tells nobody
            self._broken.append(error)

    def _hold(self, name: NodeName, pod: Pod) -> None:
        held = self._held[name]
        uuids: list[str] = list(bound_gpus.uuids(pod.metadata.annotations or {}))
        taken = {uuid for _, mine in held.values() for uuid in mine}
        held[pod.metadata.uid] = pod, uuids or [uuid for uuid in self._uuids[name] if uuid not in taken][: gpus_of(pod)]
        self._write(name)

    def _write(self, name: NodeName) -> None:
        held = [
            {"uuid": uuid, "namespace": pod.metadata.namespace, "pod": pod.metadata.name, "podUID": pod.metadata.uid}
            for pod, uuids in self._held[name].values()
            for uuid in uuids
        ]
        body = {"status": {"held": held}}
        expect(self._api.request("PATCH", f"{TOPOLOGIES}/{name}/status", body=body, content_type=MERGE, seconds=SECONDS))

    def release_all(self) -> None:
        """All pods are gone. Raises what went wrong in a report meanwhile."""
        for pool in self._pools:
            pool.submit(lambda: None).result()
        if self._broken:
            raise self._broken[0]
        for name, held in self._held.items():
            if held:
                held.clear()
                self._write(name)

    def close(self) -> None:
        for pool in self._pools:
            pool.shutdown()


def expect(answer: Answer) -> None:
    if not answer.ok:
        raise SystemExit(f"the API server refused: {answer.message}")


def gpus_of(pod: Pod) -> int:
    resources = (pod.spec.containers or [])[0].resources
    return int((resources.limits or {}).get(RESOURCE, 0)) if resources else 0


@dataclass
class Binds:
    """When each pod was seen with a node, on this machine's clock; tells the plugins."""

    plugins: Plugins
    moments: dict[str, float] = field(default_factory=dict)
    places: dict[str, Pod] = field(default_factory=dict)
    watches: int = 1  # how many it took
    _over: bool = False
    _broken: str = ""
    _version: str = ""

    def wait_for(self, count: int, patience: float) -> None:
        """Until so many pods are bound. Raises SystemExit when for `patience` seconds none was, or the watch broke."""
        seen, since = len(self.moments), time.monotonic()
        while len(self.moments) < count:
            time.sleep(0.05)
            if len(self.moments) > seen:
                seen, since = len(self.moments), time.monotonic()
            if self._broken or time.monotonic() - since > patience:
                raise SystemExit(f"{seen} of {count} pods are bound, and no more: {self._broken or 'nothing happens'}")

    @contextmanager
    def following(self, api: ApiClient, namespace: str) -> Iterator[None]:
        """Watch a namespace's pods in a thread."""
        path = f"/api/v1/namespaces/{namespace}/pods"
        self._version = _LIST.decode(api.request("GET", path, seconds=SECONDS).body).metadata.resource_version
        self._stream = api.watch(path, {"resourceVersion": self._version}, SECONDS)
        thread = threading.Thread(target=self._follow, args=(api, path), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over = True
            self._stream.stop()
            thread.join()

    def _follow(self, api: ApiClient, path: str) -> None:
        """Until stopped. The API server ends a watch whose reader is slow, without a word; it goes on from what was seen."""
        try:
            while not self._over:
                with suppress(TryLater):
                    for lines in self._stream.batches():
                        now = time.monotonic()
                        for line in lines:
                            self._see(line, now)
                if not self._over:
                    self.watches += 1
                    self._stream = api.watch(path, {"resourceVersion": self._version}, SECONDS)
        except Exception as error:  # a thread tells nobody; `wait_for` does
            self._broken = f"the watch of pods: {error!r}"

    def _see(self, line: bytes, now: float) -> None:
        event = _EVENT.decode(line)
        if event.type == "ERROR":
            raise Expired(bytes(event.object).decode()[:200])
        pod = _POD.decode(event.object)
        self._version = pod.metadata.resource_version
        if event.type == "DELETED" or not pod.spec.node_name or pod.metadata.uid in self.moments:
            return
        self.moments[pod.metadata.uid] = now
        self.places[pod.metadata.uid] = pod
        self.plugins.bound(pod)


def create_pods(api: ApiClient, namespace: str, pods: Iterable[dict[str, Any]]) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"

    def create(pod: dict[str, Any]) -> None:
        expect(api.request("POST", path, body=pod, seconds=SECONDS))

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(create, pods))


def remove_pods(api: ApiClient, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    api.request("DELETE", path, query={"gracePeriodSeconds": 0}, seconds=120.0)
    if not wait_until(lambda: not listed(api, path), 60):
        raise SystemExit("pods are still there after a minute")


@contextmanager
def held_back(pid: int) -> Iterator[None]:
    """A process stands still meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def cpu_seconds(pids: Mapping[str, int]) -> dict[str, float]:
    """Processor time used so far, by name."""
    tick = os.sysconf("SC_CLK_TCK")
    return {name: sum(map(int, _stat(pid)[11:13])) / tick for name, pid in pids.items()}


def _stat(pid: int) -> Sequence[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
