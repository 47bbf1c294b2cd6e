"""GPUTopology.spec <-> LinkGraph. The spec comes from the API server: it is checked like any foreign input."""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuIndex, GpuUuid
from kompakt_core.schema.reader import read
from kompakt_core.schema.words import FieldError
from kompakt_core.topology.graph import HEALTHY, UNHEALTHY, Gpu, Link, LinkGraph, Nic, Partition
from kompakt_core.topology.resource import (
    ReportedFabric,
    ReportedGpu,
    ReportedGraph,
    ReportedLink,
    ReportedNic,
    ReportedPartition,
)

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
    found = _reported(spec)
    clique = _clique(found.fabric)
    gpus = tuple(gpu_of(gpu, f"spec.gpus[{i}]", clique) for i, gpu in enumerate(found.gpus))
    links = sorted(map(_link, found.links), key=lambda link: (link.a, link.b))
    uneven = sorted(_pair(link) for link in found.links if link.uneven)
    nics, partitions = tuple(map(nic_of, found.nics)), tuple(map(partition_of, found.partitions))
    try:
        return LinkGraph(gpus, tuple(links), nics, tuple(uneven), partitions)
    except InvalidInput as error:
        raise InvalidInput(f"spec: {error}") from None


def _reported(spec: object) -> ReportedGraph:
    """As declared: msgspec reads what is right, our reader what may be wrong, since it says what would be right."""
    try:
        return msgspec.convert(spec, ReportedGraph)
    except msgspec.ValidationError:
        return read(ReportedGraph, spec, "spec")


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


def gpu_of(gpu: ReportedGpu, path: str, clique: str = "") -> Gpu:
    """One entry of `gpus`; `clique` is that of GPUs that name none. Raises FieldError for a health that is no word."""
    if gpu.health not in (HEALTHY, UNHEALTHY):
        raise FieldError(f"{path}.health", f"must be {HEALTHY} or {UNHEALTHY}")
    return Gpu(
        index=GpuIndex(gpu.index),
        uuid=GpuUuid(gpu.uuid),
        numa_node=gpu.numa_node,
        model=gpu.model,
        memory_bytes=gpu.memory_bytes,
        pci_bus_id=gpu.pci_bus_id,
        module_id=gpu.module_id,
        mig_enabled=gpu.mig_enabled,
        health=gpu.health,
        health_reason=gpu.health_reason,
        xid=gpu.xid,
        clique=clique if gpu.clique is None else gpu.clique,
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


def _pair(link: ReportedLink) -> tuple[GpuIndex, GpuIndex]:
    a, b = sorted((link.a, link.b))
    return GpuIndex(a), GpuIndex(b)


def _link(link: ReportedLink) -> Link:
    return Link(*_pair(link), link.kind, link.lanes, link.megabytes_per_second, link.generation, link.peer_access)


def nic_to_wire(nic: Nic) -> dict[str, Any]:
    """One entry of `nics`."""
    paths = {"paths": [kind.value for kind in nic.paths]} if nic.paths else {}
    return {"name": nic.name, "numaNode": nic.numa_node, "megabytesPerSecond": nic.megabytes_per_second, **paths}


def nic_of(nic: ReportedNic) -> Nic:
    """One entry of `nics`."""
    return Nic(nic.name, nic.numa_node, nic.megabytes_per_second, nic.paths)


def _fabric_to_wire(graph: LinkGraph) -> dict[str, Any] | None:
    """The clique of all GPUs that are registered with one; none where they disagree."""
    cliques = {gpu.clique for gpu in graph.gpus if gpu.clique}
    cluster, dot, number = cliques.pop().rpartition(".") if len(cliques) == 1 else ("", "", "")
    return {"clusterUuid": cluster, "cliqueId": int(number)} if dot and _NUMBER.fullmatch(number) else None


def _clique(fabric: ReportedFabric) -> str:
    """The clique of GPUs that name none of their own."""
    return f"{fabric.cluster_uuid}.{fabric.clique_id}" if fabric.cluster_uuid else ""


def partition_to_wire(part: Partition) -> dict[str, Any]:
    """One entry of `partitions`."""
    return {"id": part.id, "moduleIds": list(part.module_ids)}


def partition_of(partition: ReportedPartition) -> Partition:
    """One entry of `partitions`."""
    return Partition(partition.id, partition.module_ids)
