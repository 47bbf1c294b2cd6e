"""A canonical numbering: the same for every numbering of a machine, and harmless where it is not found."""

import random
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_core.patterns import canonical, table
from kompakt_core.patterns.canonical import canonical_order
from kompakt_core.patterns.names import NAMED, Pattern
from kompakt_core.patterns.table import table_for
from kompakt_core.topology.graph import LinkGraph
from kompakt_core.topology.machines import MACHINES, machine
from tests.support.core.graphs import graph_of, graphs


def renumbered(graph: LinkGraph, seed: int) -> tuple[LinkGraph, list[int]]:
    """The graph with GPU new[i] of the old one at i."""
    new = list(range(graph.size))
    random.Random(seed).shuffle(new)
    speeds = {(a, b): graph.weights[new[a]][new[b]] for a, b in combinations(range(graph.size), 2)}
    return graph_of(speeds, graph.size), new


def form(graph: LinkGraph) -> list[list[int]]:
    order = canonical_order(np.array(graph.weights, dtype=np.int64).reshape(graph.size, graph.size))
    return [[graph.weights[a][b] for b in order] for a in order]


@given(graphs(8), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_every_numbering_has_one_form(graph: LinkGraph, seed: int) -> None:
    assert form(renumbered(graph, seed)[0]) == form(graph)


@pytest.mark.parametrize("name", sorted(name for name in MACHINES if machine(name).size <= 16))
def test_known_machines_have_one_form(name: str) -> None:
    assert form(renumbered(machine(name), 7)[0]) == form(machine(name))


@given(graphs(6), st.integers(0, 99), st.sampled_from(sorted(NAMED)), st.sampled_from([1, canonical.NODES]))
@settings(max_examples=40, deadline=None)
def test_values_are_those_of_the_own_numbering_however_far_the_search_came(
    graph: LinkGraph, seed: int, pattern: Pattern, nodes: int
) -> None:
    other, new = renumbered(graph, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canonical, "NODES", nodes)
        table._order.cache_clear()
        one, two = table_for(graph, pattern), table_for(other, pattern)
    for mask in range(1 << graph.size):
        old = sum(1 << new[i] for i in range(graph.size) if mask >> i & 1)
        assert (two.value(mask), two.second(mask)) == (one.value(old), one.second(old))


def test_a_table_is_built_once_for_all_numberings() -> None:
    graph = machine("dgx1-v100")
    table_for(graph, Pattern.CHAIN)
    built = table._canonical_values.cache_info().misses
    for seed in range(5):
        table_for(renumbered(graph, seed)[0], Pattern.CHAIN)
    assert table._canonical_values.cache_info().misses == built


def test_numberings_and_patterns_built_alike_keep_one_copy_of_the_values() -> None:
    graph = machine("dgx1-v100")
    clique = table_for(graph, Pattern.CLIQUE)
    for pattern in (Pattern.CLIQUE, Pattern.ALL_TO_ALL):
        other = table_for(renumbered(graph, 3)[0], pattern)
        assert np.shares_memory(other._first, clique._first)
        assert np.shares_memory(other._second, clique._second)
