"""Who holds which GPU, asked in five places: container, kubelet, GPUTopology, pod annotation, ledger. They must agree."""

import json
import os
import re
import statistics
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import grpc
from kubernetes import client, config

from kompakt_core.contract import ENV_CUDA_VISIBLE, GROUP, RESOURCE, TOPOLOGY_PLURAL, VERSION, bound_gpus, gpu_holders, gpu_lists
from kompakt_core.ids import NodeName, indices_of
from kompakt_device_plugin.podresources import PodResources
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.project import read_node, read_pod
from kompakt_extender.project_topology import TopologyReader
from tools.kube import cgroups
from tools.kube.node import RealNode
from tools.kube.real import RealCluster

Gpus = frozenset[str]
_POD_GROUP: Final = re.compile(r"/pod([0-9a-f-]{36})(/|$)")
_FINISHED: Final = ("Succeeded", "Failed")
LOOK_SECONDS: Final = 0.15
AGREE_SECONDS: Final = 1.0


def kubelet_folder(node: RealNode) -> Path:
    """kubelet's folder of a node, as it is seen from the host."""
    return node.home / "lib" / "kubelet"


@dataclass(frozen=True, slots=True)
class Inside:
    """What a pod's processes find in their environment, and the time in which they are known to have lived.

    `began` and `seen` are seconds since boot: when the first of them started, and when the last was found alive.
    """

    gpus: Gpus
    began: float
    seen: float

    def overlaps(self, other: "Inside") -> bool:
        """Whether both pods had living processes at one moment: a look takes time, and a pod may end and the next begin in it."""
        return max(self.began, other.began) < min(self.seen, other.seen)


def containers(node: RealNode, cluster: str) -> dict[str, Inside]:
    """What living processes of each pod (by uid) find in their environment; the host sees all processes of its nodes."""
    found: dict[str, Inside] = {}
    for folder, _, _ in os.walk(cgroups.MOUNT / "pids" / node.cgroup(cluster)):  # passes over groups that end meanwhile
        group = _POD_GROUP.search(folder)
        for pid in _lines(Path(folder, "cgroup.procs")) if group else ():
            if one := _inside(pid):
                assert group is not None
                known = found.get(group[1], one)
                found[group[1]] = Inside(one.gpus, min(known.began, one.began), one.seen)
    return found


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:  # the group or the process ended meanwhile
        return []


def _inside(pid: str) -> Inside | None:
    """One process that has GPUs; its start is rounded up, so that no two lives seem to overlap that did not."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        seen = time.clock_gettime(time.CLOCK_BOOTTIME)
        started = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return None
    prefix = f"{ENV_CUDA_VISIBLE}=".encode()
    texts = [entry.removeprefix(prefix).decode() for entry in variables if entry.startswith(prefix)]
    gpus = gpu_lists.readable_uuids(texts[0]) if texts else ()
    if not gpus:
        return None
    return Inside(frozenset(gpus), (started + 1) / os.sysconf("SC_CLK_TCK"), seen)


@dataclass(frozen=True, slots=True)
class GpuViews:
    """One look at everything. Sets by pod uid, but kubelet's by namespace and name; `ledger` by node."""

    at: float
    pods: Mapping[str, dict[str, Any]]
    inside: Mapping[str, Mapping[str, Inside]]  # by node
    listed: Mapping[str, Mapping[tuple[str, str], Gpus] | None]  # by node; None while kubelet does not answer
    held: Mapping[str, Mapping[str, Gpus]]  # by node
    ledger: Mapping[str, Gpus]

    def views(self, node: str, uid: str) -> dict[str, Gpus | None]:
        """The five answers for one pod. The ledger names no pods: its answer is the part of the set that it takes for taken."""
        meta = self.pods[uid]["metadata"]
        listed, seen = self.listed[node], self.inside[node].get(uid)
        inside = seen.gpus if seen else frozenset()
        return {
            "container": inside,
            "kubelet": None if listed is None else listed.get((meta["namespace"], meta["name"]), frozenset()),
            "GPUTopology": self.held[node].get(uid, frozenset()),
            "annotation": frozenset(bound_gpus.uuids(meta.get("annotations") or {})),
            "ledger": inside & self.ledger[node],
        }


@dataclass
class GpuViewReader:
    """Looks at a running cluster; close it afterwards."""

    cluster: RealCluster

    def __post_init__(self) -> None:
        self.api = config.new_client_from_config(str(self.cluster.kubeconfig))
        self._core, self._custom = client.CoreV1Api(self.api), client.CustomObjectsApi(self.api)
        self._resources = {node.name: PodResources(kubelet_folder(node)) for node in self.cluster.nodes}

    def look(self) -> GpuViews:
        """Containers first: every other view was there before them."""
        inside = {node.name: containers(node, self.cluster.name) for node in self.cluster.nodes}
        at = time.monotonic()
        listed = {name: self._listed(source) for name, source in self._resources.items()}
        topologies = self._custom.list_cluster_custom_object(GROUP, VERSION, TOPOLOGY_PLURAL)["items"]
        pods = [pod for pod in self._objects(self._core.list_pod_for_all_namespaces) if _asks_for_gpus(pod)]
        nodes = self._objects(self._core.list_node)
        held = {found["metadata"]["name"]: _held(found) for found in topologies}
        ledger = taken(nodes, topologies, pods)
        return GpuViews(at, {pod["metadata"]["uid"]: pod for pod in pods}, inside, listed, held, ledger)

    def close(self) -> None:
        for source in self._resources.values():
            source.close()
        self.api.close()
        self.api.rest_client.pool_manager.clear()

    @staticmethod
    def _objects(ask: Any) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = json.loads(ask(_preload_content=False).data)["items"]
        return items

    @staticmethod
    def _listed(source: PodResources) -> Mapping[tuple[str, str], Gpus] | None:
        try:
            return {key: frozenset(gpus) for key, gpus in source.taken().items()}
        except grpc.RpcError:
            return None


def _asks_for_gpus(pod: dict[str, Any]) -> bool:
    limits = ((one.get("resources") or {}).get("limits") or {} for one in pod["spec"]["containers"])
    return any(RESOURCE in limit for limit in limits)


def _held(topology: dict[str, Any]) -> dict[str, Gpus]:
    by_pod: dict[str, Gpus] = {}
    for entry in gpu_holders.readable((topology.get("status") or {}).get("held")).held:
        by_pod[entry.pod_uid] = by_pod.get(entry.pod_uid, frozenset()) | {entry.uuid}
    return by_pod


def taken(
    nodes: Iterable[dict[str, Any]], topologies: Iterable[dict[str, Any]], pods: Iterable[dict[str, Any]]
) -> dict[str, Gpus]:
    """The extender's own ledger over these objects: the GPUs of each node that it would give to nobody."""
    ledger, reader = GpuLedger(), TopologyReader()
    for node in nodes:
        ledger.set_node(read_node(json.dumps(node).encode()))
    for topology in topologies:
        ledger.set_topology(reader(json.dumps(topology).encode()))
    for pod in pods:
        ledger.set_pod(read_pod(json.dumps(pod).encode()))
    return {name: _uuids(ledger, name) for name in ledger.nodes}


def _uuids(ledger: GpuLedger, name: NodeName) -> Gpus:
    state = ledger.state(name)
    if state is None or state.graph is None:
        return frozenset()
    return frozenset(state.graph.gpus[index].uuid for index in indices_of(state.taken))


@dataclass
class GpuViewWatcher:
    """Looks again and again from a thread of its own; `wrong` grows by a sentence for everything that must never be."""

    eyes: GpuViewReader
    wrong: list[str] = field(default_factory=list)
    looks: int = 0
    settled: dict[str, float] = field(default_factory=dict)  # uid -> seconds from the first process until all five agreed
    _since: dict[str, dict[str, float]] = field(
        default_factory=dict
    )  # node -> uid -> when views of a running pod began to differ
    _first: dict[str, float] = field(default_factory=dict)
    _down: dict[str, float] = field(default_factory=dict)  # node -> since when kubelet or plugin is known to be down

    def __post_init__(self) -> None:
        self._stop, self._lock = threading.Event(), threading.Lock()  # of `_since` and `_down`, which a test changes meanwhile
        self._thread = threading.Thread(target=self._run, name="gpu-views")
        self._thread.start()

    def down(self, node: str) -> None:
        """kubelet or plugin of this node is about to be killed: nobody can report meanwhile."""
        with self._lock:
            self._down[node] = time.monotonic()

    def up(self, node: str) -> None:
        """It is back: the second to agree begins now for all pods of the node."""
        with self._lock:
            del self._down[node]
            self._since[node] = dict.fromkeys(self._since.get(node, ()), time.monotonic())

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def summary(self) -> str:
        """How long it took until all views of a pod agreed."""
        times = sorted(self.settled.values())
        if not times:
            return "no pod was seen"
        return (
            f"{len(times)} pods in {self.looks} looks; seconds until all five views agreed after the first process was seen: "
            f"median {statistics.median(times):.2f}, longest {times[-1]:.2f}"
        )

    def _run(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            try:
                sight = self.eyes.look()
            except Exception as error:  # what is not seen cannot be judged, and must not pass for good
                self.wrong.append(f"cannot look: {error!r}")
                return
            self.looks += 1
            self.judge(sight)

    def judge(self, sight: GpuViews) -> None:
        """Takes in one look."""
        for node, inside in sight.inside.items():
            self._no_gpu_twice(node, inside)
            for uid in inside:
                if uid in sight.pods and _settles(sight.pods[uid]):
                    self._first.setdefault(uid, sight.at)
                    self._agreed(sight, node, uid)

    def _no_gpu_twice(self, node: str, inside: Mapping[str, Inside]) -> None:
        for one, other in combinations(sorted(inside), 2):
            both = inside[one].gpus & inside[other].gpus
            if both and inside[one].overlaps(inside[other]):
                self.wrong.append(f"{node}: pods {one} {inside[one]} and {other} {inside[other]} both have {sorted(both)}")

    def _agreed(self, sight: GpuViews, node: str, uid: str) -> None:
        views = sight.views(node, uid)
        agreed = len(set(views.values())) == 1
        with self._lock:
            differ, down = self._since.setdefault(node, {}), node in self._down
            since = sight.at if agreed else differ.setdefault(uid, sight.at)
            if agreed:
                differ.pop(uid, None)
        if agreed:
            self.settled.setdefault(uid, sight.at - self._first[uid])
        elif not down and sight.at - since > AGREE_SECONDS:
            said = {name: None if gpus is None else sorted(gpus) for name, gpus in views.items()}
            self.wrong.append(f"{node}: pod {uid} differs for {sight.at - since:.1f} s: {said}")


def _settles(pod: dict[str, Any]) -> bool:
    """Whether a pod is past its start and before its end."""
    return "deletionTimestamp" not in pod["metadata"] and pod.get("status", {}).get("phase") not in _FINISHED
