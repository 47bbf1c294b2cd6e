"""The order of a gang's nodes in which an all-reduce costs least: collective_cost.py says what it costs and in which units."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Final

from kompakt_core.errors import InvalidInput
from kompakt_core.placement.collective_cost import Collective, Costs, OrderCost, lower_bound, order_cost
from kompakt_core.placement.exact_orders import MAX_TOUR, cheapest_tour, cheapest_tree
from kompakt_core.placement.round_search import RoundSearch

MAX_SEARCHED: Final = 12  # nodes; of more, hardly anything would be seen of all orders
TRIES: Final = 5_000  # orders that are priced while neighbours of an order are looked through
STEPS: Final = 100_000  # beginnings of orders: a second

Priced = tuple[OrderCost, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class RankOrder:
    """Nodes in the order of their ranks, and what it costs by collective_cost.py. `bound`: no order costs less by what counts."""

    nodes: tuple[int, ...]
    cost: OrderCost
    bound: float
    exact: bool

    @property
    def gap(self) -> float:
        """By how much of its cost it may at most be lowered: 0 for the best, below 1."""
        return 0.0 if self.exact or not self.cost[0] else 1 - self.bound / self.cost[0]


def best_order(collective: Collective, ranks: Sequence[int], costs: Costs, steps: int = STEPS) -> RankOrder:
    """The cheapest order found that begins with node 0; never dearer than 0, 1, 2, ...; same inputs, same order.

    Exact by what counts for up to 12 nodes: a ring (Held and Karp), a tree of one rank on each node, and the others where branch
    and bound ends within `steps` beginnings of orders. For more where a ring meets the bound, as it does if costs are levels.
    Beginning with node 0 loses nothing to a ring, nor to halving-doubling among 2^k nodes alike in ranks.
    Raises InvalidInput where the numbers do not go together.
    """
    count = len(ranks)
    if not count or min(ranks) < 1 or len(costs) != count or any(len(row) != count or min(row) < 0 for row in costs):
        raise InvalidInput(f"{count} nodes need at least one rank each, and {count} x {count} costs from 0 up")

    def priced(order: tuple[int, ...]) -> Priced:
        return (order_cost(collective, order, ranks, costs), order)

    start = min(priced(tuple(range(count))), priced(_chained(costs)))
    bound = lower_bound(collective, ranks, costs)
    if count < 3:
        found, exact = start, True
    elif collective is Collective.RING:
        found, exact = _best_ring(start, costs, bound, priced)
    elif collective is Collective.TREE and max(ranks) == 1 and count <= MAX_SEARCHED:
        found, exact = min(start, priced(cheapest_tree(costs))), True
    else:
        found, exact = _best_rounds(collective, ranks, costs, _improved(start, priced), steps)
    return RankOrder(found[1], found[0], found[0][0] if exact else bound, exact)


def _best_ring(start: Priced, costs: Costs, bound: float, priced: Callable[[tuple[int, ...]], Priced]) -> tuple[Priced, bool]:
    if start[0][0] == bound:
        return start, True
    if len(costs) <= MAX_TOUR:
        return min(start, priced(cheapest_tour(costs))), True
    found = _improved(start, priced)
    return found, found[0][0] == bound


def _best_rounds(collective: Collective, ranks: Sequence[int], costs: Costs, start: Priced, steps: int) -> tuple[Priced, bool]:
    if len(ranks) > MAX_SEARCHED:
        return start, False
    search = RoundSearch(collective, ranks, costs, start, steps)
    search.run()
    return search.best, search.finished


def _chained(costs: Costs) -> tuple[int, ...]:
    """From node 0 on always the nearest node that is left: where costs are levels, rack by rack and block by block."""
    order, left = [0], set(range(1, len(costs)))
    while left:
        order.append(min(left, key=lambda node: (costs[order[-1]][node], node)))
        left.remove(order[-1])
    return tuple(order)


def _improved(found: Priced, priced: Callable[[tuple[int, ...]], Priced]) -> Priced:
    """The order after exchanges of two nodes and reversals of a stretch, as far as each lowers the cost and TRIES prices go."""
    tries = TRIES
    better = True
    while better and tries > 0:
        better = False
        for order in islice(_neighbours(found[1]), tries):
            tries -= 1
            if (one := priced(order))[0] < found[0]:
                found, better = one, True
                break
    return found


def _neighbours(order: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for one, two in combinations(range(1, len(order)), 2):
        yield (*order[:one], order[two], *order[one + 1 : two], order[one], *order[two + 1 :])
        if two - one > 2:  # of shorter stretches a reversal is an exchange
            yield (*order[:one], *reversed(order[one : two + 1]), *order[two + 1 :])
