"""All placements by name."""

from collections.abc import Callable, Mapping

from kompakt_core.topology.graph import LinkGraph
from kompakt_simulator.cluster import Cluster, GpuSet
from kompakt_simulator.placements.consolidated import consolidated
from kompakt_simulator.placements.count import count
from kompakt_simulator.placements.levels import levels
from kompakt_simulator.placements.planned import Planned

Placement = Callable[[Cluster, int], GpuSet | None]

PLACEMENTS: Mapping[str, Placement] = {"count": count, "consolidated": consolidated, "levels": levels}


def placements_on(graph: LinkGraph | None) -> Mapping[str, Placement]:
    """All placements that machines with this link graph allow; without one those that need none."""
    return PLACEMENTS if graph is None else {**PLACEMENTS, "planned": Planned(graph)}
