"""kubelet's side: the device plugin service, v1beta1. Answers only; decisions are in prefer.py and reconcile.py."""

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooSlow
from typing import Any, Final

import grpc

from kompakt_core.ids import GpuUuid
from kompakt_core.topology.graph import Gpu, LinkGraph
from kompakt_device_plugin.devices import Devices, Offered
from kompakt_device_plugin.handover import Answer, environment_only
from kompakt_device_plugin.journal import Entry, Journal
from kompakt_device_plugin.metrics import Metrics
from kompakt_device_plugin.pods import NodePod, NodePods
from kompakt_device_plugin.prefer import Offer, admitted, best_free, first_offered
from kompakt_device_plugin.proto import deviceplugin_pb2 as pb
from kompakt_device_plugin.proto import deviceplugin_pb2_grpc as pb_grpc

log = logging.getLogger(__name__)

# kubelet often asks before our watch has delivered the pod (1 of 8 times on an idle machine, 1 of 3 on a busy one).
# It has no deadline of its own and admits no other pod meanwhile, so the question to the API server gets little time.
MISS_SECONDS: Final = 0.2
SEARCH_SECONDS: Final = 0.3


class PluginServicer(pb_grpc.DevicePluginServicer):  # type: ignore[misc]  # generated code has no types
    """1. No call ends in an error but one: an Allocate of GPUs that a process still uses, which fails the pod's placement.
    2. No call waits longer than half a second for others; renaming the write-ahead file is unbounded on a busy disk.
    """

    def __init__(
        self,
        devices: Devices,
        pods: NodePods,
        journal: Journal,
        metrics: Metrics,
        ask: Callable[[], None],
        *,
        allocated: Callable[[], None],
        busy: Callable[[GpuUuid], bool] = lambda gpu: False,
        answer: Answer = environment_only,
        numa: bool = False,
    ) -> None:
        """`ask` brings `pods` up to date from the API server; `allocated` is told after each Allocate.

        `busy`: whether the driver sees a process on a GPU. `answer` makes the answer for a container. `numa`: kubelet hears of
        the GPUs' NUMA nodes.
        """
        self._devices, self._pods, self._journal, self._metrics = devices, pods, journal, metrics
        self._ask, self._allocated, self._answer = ask, allocated, answer
        self._busy, self._numa = busy, numa
        self._helpers = ThreadPoolExecutor(4, "ask")
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
        with self._metrics.preferred_seconds.time():
            answers = [self._prefer(_offer(asked)) for asked in request.container_requests]
        return pb.PreferredAllocationResponse(
            container_responses=[pb.ContainerPreferredAllocationResponse(deviceIDs=answer) for answer in answers]
        )

    def Allocate(self, request: Any, context: grpc.ServicerContext) -> Any:
        given = [tuple(GpuUuid(uuid) for uuid in asked.devices_ids) for asked in request.container_requests]
        if used := [gpu for gpus in given for gpu in gpus if self._in_use(gpu)]:
            self._metrics.refusals.inc()
            log.error("not handed over, a process still uses them: %s", used)
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"a process of no pod here still uses {', '.join(used)}")
        answer = pb.AllocateResponse(container_responses=[self._answer(self._hand_over(gpus)) for gpus in given])
        self._allocated()
        return answer

    def _in_use(self, gpu: GpuUuid) -> bool:
        look = self._helpers.submit(self._busy, gpu)
        return gpu in self._devices.lingering or (self._in_time(look, SEARCH_SECONDS) and look.result())

    def _lists(self, context: grpc.ServicerContext) -> Iterator[Any]:
        seen = -1
        while context.is_active():
            offered = self._devices.wait(seen, context.is_active)
            if offered.version != seen:
                seen = offered.version
                yield device_list(offered, numa=self._numa)

    def _listen(self, change: int) -> None:
        with self._lock:
            self._streams += change

    def _prefer(self, offer: Offer) -> tuple[GpuUuid, ...]:
        try:
            self._journal.offered(set(offer.offered).difference(offer.must))
            pod = self._admitted(offer)
            return pod.gpus if pod else self._best_free(offer)
        except Exception:  # an error here would fail the pod, and every other pod on this node
            log.exception("no preference for %s", offer)
            return first_offered(offer)

    def _admitted(self, offer: Offer) -> NodePod | None:
        pod = admitted(self._pods.all(), offer, self._devices.holding)
        outcome = "hit" if pod else "late"
        pod = pod or self._awaited(offer)
        self._metrics.preferred.labels(outcome if pod else "miss").inc()
        return pod

    def _awaited(self, offer: Offer) -> NodePod | None:
        """Asks the API server, and takes what it or the watch delivers first; its answer without a match ends the wait."""
        answer = self._helpers.submit(self._ask)
        answer.add_done_callback(lambda _: self._pods.wake())
        pod = self._pods.wait(lambda pods: admitted(pods, offer, self._devices.holding), MISS_SECONDS, answer.done)
        if pod is None:
            self._in_time(answer, 0)  # says why there is none
        return pod

    def _best_free(self, offer: Offer) -> tuple[GpuUuid, ...]:
        devices = self._devices
        search = self._helpers.submit(
            best_free, self._pods.all(), offer, devices.holding, devices.offered.graph, devices.lingering
        )
        return search.result() if self._in_time(search, SEARCH_SECONDS) else first_offered(offer)

    @staticmethod
    def _in_time(work: "Future[Any]", seconds: float) -> bool:
        try:
            work.result(seconds)
        except TooSlow:
            log.warning("no answer in time")
            return False
        except Exception as error:
            log.warning("no answer: %s", error)
            return False
        return True

    def _hand_over(self, gpus: tuple[GpuUuid, ...]) -> tuple[GpuUuid, ...]:
        """The order in which the container sees its GPUs: as written on the pod, else by index."""
        self._metrics.allocations.inc()
        offer = Offer(gpus, (), len(gpus))
        pods = self._pods.all()
        pod = admitted(pods, offer, self._devices.holding) or admitted(pods, offer, ())
        self._journal.begin(Entry(gpus, pod.uid, *pod.key) if pod else Entry(gpus))
        if pod:
            self._devices.asked(pod.uid)
            return pod.gpus
        return by_index(gpus, self._devices.offered.graph)


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


def _offer(asked: Any) -> Offer:
    offered = tuple(GpuUuid(uuid) for uuid in asked.available_deviceIDs)
    return Offer(offered, tuple(GpuUuid(uuid) for uuid in asked.must_include_deviceIDs), asked.allocation_size)
