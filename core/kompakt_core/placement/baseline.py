"""What a scheduler that counts GPUs would give: kubelet picks any of the free ones when nobody prefers a set."""

from dataclasses import dataclass

from kompakt_core.ids import MegabytesPerSecond
from kompakt_core.patterns.names import Measure, Pattern
from kompakt_core.patterns.table import sets_within, table_for
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
    """Mean, worst and best value of the pattern over all sets of `size` within `free`.

    Raises InvalidInput when fewer are free, and as table_for does.
    """
    sets = sets_within(free, size)
    values = table_for(graph, pattern, measure=measure).values(sets).tolist()
    return RandomChoice(len(values), MegabytesPerSecond(sum(values) // len(values)), min(values), max(values))
