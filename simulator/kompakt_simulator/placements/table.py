"""All placements by name."""

from collections.abc import Callable, Mapping

from kompakt_simulator.cluster import Cluster, GpuSet
from kompakt_simulator.placements.consolidated import consolidated
from kompakt_simulator.placements.count import count

Placement = Callable[[Cluster, int], GpuSet | None]

PLACEMENTS: Mapping[str, Placement] = {"count": count, "consolidated": consolidated}
