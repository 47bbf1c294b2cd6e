"""What a node is to say and to offer at this moment. Pure: the node, its GPUTopology and a reading in, a report out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import NodeName
from kompakt_core.topology.graph import LinkGraph
from kompakt_core.topology.wire import graph_from_spec
from kompakt_device_plugin.report import Condition, Held, NodeReport

OTHER_OWNERS: Final = ("nvidia.com/gpu",)  # resources by which another device plugin offers the same GPUs


@dataclass(frozen=True, slots=True)
class Outlook:
    """`report` None: nothing is or was known of the node's GPUs. `offered` None: no device is offered."""

    report: NodeReport | None
    offered: LinkGraph | None
    problem: Condition | None


def outlook(
    node: Mapping[str, Any],
    live: Mapping[str, Any] | None,
    reading: LinkGraph | InvalidInput,
    source: str,
    held: tuple[Held, ...],
) -> Outlook:
    """A node whose description is broken, or whose GPUs another plugin owns, offers nothing and says why.

    With a broken description an earlier GPUTopology keeps its spec (its pods still hold those GPUs) and turns not ready.
    """
    graph = reading if isinstance(reading, LinkGraph) else _known(live)
    owner = other_owner(node)
    problem = _problem(reading, owner)
    if graph is None:
        return Outlook(None, None, problem)
    meta = node["metadata"]
    report = NodeReport(NodeName(meta["name"]), meta["uid"], graph, source, held, problem, owner)
    return Outlook(report, None if problem else graph, problem)


def other_owner(node: Mapping[str, Any]) -> str:
    """The resource by which another device plugin owns this node's GPUs; empty where there is none."""
    capacity = (node.get("status") or {}).get("capacity") or {}
    return next((name for name in OTHER_OWNERS if capacity.get(name, "0") != "0"), "")


def _problem(reading: LinkGraph | InvalidInput, owner: str) -> Condition | None:
    if isinstance(reading, InvalidInput):
        return Condition("Ready", False, "BrokenDescription", str(reading)[:1024])
    if owner:
        return Condition("Ready", False, "Conflict", f"another device plugin offers {owner} on this node: kompakt offers nothing")
    return None


def _known(live: Mapping[str, Any] | None) -> LinkGraph | None:
    """What an earlier GPUTopology says; None where there is none that can be read."""
    try:
        return graph_from_spec(live["spec"]) if live else None
    except (InvalidInput, KeyError):
        return None
