"""`python -m tools.kube.simnodes`: plays kubelet and device plugin for simulated (kwok) nodes, as far as GPUs go.

For every node with the annotation kwok.x-k8s.io/node whose label kompakt.dev/machine names a known machine it keeps
the GPUTopology, sets the node's allocatable GPUs, and gives each bound pod its GPUs by the rules of the real plugin:
those written on it where they are free, else the best free ones (reported in status.held, corrected on the pod, told
by an Event); a pod that does not fit is failed with UnexpectedAdmissionError, as kubelet does.
"""

import argparse
import logging
import queue
import signal
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from kompakt_client.errors import ApiError, Conflict, NotFound, explained
from kompakt_client.transport import connect
from kompakt_core import contract
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuUuid, NodeName, PodUid
from kompakt_core.topology.graph import UNHEALTHY, LinkGraph
from kompakt_device_plugin.api import NODES, PODS, TOPOLOGIES, Api, pod_path
from kompakt_device_plugin.clock import now_text
from kompakt_device_plugin.objects import Objects
from kompakt_device_plugin.pods import NodePod, NodePods
from kompakt_device_plugin.prefer import OfferedDevices, admit
from kompakt_device_plugin.reconcile import held_of
from kompakt_device_plugin.report import NodeReport, TopologyReporter
from kompakt_device_plugin.source import NamedMachines, TopologySource
from kompakt_device_plugin.watching import Watching, read_slim_pod
from kompakt_device_plugin.writing import PodCorrector

KWOK_ANNOTATION: Final = "kwok.x-k8s.io/node"
SICK_ANNOTATION: Final = "simulate.kompakt.dev/unhealthy-gpus"  # on a node: indices of GPUs that fell off the bus, as "0,3"
WORKERS: Final = 8
RETRY_SECONDS: Final = 0.5
log = logging.getLogger("simnodes")

Taken = dict[PodUid, frozenset[GpuUuid]]


def hand_out(
    pods: Sequence[NodePod], taken: Mapping[PodUid, frozenset[GpuUuid]], graph: LinkGraph
) -> tuple[Taken, list[NodePod]]:
    """Who holds what after kubelet has seen these pods: (taken, pods that it refuses). Pure.

    Pods on which free GPUs are written come first: after a restart of this process they hold those already.
    """
    living = [pod for pod in pods if not pod.finished]
    now: Taken = {pod.uid: taken[pod.uid] for pod in living if pod.uid in taken}
    refused = []
    for pod in sorted((pod for pod in living if pod.uid not in now), key=lambda pod: not pod.gpus):
        gone = frozenset[GpuUuid]().union(*now.values())
        free = tuple(gpu.uuid for gpu in graph.gpus if gpu.health == "Healthy" and gpu.uuid not in gone)
        if pod.size > len(free):
            refused.append(pod)
        else:
            now[pod.uid] = frozenset(admit((pod,), OfferedDevices(free, (), pod.size), (), graph))
    return now, refused


def with_sick(graph: LinkGraph, indices: str) -> LinkGraph:
    """The graph with these GPUs unhealthy by XID 79, as the real plugin would report them. Pure."""
    unhealthy = {int(index) for index in indices.split(",") if index.strip().isdecimal()}
    gpus = [replace(gpu, health=UNHEALTHY, health_reason="XID", xid=79) if gpu.index in unhealthy else gpu for gpu in graph.gpus]
    return replace(graph, gpus=tuple(gpus)) if unhealthy else graph


@dataclass
class SimulatedNode:
    """What is remembered of one node between two looks at it."""

    pods: NodePods = field(default_factory=NodePods)
    taken: Taken = field(default_factory=dict)
    complaint: str = ""


class SimulatedNodes:
    """Watches nodes, pods and GPUTopologies; `look` brings one node into order."""

    def __init__(self, api: Api, source: TopologySource, stop: threading.Event) -> None:
        self._api, self._source, self._stop = api, source, stop
        self._nodes, self._topologies = Objects(), Objects()
        self._known: dict[str, SimulatedNode] = {}
        self._dirty: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reporter, self._corrector = TopologyReporter(api), PodCorrector(api)

    def run(self) -> None:
        """Until stopped; prints one line when the first look at all nodes is done."""
        watches = [
            Watching(self._api, TOPOLOGIES, self._topologies_listed, self._topology_changed, stop=self._stop),
            Watching(self._api, NODES, self._nodes_listed, self._node_changed, stop=self._stop),
            Watching(
                self._api,
                PODS,
                self._pods_listed,
                self._pod_changed,
                stop=self._stop,
                query={"fieldSelector": "spec.nodeName!="},
                read=read_slim_pod,
            ),
        ]
        for watch in watches:
            watch.start()
        for watch in watches:
            while not watch.listed.wait(0.5) and not self._stop.is_set():
                pass
        with ThreadPoolExecutor(WORKERS, "node") as pool:
            self._work(pool)

    def _work(self, pool: ThreadPoolExecutor) -> None:
        """Looks at what has changed, each node once per round, so that one node is never looked at twice at a time."""
        first = True
        while not self._stop.is_set():
            for name in pool.map(self._look_safely, self._batch()):
                if name:
                    self._again(name)
            if first:
                log.info("looked at %d nodes", len(self._nodes.names()))
                first = False

    def _batch(self) -> set[str]:
        batch: set[str] = set()
        try:
            batch.add(self._dirty.get(timeout=1.0))
            while True:
                batch.add(self._dirty.get_nowait())
        except queue.Empty:
            return batch

    def _again(self, name: str) -> None:
        """Later, while the other nodes are looked at."""
        later = threading.Timer(RETRY_SECONDS, self._dirty.put, [name])
        later.daemon = True
        later.start()

    def _look_safely(self, name: str) -> str | None:
        """The node's name where it must be looked at again."""
        try:
            self.look(name)
        except ApiError as error:
            if isinstance(error, NotFound | Conflict):
                self._refresh(name)
            log.warning("node %s: %s", name, explained(error))
            return name
        return None

    def _refresh(self, name: str) -> None:
        """What we thought stands there does not: ask."""
        try:
            live = self._api.get(f"{TOPOLOGIES}/{name}")
        except NotFound:
            self._topologies.drop(name)
        except ApiError:
            return
        else:
            self._topologies.drop(name)
            self._topologies.put(live)

    def look(self, name: str) -> None:
        """Brings one node into order. Raises an ApiError."""
        node = self._nodes.get(name)
        if node is None or KWOK_ANNOTATION not in (node["metadata"].get("annotations") or {}):
            return
        known = self._node(name)
        try:
            graph = with_sick(self._source.read(node), node["metadata"]["annotations"].get(SICK_ANNOTATION, ""))
        except InvalidInput as error:
            if known.complaint != str(error):
                log.warning("node %s reports nothing: %s", name, error)
            known.complaint = str(error)
            return
        pods = known.pods.all()
        known.taken, refused = hand_out(pods, known.taken, graph)
        taken = {pod.key: known.taken[pod.uid] for pod in pods if pod.uid in known.taken}
        report = NodeReport(NodeName(name), node["metadata"]["uid"], graph, self._source.name, held_of(taken, pods))
        self._topologies.put(self._reporter.report(report, self._topologies.get(name), now_text()))
        self._corrector.correct(taken, pods, report)
        self._offer(node, graph)
        for pod in refused:
            self._refuse(pod)

    def _node(self, name: str) -> SimulatedNode:
        return self._known.setdefault(name, SimulatedNode())

    def _offer(self, node: Mapping[str, Any], graph: LinkGraph) -> None:
        """What kubelet does with a list of devices: capacity and allocatable."""
        status = node.get("status") or {}
        healthy = str(sum(gpu.health == "Healthy" for gpu in graph.gpus))
        wanted = {"capacity": {contract.RESOURCE: str(graph.size)}, "allocatable": {contract.RESOURCE: healthy}}
        if any((status.get(key) or {}).get(contract.RESOURCE) != value[contract.RESOURCE] for key, value in wanted.items()):
            self._nodes.put(self._api.merge(f"{NODES}/{node['metadata']['name']}/status", {"status": wanted}))

    def _refuse(self, pod: NodePod) -> None:
        message = f"Pod was rejected: Allocate failed due to requested number of devices unavailable for {contract.RESOURCE}"
        status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": message}
        log.warning("pod %s/%s does not fit on %s", *pod.key, pod.node)
        self._api.merge(f"{pod_path(*pod.key)}/status", {"metadata": {"uid": pod.uid}, "status": status})

    def _nodes_listed(self, objects: list[dict[str, Any]]) -> None:
        self._nodes.replace(objects)
        for name in self._nodes.names():
            self._dirty.put(name)

    def _node_changed(self, kind: str, obj: dict[str, Any]) -> None:
        before = self._nodes.get(obj["metadata"]["name"])
        self._nodes.event(kind, obj)
        if before is None or _relevant(before) != _relevant(obj):
            self._dirty.put(obj["metadata"]["name"])

    def _topologies_listed(self, objects: list[dict[str, Any]]) -> None:
        self._topologies.replace(objects)
        for name in self._nodes.names():
            self._dirty.put(name)

    def _topology_changed(self, kind: str, obj: dict[str, Any]) -> None:
        self._dirty.put(self._topologies.event(kind, obj))

    def _pods_listed(self, objects: list[dict[str, Any]]) -> None:
        by_node: dict[str, list[dict[str, Any]]] = {name: [] for name in self._known}
        for obj in objects:
            by_node.setdefault(obj["spec"]["nodeName"], []).append(obj)
        for name, pods in by_node.items():
            self._node(name).pods.replace(pods)
            self._dirty.put(name)

    def _pod_changed(self, kind: str, obj: dict[str, Any]) -> None:
        pod = self._node(obj["spec"]["nodeName"]).pods.event(kind, obj)
        if pod:
            self._dirty.put(pod.node)


def _relevant(node: Mapping[str, Any]) -> tuple[Any, ...]:
    """What of a node matters here; its heartbeats do not."""
    meta, status = node["metadata"], node.get("status") or {}
    counts = tuple((status.get(key) or {}).get(contract.RESOURCE) for key in ("capacity", "allocatable"))
    return meta["uid"], meta.get("labels"), meta.get("annotations"), counts


def main() -> None:
    """Runs until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m tools.kube.simnodes", description=__doc__)
    parser.add_argument("--kubeconfig", required=True, type=Path, help="the cluster")
    parser.add_argument("--machines-dir", type=Path, help="descriptions by file name, for labels that name no known machine")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    SimulatedNodes(connect(str(options.kubeconfig)), NamedMachines(options.machines_dir), stop).run()


if __name__ == "__main__":
    main()
