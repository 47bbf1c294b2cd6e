"""What a scheduler that counts GPUs would give: kubelet picks any of the free ones when nobody prefers a set."""

from dataclasses import dataclass
from itertools import combinations

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import MegabytesPerSecond, indices_of
from kompakt_core.patterns.names import Pattern
from kompakt_core.patterns.table import table_for
from kompakt_core.topology.graph import LinkGraph


@dataclass(frozen=True, slots=True)
class RandomChoice:
    """Values over all sets of a size, each equally likely: MB/s. `mean` is rounded down."""

    sets: int
    mean: MegabytesPerSecond
    worst: MegabytesPerSecond
    best: MegabytesPerSecond


def random_choice(graph: LinkGraph, free: int, size: int, pattern: Pattern) -> RandomChoice:
    """Mean, worst and best value of the pattern over all sets of `size` within `free`.

    Raises InvalidInput when fewer are free, and as table_for does.
    """
    if not 0 <= size <= free.bit_count():
        raise InvalidInput(f"{size} of {free.bit_count()} free GPUs asked for")
    table = table_for(graph, pattern)
    bits = [1 << i for i in indices_of(free)]
    values = [table.value(sum(chosen)) for chosen in combinations(bits, size)]
    mean = MegabytesPerSecond(sum(values) // len(values))
    return RandomChoice(len(values), mean, min(values), max(values))
