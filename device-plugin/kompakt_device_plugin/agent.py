"""The thread that keeps cluster and node in step: reads the source, reports, offers, and reconciles with kubelet."""

import logging
import threading
from collections.abc import Mapping
from typing import Any, Final

import grpc

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import NodeName
from kompakt_core.topology.graph import LinkGraph
from kompakt_device_plugin.api import NODES, PODS, TOPOLOGIES, Api, Object, explain, status_code
from kompakt_device_plugin.clock import now_text
from kompakt_device_plugin.devices import Devices
from kompakt_device_plugin.health import Beat
from kompakt_device_plugin.objects import Objects
from kompakt_device_plugin.outlook import Outlook, outlook
from kompakt_device_plugin.podresources import PodResources
from kompakt_device_plugin.pods import NodePods
from kompakt_device_plugin.reconcile import event, held_in, held_of, holders, keep, running
from kompakt_device_plugin.registration import reason_of
from kompakt_device_plugin.report import Condition, Held, TopologyReporter
from kompakt_device_plugin.source import Source
from kompakt_device_plugin.watching import API_ERRORS, Watching
from kompakt_device_plugin.writing import PodCorrector

log = logging.getLogger(__name__)

# How long after an Allocate kubelet's own list is asked: it shows the pod a few milliseconds later.
AFTER_ALLOCATE: Final = (0.01, 0.03, 0.1, 0.3, 1.0)
PERIOD: Final = 2.0
ASK_SECONDS: Final = 1.0


class Agent:
    """`step` brings everything into order once; `run` does so on every change and every two seconds."""

    def __init__(
        self,
        api: Api,
        node: NodeName,
        source: Source,
        resources: PodResources,
        pods: NodePods,
        devices: Devices,
        stop: threading.Event,
    ) -> None:
        self._api, self._name, self._source, self._resources = api, node, source, resources
        self._pods, self._devices, self._stop = pods, devices, stop
        self._nodes, self._topologies = Objects(), Objects()
        self._reporter, self.corrector = TopologyReporter(api), PodCorrector(api)
        self._held: tuple[Held, ...] | None = None  # None: nothing was read yet
        self._wake, self._lock = threading.Event(), threading.Lock()
        self._pauses: list[float] = []  # those to come before the usual one
        self._said = self._trouble = ""

    def allocated(self) -> None:
        """kubelet has just handed out GPUs: look soon, and again until it shows."""
        with self._lock:
            self._pauses = list(AFTER_ALLOCATE)
        self._wake.set()

    def ask(self) -> None:
        """Lists this node's pods now, beside the watch. Raises one of API_ERRORS."""
        self._pods.add(self._api.list(PODS, self._selector("spec.nodeName"), timeout=ASK_SECONDS).items)

    def watch(self) -> None:
        """Begins to watch the node, its pods and its GPUTopology; returns when all three were listed once, or on stop."""
        mine = self._selector("metadata.name")
        watches = [
            Watching(self._api, NODES, self._nodes.replace, self._seen(self._nodes), stop=self._stop, query=mine),
            Watching(self._api, TOPOLOGIES, self._topologies.replace, self._seen(self._topologies), stop=self._stop, query=mine),
            Watching(
                self._api,
                PODS,
                self._pods.replace,
                self._seen(self._pods),
                stop=self._stop,
                query=self._selector("spec.nodeName"),
            ),
        ]
        for watch in watches:
            watch.start()
        for watch in watches:
            while not watch.listed.wait(0.2) and not self._stop.is_set():
                pass

    def run(self, beat: Beat) -> None:
        """Steps until stopped; an error of API server or kubelet is said and tried again."""
        while not self._stop.is_set():
            try:
                self.step()
                self._trouble = ""
            except (*API_ERRORS, grpc.RpcError) as error:
                self._failed(error)
            beat.beat()
            self._pause()

    def step(self) -> None:
        """One round: kubelet's truth, report, offer, corrections. Raises one of API_ERRORS, and grpc.RpcError."""
        node, live = self._nodes.get(self._name), self._topologies.get(self._name)
        if node is None:
            return
        pods = self._pods.all()
        before = held_in(live) if self._held is None else self._held
        taken = running(keep(before, self._resources.taken(), pods), pods)
        self._held = held_of(taken, pods)
        seen = outlook(node, live, self._read(node), self._source.name, self._held)
        self._say(node, seen)
        if seen.report is None:
            self._offer(None)
            return
        if seen.offered is None:
            self._offer(None)
        self._topologies.put(self._reporter.report(seen.report, live, now_text()))
        self._devices.hold(holders(taken, pods), (pod.uid for pod in pods))
        if seen.offered:
            self._offer(seen.offered)
        self.corrector.correct(taken, pods, seen.report)

    def _read(self, node: Mapping[str, Any]) -> LinkGraph | InvalidInput:
        try:
            return self._source.read(node)
        except InvalidInput as error:
            return error

    def _offer(self, graph: LinkGraph | None) -> None:
        """Nothing is said to kubelet before there was something to offer: the node then has no such resource at all."""
        if graph is not None or self._devices.offered.version:
            self._devices.publish(graph)

    def _say(self, node: Object, seen: Outlook) -> None:
        """A problem is logged and told by an Event once, not in every round."""
        said = seen.problem.message if seen.problem else ""
        if said == self._said:
            return
        self._said = said
        if seen.problem is None:
            log.info("the node's GPUs are offered again")
            return
        log.error("no GPU is offered: %s", said)
        self._api.create("/api/v1/namespaces/default/events", node_event(node, seen.problem))

    def _failed(self, error: Exception) -> None:
        trouble = f"kubelet: {reason_of(error)}" if isinstance(error, grpc.RpcError) else explain(error)
        if trouble != self._trouble:
            log.warning("trying again every %.0f s: %s", PERIOD, trouble)
        self._trouble = trouble
        if status_code(error) in (404, 409):
            self._refresh()

    def _refresh(self) -> None:
        """What stands there is not what we thought: ask."""
        try:
            live = self._api.get(f"{TOPOLOGIES}/{self._name}")
        except API_ERRORS:
            return
        self._topologies.drop(self._name)
        if live:
            self._topologies.put(live)

    def _pause(self) -> None:
        with self._lock:
            seconds = self._pauses.pop(0) if self._pauses else PERIOD
        self._wake.wait(seconds)
        self._wake.clear()

    def _seen(self, store: Any) -> Any:
        def on_event(kind: str, obj: Object) -> None:
            store.event(kind, obj)
            self._wake.set()

        return on_event

    def _selector(self, field: str) -> dict[str, str]:
        return {"fieldSelector": f"{field}={self._name}"}


def node_event(node: Object, problem: Condition) -> Object:
    """The Event that tells of a node that offers nothing. Node events stand in the namespace default, as kubelet's do."""
    about = {"apiVersion": "v1", "kind": "Node", "name": node["metadata"]["name"], "uid": node["metadata"]["uid"]}
    return event(about, "default", "Warning", problem.reason, problem.message, now_text())
