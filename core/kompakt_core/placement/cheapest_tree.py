"""The cheapest binomial tree over all nodes, exactly: the two halves of its last round are trees themselves."""

from functools import cache
from itertools import combinations

from kompakt_core.placement.collective_cost import Costs, pair_cost

Tree = tuple[float, tuple[int, ...]]  # the sum of its edges' costs, and the nodes in the order of ranks


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
