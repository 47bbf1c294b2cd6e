"""What a job's GPU sets are worth against all sets that were free: what kubelet, which picks at random, would have given."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import mean

from kompakt_core.patterns.names import Pattern
from kompakt_core.patterns.table import table_for
from kompakt_core.topology.graph import LinkGraph


@dataclass(frozen=True, slots=True)
class Comparison:
    """One worker's place: ring values in MB/s of its set and of all free sets of that size on its node."""

    node: str
    gpus: tuple[int, ...]
    chosen: int
    first: int  # what first-fit takes: the lowest free indices
    mean: float  # the expectation of a random choice
    worst: int
    best: int
    ideal: int  # on an empty node of this kind


def compare(node: str, graph: LinkGraph, gpus: Sequence[int], free: Sequence[int]) -> Comparison:
    """Compare the set `gpus` with all sets of its size within `free` (indices; `free` holds `gpus`).

    Raises:
        ValueError: `gpus` is not within `free`.
    """
    if not set(gpus) <= set(free):
        raise ValueError(f"GPUs {sorted(gpus)} of {node} are not among the free {sorted(free)}")
    table = table_for(graph, Pattern.RING)
    values = [table.value(_mask(chosen)) for chosen in combinations(sorted(free), len(gpus))]
    everything = (1 << len(graph.gpus)) - 1
    return Comparison(
        node=node,
        gpus=tuple(gpus),
        chosen=table.value(_mask(gpus)),
        first=values[0],
        mean=mean(values),
        worst=min(values),
        best=max(values),
        ideal=table.value(table.best(everything, len(gpus))),
    )


def _mask(gpus: Sequence[int]) -> int:
    return sum(1 << gpu for gpu in gpus)
