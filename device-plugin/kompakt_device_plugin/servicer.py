"""kubelet's side: the device plugin service, v1beta1. Answers only; decisions are in prefer.py and reconcile.py."""

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooSlow
from typing import Any, Final

import grpc

from kompakt_core import contract
from kompakt_core.ids import GpuUuid
from kompakt_core.topology.graph import LinkGraph
from kompakt_device_plugin.devices import Devices, Offered
from kompakt_device_plugin.pods import NodePod, NodePods
from kompakt_device_plugin.prefer import Offer, admitted, best_free, first_offered
from kompakt_device_plugin.proto import deviceplugin_pb2 as pb
from kompakt_device_plugin.proto import deviceplugin_pb2_grpc as pb_grpc

log = logging.getLogger(__name__)

# kubelet often asks before our watch has delivered the pod (1 of 8 times on an idle machine, 1 of 3 on a busy one).
# It has no deadline of its own and admits no other pod meanwhile, so the question to the API server gets little time.
MISS_SECONDS: Final = 0.5
SEARCH_SECONDS: Final = 1.0


class Counts:
    """What happened, for metrics and tests."""

    def __init__(self) -> None:
        self.hits = 0  # the set written on a pod was answered
        self.late_hits = 0  # the same, after asking the API server
        self.misses = 0  # no pod matched: the best free set was answered
        self.allocations = 0


class PluginServicer(pb_grpc.DevicePluginServicer):  # type: ignore[misc]  # generated code has no types
    """1. No call ever ends in an error because of us: kubelet would fail the pod. 2. No call takes longer than 1.5 s."""

    def __init__(self, devices: Devices, pods: NodePods, ask: Callable[[], None], *, allocated: Callable[[], None]) -> None:
        """`ask` brings `pods` up to date from the API server; `allocated` is told after each Allocate."""
        self._devices, self._pods, self._ask, self._allocated = devices, pods, ask, allocated
        self._helpers = ThreadPoolExecutor(4, "ask")
        self._streams = 0
        self._lock = threading.Lock()
        self.counts = Counts()

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
        answers = [self._prefer(_offer(asked)) for asked in request.container_requests]
        return pb.PreferredAllocationResponse(
            container_responses=[pb.ContainerPreferredAllocationResponse(deviceIDs=answer) for answer in answers]
        )

    def Allocate(self, request: Any, context: grpc.ServicerContext) -> Any:
        given = [tuple(GpuUuid(uuid) for uuid in asked.devices_ids) for asked in request.container_requests]
        answer = pb.AllocateResponse(container_responses=[_container_answer(self._hand_over(gpus)) for gpus in given])
        self._allocated()
        return answer

    def _lists(self, context: grpc.ServicerContext) -> Iterator[Any]:
        seen = -1
        while context.is_active():
            offered = self._devices.wait(seen, context.is_active)
            if offered.version != seen:
                seen = offered.version
                yield device_list(offered)

    def _listen(self, change: int) -> None:
        with self._lock:
            self._streams += change

    def _prefer(self, offer: Offer) -> tuple[GpuUuid, ...]:
        try:
            pod = self._admitted(offer)
            return pod.gpus if pod else self._best_free(offer)
        except Exception:  # an error here would fail the pod, and every other pod on this node
            log.exception("no preference for %s", offer)
            return first_offered(offer)

    def _admitted(self, offer: Offer) -> NodePod | None:
        pod = admitted(self._pods.all(), offer, self._devices.holding)
        if pod:
            self.counts.hits += 1
            return pod
        pod = self._awaited(offer)
        self.counts.late_hits += pod is not None
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
        self.counts.misses += 1
        search = self._helpers.submit(best_free, self._pods.all(), offer, self._devices.holding, self._devices.offered.graph)
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
        self.counts.allocations += 1
        offer = Offer(gpus, (), len(gpus))
        pods = self._pods.all()
        pod = admitted(pods, offer, self._devices.holding) or admitted(pods, offer, ())
        if pod:
            self._devices.asked(pod.uid)
            return pod.gpus
        return by_index(gpus, self._devices.offered.graph)


def device_list(offered: Offered) -> Any:
    """The message for kubelet. NUMA nodes stay out of it: kubelet would cut our choice by them (kubelet's Topology Manager)."""
    gpus = offered.graph.gpus if offered.graph else ()
    return pb.ListAndWatchResponse(devices=[pb.Device(ID=gpu.uuid, health=gpu.health) for gpu in gpus])


def by_index(gpus: tuple[GpuUuid, ...], graph: LinkGraph | None) -> tuple[GpuUuid, ...]:
    """Sorted by index on the node; unknown ones last, by name."""
    place = {gpu.uuid: gpu.index for gpu in graph.gpus} if graph else {}
    return tuple(sorted(gpus, key=lambda uuid: (place.get(uuid, len(place)), uuid)))


def _offer(asked: Any) -> Offer:
    offered = tuple(GpuUuid(uuid) for uuid in asked.available_deviceIDs)
    return Offer(offered, tuple(GpuUuid(uuid) for uuid in asked.must_include_deviceIDs), asked.allocation_size)


def _container_answer(gpus: tuple[GpuUuid, ...]) -> Any:
    visible = ",".join(gpus)
    return pb.ContainerAllocateResponse(envs={contract.ENV_CUDA_VISIBLE: visible, contract.ENV_NVIDIA_VISIBLE: visible})
