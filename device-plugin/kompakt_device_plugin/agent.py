"""The thread that keeps cluster and node in step: reads the source, reports, offers, and reconciles with kubelet."""

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final

import grpc

from kompakt_client.errors import ApiError, Conflict, NotFound, explained
from kompakt_client.events import Occurrence, Regarding
from kompakt_client.memory import trim
from kompakt_client.requests import Object
from kompakt_core import contract
from kompakt_core.contract.claimed_devices import ClaimedDevice, gpus_by_device
from kompakt_core.contract.conditions import ConditionReason, TopologyType
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuUuid, NodeName
from kompakt_core.topology.graph import LinkGraph
from kompakt_device_plugin.advertisement import Advertisement, NodeReading, advertise
from kompakt_device_plugin.allocations import Allocations
from kompakt_device_plugin.api import NODES, PODS, SLICES, TOPOLOGIES, PluginApi
from kompakt_device_plugin.cdi import CdiNames
from kompakt_device_plugin.clock import now_text
from kompakt_device_plugin.devices import Devices
from kompakt_device_plugin.event_recorder import EventRecorder
from kompakt_device_plugin.gpu_resource import DEFAULT, GpuResource
from kompakt_device_plugin.health import Heartbeat
from kompakt_device_plugin.isolation import Isolation
from kompakt_device_plugin.journal import Journal
from kompakt_device_plugin.metrics import PluginMetrics
from kompakt_device_plugin.objects import Objects
from kompakt_device_plugin.podresources import NO_DEVICES
from kompakt_device_plugin.pods import NodePod, NodePods
from kompakt_device_plugin.prefer import warm
from kompakt_device_plugin.reconcile import holders
from kompakt_device_plugin.registration import reason_of
from kompakt_device_plugin.report import TopologyCondition, TopologyReporter
from kompakt_device_plugin.rivals import Rival
from kompakt_device_plugin.source import Change, TopologySource
from kompakt_device_plugin.watching import Watching, read_slim_pod
from kompakt_device_plugin.writing import PodCorrector

log = logging.getLogger(__name__)

# How long after an Allocate kubelet's own list is asked: it shows the pod a few milliseconds later.
AFTER_ALLOCATE: Final = (0.01, 0.03, 0.1, 0.3, 1.0)
PERIOD: Final = 2.0
# A bound pod is followed by kubelet's two questions about it within some 14 ms: one round for all of that, after it, not
# several that take the interpreter from the answers.
GATHER: Final = 0.02
ORPHANED_PERIOD: Final = 0.3  # while a pod that nobody knows any more still has processes
ASK_SECONDS: Final = 1.0


class Agent:
    """`step` brings everything into order once; `run` does so on every change and every two seconds."""

    def __init__(
        self,
        api: PluginApi,
        node: NodeName,
        source: TopologySource,
        allocations: Allocations,
        pods: NodePods,
        devices: Devices,
        journal: Journal,
        metrics: PluginMetrics,
        stop: threading.Event,
        own: Collection[GpuUuid] = (),
        cdi: Callable[[str], CdiNames | None] = lambda runtime: None,
        isolation: Callable[[], Isolation | None] = lambda: None,
        resource: GpuResource = DEFAULT,
        rival: Rival = lambda: "",
    ) -> None:
        """`own`: the GPUs that are ours on a node whose others another plugin offers. `cdi`: what containers can get by CDI
        under the runtime that the Node names, None where they do not get their GPUs so. `isolation`: what else shows them GPUs.
        `resource`: how they are asked for; `rival`: how another plugin of that name shows.
        """
        self._resource, self._rival = resource, rival
        self._isolation = isolation
        self._api, self._name, self._source, self._allocations = api, node, source, allocations
        self._pods, self._devices, self._journal, self._metrics = pods, devices, journal, metrics
        self._stop, self._own, self._cdi = stop, frozenset(own), cdi
        self._nodes, self._topologies, self._slices = Objects(), Objects(), Objects()
        self._events = EventRecorder(api, node)
        self._reporter, self._corrector = TopologyReporter(api), PodCorrector(api, self._count, self._events)
        self._prepared = ""  # digest of a link graph
        self._wake, self._lock = threading.Event(), threading.Lock()
        self._watches: list[Watching] = []
        self._offering = threading.Lock()  # between looking and changing what is offered
        self._pauses: list[float] = []  # those to come before the usual one
        self._said = self._warned = self._trouble = ""
        self.settled = threading.Event()  # one round came to its end: report and offer are what they should be

    def allocated(self) -> None:
        """kubelet has just handed out GPUs: look soon, and again until it shows."""
        with self._lock:
            self._pauses = list(AFTER_ALLOCATE)
        self._wake.set()

    def heard(self, change: Change) -> None:
        """Something happened to a GPU: what is unhealthy is taken back before this returns, report and offer follow at once."""
        word = f"XID {change.xid}" if change.xid else change.kind
        log.warning("%s: %s (%s)", change.uuid or "node", change.message, word)
        self._withdraw()
        self._wake.set()

    def strange(self, gpus: Collection[GpuUuid]) -> None:
        """kubelet speaks of GPUs that were never offered to it; call it once for each. Never waits."""
        told = TopologyCondition(TopologyType.READY, False, ConditionReason.UNKNOWN_GPUS, unknown(gpus, self._resource.name))
        log.error("%s", told.message)
        if node := self._nodes.get(self._name):
            self._events.owe(node_event(node, told))
            self._wake.set()

    def named(self) -> CdiNames | None:
        """What containers can get by CDI now, under the runtime that the Node names; None where they do not get GPUs so."""
        facts = ((self._nodes.get(self._name) or {}).get("status") or {}).get("nodeInfo") or {}
        return self._cdi(str(facts.get("containerRuntimeVersion", "")))

    def ask(self) -> None:
        """Lists this node's pods now, beside the watch. Raises an ApiError."""
        self._pods.add(self._api.list(PODS, self._selector("spec.nodeName"), seconds=ASK_SECONDS).get("items") or ())

    def watch(self) -> None:
        """Begins to watch all that concerns this node and its GPUs; returns when each kind was listed once, or on stop."""
        watches = [
            self._watching(NODES, self._nodes, "metadata.name"),
            self._watching(TOPOLOGIES, self._topologies, "metadata.name"),
            self._watching(PODS, self._pods, "spec.nodeName"),
            self._watching(SLICES, self._slices, "spec.nodeName", optional=True),
        ]
        for watch in watches:
            watch.start()
        self._watches = watches
        for watch in watches:
            while not watch.listed.wait(0.2) and not self._stop.is_set():
                pass

    def run(self, beat: Heartbeat) -> None:
        """Steps until stopped; an error of API server or kubelet is said and tried again.

        So is any other, but `beat` then stops until a step goes well.
        """
        while not self._stop.is_set():
            try:
                self.step()
                self._trouble = ""
                self.settled.set()
                beat.beat()
            except (ApiError, grpc.RpcError, OSError) as error:
                beat.beat()
                self._failed(error)
            except Exception:
                log.exception("trying again every %.0f s", PERIOD)
            self._pause()

    def watches_alive(self) -> bool:
        """Whether every watch still goes round."""
        return all(watch.beat.alive for watch in self._watches)

    def step(self) -> None:
        """One round: what is unhealthy is taken back, then kubelet's truth, report, offer, corrections, and what is to be told.

        Raises an ApiError, and grpc.RpcError.
        """
        try:
            self._round()
        finally:
            self._events.send()

    def _round(self) -> None:
        seen = self._withdraw()  # first: all that follows may hang
        if seen is None:
            return
        live = self._topologies.get(self._name)
        handed, pods = self._journal.entries, self._pods.all()  # in this order: what is handed over later is not judged yet
        taken = self._allocations.look(live, pods, handed, self._claimed())
        self._say(seen)
        if seen.report is None:
            return
        report = replace(seen.report, held=self._allocations.held or ())
        self._topologies.put(self._reporter.report(report, live, now_text()))
        self._metrics.show(report)
        self._devices.hold(holders(taken, pods), (pod.uid for pod in pods))
        if seen.offered:
            self._prepare(seen.offered)
            self._publish(seen.offered)
        if self._resource.ours:  # on pods of others nothing is written
            self._corrector.correct(taken, pods, report)

    def _claimed(self) -> Mapping[ClaimedDevice, GpuUuid]:
        """Where we hand out the node's GPUs, another driver's are a conflict, and its pods are none of ours to correct."""
        return NO_DEVICES if self._resource.ours else gpus_by_device(self._slices.all())

    def _withdraw(self) -> Advertisement | None:
        """Takes back what is not to be offered any more. Waits for nobody: a GPU may break while API server or kubelet hang."""
        with self._offering:
            seen = self._look()
            if seen:
                self._devices.withdraw(seen.offered)
        return seen

    def _publish(self, graph: LinkGraph) -> None:
        """Unless something happened since `graph` was read: the round after this one begins at once, and knows."""
        with self._offering:
            seen = self._look()
            if seen and seen.offered == graph:
                self._devices.publish(graph)

    def _look(self) -> Advertisement | None:
        node = self._nodes.get(self._name)
        if node is None:
            return None
        node_reading = NodeReading(node, self._topologies.get(self._name), self._slices.all())
        return advertise(
            node_reading,
            self._read(node),
            self._source,
            self._own,
            self.named(),
            self._isolation(),
            self._resource,
            self._rival() or self._allocations.rival(self._resource.name),
        )

    def _prepare(self, graph: LinkGraph) -> None:
        """Works out before kubelet asks what an answer needs, once for each machine: not when its health changes. Tidying up
        takes a tenth of a second, in which no call of kubelet's is answered.
        """
        if graph.digest != self._prepared:
            warm(graph)
            trim()
            self._prepared = graph.digest

    def _read(self, node: Mapping[str, Any]) -> LinkGraph | InvalidInput:
        try:
            return self._source.read(node)
        except InvalidInput as error:
            return error

    def _say(self, seen: Advertisement) -> None:
        """A problem is logged and told by an Event once, not in every round."""
        self._warn(seen.warning)
        told = seen.problem or seen.shortage
        said = told.message if told else ""
        if said == self._said:
            return
        self._said = said
        if told is None:
            log.info("the node's GPUs are offered again")
            return
        log.error("%s: %s", "no GPU is offered" if seen.problem else "some GPUs are not offered", said)
        if node := self._nodes.get(self._name):
            self._events.owe(node_event(node, told))

    def _warn(self, told: TopologyCondition | None) -> None:
        """As a problem, though the GPUs are offered."""
        if told is not None and told.message != self._warned and (node := self._nodes.get(self._name)):
            log.warning("%s", told.message)
            self._events.owe(node_event(node, told))
        self._warned = told.message if told else ""

    def _failed(self, error: Exception) -> None:
        trouble = f"kubelet: {reason_of(error)}" if isinstance(error, grpc.RpcError) else explained(error)
        if trouble != self._trouble:
            log.warning("trying again every %.0f s: %s", PERIOD, trouble)
        self._trouble = trouble
        if isinstance(error, NotFound | Conflict):
            self._refresh()

    def _refresh(self) -> None:
        """What stands there is not what we thought: ask."""
        try:
            live = self._api.get(f"{TOPOLOGIES}/{self._name}")
        except NotFound:
            self._topologies.drop(self._name)
        except ApiError:
            return
        else:
            self._topologies.drop(self._name)
            self._topologies.put(live)

    def _pause(self) -> None:
        with self._lock:
            usual = ORPHANED_PERIOD if self._devices.orphaned else PERIOD
            seconds = self._pauses.pop(0) if self._pauses else usual
        if self._wake.wait(seconds):
            self._stop.wait(GATHER)
        self._wake.clear()

    def _watching(self, path: str, store: Objects | NodePods, field: str, *, optional: bool = False) -> Watching:
        query = self._selector(field)
        seen, read = self._seen(store), read_slim_pod if path == PODS else None
        return Watching(self._api, path, store.replace, seen, stop=self._stop, query=query, optional=optional, read=read)

    def _count(self, pod: NodePod) -> None:
        (self._metrics.corrected if pod.written else self._metrics.reported).inc()

    def _seen(self, store: Objects | NodePods) -> Any:
        def on_event(kind: str, obj: Object) -> None:
            store.event(kind, obj)
            self._wake.set()

        return on_event

    def _selector(self, field: str) -> dict[str, str]:
        return {"fieldSelector": f"{field}={self._name}"}


def unknown(gpus: Collection[GpuUuid], resource: str = contract.RESOURCE) -> str:
    """A sentence on ids that are not ours; kubelet's ids may be of any length and number."""
    some = ", ".join(gpu[:64] for gpu in sorted(gpus)[:8])
    more = f" and {len(gpus) - 8} more" if len(gpus) > 8 else ""
    return f"kubelet offers {some}{more} as {resource}, which kompakt never offered: does another plugin serve that resource?"


def node_event(node: Object, problem: TopologyCondition) -> Occurrence:
    """What is told of a node that offers nothing, or not all."""
    about = Regarding("v1", "Node", node["metadata"]["name"], node["metadata"]["uid"])
    return Occurrence(about, "Warning", problem.reason, "Offering", problem.message)
