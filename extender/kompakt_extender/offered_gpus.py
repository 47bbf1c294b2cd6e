"""GPUs that no ResourceClaim of ours could be given count as unhealthy: their driver does not publish them, or a taint lies on
them. Read from ResourceSlices and DeviceTaintRules; a plan with such a GPU would wait for ever.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from kompakt_core.contract.gpu_claim import ClaimedDevices
from kompakt_core.contract.offered_devices import NOT_PUBLISHED, OFFERED, Offers, offers
from kompakt_core.ids import GpuUuid, NodeName
from kompakt_core.topology.graph import HEALTHY, UNHEALTHY, Gpu
from kompakt_extender.allocated_gpus import SliceView
from kompakt_extender.objects import Meta
from kompakt_extender.views import TopologyView

_NOTHING: Final[Offers] = {}


class RuleView(msgspec.Struct, frozen=True):
    """A DeviceTaintRule."""

    name: str
    found: Mapping[str, Any]


class _Rule(msgspec.Struct):
    metadata: Meta


_RULE = msgspec.json.Decoder(_Rule)


def read_rule(raw: bytes) -> RuleView:
    """A DeviceTaintRule's JSON."""
    return RuleView(_RULE.decode(raw).metadata.name, msgspec.json.decode(raw))


class OfferedGpus:
    """Follows GPUTopologies, slices and rules, and tells of each node's GPUs as a claim could have them.

    Slices of one node may belong to several pools; rules may select devices of all nodes, and there are few of them.
    """

    def __init__(self, devices: ClaimedDevices, told: Callable[[TopologyView], None]) -> None:
        self._devices = devices
        self._told = told
        self.rules: dict[str, RuleView] = {}
        self._slices: dict[str, SliceView] = {}
        self._of_node: dict[NodeName, dict[str, SliceView]] = {}
        self._offers: dict[NodeName, Offers] = {}
        self._topologies: dict[NodeName, TopologyView] = {}

    def set_topology(self, topology: TopologyView) -> None:
        self._topologies[topology.name] = topology
        self._tell(topology.name)

    def remove_topology(self, name: str) -> None:
        self._topologies.pop(NodeName(name), None)

    def set_slice(self, view: SliceView) -> None:
        self.remove_slice(view.name, but=view.node)
        self._slices[view.name] = view
        self._of_node.setdefault(view.node, {})[view.name] = view
        self._judge(view.node)

    def remove_slice(self, name: str, but: NodeName | None = None) -> None:
        """`but`: a node that is judged right after."""
        gone = self._slices.pop(name, None)
        if gone is not None:
            del self._of_node[gone.node][name]
            if gone.node != but:
                self._judge(gone.node)

    def set_rule(self, view: RuleView) -> None:
        self.rules[view.name] = view
        self._judge_all()

    def remove_rule(self, name: str) -> None:
        if self.rules.pop(name, None) is not None:
            self._judge_all()

    def _judge_all(self) -> None:
        for node in self._of_node:
            self._judge(node)

    def _judge(self, node: NodeName) -> None:
        slices = (one.found for one in self._of_node[node].values())
        found = offers(slices, (one.found for one in self.rules.values()), self._devices)
        if found != self._offers.get(node, _NOTHING):
            self._offers[node] = found
            self._tell(node)

    def _tell(self, node: NodeName) -> None:
        topology = self._topologies.get(node)
        if topology is not None:
            self._told(as_offered(topology, self._offers.get(node, _NOTHING)))


def as_offered(topology: TopologyView, offered: Offers) -> TopologyView:
    """It, with the GPUs unhealthy that a claim cannot be given."""
    if topology.graph is None:
        return topology
    gpus = tuple(_as_offered(topology.graph.gpus, offered))
    if gpus == topology.graph.gpus:
        return topology
    return msgspec.structs.replace(topology, graph=replace(topology.graph, gpus=gpus))


def _as_offered(gpus: tuple[Gpu, ...], offered: Offers) -> Iterator[Gpu]:
    for gpu in gpus:
        problem = offered.get(GpuUuid(gpu.uuid), NOT_PUBLISHED)
        good = gpu.health != HEALTHY or problem == OFFERED
        yield gpu if good else replace(gpu, health=UNHEALTHY, health_reason=problem)
