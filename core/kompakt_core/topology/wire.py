"""GPUTopology.spec <-> LinkGraph. The spec comes from the API server: it is checked like any foreign input."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, TypeVar

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuIndex, GpuUuid
from kompakt_core.topology.graph import HEALTHY, UNHEALTHY, Gpu, Link, LinkGraph, LinkKind, Nic, Partition, PeerAccess

MAX_GPUS = 64
MAX_NUMBER = 1 << 53  # JSON readers in other languages keep integers exactly up to here

_NUMBER: Final = re.compile(r"[0-9]{1,9}")
Word = TypeVar("Word", bound=StrEnum)


def graph_to_spec(graph: LinkGraph, *, node_uid: str, source: str, driver_version: str = "") -> dict[str, Any]:
    """GPUTopology.spec of a node: integers and strings only."""
    return {
        "nodeUID": node_uid,
        "source": source,
        "driverVersion": driver_version,
        "gpus": [_gpu_to_wire(gpu) for gpu in graph.gpus],
        "links": [_link_to_wire(link, graph) for link in graph.links],
        "nics": [_nic_to_wire(nic) for nic in graph.nics],
        **({"fabric": fabric} if (fabric := _fabric_to_wire(graph)) else {}),
        **({"partitions": [_partition_to_wire(part) for part in graph.partitions]} if graph.partitions else {}),
    }


def graph_from_spec(spec: Mapping[str, Any]) -> LinkGraph:
    """The link graph of a GPUTopology.spec. Links may come in any order and direction.

    Raises InvalidInput naming the field: a missing or ill-typed one, an unknown kind, a pair missing or given twice.
    """
    top = Fields(spec, "spec")
    fabric = _fabric(top)
    gpus = tuple(_gpu(item, fabric) for item in top.items("gpus", MAX_GPUS))
    items = top.items("links", MAX_GPUS * (MAX_GPUS - 1) // 2)
    links = sorted((_link(item) for item in items), key=lambda link: (link.a, link.b))
    uneven = sorted(_pair(item) for item in items if item.flag("uneven"))
    nics = tuple(_nic(item) for item in top.items("nics", 256, required=False))
    partitions = tuple(_partition(item) for item in top.items("partitions", 64, required=False))
    try:
        return LinkGraph(gpus, tuple(links), nics, tuple(uneven), partitions)
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

    def word(self, name: str, kind: type[Word], default: str | None = None) -> Word:
        """One of the words of an enumeration."""
        found = self._get(name, default)
        if not isinstance(found, str) or found not in {word.value for word in kind}:
            raise InvalidInput(f"{self.path}.{name}: must be one of {', '.join(filter(None, kind))}")
        return kind(found)

    def child(self, name: str) -> "Fields":
        """An object."""
        return Fields(self._get(name, None), f"{self.path}.{name}")

    def values(self, name: str, limit: int) -> list[Any]:
        """A list of at most `limit` values of any kind; absent = empty."""
        found = self._get(name, [])
        if not isinstance(found, list | tuple):
            raise InvalidInput(f"{self.path}.{name}: expected a list, found {_kind(found)}")
        if len(found) > limit:
            raise InvalidInput(f"{self.path}.{name}: {len(found)} entries; at most {limit} are allowed")
        return list(found)

    def items(self, name: str, limit: int, *, required: bool = True) -> list["Fields"]:
        """A list of at most `limit` objects."""
        if required:
            self._get(name, None)
        found = self.values(name, limit)
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
        "clique": gpu.clique,
        **({"healthReason": gpu.health_reason} if gpu.health_reason else {}),
        **({"xid": gpu.xid} if gpu.xid else {}),
    }


def _gpu(item: Fields, fabric: str) -> Gpu:
    health = item.text("health", HEALTHY)
    if health not in (HEALTHY, UNHEALTHY):
        raise InvalidInput(f"{item.path}.health: must be {HEALTHY} or {UNHEALTHY}")
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
        health_reason=item.text("healthReason", ""),
        xid=item.number("xid", 0),
        clique=item.text("clique", fabric),
    )


def _link_to_wire(link: Link, graph: LinkGraph) -> dict[str, Any]:
    return {
        "a": link.a,
        "b": link.b,
        "kind": link.kind.value,
        "lanes": link.lanes,
        "megabytesPerSecond": link.megabytes_per_second,
        **({"generation": link.generation} if link.generation else {}),
        **({"peerAccess": link.peer_access.value} if link.peer_access else {}),
        **({"uneven": True} if (link.a, link.b) in graph.uneven else {}),
    }


def _pair(item: Fields) -> tuple[GpuIndex, GpuIndex]:
    a, b = sorted((item.number("a"), item.number("b")))
    return GpuIndex(a), GpuIndex(b)


def _link(item: Fields) -> Link:
    kind = item.word("kind", LinkKind)
    speed = item.number("megabytesPerSecond")
    access = item.word("peerAccess", PeerAccess, "")
    return Link(*_pair(item), kind, item.number("lanes", 0), speed, item.number("generation", 0), access)


def _nic_to_wire(nic: Nic) -> dict[str, Any]:
    paths = {"paths": [kind.value for kind in nic.paths]} if nic.paths else {}
    return {"name": nic.name, "numaNode": nic.numa_node, "megabytesPerSecond": nic.megabytes_per_second, **paths}


def _nic(item: Fields) -> Nic:
    words = item.values("paths", MAX_GPUS)
    known = {kind.value: kind for kind in LinkKind}
    if any(not isinstance(word, str) or word not in known for word in words):
        raise InvalidInput(f"{item.path}.paths: each must be one of {', '.join(LinkKind)}")
    paths = tuple(known[word] for word in words)
    return Nic(item.text("name"), item.number("numaNode", -1, low=-1), item.number("megabytesPerSecond", 0), paths)


def _fabric_to_wire(graph: LinkGraph) -> dict[str, Any] | None:
    """The clique of all GPUs that are registered with one; none where they disagree."""
    cliques = {gpu.clique for gpu in graph.gpus if gpu.clique}
    cluster, dot, number = cliques.pop().rpartition(".") if len(cliques) == 1 else ("", "", "")
    return {"clusterUuid": cluster, "cliqueId": int(number)} if dot and _NUMBER.fullmatch(number) else None


def _fabric(top: Fields) -> str:
    """The clique of GPUs that name none of their own."""
    if "fabric" not in top.value:
        return ""
    fabric = top.child("fabric")
    cluster = fabric.text("clusterUuid", "")
    return f"{cluster}.{fabric.number('cliqueId', 0)}" if cluster else ""


def _partition_to_wire(part: Partition) -> dict[str, Any]:
    return {"id": part.id, "moduleIds": list(part.module_ids)}


def _partition(item: Fields) -> Partition:
    modules = item.values("moduleIds", MAX_GPUS)
    if any(isinstance(module, bool) or not isinstance(module, int) or not 0 <= module <= MAX_NUMBER for module in modules):
        raise InvalidInput(f"{item.path}.moduleIds: each must be an integer from 0")
    return Partition(item.number("id"), tuple(modules))
