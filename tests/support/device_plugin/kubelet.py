"""A kubelet of gRPC parts: real servers and clients over unix sockets."""

import queue
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from kompakt_core import contract
from kompakt_device_plugin.devices import Devices
from kompakt_device_plugin.journal import Journal
from kompakt_device_plugin.metrics import PluginMetrics
from kompakt_device_plugin.node_lock import FOLDER
from kompakt_device_plugin.pods import NodePods
from kompakt_device_plugin.proto import deviceplugin_pb2 as pb
from kompakt_device_plugin.proto import deviceplugin_pb2_grpc as pb_grpc
from kompakt_device_plugin.proto import podresources_pb2 as pr
from kompakt_device_plugin.proto import podresources_pb2_grpc as pr_grpc
from kompakt_device_plugin.servicer import PluginServicer

NODE = "node-1"
PATIENCE = 5.0  # seconds that kubelet's calls may take at the very most


def wait_until(true: Callable[[], Any], seconds: float = 60.0) -> None:
    """Lets other threads work until something holds; fails where it never does."""
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit, "it never came true"
        time.sleep(0.005)


class FakeKubelet(pb_grpc.RegistrationServicer, pr_grpc.PodResourcesListerServicer):  # type: ignore[misc]
    """Its sockets are real; what it gives to pods is what the test says."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.resource = folder, contract.RESOURCE
        self.requests: list[Any] = []
        self.held: dict[tuple[str, str], tuple[str, ...]] = {}
        self.claimed: dict[tuple[str, str], tuple[tuple[str, str, str], ...]] = {}  # driver, pool and name of devices
        self.refuse: str | None = None
        self.patience: list[float] = []  # seconds that whoever registers waits for an answer
        self.asked: list[None] = []
        self.before_list: Callable[[], Any] = lambda: None
        self._servers: list[grpc.Server] = []
        for name in ("device-plugins", "pod-resources"):
            (folder / name).mkdir(exist_ok=True)

    def start(self, *, wipe: bool = True) -> None:
        """Like kubelet: wipes the plugins' sockets, then listens."""
        for left in (self.folder / "device-plugins").iterdir():
            if left.is_socket() and (wipe or left.name == "kubelet.sock"):
                left.unlink()
        self._serve(pb_grpc.add_RegistrationServicer_to_server, "device-plugins")
        self._serve(pr_grpc.add_PodResourcesListerServicer_to_server, "pod-resources")

    def stop(self) -> None:
        for server in self._servers:
            server.stop(None).wait()
        self._servers.clear()

    def _serve(self, add: Any, name: str) -> None:
        server = grpc.server(ThreadPoolExecutor(2))
        add(self, server)
        server.add_insecure_port(f"unix://{self.folder / name / 'kubelet.sock'}")
        server.start()
        self._servers.append(server)

    def Register(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.patience.append(context.time_remaining())
        if self.refuse:
            context.abort(grpc.StatusCode.UNKNOWN, self.refuse)
        self.requests.append(request)
        return pb.Empty()

    def List(self, request: Any, context: grpc.ServicerContext) -> Any:
        def entry(uuid: str) -> Any:
            return pr.ContainerDevices(resource_name=self.resource, device_ids=[uuid])

        self.asked.append(None)
        self.before_list()
        other = pr.ContainerDevices(resource_name="example.com/nic", device_ids=["nic-0"])
        pods = [
            pr.PodResources(
                namespace=namespace, name=name, containers=[pr.ContainerResources(name="c", devices=[*map(entry, gpus), other])]
            )
            for (namespace, name), gpus in self.held.items()
        ]
        pods += [self._by_claim(*pod, devices) for pod, devices in self.claimed.items()]
        return pr.ListPodResourcesResponse(pod_resources=[*pods, pr.PodResources(namespace="kube-system", name="dns")])

    @staticmethod
    def _by_claim(namespace: str, name: str, devices: Iterable[tuple[str, str, str]]) -> Any:
        found = [pr.ClaimResource(driver_name=driver, pool_name=pool, device_name=device) for driver, pool, device in devices]
        claims = [pr.DynamicResource(claim_name="gpus", claim_namespace=namespace, claim_resources=found)]
        container = pr.ContainerResources(name="c", dynamic_resources=claims)
        return pr.PodResources(namespace=namespace, name=name, containers=[container])


class Aborted(grpc.RpcError):  # type: ignore[misc]  # grpc has no types
    """An error that a servicer answers with."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code


class Direct:
    """A plugin's two deciding calls without a socket: the same messages, serialized and read again on both ways."""

    def __init__(self, servicer: PluginServicer) -> None:
        self._servicer = servicer

    def GetPreferredAllocation(self, request: Any, timeout: float) -> Any:
        answer = self._servicer.GetPreferredAllocation(
            pb.PreferredAllocationRequest.FromString(request.SerializeToString()), self
        )
        return pb.PreferredAllocationResponse.FromString(answer.SerializeToString())

    def Allocate(self, request: Any, timeout: float) -> Any:
        answer = self._servicer.Allocate(pb.AllocateRequest.FromString(request.SerializeToString()), self)
        return pb.AllocateResponse.FromString(answer.SerializeToString())

    def abort(self, code: grpc.StatusCode, details: str) -> None:
        raise Aborted(code, details)


class Calls:
    """What kubelet asks of a plugin."""

    def __init__(self, stub: Any) -> None:
        self.stub = stub

    def prefer(self, offered: tuple[str, ...], size: int, must: tuple[str, ...] = ()) -> tuple[str, ...]:
        asked = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=offered, must_include_deviceIDs=must, allocation_size=size
        )
        answer = self.stub.GetPreferredAllocation(pb.PreferredAllocationRequest(container_requests=[asked]), timeout=PATIENCE)
        return tuple(answer.container_responses[0].deviceIDs)

    def allocate(self, gpus: tuple[str, ...]) -> dict[str, str]:
        return dict(self.handed_over(gpus).envs)

    def handed_over(self, gpus: tuple[str, ...]) -> Any:
        request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=gpus)])
        return self.stub.Allocate(request, timeout=PATIENCE).container_responses[0]


class PluginClient(Calls):
    """What kubelet does with a registered plugin, over its socket."""

    def __init__(self, socket: Path) -> None:
        self.channel = grpc.insecure_channel(f"unix://{socket}")
        super().__init__(pb_grpc.DevicePluginStub(self.channel))

    def lists(self) -> "queue.Queue[list[tuple[str, str]]]":
        """Every list of (id, health) that the plugin sends from now on."""
        seen: queue.Queue[list[tuple[str, str]]] = queue.Queue()
        stream = self.stub.ListAndWatch(pb.Empty())

        def read() -> None:
            try:
                for message in stream:
                    seen.put([(device.ID, device.health) for device in message.devices])
            except grpc.RpcError:
                pass

        threading.Thread(target=read, daemon=True).start()
        return seen


class Parts:
    """What a servicer works with, in kubelet's folder."""

    def __init__(self, kubelet_dir: Path) -> None:
        plugins = kubelet_dir / "device-plugins"
        (plugins / FOLDER).mkdir(parents=True, exist_ok=True)
        self.devices, self.pods, self.journal, self.metrics = Devices(), NodePods(), Journal(plugins), PluginMetrics()
        self.allocated = 0

    def servicer(self, ask: Callable[[], None] = lambda: None, **more: Any) -> PluginServicer:
        return PluginServicer(self.devices, self.pods, self.journal, self.metrics, ask, allocated=self._count_allocation, **more)

    def _count_allocation(self) -> None:
        self.allocated += 1
