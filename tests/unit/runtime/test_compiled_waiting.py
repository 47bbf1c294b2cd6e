"""Nodes that wait for others stand behind them, and whoever would wait for itself is refused, as networkx says."""

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from kompakt_runtime.compiled.waiting import WaitingOrder

COUNT = 8
numbers = st.integers(0, COUNT - 1)
some = st.lists(numbers, max_size=3, unique=True)


class Read:
    """A node, as far as the order looks at it."""

    def __init__(self) -> None:
        self.users: dict[Read, None] = {}
        self.all_input_nodes: list[Read] = []


def graph_of(edges: list[tuple[int, int]]) -> tuple[list[Read], nx.DiGraph]:
    """Each pair as an edge from the lower number to the higher one."""
    nodes = [Read() for _ in range(COUNT)]
    known = nx.DiGraph()
    known.add_nodes_from(range(COUNT))
    for one, other in edges:
        low, high = sorted((one, other))
        if low != high and not known.has_edge(low, high):
            known.add_edge(low, high)
            nodes[low].users[nodes[high]] = None
            nodes[high].all_input_nodes.append(nodes[low])
    return nodes, known


@given(st.lists(st.tuples(numbers, numbers), max_size=12), st.lists(st.tuples(some, some), max_size=12))
def test_waits_are_taken_where_nobody_waits_for_itself(edges, waits):
    nodes, known = graph_of(edges)
    order = WaitingOrder(nodes)
    for later, first in waits:
        wanted = known.copy()
        wanted.add_edges_from((one, other) for one in first for other in later)
        taken = order.wait([nodes[one] for one in later], [nodes[one] for one in first])
        assert taken == nx.is_directed_acyclic_graph(wanted)
        known = wanted if taken else known
        assert sorted(order.at.values()) == list(range(COUNT))
        assert all(order.at[nodes[one]] < order.at[nodes[other]] for one, other in known.edges)
