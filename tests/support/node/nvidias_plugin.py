"""A device plugin that offers a node's GPUs as nvidia.com/gpu, as NVIDIA's does: its socket's name, its resource, GPUs by UUID.

It stands in for NVIDIA's program, which needs a driver. It runs in this process and talks to a real kubelet.
"""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from kompakt_device_plugin.proto import deviceplugin_pb2 as pb
from kompakt_device_plugin.proto import deviceplugin_pb2_grpc as pb_grpc

RESOURCE = "nvidia.com/gpu"
SOCKET = "nvidia-gpu.sock"


class NvidiasPlugin(pb_grpc.DevicePluginServicer):  # type: ignore[misc]  # grpc has no types
    """`folder` is kubelet's folder of device plugins; `socket` a name in it."""

    def __init__(self, folder: Path, gpus: Sequence[str], socket: str = SOCKET) -> None:
        self.socket, self._gpus, self._over = folder / socket, tuple(gpus), threading.Event()
        self._listened = threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(4))
        pb_grpc.add_DevicePluginServicer_to_server(self, self._server)

    def start(self) -> None:
        """Serves, registers with kubelet and waits until it listens: it connects after it has answered the registration."""
        self._server.add_insecure_port(f"unix://{self.socket}")
        self._server.start()
        with grpc.insecure_channel(f"unix://{self.socket.parent / 'kubelet.sock'}") as channel:
            request = pb.RegisterRequest(version="v1beta1", endpoint=self.socket.name, resource_name=RESOURCE)
            pb_grpc.RegistrationStub(channel).Register(request, timeout=10)
        assert self._listened.wait(10), "kubelet never listened to the other plugin"

    def stop(self) -> None:
        self._over.set()
        self._server.stop(None).wait()
        self.socket.unlink(missing_ok=True)

    def GetDevicePluginOptions(self, request: Any, context: grpc.ServicerContext) -> Any:
        return pb.DevicePluginOptions()

    def ListAndWatch(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        yield pb.ListAndWatchResponse(devices=[pb.Device(ID=gpu, health="Healthy") for gpu in self._gpus])
        self._listened.set()
        context.add_callback(self._over.set)
        self._over.wait()

    def Allocate(self, request: Any, context: grpc.ServicerContext) -> Any:
        asked = [",".join(one.devices_ids) for one in request.container_requests]
        return pb.AllocateResponse(
            container_responses=[pb.ContainerAllocateResponse(envs={"NVIDIA_VISIBLE_DEVICES": gpus}) for gpus in asked]
        )
