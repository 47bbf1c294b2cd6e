"""How long an all-reduce takes in the order of names, in the order by racks, and in every other order of the nodes.

    sudo python -m benchmarks.rank_order             # six nodes in two racks, as network namespaces on this machine; needs torch
    sudo python -m benchmarks.rank_order --rack-mbit 100 --collectives Ring
    python -m benchmarks.rank_order --search         # nothing is sent: how far the search gets with costs at random

Names alternate between the racks. The nodes talk by gloo over links that the kernel holds to their rates (tc). All orders take
turns, round by round, so that whatever else the machine does meets all of them alike. Of orders that only exchange nodes of one
rack, which nothing tells apart, one stands for all. Times are of the slowest node.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import combinations
from typing import Final

from benchmarks.shaped_network import PYTHON, Fabric, address, running
from kompakt_core.placement.collective_cost import Collective, Costs
from kompakt_core.placement.rank_order import best_order

Order = tuple[int, ...]
PORT: Final = 29500


class Nodes:
    """The workers of one network."""

    def __init__(self, programs: Sequence["subprocess.Popen[str]"]) -> None:
        self._programs = programs
        for node, program in enumerate(programs):
            _line(program)  # it is ready
            _tell(program, {"node": node, "count": len(programs), "host": address(0), "port": PORT})

    def seconds(self, collective: Collective, order: Order, elements: int, repeats: int) -> list[float]:
        """Of each all-reduce of so many 32-bit numbers in this order, until the slowest node has it."""
        for program in self._programs:
            _tell(program, {"collective": collective, "order": order, "elements": elements, "repeats": repeats})
        return [max(taken) for taken in zip(*(json.loads(_line(program)) for program in self._programs), strict=True)]


def _tell(program: "subprocess.Popen[str]", words: Mapping[str, object]) -> None:
    assert program.stdin
    program.stdin.write(json.dumps(words) + "\n")
    program.stdin.flush()


def _line(program: "subprocess.Popen[str]") -> str:
    assert program.stdout
    line = program.stdout.readline()
    if not line:
        raise RuntimeError("a worker ended; what it said stands above")
    return line


@contextmanager
def workers(fabric: Fabric) -> Iterator[Nodes]:
    """One worker on each node of the network, ready."""
    env = {**os.environ, "GLOO_SOCKET_IFNAME": "eth0", "TORCH_CPP_LOG_LEVEL": "ERROR"}  # no word on names that no DNS has
    with running(fabric, [PYTHON, "-m", "benchmarks.allreduce_worker"], env) as programs:
        yield Nodes(programs)


def levels(racks: Sequence[int]) -> Costs:
    """What the planner knows: 1 inside a rack, 2 between racks."""
    return [[0 if i == j else 1 if racks[i] == racks[j] else 2 for j in range(len(racks))] for i in range(len(racks))]


def ours(collective: Collective, racks: Sequence[int]) -> Order:
    """By core, written with the lowest node of a rack first."""
    return _plain(best_order(collective, [1] * len(racks), levels(racks)).nodes, racks)


def all_orders(racks: Sequence[int]) -> list[Order]:
    """Every order that begins with node 0, one of each set of orders that only exchange nodes of one of the two racks."""
    alike = [node for node in range(1, len(racks)) if racks[node] == racks[0]]
    others = [node for node in range(len(racks)) if racks[node] != racks[0]]
    places = combinations(range(1, len(racks)), len(alike))
    return [_merged({0: 0, **dict(zip(chosen, alike, strict=True))}, others) for chosen in places]


def _merged(fixed: Mapping[int, int], others: Sequence[int]) -> Order:
    left = iter(others)
    return tuple(fixed[place] if place in fixed else next(left) for place in range(len(fixed) + len(others)))


def _plain(order: Order, racks: Sequence[int]) -> Order:
    left = {rack: iter(sorted(node for node in order if racks[node] == rack)) for rack in racks}
    return tuple(next(left[racks[node]]) for node in order)


def measured(
    nodes: Nodes, collective: Collective, orders: Sequence[Order], elements: int, rounds: int, repeats: int
) -> dict[Order, list[float]]:
    """Seconds of every all-reduce, by order."""
    found: dict[Order, list[float]] = {order: [] for order in orders}
    for _ in range(rounds):
        for order in orders:
            found[order] += nodes.seconds(collective, order, elements, repeats)
    return found


def report(collective: Collective, times: Mapping[Order, Sequence[float]], own: Order, every: bool = False) -> list[str]:
    """Medians, with the quickest and the slowest of all times in brackets; of every order where that is asked for."""
    named = tuple(range(len(own)))
    median = {order: statistics.median(taken) for order, taken in times.items()}
    best = min(median, key=lambda order: median[order])
    rows = [("by name", named), ("by racks", own), (f"best of {len(times)} orders", best)]
    rows += [(f"number {number}", order) for number, order in enumerate(sorted(median, key=median.__getitem__), 1)] * every
    spread = {order: f"{median[order]:.3f} s ({min(taken):.3f}..{max(taken):.3f})" for order, taken in times.items()}
    said = [f"{collective:16} {words:18} {' '.join(map(str, order))}   {spread[order]}" for words, order in rows]
    share = f"by name / by racks {median[named] / median[own]:.2f}, by racks / best {median[own] / median[best]:.2f}"
    return [*said, f"{collective:16} {share}, worst / best {max(median.values()) / median[best]:.2f}"]


def searched(collective: Collective, count: int, tries: int) -> str:
    """How often the order found for so many nodes is the best for sure; how far one may be off at most; the longest search."""
    found, seconds = [], 0.0
    for seed in range(tries):
        chance = random.Random(seed)
        costs = [[chance.randint(10, 100) for _ in range(count)] for _ in range(count)]
        began = time.perf_counter()
        found.append(best_order(collective, [1] * count, costs))
        seconds = max(seconds, time.perf_counter() - began)
    exact = sum(one.exact for one in found)
    return f"{collective:16} {count:5} {exact:5} of {tries} {max(one.gap for one in found):8.0%} {seconds:8.2f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=6)
    parser.add_argument("--node-mbit", type=int, default=100, help="each way, of every node's link")
    parser.add_argument("--rack-mbit", type=int, default=50, help="each way, of each rack's link, which its nodes share")
    parser.add_argument("--mebibytes", type=int, default=1, help="of each all-reduce, in 32-bit numbers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=2, help="all-reduces of each order in each round")
    parser.add_argument("--collectives", type=Collective, nargs="+", default=list(Collective))
    parser.add_argument("--every", action="store_true", help="print the times of every order, the quickest first")
    parser.add_argument("--search", action="store_true", help="how far the search gets: costs from 10 to 100 at random")
    args = parser.parse_args()
    if args.search:
        print("collective       nodes     exact  at most off  longest")
        for collective in args.collectives:
            for count, tries in ((8, 20), (10, 20), (11, 20), (12, 20), (16, 5), (64, 5)):
                print(searched(collective, count, tries), flush=True)
        return
    racks = tuple(node % 2 for node in range(args.nodes))
    print(
        f"{args.nodes} nodes, racks {' '.join(map(str, racks))}; Mbit/s each way: nodes {args.node_mbit}, racks {args.rack_mbit}"
    )
    print(f"{args.mebibytes} MiB, {args.rounds} rounds of {args.repeats} all-reduces in each order; median (least..most)")
    with workers(Fabric(racks, args.node_mbit, args.rack_mbit)) as nodes:
        for collective in args.collectives:
            times = measured(nodes, collective, all_orders(racks), args.mebibytes << 18, args.rounds, args.repeats)
            print("\n".join(report(collective, times, ours(collective, racks), args.every)), flush=True)


if __name__ == "__main__":
    main()
