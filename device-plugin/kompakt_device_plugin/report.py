"""What a node tells the cluster about its GPUs: the GPUTopology object. Pure but for `TopologyReporter`, which writes it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kompakt_client.requests import Object
from kompakt_core import contract
from kompakt_core.contract import gpu_holders
from kompakt_core.contract.conditions import (
    Condition,
    ConditionReason,
    TopologyType,
    condition,
    read_conditions,
    stamped,
)
from kompakt_core.contract.gpu_holders import GpuHolder
from kompakt_core.ids import NodeName
from kompakt_core.topology.flags import remarks
from kompakt_core.topology.graph import FABRIC_KINDS, HEALTHY, LinkGraph
from kompakt_core.topology.wire import graph_to_spec
from kompakt_device_plugin.api import TOPOLOGIES, PluginApi

_MAX_MESSAGE: Final = 32768  # of a condition
_IDENTITY: Final = {"apiVersion": contract.API_VERSION, "kind": contract.TOPOLOGY_KIND}


@dataclass(frozen=True, slots=True)
class TopologyCondition:
    """A condition without its time, which is that of the last change of `status`."""

    type: str
    status: bool | None  # None: Unknown
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class NodeReport:
    """All that one node has to say."""

    node: NodeName
    node_uid: str
    graph: LinkGraph
    source: str  # text or nvml
    held: tuple[GpuHolder, ...] = ()
    problem: TopologyCondition | None = None  # why no GPU is offered although the node is there
    other_owner: str = ""  # by what another plugin offers GPUs of this node
    driver_version: str = ""
    isolated: TopologyCondition | None = None  # None: nobody looked
    offers: bool = True  # False: others hand out the GPUs, and kompakt only reports them


def spec_of(report: NodeReport) -> Object:
    """The spec part as an apply body; owned by the Node, so that it goes when the Node goes."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": report.node, "uid": report.node_uid}
    spec = graph_to_spec(report.graph, node_uid=report.node_uid, source=report.source, driver_version=report.driver_version)
    return {**_IDENTITY, "metadata": {"name": report.node, "ownerReferences": [owner]}, "spec": spec}


def status_of(report: NodeReport, before: Iterable[Mapping[str, Any]], now: str) -> Object:
    """The status part as an apply body. `before` are the conditions as they stand; `now` is RFC 3339."""
    graph, count = report.graph, counted(report)
    status = {
        "gpus": graph.size,
        "free": count["free"],
        "fabric": fabric_of(graph),
        "health": "Healthy" if not count["unhealthy"] else "Unhealthy" if count["unhealthy"] == graph.size else "Degraded",
        "held": gpu_holders.encode(report.held),
        "conditions": stamped(map(_written, conditions_of(report)), read_conditions(list(before)), now),
    }
    return {**_IDENTITY, "metadata": {"name": report.node}, "status": status}


def counted(report: NodeReport) -> dict[str, int]:
    """GPUs by state. A GPU that turned unhealthy while a pod holds it counts as both allocated and unhealthy."""
    known = {gpu.uuid for gpu in report.graph.gpus}
    held = {entry.uuid for entry in report.held} & known
    unhealthy = {gpu.uuid for gpu in report.graph.gpus if gpu.health != HEALTHY}
    return {"free": 0 if report.problem else len(known - held - unhealthy), "allocated": len(held), "unhealthy": len(unhealthy)}


def conditions_of(report: NodeReport) -> tuple[TopologyCondition, ...]:
    """Ready, Degraded, Conflict: always all three, since an apply that leaves one out deletes it; Isolated where it is known."""
    said = "the GPUs are offered" if report.offers else "others hand out the GPUs"
    ready = report.problem or TopologyCondition(
        TopologyType.READY, True, ConditionReason.REPORTED, f"the link graph is reported and {said}"
    )
    return (
        ready,
        _degraded(report.graph),
        _conflict(report),
        *((report.isolated,) if report.isolated else ()),
    )


def _conflict(report: NodeReport) -> TopologyCondition:
    if not report.offers:
        return TopologyCondition(
            TopologyType.CONFLICT, False, ConditionReason.REPORT_ONLY, "others hand out the GPUs; kompakt offers none"
        )
    other = f"another driver offers GPUs of this node as {report.other_owner}"
    if not report.other_owner:
        return TopologyCondition(
            TopologyType.CONFLICT, False, ConditionReason.NO_OTHER_PLUGIN, "no other device plugin offers this node's GPUs"
        )
    if report.problem and report.problem.reason == ConditionReason.CONFLICT:
        return TopologyCondition(TopologyType.CONFLICT, True, ConditionReason.OTHER_DEVICE_PLUGIN, other)
    return TopologyCondition(
        TopologyType.CONFLICT, False, ConditionReason.OWN_GPUS_ONLY, f"{other}; kompakt offers only those it was told are its own"
    )


def _degraded(graph: LinkGraph) -> TopologyCondition:
    """The weightiest of what is broken gives the reason; the message holds all of it."""
    broken = [remark for remark in remarks(graph) if remark.degraded]
    if not broken:
        return TopologyCondition(
            TopologyType.DEGRADED,
            False,
            ConditionReason.ALL_HEALTHY,
            "all GPUs are healthy and their links are as they should be",
        )
    return TopologyCondition(TopologyType.DEGRADED, True, broken[0].flag, "; ".join(remark.sentence for remark in broken))


def fabric_of(graph: LinkGraph) -> str:
    """The fastest kind of fabric link on the node, PCIe where there is none."""
    fabric = [link for link in graph.links if link.kind in FABRIC_KINDS]
    return str(max(fabric, key=lambda link: (link.megabytes_per_second, link.kind)).kind) if fabric else "PCIe"


def holds(live: Any, wanted: Any) -> bool:
    """Whether `live` says all that `wanted` says; lists must be equal in length, objects may hold more."""
    if isinstance(wanted, Mapping):
        return isinstance(live, Mapping) and all(key in live and holds(live[key], value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(live, list) and len(live) == len(wanted) and all(map(holds, live, wanted))
    return bool(live == wanted)


def _written(told: TopologyCondition) -> Condition:
    return condition(told.type, told.status, told.reason, told.message, longest=_MAX_MESSAGE)


@dataclass
class TopologyReporter:
    """Writes reports, each part only when it differs from what stands there or from what was written last.

    Not safe to call at the same time for one node; different nodes at the same time are fine.
    """

    api: PluginApi
    _written: dict[str, Object] = field(default_factory=dict)  # by path
    _settled: dict[str, tuple[NodeReport, Object]] = field(
        default_factory=dict
    )  # by path: what said the same as what stood there

    def report(self, report: NodeReport, live: Object | None, now: str) -> Object:
        """Brings the node's GPUTopology to what the report says; `live` is what stands there, None where nothing does.

        Returns the object as it stands afterwards. Raises an ApiError; Conflict means that `live` was
        out of date. `now` is RFC 3339.
        """
        path = f"{TOPOLOGIES}/{report.node}"
        if self._is_settled(path, report, live):
            assert live is not None
            return live
        before = live
        live = self._write(path, spec_of(report), live)
        live = self._write(f"{path}/status", status_of(report, _conditions(live), now), live)
        if live is before:
            self._settled[path] = (report, live)
        return live

    def _is_settled(self, path: str, report: NodeReport, live: Object | None) -> bool:
        """Whether neither has changed since they said the same: most rounds, and kubelet's calls share the interpreter."""
        known = self._settled.get(path)
        return known is not None and live is known[1] and report == known[0]

    def _write(self, path: str, wanted: Object, live: Object | None) -> Object:
        said = {key: wanted[key] for key in wanted if key not in _IDENTITY}  # lists leave apiVersion and kind out
        if live is not None and self._written.get(path) == wanted and holds(live, said):
            return live
        version = {"resourceVersion": live["metadata"]["resourceVersion"]} if live else {}
        done = self.api.apply(path, {**wanted, "metadata": {**wanted["metadata"], **version}}, manager=contract.PLUGIN_MANAGER)
        self._written[path] = wanted
        return done


def _conditions(live: Object) -> list[Object]:
    conditions: list[Object] = (live.get("status") or {}).get("conditions") or []
    return conditions
