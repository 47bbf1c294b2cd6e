"""Serving the device plugin's socket and registering it with kubelet, again after every restart of kubelet."""

import logging
import secrets
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import grpc

from kompakt_core import contract
from kompakt_device_plugin.devices import Devices
from kompakt_device_plugin.metrics import PluginMetrics
from kompakt_device_plugin.proto import deviceplugin_pb2 as pb
from kompakt_device_plugin.proto import deviceplugin_pb2_grpc as pb_grpc
from kompakt_device_plugin.servicer import PluginServicer

log = logging.getLogger(__name__)

SOCKETS: Final = "device-plugins"  # in kubelet's folder; kubelet wipes it when it starts
KUBELET: Final = "kubelet.sock"
API: Final = "v1beta1"
LOST_SECONDS: Final = 10.0  # kubelet listens within milliseconds of a registration; without it for this long we start over
_PREFIX: Final = "kompakt-"
_RETRY_SECONDS: Final = 1.0
_REGISTER_SECONDS: Final = 2.0  # kubelet answers in milliseconds; one that is starting must be asked again soon
_STOP_SECONDS: Final = 2.0  # for calls that are being answered: they are cancelled, and none waits for much longer

Stamp = tuple[int, int]  # inode and ctime of kubelet's socket: either changes when kubelet starts anew


class Registrar:
    """`step` does what is due; it is called a few times a second."""

    def __init__(
        self,
        kubelet_dir: Path,
        devices: Devices,
        servicer: PluginServicer,
        metrics: PluginMetrics,
        clock: Callable[[], float],
        resource: str = contract.RESOURCE,
    ) -> None:
        """`clock` gives monotonic seconds; the devices are registered under the name of `resource`."""
        self._resource, self._lapses = resource, 0
        self._folder, self._devices, self._servicer, self._clock = kubelet_dir / SOCKETS, devices, servicer, clock
        self._server: grpc.Server | None = None
        self._socket: Path | None = None
        self._stamp: Stamp | None = None  # of the kubelet we are registered with
        self._listened = self._not_before = clock()
        self._metrics = metrics

    def step(self) -> None:
        """Registers where that is due: never before the devices are known, then once per start of kubelet."""
        if self._devices.offered.version == 0 or self._clock() < self._not_before:
            return
        stamp = stamp_of(self._folder / KUBELET)
        if stamp is None or not self._due(stamp):
            return
        try:
            self._register()
            self._stamp, self._listened = stamp, self._clock()
        except (grpc.RpcError, OSError, RuntimeError) as error:
            log.warning("cannot register with kubelet: %s", reason_of(error))
            self._not_before = self._clock() + _RETRY_SECONDS

    def close(self) -> None:
        """Stops serving and removes the socket; kubelet then counts the devices as gone until somebody registers."""
        if self._server:
            self._server.stop(grace=None).wait(_STOP_SECONDS)
            self._devices.wake()
        if self._socket:
            self._socket.unlink(missing_ok=True)
        self._server = self._socket = self._stamp = None

    def _overtaken(self) -> bool:
        """While nothing was offered here another plugin may have registered the resource: kubelet listens to the last one."""
        offered = self._devices.offered
        return offered.graph is not None and offered.lapses != self._lapses and self._resource != contract.RESOURCE

    def _due(self, stamp: Stamp) -> bool:
        if self._overtaken() or stamp != self._stamp or self._socket is None or not self._socket.exists():
            return True
        if self._servicer.streams:
            self._listened = self._clock()
        return self._clock() - self._listened > LOST_SECONDS

    def _register(self) -> None:
        """Serves first: kubelet calls back while the registration is still being answered."""
        self.close()
        lapses = self._devices.offered.lapses  # what comes after this is registered again
        self._devices.kubelet_came()
        self._serve()
        request = pb.RegisterRequest(
            version=API,
            endpoint=self._socket.name if self._socket else "",
            resource_name=self._resource,
            options=pb.DevicePluginOptions(get_preferred_allocation_available=True),
        )
        with grpc.insecure_channel(f"unix://{self._folder / KUBELET}") as channel:
            pb_grpc.RegistrationStub(channel).Register(request, timeout=_REGISTER_SECONDS)
        self._lapses = lapses
        self._metrics.registrations.inc()
        log.info("registered %s with kubelet as %s", self._resource, request.endpoint)

    def _serve(self) -> None:
        """On a socket name never used before: two processes may serve at once during a rolling update."""
        for left in self._folder.glob(f"{_PREFIX}*.sock"):
            if is_dead(left):
                left.unlink(missing_ok=True)
        self._socket = self._folder / f"{_PREFIX}{secrets.token_hex(4)}.sock"
        self._server = grpc.server(ThreadPoolExecutor(8, "kubelet"))
        pb_grpc.add_DevicePluginServicer_to_server(self._servicer, self._server)
        self._server.add_insecure_port(f"unix://{self._socket}")
        self._server.start()


def stamp_of(path: Path) -> Stamp | None:
    """What tells one kubelet's socket from the next; None while there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_ctime_ns


def is_dead(path: Path) -> bool:
    """Whether nobody listens on a socket: a process that was killed could not take it away."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(0.2)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def reason_of(error: Any) -> str:
    """One line on a failed call."""
    return f"{error.code().name}: {error.details()}" if isinstance(error, grpc.Call) else str(error)
