"""What an order of ranks over nodes costs a collective, and a cost that no order goes below.

Nodes are numbered from 0; a node's ranks follow each other, so an order of nodes is an order of ranks. `ranks[i]`: how many ranks
node i has, each at least 1. `costs[i][j]`: what it costs node i to send node j the whole vector, in any one unit, as a level's
factor or measured seconds; `costs[i][i]`: the same between two ranks of node i. Whole numbers keep all sums exact.

An order costs the sum of what all messages carry, each share of the vector times what that pair costs. So does Cloud Collectives
price a ring (Luo et al., arXiv 2105.14088): messages that leave a rack at one time share its link, so their number counts; the
dearest of them is the same in every order that leaves a rack. The rounds of the others are those of Thakur, Rabenseifner and
Gropp (Optimization of Collective Communication Operations in MPICH, IJHPCA 2005). Where sums are equal, rounds that take as long
as their slowest pair decide. benchmarks.rank_order compares this with measured times.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

Costs = Sequence[Sequence[float]]
OrderCost = tuple[float, float]  # what counts, and what decides between equals


class Collective(StrEnum):
    """How an all-reduce is made up of messages."""

    RING = "Ring"
    HALVING_DOUBLING = "HalvingDoubling"
    TREE = "Tree"


@dataclass(frozen=True, slots=True)
class Exchange:
    """Messages of one moment. `share`: of the vector, in each message. `pairs`: (lower rank, higher rank)."""

    share: float
    pairs: tuple[tuple[int, int], ...]


def exchanges(collective: Collective, count: int) -> list[Exchange]:
    """The rounds of a reduction among `count` ranks; the result comes back by the same rounds in reverse.

    HALVING_DOUBLING: vector halving, distance doubling (Rabenseifner): in round k = 0, 1, ... rank i and rank i xor 2^k exchange
    1 / 2^(k + 1) of the vector. Of p + r ranks, p the largest power of two, r of the first 2 r hand theirs to a neighbour before.
    TREE: binomial, rank 0 its root: in round k rank i + 2^k sends all of its vector to rank i, a multiple of 2^(k + 1).
    Empty for RING, which has no rounds of different pairs, and for one rank.
    """
    if collective is Collective.RING or count < 2:
        return []
    if collective is Collective.TREE:
        steps = [1 << k for k in range((count - 1).bit_length())]
        return [Exchange(1.0, tuple((i, i + step) for i in range(0, count - step, 2 * step))) for step in steps]
    power = 1 << (count.bit_length() - 1)
    extra = count - power
    left = [*range(1, 2 * extra, 2), *range(2 * extra, count)]
    before = [Exchange(1.0, tuple((2 * i, 2 * i + 1) for i in range(extra)))] if extra else []
    return before + [_doubling(left, k) for k in range(power.bit_length() - 1)]


def _doubling(left: Sequence[int], k: int) -> Exchange:
    step = 1 << k
    return Exchange(0.5 ** (k + 1), tuple((left[i], left[i | step]) for i in range(len(left)) if not i & step))


def order_cost(collective: Collective, order: Sequence[int], ranks: Sequence[int], costs: Costs) -> OrderCost:
    """What the collective costs with the nodes in this order.

    RING: (sum of costs over all ranks i of the hop from i to i + 1, the last to the first; 0).
    Else: (2 x sum over rounds and pairs of share x pair, 2 x sum over rounds of share x dearest pair). A pair costs what its
    slower direction does. The factor 2: back and forth.
    """
    place = [node for node in order for _ in range(ranks[node])]
    if len(place) < 2:
        return (0, 0)
    if collective is Collective.RING:
        hops = [costs[one][two] for one, two in zip(place, [*place[1:], place[0]], strict=True)]
        return (sum(hops), 0)
    total = slowest = 0.0
    for exchange in exchanges(collective, len(place)):
        pairs = [pair_cost(costs, place[one], place[two]) for one, two in exchange.pairs]
        total += exchange.share * sum(pairs)
        slowest += exchange.share * max(pairs)
    return (2 * total, 2 * slowest)


def pair_cost(costs: Costs, one: int, two: int) -> float:
    """What an exchange between ranks of these nodes costs: the slower direction."""
    return max(costs[one][two], costs[two][one])


def lower_bound(collective: Collective, ranks: Sequence[int], costs: Costs) -> float:
    """No order costs less by what counts.

    RING: without its dearest hop a tour joins all nodes, so it costs at least the cheapest spanning tree, and one hop at least as
    dear as that tree's dearest edge (directions taken as the cheaper one); also at least every node's cheapest hop out, and in.
    Else: each round at least half of what the ranks in it with the cheapest partners would pay for these; and all pairs together
    join the ranks, so they cost at least the cheapest spanning tree times the smallest share.
    """
    count = len(ranks)
    if sum(ranks) < 2:
        return 0.0
    if collective is Collective.RING:
        within = sum(costs[i][i] * (ranks[i] - 1) for i in range(count))
        return within + (_tour_bound(costs) if count > 1 else costs[0][0])
    rounds = exchanges(collective, sum(ranks))
    partners = sorted(cheapest for i, cheapest in enumerate(cheapest_partners(ranks, costs)) for _ in range(ranks[i]))
    apart = sum(one.share * sum(partners[: 2 * len(one.pairs)]) / 2 for one in rounds)
    place = [node for node in range(count) for _ in range(ranks[node])]
    joined = sum(spanning_tree([[pair_cost(costs, one, two) for two in place] for one in place]))
    return 2 * max(apart, joined * min(one.share for one in rounds))


def cheapest_partners(ranks: Sequence[int], costs: Costs) -> list[float]:
    """Of each node the least that an exchange of one of its ranks with any other rank costs; 0 for a rank alone."""
    count = len(ranks)
    partners = ([pair_cost(costs, i, j) for j in range(count) if j != i or ranks[i] > 1] for i in range(count))
    return [min(costs_of_node, default=0.0) for costs_of_node in partners]


def _tour_bound(costs: Costs) -> float:
    count = len(costs)
    tree = spanning_tree([[min(costs[i][j], costs[j][i]) for j in range(count)] for i in range(count)])
    out = sum(min(costs[i][j] for j in range(count) if j != i) for i in range(count))
    into = sum(min(costs[j][i] for j in range(count) if j != i) for i in range(count))
    return max(sum(tree) + max(tree), out, into)


def spanning_tree(weights: Costs) -> list[float]:
    """The weights of a cheapest spanning tree's edges, in the order in which Prim's algorithm finds them."""
    nearest = dict(enumerate(weights[0]))
    del nearest[0]
    found = []
    while nearest:
        node = min(nearest, key=lambda one: (nearest[one], one))
        found.append(nearest.pop(node))
        nearest = {one: min(weight, weights[node][one]) for one, weight in nearest.items()}
    return found
