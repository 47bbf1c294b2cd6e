"""The cheapest ring and the cheapest binomial tree over few nodes, exactly.

The ring is found by Held and Karp's dynamic programme (1962), the tree from the trees of its halves.
"""

from functools import cache
from itertools import combinations
from typing import Final

from kompakt_core.placement.collective_cost import Costs, pair_cost

MAX_TOUR: Final = 12  # nodes: 2^11 sets x 11 x 11 steps

Tree = tuple[float, tuple[int, ...]]  # the sum of its edges' costs, and the nodes in the order of ranks


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


def cheapest_tree(costs: Costs) -> tuple[int, ...]:
    """All nodes, one rank each, in the order of a cheapest binomial tree whose root is node 0; `costs`: square, one unit.

    Ranks 2^k and up, 2^k the largest power of two below their number, are a tree whose root hands its sum to rank 0 in the last
    round. So the cheapest tree of a set is that of two of its parts and one edge. Twelve nodes take a tenth of a second.
    """
    count = len(costs)

    @cache
    def tree(nodes: frozenset[int], root: int) -> Tree:
        if len(nodes) == 1:
            return (0.0, (root,))
        upper = len(nodes) - (1 << ((len(nodes) - 1).bit_length() - 1))
        return min(joined(nodes, root, frozenset(high)) for high in combinations(sorted(nodes - {root}), upper))

    def joined(nodes: frozenset[int], root: int, high: frozenset[int]) -> Tree:
        low, order = tree(nodes - high, root)
        up, other = min((tree(high, other)[0] + pair_cost(costs, root, other), other) for other in sorted(high))
        return (low + up, order + tree(high, other)[1])

    return tree(frozenset(range(count)), 0)[1]
