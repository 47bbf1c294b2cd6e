"""Choosing GPUs: what tables and look-ups cost, beside other ways to the same answer, in one run.

    python -m benchmarks.placement [--slow]

Processor time of this process. The others are: networkx's and rustworkx's subgraph matching (VF2), all rings of k among the
free GPUs and the best of them; and plain re-implementations, in Python, of two searches as their code describes them: MAPA's
(every match of the ring, then every order of it, scored) and go-gpuallocator's best effort (all partitions of the free GPUs
into sets of the size, the best total). Ratios are to one decision of ours that nobody has asked before ("first"). What would
take more than about a minute is left out and said so, unless --slow.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations, pairwise, permutations
from math import comb, factorial

import networkx
import rustworkx
from networkx.algorithms.isomorphism import GraphMatcher

from kompakt_core.patterns.names import NAMED, Measure, Pattern
from kompakt_core.patterns.sets import matrix
from kompakt_core.patterns.table import build as build_table
from kompakt_core.patterns.table import table_for
from kompakt_core.placement import choose as choosing
from kompakt_core.placement.model import GpuRequest, PlacementPolicy
from kompakt_core.topology.graph import LinkGraph
from kompakt_core.topology.machines import machine

RING = GpuRequest(Pattern.RING, PlacementPolicy.PRESERVE, sensitive=True, measure=Measure.SUM)
EIGHT, SIXTEEN, MANY = "dgx1-v100", "dgx2-16xv100", "mi300x-8-cpx"
BOUND = 5_000_000  # candidates; a plain search of more is left out without --slow


def seconds(work: Callable[[], object], times: int = 1) -> float:
    """Processor seconds of one call, the fastest of `times`."""
    best = float("inf")
    for _ in range(times):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def ring_sum(graph: LinkGraph, order: tuple[int, ...]) -> int:
    """MB/s of the ring in this order, all links."""
    closing = [(order[-1], order[0])] if len(order) > 2 else []
    return sum(graph.weights[a][b] for a, b in [*pairwise(order), *closing])


def by_networkx(graph: LinkGraph, size: int) -> int:
    """The best ring by networkx's VF2."""
    matcher = GraphMatcher(graph.to_networkx(), networkx.cycle_graph(size))
    found = (tuple(sorted(one, key=one.get)) for one in matcher.subgraph_monomorphisms_iter())
    return max(ring_sum(graph, order) for order in found)


def by_rustworkx(graph: LinkGraph, size: int) -> int:
    """The best ring by rustworkx's VF2."""
    host = rustworkx.generators.complete_graph(graph.size)
    ring = rustworkx.generators.cycle_graph(size)
    best = 0
    for found in rustworkx.vf2_mapping(host, ring, subgraph=True, induced=False):
        best = max(best, ring_sum(graph, tuple(sorted(found.keys(), key=lambda gpu: found[gpu]))))
    return best


def by_mapa(graph: LinkGraph, size: int) -> int:
    """Every match of a ring, one for each set and cyclic order, and of each match every order scored."""
    best = 0
    for gpus in combinations(range(graph.size), size):
        for rest in permutations(gpus[1:]):
            if size > 2 and rest[0] > rest[-1]:
                continue
            best = max(best, *(ring_sum(graph, order) for order in permutations((gpus[0], *rest))))
    return best


def by_partitions(graph: LinkGraph, size: int) -> tuple[int, ...]:
    """The best set of the partition into sets of `size` with the greatest total of pairs, as go-gpuallocator searches."""

    def worth(gpus: tuple[int, ...]) -> int:
        return sum(graph.weights[a][b] for a, b in combinations(gpus, 2))

    best = max(_partitions(tuple(range(graph.size)), size), key=lambda sets: sum(map(worth, sets)))
    return max(best, key=worth)


def _partitions(gpus: tuple[int, ...], size: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    if not gpus:
        yield ()
        return
    for rest in combinations(gpus[1:], size - 1):
        left = tuple(gpu for gpu in gpus[1:] if gpu not in rest)
        for others in _partitions(left, size):
            yield ((gpus[0], *rest), *others)


def first_choice(graph: LinkGraph, size: int) -> float:
    """Seconds of a decision that nobody asked before; tables are built."""
    choosing.choose(graph, graph.all_gpus, 1, RING)

    def decide() -> object:
        choosing._decide.cache_clear()
        return choosing.choose(graph, graph.all_gpus, size, RING)

    return seconds(decide, 5)


def others(name: str, size: int, slow: bool) -> None:
    """All ways to a ring of `size` on the empty machine, with ratios; those that answer the same question must agree."""
    graph = machine(name)
    ours = first_choice(graph, size)
    table = table_for(graph, Pattern.RING, measure=Measure.SUM)
    best = table.value(table.best(graph.all_gpus, size))
    print(f"ring of {size} among {graph.size:2}  ours, first          {ours * 1000:10.3f} ms")
    rings = comb(graph.size, size) * factorial(size - 1) // (2 if size > 2 else 1)
    parts = (
        factorial(graph.size) // (factorial(size) ** (graph.size // size) * factorial(graph.size // size))
        if graph.size % size == 0
        else 0
    )
    ways: list[tuple[str, int, Callable[[LinkGraph, int], object]]] = [
        ("networkx VF2", rings * 2 * size * 4, by_networkx),
        ("rustworkx VF2", rings * 2 * size // 4, by_rustworkx),
        ("MAPA's search", rings * factorial(size), by_mapa),
        ("all partitions", parts, by_partitions),
    ]
    for words, count, search in ways:
        if not count or (size < 3 and "VF2" in words):
            continue
        if count > BOUND and not slow:
            print(f"{'':22} {words:20} {'':>10}    left out: {count:,} candidates")
            continue
        start = time.process_time()
        found = search(graph, size)
        cost = time.process_time() - start
        if isinstance(found, int) and found != best:
            sys.exit(f"{words} finds a ring of {size} with {found} MB/s on {name}, the table says {best}")
        print(f"{'':22} {words:20} {cost * 1000:10.1f} ms  {cost / ours:10,.0f} times ours")


def tables() -> None:
    """What building costs, both measures together."""
    for name, times in ((EIGHT, 20), (SIXTEEN, 2)):
        weights = matrix(machine(name).weights)
        for pattern in NAMED:
            cost = seconds(partial(build_table, pattern, weights), times)
            print(f"build  {name:14} {pattern:8} {cost * 1000:9.2f} ms")


def decisions() -> None:
    """First and repeated decisions, and values."""
    graph = machine(EIGHT)
    choosing.choose(graph, 1, 1, RING)
    requests = [(free, size) for free in range(1, 256) for size in range(1, free.bit_count() + 1)]
    choosing._decide.cache_clear()
    cost = seconds(lambda: [choosing.choose(graph, free, size, RING) for free, size in requests])
    print(f"choose {EIGHT:14} first    {cost / len(requests) * 1e6:9.2f} us  (mean over all {len(requests)} free sets and sizes)")
    repeats = 100_000
    again = seconds(lambda: [choosing.choose(graph, 247, 4, RING) for _ in range(repeats)], 3) / repeats
    print(f"choose {EIGHT:14} again    {again * 1e6:9.2f} us")
    large = machine(MANY)
    choosing.choose(large, large.all_gpus, 3, RING)
    worst = max(first_choice(large, size) for size in range(1, 64))
    print(f"choose {MANY:14} first    {worst * 1e6:9.2f} us  (the slowest of sizes 1 to 63)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slow", action="store_true", help="also what takes minutes")
    slow = parser.parse_args().slow
    tables()
    decisions()
    for name, sizes in ((EIGHT, (2, 4, 5)), (SIXTEEN, (2, 4, 5))):
        for size in sizes:
            others(name, size, slow)


if __name__ == "__main__":
    main()
