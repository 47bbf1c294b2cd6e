"""The best order for collectives of rounds, by branch and bound: nodes are placed from rank 0 on, and an order is given up once
the exchanges among the ranks placed so far cost as much as the best order known.
"""

from collections.abc import Iterator, Sequence
from operator import mul

from kompakt_core.placement.collective_cost import Collective, Costs, OrderCost, cheapest_partners, exchanges, pair_cost


class RoundSearch:
    """One search. `finished`: whether it saw all orders that could be better; `best`: (cost, order), the given one at first."""

    def __init__(
        self, collective: Collective, ranks: Sequence[int], costs: Costs, start: tuple[OrderCost, tuple[int, ...]], steps: int
    ) -> None:
        self.best = start
        self.finished = True
        self._ranks, self._steps = ranks, steps
        count = len(ranks)
        self._pairs = [[pair_cost(costs, i, j) for j in range(count)] for i in range(count)]
        self._kinds = _kinds(ranks, costs)
        rounds = exchanges(collective, sum(ranks))
        self._shares = [exchange.share for exchange in rounds]
        self._cheapest = cheapest_partners(ranks, costs)
        # Of each rank, what it exchanges with lower ranks: (round, lower rank).
        self._earlier: list[list[tuple[int, int]]] = [[] for _ in range(sum(ranks))]
        for number, exchange in enumerate(rounds):
            for low, high in exchange.pairs:
                self._earlier[high].append((number, low))
        weights = [sum(self._shares[number] for number, _ in earlier) for earlier in self._earlier]
        # Of the ranks from each one on, what they exchange with lower ones in shares of the vector, the most first.
        self._weights = [sorted(weights[rank:], reverse=True) for rank in range(len(weights) + 1)]

    def run(self) -> None:
        """Looks at all orders that begin with node 0, or at as many beginnings of orders as `steps` says."""
        self._place(0, [], [], [0.0] * len(self._shares), 0.0)

    def _place(self, node: int, order: list[int], place: list[int], slowest: list[float], total: float) -> None:
        """Puts the node behind those placed, and all others behind it in turn."""
        if not self._steps:
            self.finished = False
            return
        self._steps -= 1
        slowest = slowest.copy()
        order, place = [*order, node], place + [node] * self._ranks[node]
        for rank in range(len(place) - self._ranks[node], len(place)):
            for number, low in self._earlier[rank]:
                cost = self._pairs[place[low]][node]
                slowest[number] = max(slowest[number], cost)
                total += self._shares[number] * cost
        slow = sum(map(mul, self._shares, slowest))
        if (2 * (total + self._rest(order, len(place))), 2 * slow) >= self.best[0]:
            return
        if len(order) == len(self._ranks):
            self.best = ((2 * total, 2 * slow), tuple(order))
        for following in self._next(order):
            self._place(following, order, place, slowest, total)

    def _rest(self, order: Sequence[int], placed: int) -> float:
        """What the ranks that are left pay at least: those with the cheapest partners exchange the most."""
        left = (node for node in range(len(self._ranks)) if node not in order)
        cheapest = sorted(self._cheapest[node] for node in left for _ in range(self._ranks[node]))
        return sum(weight * cost for weight, cost in zip(self._weights[placed], cheapest, strict=True))

    def _next(self, order: Sequence[int]) -> Iterator[int]:
        """Nodes to follow; of those that nothing tells apart, the first."""
        seen = set()
        for node, kind in enumerate(self._kinds):
            if kind not in seen and node not in order:
                seen.add(kind)
                yield node


def _kinds(ranks: Sequence[int], costs: Costs) -> list[int]:
    """Of each node the lowest one that may stand in its place in every order without a difference in cost."""
    kinds: list[int] = []
    for node in range(len(ranks)):
        kinds.append(next((one for one in sorted(set(kinds)) if _alike(one, node, ranks, costs)), node))
    return kinds


def _alike(one: int, two: int, ranks: Sequence[int], costs: Costs) -> bool:
    others = [node for node in range(len(ranks)) if node not in (one, two)]
    return (
        ranks[one] == ranks[two]
        and costs[one][one] == costs[two][two]
        and costs[one][two] == costs[two][one]
        and all(costs[one][node] == costs[two][node] and costs[node][one] == costs[node][two] for node in others)
    )
