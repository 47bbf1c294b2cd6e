"""What a scheduler that counts GPUs would give: kubelet picks any of the free ones when nobody prefers a set."""

from dataclasses import dataclass

import numpy as np

from kompakt_core.ids import MegabytesPerSecond
from kompakt_core.patterns.names import Measure, Pattern
from kompakt_core.patterns.table import sets_within, table_for
from kompakt_core.placement.facts import without_fabric
from kompakt_core.topology.graph import LinkGraph


@dataclass(frozen=True, slots=True)
class RandomChoice:
    """Values over all sets of a size, each equally likely: MB/s. `mean` is rounded down."""

    sets: int
    mean: MegabytesPerSecond
    worst: MegabytesPerSecond
    best: MegabytesPerSecond


def random_choice(
    graph: LinkGraph, free: int, size: int, pattern: Pattern, measure: Measure = Measure.BOTTLENECK
) -> RandomChoice:
    """Mean, worst and best value of the pattern over all sets of `size` within `free`. Where a fabric joins GPUs by
    partitions only, a set that is none has the value that PCIe gives it.

    Raises InvalidInput when fewer are free, and as table_for does.
    """
    sets = sets_within(free, size)
    found = table_for(graph, pattern, measure=measure).values(sets)
    if graph.partitions and size > 1:
        joined = np.isin(sets, list(graph.partition_masks.values()))
        found = np.where(joined, found, table_for(without_fabric(graph), pattern, measure=measure).values(sets))
    values = found.tolist()
    return RandomChoice(len(values), MegabytesPerSecond(sum(values) // len(values)), min(values), max(values))
