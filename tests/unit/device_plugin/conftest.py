"""A kubelet of gRPC parts (real servers and clients over unix sockets) and an API server of dictionaries."""

import copy
import json
import queue
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from kompakt_client.errors import Conflict, NotFound
from kompakt_client.requests import Answer, ApiRequest
from kompakt_core import contract
from kompakt_core.topology.describe import read_description
from kompakt_core.topology.graph import LinkGraph
from kompakt_device_plugin.api import NODES
from kompakt_device_plugin.devices import Devices
from kompakt_device_plugin.journal import Journal
from kompakt_device_plugin.metrics import Metrics
from kompakt_device_plugin.node_lock import FOLDER
from kompakt_device_plugin.pods import NodePods
from kompakt_device_plugin.proto import deviceplugin_pb2 as pb
from kompakt_device_plugin.proto import deviceplugin_pb2_grpc as pb_grpc
from kompakt_device_plugin.proto import podresources_pb2 as pr
from kompakt_device_plugin.proto import podresources_pb2_grpc as pr_grpc
from kompakt_device_plugin.servicer import PluginServicer
from tests.unit.device_plugin.whole import Running

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
        self.folder = folder
        self.requests: list[Any] = []
        self.held: dict[tuple[str, str], tuple[str, ...]] = {}
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
            return pr.ContainerDevices(resource_name=contract.RESOURCE, device_ids=[uuid])

        self.asked.append(None)
        self.before_list()
        other = pr.ContainerDevices(resource_name="example.com/nic", device_ids=["nic-0"])
        pods = [
            pr.PodResources(
                namespace=namespace, name=name, containers=[pr.ContainerResources(name="c", devices=[*map(entry, gpus), other])]
            )
            for (namespace, name), gpus in self.held.items()
        ]
        return pr.ListPodResourcesResponse(pod_resources=[*pods, pr.PodResources(namespace="kube-system", name="dns")])


class PluginClient:
    """What kubelet does with a registered plugin."""

    def __init__(self, socket: Path) -> None:
        self.channel = grpc.insecure_channel(f"unix://{socket}")
        self.stub = pb_grpc.DevicePluginStub(self.channel)

    def prefer(self, offered: tuple[str, ...], size: int, must: tuple[str, ...] = ()) -> tuple[str, ...]:
        asked = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=offered, must_include_deviceIDs=must, allocation_size=size
        )
        answer = self.stub.GetPreferredAllocation(pb.PreferredAllocationRequest(container_requests=[asked]), timeout=PATIENCE)
        return tuple(answer.container_responses[0].deviceIDs)

    def allocate(self, gpus: tuple[str, ...]) -> dict[str, str]:
        request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=gpus)])
        return dict(self.stub.Allocate(request, timeout=PATIENCE).container_responses[0].envs)

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
        self.devices, self.pods, self.journal, self.metrics = Devices(), NodePods(), Journal(plugins), Metrics()
        self.allocated = 0

    def servicer(self, ask: Callable[[], None] = lambda: None, **more: Any) -> PluginServicer:
        return PluginServicer(self.devices, self.pods, self.journal, self.metrics, ask, allocated=self._count_allocation, **more)

    def _count_allocation(self) -> None:
        self.allocated += 1


class FakeApi:
    """Objects by path, with resourceVersions; watches see every change. Apply replaces what it names, key by key."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.calls: list[tuple[str, str, Any]] = []
        self.fail: Callable[[str, str], Exception | None] = lambda verb, path: None
        self._version = 0
        self._changed = threading.Condition()
        self._events: list[tuple[int, str, str, dict[str, Any]]] = []

    def put(self, path: str, obj: Mapping[str, Any]) -> dict[str, Any]:
        """Creates or replaces an object, as somebody else would."""
        with self._changed:
            self._version += 1
            new = copy.deepcopy(dict(obj))
            new["metadata"]["resourceVersion"] = str(self._version)
            new["metadata"].setdefault("uid", f"uid-{self._version}")
            kind = "MODIFIED" if path in self.objects else "ADDED"
            self.objects[path] = new
            self._tell(kind, path, new)
            return copy.deepcopy(new)

    def remove(self, path: str) -> None:
        with self._changed:
            self._version += 1
            self._tell("DELETED", path, {**self.objects.pop(path), "removed": True})

    def get(self, path: str) -> dict[str, Any]:
        self._call("get", path, None)
        if path not in self.objects:
            raise NotFound(path, 404, "NotFound")
        return copy.deepcopy(self.objects[path])

    def list(self, path: str, query: Mapping[str, Any] | None = None, *, seconds: float = 30.0) -> dict[str, Any]:
        self._call("list", path, query)
        with self._changed:
            found = [copy.deepcopy(obj) for where, obj in self.objects.items() if self._under(where, path, obj, query)]
            return {"items": found, "metadata": {"resourceVersion": str(self._version)}}

    def exchange(self, request: ApiRequest) -> Answer:
        return Answer(200, json.dumps(self.list(request.path, request.query)).encode())

    def watch(self, path: str, query: Mapping[str, Any], silence: float) -> "FakeStream":
        return FakeStream(self, path, query)

    def next_events(self, path: str, query: Mapping[str, Any], seen: int) -> "tuple[int, Sequence[bytes]]":
        """Waits for what happens after a version; the version that it leads to, and the lines of a watch."""
        with self._changed:
            while self._version <= seen:
                self._changed.wait()
            fresh = [event for event in self._events if event[0] > seen]
            lines = [{"type": kind, "object": obj} for _, kind, where, obj in fresh if self._under(where, path, obj, query)]
            return self._version, [json.dumps(line).encode() for line in lines]

    def apply(self, path: str, body: Mapping[str, Any], *, manager: str) -> dict[str, Any]:
        self._call("apply", path, body)
        where, _, sub = path.removesuffix("/status"), None, path.endswith("/status")
        live = self.objects.get(where)
        wanted = body["metadata"].get("resourceVersion")
        if wanted and (live is None or live["metadata"]["resourceVersion"] != wanted):
            raise Conflict("the object has been modified", 409, "Conflict")
        if body["metadata"].get("uid", (live or {}).get("metadata", {}).get("uid")) != (live or {}).get("metadata", {}).get(
            "uid"
        ):
            raise Conflict("uid mismatch", 409, "Conflict")
        new = copy.deepcopy(live) if live else {"metadata": {"name": body["metadata"]["name"]}}
        for key in ("status",) if sub else ("spec",):
            if key in body:
                new[key] = copy.deepcopy(body[key])
        meta = copy.deepcopy({k: v for k, v in body["metadata"].items() if k not in ("resourceVersion", "annotations")})
        notes = {**new["metadata"].get("annotations", {}), **body["metadata"].get("annotations", {})}
        new["metadata"] = {**new["metadata"], **({} if sub else meta), **({"annotations": notes} if notes else {})}
        if live == new:
            return copy.deepcopy(new)
        return self.put(where, new)

    def merge(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self._call("merge", path, body)
        raise NotImplementedError

    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self._call("create", path, body)
        return dict(body)

    def made(self, verb: str, part: str) -> tuple[Any, ...]:
        """The bodies of all calls of one verb whose path contains `part`."""
        return tuple(body for was, path, body in self.calls if was == verb and part in path)

    def _call(self, verb: str, path: str, body: Any) -> None:
        self.calls.append((verb, path, copy.deepcopy(body)))
        if error := self.fail(verb, path):
            raise error

    def _tell(self, kind: str, path: str, obj: dict[str, Any]) -> None:
        self._events.append(
            (self._version, kind, path, {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self._version)}})
        )
        self._changed.notify_all()

    @staticmethod
    def _under(where: str, path: str, obj: Mapping[str, Any], query: Mapping[str, str] | None) -> bool:
        if path.rsplit("/", 1)[-1] != where.rsplit("/", 2)[-2]:
            return False
        field, _, value = str((query or {}).get("fieldSelector", "")).partition("=")
        found: Any = obj
        for part in field.split(".") if field else ():
            found = found.get(part, "")
        return not field or found == value


class FakeStream:
    """One watch of a FakeApi; it never ends, as its thread is a daemon's."""

    def __init__(self, api: FakeApi, path: str, query: Mapping[str, Any]) -> None:
        self._api, self._path, self._query = api, path, query

    def batches(self) -> Iterator[list[bytes]]:
        seen = int(self._query["resourceVersion"])
        while True:
            seen, lines = self._api.next_events(self._path, self._query, seen)
            if lines:
                yield lines

    def stop(self) -> None:
        """Nothing to end."""


def pod_object(
    name: str, size: int = 2, gpus: tuple[str, ...] = (), *, node: str = NODE, phase: str = "Pending", **annotations: str
) -> dict[str, Any]:
    """A bound pod with one container that asks for `size` GPUs."""
    notes = {f"kompakt.dev/{key}": value for key, value in annotations.items()}
    if gpus:
        notes[contract.ANN_GPUS] = ",".join(gpus)
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": notes},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"limits": {contract.RESOURCE: str(size)}}}]},
        "status": {"phase": phase},
    }


@pytest.fixture
def make_pod() -> Callable[..., dict[str, Any]]:
    return pod_object


@pytest.fixture
def make_parts() -> Callable[[Path], Parts]:
    return Parts


@pytest.fixture
def until() -> Callable[..., None]:
    return wait_until


@pytest.fixture(scope="session")
def dgx1() -> LinkGraph:
    return read_description("dgx1-v100", NODE)


@pytest.fixture
def kubelet_dir() -> Iterator[Path]:
    """Short: the path of a unix socket must fit in 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="kp-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def kubelet(kubelet_dir: Path) -> Iterator[FakeKubelet]:
    fake = FakeKubelet(kubelet_dir)
    fake.start()
    yield fake
    fake.stop()


@pytest.fixture
def client() -> Iterator[Callable[[Path], PluginClient]]:
    made: list[PluginClient] = []

    def make(socket: Path) -> PluginClient:
        made.append(PluginClient(socket))
        return made[-1]

    yield make
    for one in made:
        one.channel.close()


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def machines(tmp_path):
    (tmp_path / "big").write_text("dgx1-v100")
    return tmp_path


@pytest.fixture
def running(api, kubelet, machines, client, until):
    api.put(f"{NODES}/{NODE}", {"metadata": {"name": NODE, "labels": {contract.LABEL_MACHINE: "big"}}})
    one = Running(api, kubelet, machines, client, until)
    yield one
    one.stop()


@pytest.fixture
def gpus(dgx1):
    return tuple(gpu.uuid for gpu in dgx1.gpus)


@pytest.fixture
def deaf(running):
    """Pods that have processes whatever anybody says of them; all that is deleted at once counts by that alone."""
    living = set()
    running.plugin.still_running.unseen_for = 0.0
    running.plugin.still_running._alive = running.plugin._servicer._alive = lambda uids: living & set(uids)
    return living
