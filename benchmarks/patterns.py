"""Tables and choices: what building one costs, what a look-up costs, and what networkx takes for the same answer.

    python -m benchmarks.patterns [--with-sixteen]

Figures are processor time of this one process, so that other work on the machine disturbs them little. The reference is
networkx's subgraph matching (VF2), which most topology-aware schedulers would reach for: all rings of k among the free
GPUs of the machine, the best of them taken. Both must agree on the value, else the run fails.
"""

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial

import networkx
from networkx.algorithms.isomorphism import GraphMatcher

from kompakt_core.ids import indices_of
from kompakt_core.patterns.names import NAMED, Pattern
from kompakt_core.patterns.sets import matrix
from kompakt_core.patterns.table import build as build_table
from kompakt_core.patterns.table import table_for
from kompakt_core.placement import choose as choosing
from kompakt_core.placement.model import Choice, Policy, Wish
from kompakt_core.topology.graph import LinkGraph
from kompakt_core.topology.machines import machine

RING = Wish(Pattern.RING, Policy.PRESERVE, sensitive=True)


def seconds(work: Callable[[], object], times: int = 1) -> float:
    """Processor seconds of one call, the mean of `times`."""
    start = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - start) / times


def best_ring_by_networkx(graph: LinkGraph, free: int, size: int) -> int:
    """MB/s of the best ring of `size` >= 3 GPUs, by matching a cycle in the complete graph of the free ones."""
    host = graph.to_networkx().subgraph(indices_of(free))
    matcher = GraphMatcher(host, networkx.cycle_graph(size))
    best: int = max(
        sum(host.edges[a, b]["weight"] for a, b in networkx.utils.pairwise(sorted(found, key=found.get), cyclic=True))
        for found in matcher.subgraph_monomorphisms_iter()
    )
    return best


def build(name: str, times: int) -> None:
    weights = matrix(machine(name).weights)
    for pattern in NAMED:
        cost = seconds(partial(build_table, pattern, weights), times)
        print(f"build  {name:14} {pattern:8} {cost * 1000:9.2f} ms")


def first_choices(name: str) -> None:
    """Every (free set, size) of a machine once, nothing remembered but the tables."""
    graph = machine(name)
    requests = [(free, size) for free in range(1, 1 << graph.size) for size in range(1, free.bit_count() + 1)]
    choosing.choose(graph, 1, 1, RING)
    cost = seconds(lambda: [choosing.choose(graph, free, size, RING) for free, size in requests])
    print(f"choose {name:14} first   {cost / len(requests) * 1e6:9.2f} us  (mean of all {len(requests)} free sets and sizes)")


def look_up(name: str) -> None:
    graph, times = machine(name), 200_000
    table = table_for(graph, Pattern.RING)
    free = graph.all_gpus & ~0b1000
    table.best(free, 4)
    print(f"choose {name:14} again   {seconds(lambda: choosing.choose(graph, free, 4, RING), times) * 1e6:9.2f} us")
    print(f"value  {name:14}         {seconds(lambda: table.value(free), times) * 1e6:9.2f} us")
    print(f"best   {name:14}         {seconds(lambda: table.best(free, 4), times) * 1e6:9.2f} us")


def against_networkx(name: str, size: int) -> None:
    graph = machine(name)
    found: list[int] = []
    cost = seconds(lambda: found.append(best_ring_by_networkx(graph, graph.all_gpus, size)))
    choice = choosing.choose(graph, graph.all_gpus, size, RING)
    if not isinstance(choice, Choice) or choice.second != found[0]:
        sys.exit(f"networkx finds a ring of {size} with {found[0]} MB/s on {name}, the table says {choice}")
    print(f"networkx {name:12} ring of {size} {cost * 1000:7.1f} ms  (same value: {found[0]} MB/s)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--with-sixteen", action="store_true", help="networkx on 16 GPUs too (minutes)")
    arguments = parser.parse_args()
    build("dgx1-v100", 50)
    build("dgx2-16xv100", 3)
    first_choices("dgx1-v100")
    look_up("dgx1-v100")
    sizes = [("dgx1-v100", size) for size in (3, 4, 5, 6)]
    for name, size in sizes + ([("dgx2-16xv100", 4), ("dgx2-16xv100", 5)] if arguments.with_sixteen else []):
        against_networkx(name, size)


if __name__ == "__main__":
    main()
