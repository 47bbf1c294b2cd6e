"""GPUTopology.spec <-> LinkGraph. The spec comes from the API server: it is checked like any foreign input."""

import re
from collections.abc import Mapping
from typing import Any, Final

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuIndex, GpuUuid
from kompakt_core.topology.cells import MAX_GPUS
from kompakt_core.topology.fields import MAX_NUMBER, Fields
from kompakt_core.topology.graph import HEALTHY, UNHEALTHY, Gpu, Link, LinkGraph, LinkKind, Nic, Partition, PeerAccess

_NUMBER: Final = re.compile(r"[0-9]{1,9}")


def graph_to_spec(graph: LinkGraph, *, node_uid: str, source: str, driver_version: str = "") -> dict[str, Any]:
    """GPUTopology.spec of a node: integers and strings only."""
    return {
        "nodeUID": node_uid,
        "source": source,
        "driverVersion": driver_version,
        "gpus": [gpu_to_wire(gpu) for gpu in graph.gpus],
        "links": [_link_to_wire(link, graph) for link in graph.links],
        "nics": [nic_to_wire(nic) for nic in graph.nics],
        **({"fabric": fabric} if (fabric := _fabric_to_wire(graph)) else {}),
        **({"partitions": [partition_to_wire(part) for part in graph.partitions]} if graph.partitions else {}),
    }


def graph_from_spec(spec: Mapping[str, Any]) -> LinkGraph:
    """The link graph of a GPUTopology.spec. Links may come in any order and direction.

    Raises InvalidInput naming the field: a missing or ill-typed one, an unknown kind, a pair missing or given twice.
    """
    top = Fields(spec, "spec")
    fabric = _fabric(top)
    gpus = tuple(gpu_from(item, fabric) for item in top.items("gpus", MAX_GPUS))
    items = top.items("links", MAX_GPUS * (MAX_GPUS - 1) // 2)
    links = sorted((_link(item) for item in items), key=lambda link: (link.a, link.b))
    uneven = sorted(_pair(item) for item in items if item.flag("uneven"))
    nics = tuple(nic_from(item) for item in top.items("nics", 256, required=False))
    partitions = tuple(partition_from(item) for item in top.items("partitions", 64, required=False))
    try:
        return LinkGraph(gpus, tuple(links), nics, tuple(uneven), partitions)
    except InvalidInput as error:
        raise InvalidInput(f"spec: {error}") from None


def gpu_to_wire(gpu: Gpu) -> dict[str, Any]:
    """One entry of `gpus`."""
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


def gpu_from(item: Fields, fabric: str = "", index: int | None = None, uuid: str | None = None) -> Gpu:
    """One entry of `gpus`; `fabric` is the clique of those that name none, `index` and `uuid` stand in where absent."""
    health = item.text("health", HEALTHY)
    if health not in (HEALTHY, UNHEALTHY):
        raise item.wrong("health", f"must be {HEALTHY} or {UNHEALTHY}")
    return Gpu(
        index=GpuIndex(item.number("index", index)),
        uuid=GpuUuid(item.text("uuid", uuid)),
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


def nic_to_wire(nic: Nic) -> dict[str, Any]:
    """One entry of `nics`."""
    paths = {"paths": [kind.value for kind in nic.paths]} if nic.paths else {}
    return {"name": nic.name, "numaNode": nic.numa_node, "megabytesPerSecond": nic.megabytes_per_second, **paths}


def nic_from(item: Fields) -> Nic:
    """One entry of `nics`."""
    words = item.values("paths", MAX_GPUS)
    known = {kind.value: kind for kind in LinkKind}
    if any(not isinstance(word, str) or word not in known for word in words):
        raise item.wrong("paths", f"each must be one of {', '.join(LinkKind)}")
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


def partition_to_wire(part: Partition) -> dict[str, Any]:
    """One entry of `partitions`."""
    return {"id": part.id, "moduleIds": list(part.module_ids)}


def partition_from(item: Fields) -> Partition:
    """One entry of `partitions`."""
    modules = item.values("moduleIds", MAX_GPUS)
    if any(isinstance(module, bool) or not isinstance(module, int) or not 0 <= module <= MAX_NUMBER for module in modules):
        raise item.wrong("moduleIds", "each must be an integer from 0")
    return Partition(item.number("id"), tuple(modules))
