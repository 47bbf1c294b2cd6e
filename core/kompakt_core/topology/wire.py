"""GPUTopology.spec <-> LinkGraph. The spec comes from the API server: it is checked like any foreign input."""

from collections.abc import Mapping
from typing import Any

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuIndex, GpuUuid
from kompakt_core.topology.graph import Gpu, Link, LinkGraph, LinkKind, Nic

MAX_GPUS = 64
MAX_NUMBER = 1 << 53  # JSON readers in other languages keep integers exactly up to here


def graph_to_spec(graph: LinkGraph, *, node_uid: str, source: str, driver_version: str = "") -> dict[str, Any]:
    """GPUTopology.spec of a node: integers and strings only."""
    return {
        "nodeUID": node_uid,
        "source": source,
        "driverVersion": driver_version,
        "gpus": [_gpu_to_wire(gpu) for gpu in graph.gpus],
        "links": [
            {
                "a": link.a,
                "b": link.b,
                "kind": link.kind.value,
                "lanes": link.lanes,
                "megabytesPerSecond": link.megabytes_per_second,
            }
            for link in graph.links
        ],
        "nics": [
            {"name": nic.name, "numaNode": nic.numa_node, "megabytesPerSecond": nic.megabytes_per_second} for nic in graph.nics
        ],
    }


def graph_from_spec(spec: Mapping[str, Any]) -> LinkGraph:
    """The link graph of a GPUTopology.spec. Links may come in any order and direction.

    Raises InvalidInput naming the field: a missing or ill-typed one, an unknown kind, a pair missing or given twice.
    """
    top = Fields(spec, "spec")
    gpus = tuple(_gpu(item) for item in top.items("gpus", MAX_GPUS))
    links = [_link(item) for item in top.items("links", MAX_GPUS * (MAX_GPUS - 1) // 2)]
    nics = tuple(_nic(item) for item in top.items("nics", 256, required=False))
    try:
        return LinkGraph(gpus, tuple(sorted(links, key=lambda link: (link.a, link.b))), nics)
    except InvalidInput as error:
        raise InvalidInput(f"spec: {error}") from None


class Fields:
    """A JSON object being read: each getter checks type and range and names the field's path when it is wrong."""

    def __init__(self, value: object, path: str) -> None:
        if not isinstance(value, Mapping):
            raise InvalidInput(f"{path}: expected an object, found {_kind(value)}")
        self.value: Mapping[str, Any] = value
        self.path = path

    def text(self, name: str, default: str | None = None) -> str:
        """A string of at most 256 characters."""
        found = self._get(name, default)
        if not isinstance(found, str) or len(found) > 256:
            raise InvalidInput(f"{self.path}.{name}: expected a string of at most 256 characters, found {_kind(found)}")
        return found

    def number(self, name: str, default: int | None = None, low: int = 0) -> int:
        """An integer from `low` to 2^53."""
        found = self._get(name, default)
        if isinstance(found, bool) or not isinstance(found, int):
            raise InvalidInput(f"{self.path}.{name}: expected an integer, found {_kind(found)}")
        if not low <= found <= MAX_NUMBER:
            raise InvalidInput(f"{self.path}.{name}: must be from {low} to 2^53")
        return found

    def flag(self, name: str) -> bool:
        """true or false; absent = false."""
        found = self._get(name, False)
        if not isinstance(found, bool):
            raise InvalidInput(f"{self.path}.{name}: expected true or false, found {_kind(found)}")
        return found

    def items(self, name: str, limit: int, *, required: bool = True) -> list["Fields"]:
        """A list of at most `limit` objects."""
        found = self._get(name, None if required else [])
        if not isinstance(found, list | tuple):
            raise InvalidInput(f"{self.path}.{name}: expected a list, found {_kind(found)}")
        if len(found) > limit:
            raise InvalidInput(f"{self.path}.{name}: {len(found)} entries; at most {limit} are allowed")
        return [Fields(item, f"{self.path}.{name}[{position}]") for position, item in enumerate(found)]

    def _get(self, name: str, default: object) -> object:
        found = self.value.get(name, default)
        if found is None:
            raise InvalidInput(f"{self.path}.{name}: is missing")
        return found


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "an integer", float: "a decimal number"}
    return "null" if value is None else names.get(type(value), type(value).__name__)


def _gpu_to_wire(gpu: Gpu) -> dict[str, Any]:
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "pciBusId": gpu.pci_bus_id,
        "moduleId": gpu.module_id,
        "numaNode": gpu.numa_node,
        "model": gpu.model,
        "memoryBytes": gpu.memory_bytes,
        "migEnabled": gpu.mig_enabled,
        "health": gpu.health,
    }


def _gpu(item: Fields) -> Gpu:
    health = item.text("health", "Healthy")
    if health not in ("Healthy", "Unhealthy"):
        raise InvalidInput(f"{item.path}.health: must be Healthy or Unhealthy")
    return Gpu(
        index=GpuIndex(item.number("index")),
        uuid=GpuUuid(item.text("uuid")),
        numa_node=item.number("numaNode", -1, low=-1),
        model=item.text("model", ""),
        memory_bytes=item.number("memoryBytes", 0),
        pci_bus_id=item.text("pciBusId", ""),
        module_id=item.number("moduleId", -1, low=-1),
        mig_enabled=item.flag("migEnabled"),
        health=health,
    )


def _link(item: Fields) -> Link:
    name = item.text("kind")
    if name not in {kind.value for kind in LinkKind}:
        raise InvalidInput(f"{item.path}.kind: must be one of {', '.join(LinkKind)}")
    a, b = sorted((item.number("a"), item.number("b")))
    speed = item.number("megabytesPerSecond")
    return Link(GpuIndex(a), GpuIndex(b), LinkKind(name), item.number("lanes", 0), speed)


def _nic(item: Fields) -> Nic:
    return Nic(item.text("name"), item.number("numaNode", -1, low=-1), item.number("megabytesPerSecond", 0))
