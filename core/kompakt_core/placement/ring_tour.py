"""The cheapest ring through all nodes, exactly: Held and Karp's dynamic programme (J. SIAM 10, 1962)."""

from typing import Final

from kompakt_core.placement.collective_cost import Costs

MAX_TOUR: Final = 12  # nodes: 2^11 sets x 11 x 11 steps


def cheapest_tour(costs: Costs) -> tuple[int, ...]:
    """All nodes in the order of a cheapest directed ring that begins at node 0. `costs`: square, one unit, from row to column.

    Takes 2^(n - 1) n^2 steps: for MAX_TOUR nodes. Of equally cheap rings always the same one.
    """
    count = len(costs)
    if count < 3:
        return tuple(range(count))
    others = range(1, count)
    best: dict[tuple[int, int], tuple[float, int]] = {(1 << node, node): (costs[0][node], 0) for node in others}
    for nodes in range(2, 1 << count, 2):  # sets without node 0; smaller sets have smaller numbers
        if nodes & (nodes - 1):
            for last in others:
                if nodes >> last & 1:
                    best[nodes, last] = _shortest(best, costs, nodes & ~(1 << last), last)
    return _walked(best, costs, (1 << count) - 2)


def _shortest(best: dict[tuple[int, int], tuple[float, int]], costs: Costs, nodes: int, last: int) -> tuple[float, int]:
    """The cheapest way from node 0 through all of `nodes` to `last`: its cost, and the node before `last`."""
    return min((best[nodes, node][0] + costs[node][last], node) for node in range(1, len(costs)) if nodes >> node & 1)


def _walked(best: dict[tuple[int, int], tuple[float, int]], costs: Costs, nodes: int) -> tuple[int, ...]:
    """The ring, read backwards from node 0."""
    _, last = _shortest(best, costs, nodes, 0)
    order = []
    while nodes:
        order.append(last)
        nodes, last = nodes & ~(1 << last), best[nodes, last][1]
    return (0, *reversed(order))
