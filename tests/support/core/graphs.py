"""Small link graphs for the tests, and the plainest search for the value of a pattern: every order of the GPUs tried."""

from collections.abc import Iterator, Mapping
from itertools import combinations, pairwise, permutations

from hypothesis import strategies as st

from kompakt_core.ids import GpuIndex, GpuUuid
from kompakt_core.patterns.names import Measure, Pattern
from kompakt_core.topology.graph import Gpu, Link, LinkGraph, LinkKind


def graph_of(weights: Mapping[tuple[int, int], int], size: int, numa: tuple[int, ...] = ()) -> LinkGraph:
    gpus = tuple(Gpu(GpuIndex(i), GpuUuid(f"GPU-{i}"), numa[i] if numa else -1) for i in range(size))
    links = []
    for a, b in combinations(range(size), 2):
        weight = weights[a, b]
        kind = LinkKind.NVLINK if weight % 2 else LinkKind.SYS  # odd figures stand for NVLink
        links.append(Link(GpuIndex(a), GpuIndex(b), kind, weight % 2, weight))
    return LinkGraph(gpus, tuple(links))


@st.composite
def graphs(draw: st.DrawFn, most: int = 7) -> LinkGraph:
    size = draw(st.integers(0, most))
    # Few different weights make ties, the hard case for repeatable choices.
    weight = draw(st.sampled_from([st.integers(0, 60), st.sampled_from([10, 25, 51])]))
    numa = tuple(draw(st.lists(st.sampled_from([-1, 0, 1]), min_size=size, max_size=size)))
    return graph_of({pair: draw(weight) for pair in combinations(range(size), 2)}, size, numa)


def embeddings(pattern: Pattern, gpus: tuple[int, ...]) -> Iterator[list[tuple[int, int]]]:
    """The links of every way to lay the pattern over the GPUs, most of them several times."""
    if pattern is Pattern.NONE or len(gpus) < 2:
        yield []
    elif pattern in (Pattern.CLIQUE, Pattern.ALL_TO_ALL):
        yield list(combinations(gpus, 2))
    elif pattern is Pattern.STAR:
        yield from ([(centre, other) for other in gpus if other != centre] for centre in gpus)
    elif pattern is Pattern.TREE:
        yield from trees(gpus)
    else:
        for order in permutations(gpus):
            closing = [(order[-1], order[0])] if pattern is Pattern.RING and len(gpus) > 2 else []
            yield [*pairwise(order), *closing]


def trees(gpus: tuple[int, ...]) -> Iterator[list[tuple[int, int]]]:
    """Every choice of n - 1 pairs that joins all."""
    for edges in combinations(combinations(gpus, 2), len(gpus) - 1):
        reached = {gpus[0]}
        for _ in gpus:
            reached |= {end for edge in edges if reached & set(edge) for end in edge}
        if len(reached) == len(gpus):
            yield list(edges)


def worth(graph: LinkGraph, edges: list[tuple[int, int]], measure: Measure) -> int:
    speeds = [graph.weights[a][b] for a, b in edges]
    return sum(speeds) if measure is Measure.SUM else min(speeds, default=0)


def by_search(graph: LinkGraph, pattern: Pattern, gpus: tuple[int, ...], measure: Measure) -> int:
    return max(worth(graph, edges, measure) for edges in embeddings(pattern, gpus))


def edges_of(pattern: Pattern, order: tuple[int, ...], graph: LinkGraph) -> list[tuple[int, int]]:
    """The links that ranks in this order use. Of a tree, each rank's best link to an earlier one."""
    if pattern is Pattern.STAR:
        return [(order[0], other) for other in order[1:]]
    if pattern is Pattern.TREE:
        return [(max(order[:i], key=lambda a: graph.weights[a][b]), b) for i, b in enumerate(order) if i]
    if pattern in (Pattern.RING, Pattern.CHAIN):
        closing = [(order[-1], order[0])] if pattern is Pattern.RING and len(order) > 2 else []
        return [*pairwise(order), *closing]
    return list(combinations(order, 2)) if pattern is not Pattern.NONE else []
