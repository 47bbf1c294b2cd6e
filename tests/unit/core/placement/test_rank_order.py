"""Orders of ranks over nodes: against all orders of few nodes, against names, and within their bounds on many."""

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_core.errors import InvalidInput
from kompakt_core.placement.collective_cost import Collective, Costs, exchanges, lower_bound, order_cost
from kompakt_core.placement.rank_order import best_order

COLLECTIVE = st.sampled_from(list(Collective))
ROUNDS = st.sampled_from([Collective.HALVING_DOUBLING, Collective.TREE])


@st.composite
def measured(draw: st.DrawFn, most: int, least: int = 1) -> tuple[list[int], Costs]:
    """Ranks and costs of nodes between which anything may have been measured, one direction unlike the other."""
    count = draw(st.integers(least, most))
    row = st.lists(st.integers(0, 50), min_size=count, max_size=count)
    return draw(st.lists(st.integers(1, 3), min_size=count, max_size=count)), [draw(row) for _ in range(count)]


@st.composite
def in_racks(draw: st.DrawFn, most: int) -> tuple[list[int], Costs]:
    """Nodes in racks and blocks, in any order of names."""
    places = draw(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2)), min_size=1, max_size=most))
    ranks = draw(st.one_of(st.just([1] * len(places)), st.lists(st.integers(1, 2), min_size=len(places), max_size=len(places))))

    def cost(one: int, two: int) -> int:
        if one == two:
            return 1
        return 20 if places[one] == places[two] else 40 if places[one][0] == places[two][0] else 80

    return ranks, [[cost(one, two) for two in range(len(places))] for one in range(len(places))]


def cheapest(collective: Collective, ranks: list[int], costs: Costs) -> tuple[float, float]:
    orders = ((0, *rest) for rest in permutations(range(1, len(ranks))))
    return min(order_cost(collective, order, ranks, costs) for order in orders)


@given(COLLECTIVE, measured(6))
@settings(max_examples=150, deadline=None)
def test_no_order_of_few_nodes_is_cheaper(collective: Collective, nodes: tuple[list[int], Costs]) -> None:
    found = best_order(collective, *nodes)
    assert found.cost[0] == cheapest(collective, *nodes)[0]
    assert found.exact
    assert found.gap == 0


@given(measured(6))
@settings(max_examples=60, deadline=None)
def test_of_orders_that_carry_as_much_one_with_the_quickest_rounds_is_found(nodes: tuple[list[int], Costs]) -> None:
    assert best_order(Collective.HALVING_DOUBLING, *nodes).cost == cheapest(Collective.HALVING_DOUBLING, *nodes)


@given(COLLECTIVE, in_racks(7))
@settings(max_examples=100, deadline=None)
def test_no_order_of_few_nodes_in_racks_is_cheaper(collective: Collective, nodes: tuple[list[int], Costs]) -> None:
    assert best_order(collective, *nodes).cost[0] == cheapest(collective, *nodes)[0]


@given(COLLECTIVE, measured(6))
@settings(max_examples=100, deadline=None)
def test_the_bound_is_below_every_order(collective: Collective, nodes: tuple[list[int], Costs]) -> None:
    assert lower_bound(collective, *nodes) <= cheapest(collective, *nodes)[0]


@given(COLLECTIVE, st.one_of(measured(24), in_racks(24)))
@settings(max_examples=40, deadline=None)
def test_an_order_holds_every_node_once_and_is_never_dearer_than_names(
    collective: Collective, nodes: tuple[list[int], Costs]
) -> None:
    found = best_order(collective, *nodes, steps=2_000)
    names = tuple(range(len(nodes[0])))
    assert found.nodes[0] == 0
    assert sorted(found.nodes) == list(names)
    assert found.cost == order_cost(collective, found.nodes, *nodes) <= order_cost(collective, names, *nodes)
    assert found.bound <= found.cost[0]
    assert 0 <= found.gap <= 1
    assert found == best_order(collective, *nodes, steps=2_000)


@given(in_racks(40))
@settings(max_examples=50, deadline=None)
def test_rings_through_racks_are_exact_for_any_number_of_nodes(nodes: tuple[list[int], Costs]) -> None:
    found = best_order(Collective.RING, *nodes)
    assert found.exact
    assert found.cost[0] == found.bound == lower_bound(Collective.RING, *nodes)


@given(measured(9, least=8))
@settings(max_examples=10, deadline=None)
def test_a_ring_of_more_nodes_than_can_be_tried_is_still_the_cheapest(nodes: tuple[list[int], Costs]) -> None:
    ranks, costs = nodes
    best = best_order(Collective.RING, ranks, costs).cost[0]
    tours = permutations(range(1, len(ranks)))
    inside = sum(costs[i][i] * (ranks[i] - 1) for i in range(len(ranks)))
    assert best - inside == min(sum(costs[a][b] for a, b in zip((0, *order), (*order, 0), strict=True)) for order in tours)


@given(measured(7, least=7))
@settings(max_examples=40, deadline=None)
def test_a_tree_of_one_rank_on_each_node_is_the_cheapest(nodes: tuple[list[int], Costs]) -> None:
    ranks, costs = [1] * 7, nodes[1]
    assert best_order(Collective.TREE, ranks, costs).cost[0] == cheapest(Collective.TREE, ranks, costs)[0]


def test_twelve_nodes_in_three_racks_are_searched_to_the_end() -> None:
    racks = [0, 1, 2] * 4
    costs = [[0 if i == j else 1 if racks[i] == racks[j] else 5 for j in range(12)] for i in range(12)]
    for collective in Collective:
        assert best_order(collective, [1] * 12, costs).exact, collective


def test_what_is_not_searched_to_the_end_says_how_far_off_it_may_be() -> None:
    costs = [[(7 * i + 11 * j) % 23 + 1 for j in range(11)] for i in range(11)]
    found = best_order(Collective.TREE, [2] * 11, costs, steps=1)
    assert not found.exact
    assert 0 < found.gap < 1


# Four ranks; two in one rack, two in another, by name in turn.
TURNS = [[0 if i == j else 1 if i % 2 == j % 2 else 10 for j in range(4)] for i in range(4)]


def test_what_each_collective_costs_by_name_and_rack_by_rack() -> None:
    by_name, by_rack = (0, 1, 2, 3), (0, 2, 1, 3)
    costs = {one: [order_cost(one, order, [1] * 4, TURNS)[0] for order in (by_name, by_rack)] for one in Collective}
    assert costs == {
        Collective.RING: [40, 22],
        # Half the vector between neighbours, a quarter between the next but one, there and back.
        Collective.HALVING_DOUBLING: [2 * (0.5 * (10 + 10) + 0.25 * (1 + 1)), 2 * (0.5 * (1 + 1) + 0.25 * (10 + 10))],
        Collective.TREE: [2 * (10 + 10 + 1), 2 * (1 + 1 + 10)],
    }
    assert [order_cost(Collective.TREE, order, [1] * 4, TURNS)[1] for order in (by_name, by_rack)] == [22, 22]
    assert [best_order(one, [1] * 4, TURNS).nodes for one in Collective] == [by_rack] * 3


@pytest.mark.parametrize("count", range(1, 20))
def test_rounds_reach_every_rank_from_every_other(count: int) -> None:
    for collective in (Collective.HALVING_DOUBLING, Collective.TREE):
        reached = {0}
        rounds = exchanges(collective, count)
        for _ in rounds:
            reached |= {b for one in rounds for a, b in one.pairs if a in reached}
            reached |= {a for one in rounds for a, b in one.pairs if b in reached}
        assert reached == set(range(count))
        for one in rounds:
            ranks = [rank for pair in one.pairs for rank in pair]
            assert len(ranks) == len(set(ranks)), "a rank has one partner at a time"


def test_ranks_on_one_node_cost_what_its_links_do() -> None:
    assert best_order(Collective.RING, [4], [[3]]).cost[0] == 12
    assert best_order(Collective.RING, [1], [[3]]).cost[0] == 0
    assert best_order(Collective.TREE, [4], [[3]]).cost == (18, 12)


@pytest.mark.parametrize(("ranks", "costs"), [([], []), ([1, 0], [[0, 1], [1, 0]]), ([1, 1], [[0, 1]]), ([1], [[-1]])])
def test_numbers_that_do_not_go_together_are_refused(ranks: list[int], costs: Costs) -> None:
    with pytest.raises(InvalidInput, match="nodes need at least one rank each"):
        best_order(Collective.RING, ranks, costs)
