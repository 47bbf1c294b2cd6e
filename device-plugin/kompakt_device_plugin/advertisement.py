"""What a node is to say and to offer at this moment. Pure: the node, its GPUTopology and a reading in, a report out."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from kompakt_core import contract
from kompakt_core.contract.conditions import ConditionReason, TopologyType
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuIndex, GpuUuid, NodeName
from kompakt_core.topology.graph import UNHEALTHY, LinkGraph
from kompakt_core.topology.wire import graph_from_spec
from kompakt_device_plugin.cdi import REMEDY, CdiNames
from kompakt_device_plugin.gpu_resource import DEFAULT, GpuResource
from kompakt_device_plugin.isolation import Isolation
from kompakt_device_plugin.report import NodeReport, TopologyCondition

# NVIDIA's driver for dynamic resource allocation offers the same GPUs by ResourceSlices, its device plugin by resources.
DRA_DRIVER: Final = "gpu.nvidia.com"
_NO_SLICES: Final[tuple[Mapping[str, Any], ...]] = ()
_ALL: Final[frozenset[GpuUuid]] = frozenset()


@dataclass(frozen=True, slots=True)
class Advertisement:
    """`report` None: nothing is or was known of the node's GPUs. `offered` None: no device is offered.

    `problem` says why none is, `shortage` why some GPUs are not, `warning` what else is to be told.
    """

    report: NodeReport | None
    offered: LinkGraph | None
    problem: TopologyCondition | None
    shortage: TopologyCondition | None = None
    warning: TopologyCondition | None = None


@dataclass(frozen=True, slots=True)
class NodeReading:
    """All that is known of a node: its object, its GPUTopology, and what another driver says of its GPUs."""

    node: Mapping[str, Any]
    live: Mapping[str, Any] | None = None
    slices: Iterable[Mapping[str, Any]] = _NO_SLICES


class SourceName(Protocol):
    """A source, as far as it is reported."""

    @property
    def name(self) -> str: ...
    @property
    def driver_version(self) -> str: ...


def advertise(
    node_reading: NodeReading,
    reading: LinkGraph | InvalidInput,
    source: SourceName,
    own: Collection[GpuUuid] = _ALL,
    cdi: CdiNames | None = None,
    isolation: Isolation | None = None,
    resource: GpuResource = DEFAULT,
    rival: str = "",
) -> Advertisement:
    """A node whose description is broken, whose GPUs another plugin owns, or of whose GPUs containers can get none offers
    nothing and says why; so does one that is to be isolated and is not. `cdi`: what containers can get, None where they do
    not get their GPUs by CDI. `rival`: how another plugin of kompakt's `resource` shows. Where others hand out
    the GPUs, they are no conflict.

    With a broken description an earlier GPUTopology keeps its spec (its pods still hold those GPUs) and turns not ready.
    A node that has GPUs of `own` offers these only, whatever others do; elsewhere `own` means nothing. Who holds what is left
    to the caller: what is offered does not depend on it, and whom to ask may not answer.
    """
    graph = reading if isinstance(reading, LinkGraph) else _known(node_reading.live)
    mine = [gpu.uuid for gpu in graph.gpus if gpu.uuid in own] if graph else []
    if graph:
        graph = whole(only(graph, mine) if mine else graph)
    owner = (rival or other_owner(node_reading, resource.name)) if resource.ours else ""
    unnamed = lacking(graph, cdi)
    problem = _problem(reading, "" if mine else owner) or _unreachable(graph, cdi, unnamed) or _forbidden(isolation)
    if graph is None:
        return Advertisement(None, None, problem)
    graph = without(graph, unnamed)
    meta = node_reading.node["metadata"]
    isolated = _isolated(isolation)
    driver = source.driver_version
    report = NodeReport(
        NodeName(meta["name"]), meta["uid"], graph, source.name, (), problem, owner, driver, isolated, resource.ours
    )
    shortage = _condition(TopologyType.DEGRADED, True, _unnamed(unnamed)) if unnamed and not problem else None
    warning = isolated if isolated and isolated.status is False and not problem else None
    return Advertisement(report, None if problem else graph, problem, shortage, warning)


def other_owner(node_reading: NodeReading, resource: str = contract.RESOURCE) -> str:
    """By what another driver offers GPUs of this node; empty where none does. `resource` is kompakt's own."""
    capacity = (node_reading.node.get("status") or {}).get("capacity") or {}
    resources = (name for name in capacity if name in contract.OTHER_RESOURCES or name.startswith(contract.OTHER_MIG_PREFIX))
    claimed = (name for name in sorted(resources) if name != resource and str(capacity[name]) != "0")
    sliced = (
        f"ResourceSlice {found['metadata']['name']} of {DRA_DRIVER}"
        for found in node_reading.slices
        if _offers(found, node_reading.node)
    )
    return next(claimed, "") or next(sliced, "")


def only(graph: LinkGraph, uuids: Collection[GpuUuid]) -> LinkGraph:
    """The graph of these GPUs alone, numbered anew from 0 in the same order."""
    number = {gpu.index: GpuIndex(new) for new, gpu in enumerate(gpu for gpu in graph.gpus if gpu.uuid in uuids)}
    modules = {gpu.module_id for gpu in graph.gpus if gpu.index in number}
    return replace(
        graph,
        gpus=tuple(replace(gpu, index=number[gpu.index]) for gpu in graph.gpus if gpu.index in number),
        nics=tuple(replace(nic, paths=tuple(kind for i, kind in enumerate(nic.paths) if i in number)) for nic in graph.nics),
        partitions=tuple(part for part in graph.partitions if modules.issuperset(part.module_ids)),
        links=tuple(replace(one, a=number[one.a], b=number[one.b]) for one in graph.links if one.a in number and one.b in number),
        uneven=tuple((number[a], number[b]) for a, b in graph.uneven if a in number and b in number),
    )


def whole(graph: LinkGraph) -> LinkGraph:
    """The graph with GPUs in MIG mode marked as not to be had: kompakt hands out whole GPUs."""
    if not any(gpu.mig_enabled for gpu in graph.gpus):
        return graph
    return replace(
        graph,
        gpus=tuple(
            replace(gpu, health=UNHEALTHY, health_reason=gpu.health_reason or "MIG") if gpu.mig_enabled else gpu
            for gpu in graph.gpus
        ),
    )


def without(graph: LinkGraph, unnamed: Collection[GpuUuid]) -> LinkGraph:
    """The graph with the GPUs that no container can get marked as not to be had."""
    if not unnamed:
        return graph
    reason = ConditionReason.CDI_SPEC_MISSING
    return replace(
        graph,
        gpus=tuple(
            replace(gpu, health=UNHEALTHY, health_reason=gpu.health_reason or reason) if gpu.uuid in unnamed else gpu
            for gpu in graph.gpus
        ),
    )


def lacking(graph: LinkGraph | None, cdi: CdiNames | None) -> tuple[GpuUuid, ...]:
    """The GPUs that no container can get."""
    return cdi.lacking(gpu.uuid for gpu in graph.gpus) if graph and cdi else ()


def _unreachable(graph: LinkGraph | None, cdi: CdiNames | None, unnamed: Collection[GpuUuid]) -> TopologyCondition | None:
    """Why containers can get none of the node's GPUs."""
    if cdi and cdi.unusable:
        return _condition(TopologyType.READY, False, cdi.unusable)
    if graph and unnamed and len(unnamed) == graph.size:
        return _condition(TopologyType.READY, False, _unnamed(unnamed))
    return None


def _isolated(found: Isolation | None) -> TopologyCondition | None:
    return TopologyCondition(TopologyType.ISOLATED, found.isolated, found.reason, found.message) if found else None


def _forbidden(found: Isolation | None) -> TopologyCondition | None:
    """Why no pod may be placed on a node that is not known to keep GPUs from those that they were not given to."""
    if found is None or not found.forbids:
        return None
    return TopologyCondition(TopologyType.READY, False, found.reason, found.message)


def _condition(type_: TopologyType, status: bool, sentence: str) -> TopologyCondition:
    return TopologyCondition(type_, status, ConditionReason.CDI_SPEC_MISSING, sentence)


def _unnamed(unnamed: Collection[GpuUuid]) -> str:
    return f"no CDI specification of this node names {', '.join(unnamed)}, so no container gets them: {REMEDY}"


def _offers(found: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    spec = found.get("spec") or {}
    return spec.get("driver") == DRA_DRIVER and spec.get("nodeName") == node["metadata"]["name"] and bool(spec.get("devices"))


def _problem(reading: LinkGraph | InvalidInput, owner: str) -> TopologyCondition | None:
    if isinstance(reading, InvalidInput):
        return TopologyCondition(TopologyType.READY, False, ConditionReason.BROKEN_DESCRIPTION, str(reading)[:1024])
    if owner:
        return TopologyCondition(
            TopologyType.READY,
            False,
            ConditionReason.CONFLICT,
            f"another driver offers GPUs of this node as {owner}: kompakt offers nothing",
        )
    return None


def _known(live: Mapping[str, Any] | None) -> LinkGraph | None:
    """What an earlier GPUTopology says; None where there is none that can be read."""
    try:
        return graph_from_spec(live["spec"]) if live else None
    except (InvalidInput, KeyError):
        return None
