"""kubelet's side: the device plugin service, v1beta1. Answers only; decisions are in prefer.py and reconcile.py."""

import logging
import threading
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

import grpc

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuUuid
from kompakt_core.topology.graph import Gpu, LinkGraph
from kompakt_device_plugin import processes
from kompakt_device_plugin.deadline_executor import CallDeadline, DeadlineExecutor
from kompakt_device_plugin.devices import Devices, Offered
from kompakt_device_plugin.handover import Answer, environment_only
from kompakt_device_plugin.journal import Journal, JournalEntry
from kompakt_device_plugin.metrics import PluginMetrics
from kompakt_device_plugin.orphaned_allocations import Alive, tenants, unsure
from kompakt_device_plugin.pods import NodePod, NodePods
from kompakt_device_plugin.prefer import OfferedDevices, admitted, best_free, first_offered
from kompakt_device_plugin.proto import deviceplugin_pb2 as pb
from kompakt_device_plugin.proto import deviceplugin_pb2_grpc as pb_grpc

log = logging.getLogger(__name__)

# kubelet often asks before our watch has delivered the pod (1 of 8 times on an idle machine, 1 of 3 on a busy one).
# It has no deadline of its own and admits no other pod meanwhile, so the question to the API server gets little time.
MISS_SECONDS: Final = 0.2
SEARCH_SECONDS: Final = 0.3
CALL_SECONDS: Final = 0.5  # for API server, search and processes together, however many containers a call asks for
ANSWER_SECONDS: Final = (
    2.0  # a driver that hangs must not hold up every later pod; reading a large CDI specification takes tenths
)


class PluginServicer(pb_grpc.DevicePluginServicer):  # type: ignore[misc]  # generated code has no types
    """1. No call ends in an error but Allocate, which then fails the pod's placement: of GPUs that a process still uses, or of
    which the driver does not say in time how a container gets them.
    2. No call waits longer than half a second for API server, search and processes together; Allocate in addition for the
    disk (WRITE_SECONDS, for each container) and for the answer's content (ANSWER_SECONDS).
    3. What hangs for one call, or of one kind, lets later calls and other kinds be.
    """

    def __init__(
        self,
        devices: Devices,
        pods: NodePods,
        journal: Journal,
        metrics: PluginMetrics,
        ask: Callable[[], None],
        *,
        allocated: Callable[[], None],
        strange: Callable[[Collection[GpuUuid]], None] = lambda gpus: None,
        busy: Callable[[GpuUuid], bool] = lambda gpu: False,
        alive: Alive = processes.alive,
        answer: Answer = environment_only,
        numa: bool = False,
    ) -> None:
        """`ask` brings `pods` up to date from the API server; `allocated` is told after each Allocate, `strange` of ids that
        kubelet has from somebody else; neither may wait.

        `busy`: whether the driver sees a process on a GPU; `alive`: which pods have processes. `answer` makes the answer for
        a container. `numa`: kubelet hears of the GPUs' NUMA nodes.
        """
        self._devices, self._pods, self._journal, self._metrics = devices, pods, journal, metrics
        self._ask, self._allocated, self._strange, self._answer = ask, allocated, strange, answer
        self._busy, self._alive, self._numa = busy, alive, numa
        self._lookups, self._searching, self._processes = (
            DeadlineExecutor("ask"),
            DeadlineExecutor("search"),
            DeadlineExecutor("processes"),
        )
        self._answering, self._driver_checks = DeadlineExecutor("answer"), DeadlineExecutor("driver check")
        self._streams = 0
        self._lock = threading.Lock()

    @property
    def streams(self) -> int:
        """How many kubelets listen to our list of devices: 1, or 0 where kubelet has let us go."""
        return self._streams

    def GetDevicePluginOptions(self, request: Any, context: grpc.ServicerContext) -> Any:
        return pb.DevicePluginOptions(get_preferred_allocation_available=True)

    def PreStartContainer(self, request: Any, context: grpc.ServicerContext) -> Any:
        return pb.PreStartContainerResponse()

    def ListAndWatch(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        context.add_callback(self._devices.wake)
        self._listen(+1)
        try:
            yield from self._lists(context)
        finally:
            self._listen(-1)

    def GetPreferredAllocation(self, request: Any, context: grpc.ServicerContext) -> Any:
        patience = CallDeadline(CALL_SECONDS)
        with self._metrics.preferred_seconds.time():
            answers = [self._prefer(_offer(asked), patience) for asked in request.container_requests]
        return pb.PreferredAllocationResponse(
            container_responses=[pb.ContainerPreferredAllocationResponse(deviceIDs=answer) for answer in answers]
        )

    def Allocate(self, request: Any, context: grpc.ServicerContext) -> Any:
        given = [tuple(GpuUuid(uuid) for uuid in asked.devices_ids) for asked in request.container_requests]
        self._meet([gpu for gpus in given for gpu in gpus])
        if reason := self._in_use(given):
            self._metrics.rejected_allocations.inc()
            log.error("not handed over: %s", reason)
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, reason)
        ordered = [self._hand_over(gpus) for gpus in given]
        found = self._answering.begin(lambda: [self._answer(gpus) for gpus in ordered])
        if not found.ended(ANSWER_SECONDS):
            context.abort(*self._unanswered(found.trouble))
        self._allocated()
        return pb.AllocateResponse(container_responses=found.result())

    def _unanswered(self, trouble: BaseException | None) -> tuple[grpc.StatusCode, str]:
        """How kubelet is told that a container cannot get its GPUs; it shows the sentence in the pod's status."""
        self._metrics.rejected_allocations.inc()
        if isinstance(trouble, InvalidInput):
            return grpc.StatusCode.FAILED_PRECONDITION, str(trouble)
        return grpc.StatusCode.UNAVAILABLE, "it cannot be told in time how a container gets these GPUs: see the plugin's log"

    def _in_use(self, given: Collection[tuple[GpuUuid, ...]]) -> str:
        """Why these GPUs cannot be handed over yet; empty where they can. Driver and /proc are looked at at the same time."""
        gpus, patience = [gpu for some in given for gpu in some], CallDeadline(SEARCH_SECONDS)
        seen = self._driver_checks.begin(lambda: [gpu for gpu in gpus if self._busy(gpu)])
        if left := self._left_behind(given, patience):
            return left
        used = seen.result() if seen.ended(patience.left) else []
        return f"a process of no pod here still uses {', '.join(used)}" if used else ""

    def _left_behind(self, given: Collection[tuple[GpuUuid, ...]], patience: CallDeadline) -> str:
        """Whether processes of pods that were given these GPUs before still run; kubelet forgets pods that are deleted by
        force while it ends them. Where that cannot be told in time they may.
        """
        gpus = frozenset(gpu for some in given for gpu in some)
        if orphaned := sorted(self._devices.orphaned & gpus):
            return f"a process of no pod here still uses {', '.join(orphaned)}"
        pods = self._pods.all()
        waiting = [pod for pod in pods if pod.uid not in self._devices.holding]
        gone = [one.pod for one in self._pods.gone()]
        candidates = [*waiting, *gone]
        own = {pod.uid for some in given if (pod := self._asker(some, pods, waiting))}
        before = tenants(gpus, self._devices.held, self._journal.entries, candidates, self._pods.ended()) - own
        before |= tenants(gpus, (), unsure(self._journal.in_vain), gone, self._pods.ended())
        if not before:
            return ""
        look = self._processes.begin(self._alive, before)
        if look.ended(patience.left) and not look.result():
            return ""
        return f"processes of pods that had {', '.join(sorted(gpus))} before still run: {', '.join(sorted(before))}"

    def _asker(self, gpus: tuple[GpuUuid, ...], pods: tuple[NodePod, ...], waiting: Collection[NodePod]) -> NodePod | None:
        """The pod that may be given this set as its own. One that has it already may ask once more, but where another waits for
        so many it is more likely that one: kubelet may have forgotten who had the set.
        """
        fresh = admitted(pods, OfferedDevices(gpus, (), len(gpus)), self._devices.holding)
        if fresh or any(pod.size == len(gpus) and not pod.finished for pod in waiting):
            return fresh
        return self._written_on(gpus, pods)

    def _lists(self, context: grpc.ServicerContext) -> Iterator[Any]:
        """One list for every change that kubelet can see: why a GPU is unhealthy is not told there."""
        seen, sent = -1, None
        while context.is_active():
            offered = self._devices.wait(seen, context.is_active)
            message = device_list(offered, numa=self._numa)
            if offered.version != seen and message != sent:
                yield message
                sent = message
            seen = offered.version

    def _listen(self, change: int) -> None:
        with self._lock:
            self._streams += change

    def _prefer(self, offer: OfferedDevices, patience: CallDeadline) -> tuple[GpuUuid, ...]:
        try:
            self._meet({*offer.offered, *offer.must})
            again = self._journal.offered(set(offer.offered).difference(offer.must))
            self._devices.lost(entry.pod_uid for entry in again)
            pod = self._admitted(offer, patience)
            return pod.gpus if pod else self._best_free(offer, patience)
        except Exception:  # an error here would fail the pod, and every other pod on this node
            log.exception("no preference for %s", offer)
            return first_offered(offer)

    def _meet(self, gpus: Collection[GpuUuid]) -> None:
        if strange := self._devices.strangers(gpus):
            self._strange(strange)

    def _admitted(self, offer: OfferedDevices, patience: CallDeadline) -> NodePod | None:
        pod = admitted(self._pods.all(), offer, self._devices.holding)
        outcome = "hit" if pod else "late"
        pod = pod or self._awaited(offer, patience)
        self._metrics.preferred.labels(outcome if pod else "miss").inc()
        return pod

    def _awaited(self, offer: OfferedDevices, patience: CallDeadline) -> NodePod | None:
        """Asks the API server, and takes what it or the watch delivers first; its answer without a match ends the wait."""
        answer = self._lookups.begin(self._ask)
        answer.then(self._pods.wake)
        seconds = min(MISS_SECONDS, patience.left)
        pod = self._pods.wait(lambda pods: admitted(pods, offer, self._devices.holding), seconds, answer.done)
        if pod is None:
            answer.ended(0)  # says why there is none
        return pod

    def _best_free(self, offer: OfferedDevices, patience: CallDeadline) -> tuple[GpuUuid, ...]:
        devices = self._devices
        search = self._searching.begin(
            best_free, self._pods.all(), offer, devices.holding, devices.offered.graph, devices.orphaned
        )
        return search.result() if search.ended(min(SEARCH_SECONDS, patience.left)) else first_offered(offer)

    def _hand_over(self, gpus: tuple[GpuUuid, ...]) -> tuple[GpuUuid, ...]:
        """The order in which the container sees its GPUs: as written on the pod, else by index."""
        self._metrics.allocations.inc()
        pod = self._written_on(gpus, self._pods.all())
        if not self._journal.begin(JournalEntry(gpus, pod.uid, *pod.key) if pod else JournalEntry(gpus)):
            self._metrics.late_writes.inc()
            log.warning("the disk is busy: %s handed over before it stands in the write-ahead file", ", ".join(gpus))
        if pod:
            self._devices.asked(pod.uid)
            return pod.gpus
        return by_index(gpus, self._devices.offered.graph)

    def _written_on(self, gpus: tuple[GpuUuid, ...], pods: tuple[NodePod, ...]) -> NodePod | None:
        """The pod on which this set is written, preferably one that has no GPUs yet."""
        offer = OfferedDevices(gpus, (), len(gpus))
        return admitted(pods, offer, self._devices.holding) or admitted(pods, offer, ())


def device_list(offered: Offered, *, numa: bool = False) -> Any:
    """The message for kubelet. Without `numa` no NUMA nodes stand in it, by which kubelet's Topology Manager cuts our choice."""
    gpus = offered.graph.gpus if offered.graph else ()
    return pb.ListAndWatchResponse(devices=[_device(gpu, numa) for gpu in gpus])


def _device(gpu: Gpu, numa: bool) -> Any:
    if not numa or gpu.numa_node < 0:
        return pb.Device(ID=gpu.uuid, health=gpu.health)
    return pb.Device(ID=gpu.uuid, health=gpu.health, topology=pb.TopologyInfo(nodes=[pb.NUMANode(ID=gpu.numa_node)]))


def by_index(gpus: tuple[GpuUuid, ...], graph: LinkGraph | None) -> tuple[GpuUuid, ...]:
    """Sorted by index on the node; unknown ones last, by name."""
    place = {gpu.uuid: gpu.index for gpu in graph.gpus} if graph else {}
    return tuple(sorted(gpus, key=lambda uuid: (place.get(uuid, len(place)), uuid)))


def _offer(asked: Any) -> OfferedDevices:
    offered = tuple(GpuUuid(uuid) for uuid in asked.available_deviceIDs)
    return OfferedDevices(offered, tuple(GpuUuid(uuid) for uuid in asked.must_include_deviceIDs), asked.allocation_size)
