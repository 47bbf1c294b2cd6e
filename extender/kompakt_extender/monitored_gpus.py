"""GPUTopologies without holders that only look: monitors, whose ResourceClaims have `adminAccess`, take no GPU from anybody.

Reports of holders are made of kubelet's PodResources, which does not tell such claims apart; the claims' own status does.
"""

from collections.abc import Callable

import msgspec

from kompakt_core.ids import GpuUuid, NodeName, PodUid
from kompakt_extender.views import TopologyView

Lookers = frozenset[tuple[GpuUuid, PodUid]]


class MonitoredGpus:
    """Follows GPUTopologies and who looks at which GPU, and tells of each node's topology with those alone that have GPUs."""

    def __init__(self, told: Callable[[TopologyView], None]) -> None:
        self._told = told
        self._reported: dict[NodeName, TopologyView] = {}
        self._lookers: dict[NodeName, Lookers] = {}

    def set_topology(self, topology: TopologyView) -> None:
        self._reported[topology.name] = topology
        self._tell(topology.name)

    def remove_topology(self, name: str) -> None:
        self._reported.pop(NodeName(name), None)

    def set_lookers(self, node: NodeName, lookers: Lookers) -> None:
        """What a pod has by a claim of its own besides is not lost by that: it counts as allocated."""
        if self._lookers.get(node, frozenset()) != lookers:
            self._lookers[node] = lookers
            self._tell(node)

    def _tell(self, node: NodeName) -> None:
        topology, lookers = self._reported.get(node), self._lookers.get(node)
        if topology is not None:
            held = topology.held if not lookers else tuple(one for one in topology.held if one not in lookers)
            self._told(topology if held == topology.held else msgspec.structs.replace(topology, held=held))
