"""Custom edges: against trying every way, and the search beyond that with its bound."""

from itertools import combinations, permutations

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networkx.algorithms.isomorphism import GraphMatcher

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import indices_of, mask_of
from kompakt_core.patterns import search as searching
from kompakt_core.patterns.edges import MAX_RANKS, Edges, make_edges, parse_edges, ranks_of, text_of
from kompakt_core.patterns.names import Measure, Pattern
from kompakt_core.patterns.search import search, upper_bound
from kompakt_core.patterns.table import edge_table_for, table_for
from kompakt_core.topology.graph import LinkGraph
from kompakt_core.topology.machines import machine
from tests.support.core.graphs import graph_of, graphs

MEASURES = st.sampled_from(sorted(Measure))


@st.composite
def edge_lists(draw: st.DrawFn, most: int = 4) -> Edges:
    pairs = draw(st.lists(st.sampled_from(list(combinations(range(most), 2))), min_size=1, max_size=6))
    return make_edges((a, b, draw(st.integers(1, 3))) for a, b in pairs)


def worth(graph: LinkGraph, edges: Edges, order: tuple[int, ...], measure: Measure) -> int:
    links = [(graph.weights[order[edge.a]][order[edge.b]], edge.weight) for edge in edges]
    return (
        sum(link * weight for link, weight in links) if measure is Measure.SUM else min(link // weight for link, weight in links)
    )


def by_search(graph: LinkGraph, edges: Edges, gpus: tuple[int, ...], measure: Measure) -> int:
    return max(worth(graph, edges, order, measure) for order in permutations(gpus))


@given(graphs(6), edge_lists(), MEASURES)
@settings(max_examples=40, deadline=None)
def test_values_equal_exhaustive_search_and_the_order_has_them(graph: LinkGraph, edges: Edges, measure: Measure) -> None:
    table = edge_table_for(graph, edges, measure=measure)
    for size in range(ranks_of(edges), min(graph.size, 5) + 1):
        for gpus in combinations(range(graph.size), size):
            assert table.value(mask_of(gpus)) == by_search(graph, edges, gpus, measure)
            assert mask_of(table.order(mask_of(gpus))) == mask_of(gpus)
            assert worth(graph, edges, table.order(mask_of(gpus)), measure) == table.value(mask_of(gpus))


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("0-1,1-2,2-3,3-4,0-4", Pattern.RING),
        ("0-1,1-2,2-3,3-4", Pattern.CHAIN),
        ("0-1,0-2,0-3,0-4", Pattern.STAR),
        ("0-1,0-2,0-3,0-4,1-2,1-3,1-4,2-3,2-4,3-4", Pattern.CLIQUE),
    ],
)
def test_edges_that_spell_a_named_pattern_have_its_values(text: str, pattern: Pattern) -> None:
    for name in ("dgx1-v100", "pcie-8-pix-pxb"):
        graph = machine(name)
        own, named = edge_table_for(graph, parse_edges(text)), table_for(graph, pattern)
        for gpus in combinations(range(8), 5):
            mask = mask_of(gpus)
            assert (own.value(mask), own.second(mask)) == (named.value(mask), named.second(mask))


def test_a_heavier_edge_gets_the_faster_link_and_a_share_of_it() -> None:
    graph = machine("a100-pcie-8-bridge-pairs")
    table = edge_table_for(graph, parse_edges("0-1,1-2:10"))
    mask = mask_of([0, 1, 2])
    order = table.order(mask)
    assert set(order[1:]) == {0, 2}, "the heavy edge lies on the bridge"
    assert table.value(mask) == 6_000
    assert edge_table_for(graph, parse_edges("0-1:3")).value(mask_of([0, 1])) == 2_000


def test_a_grid_of_eight_is_found_as_networkx_finds_it() -> None:
    graph = machine("dgx1-v100")
    grid = networkx.convert_node_labels_to_integers(networkx.grid_2d_graph(2, 4))
    edges = make_edges((a, b, 1) for a, b in grid.edges)
    fast = networkx.Graph([(link.a, link.b) for link in graph.links if link.megabytes_per_second >= 25_000])
    fits = GraphMatcher(fast, grid).subgraph_is_monomorphic()
    assert (edge_table_for(graph, edges).value(255) >= 25_000) == fits


@given(graphs(7), edge_lists(5), MEASURES)
@settings(max_examples=40, deadline=None)
def test_the_search_finds_what_trying_every_way_finds(graph: LinkGraph, edges: Edges, measure: Measure) -> None:
    size = ranks_of(edges)
    if graph.size < size:
        return
    found = search(graph.weights, edges, size, graph.all_gpus, measure, [1 << i for i in range(graph.size)])
    best = max(by_search(graph, edges, gpus, measure) for gpus in combinations(range(graph.size), size))
    assert found is not None
    assert found.exact
    assert found.worth(measure)[0] == best == found.bound == worth(graph, edges, found.order, measure)
    assert upper_bound(graph.weights, edges, graph.all_gpus, measure) >= best


def test_a_search_that_is_cut_off_says_so_with_a_bound_that_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "NODES", 10)
    graph, edges = machine("dgx1-v100"), parse_edges("0-1:5,1-2:3,2-3:4,3-4,0-4:2,0-2:3")
    found = search(graph.weights, edges, 5, 255, Measure.SUM, [1 << i for i in range(8)])
    assert found is not None
    assert not found.exact
    table = edge_table_for(graph, edges, measure=Measure.SUM)
    best = max(table.value(mask_of(gpus)) for gpus in combinations(range(8), 5))
    assert found.total <= best <= found.bound


def test_the_search_keeps_what_must_be_in_the_set() -> None:
    graph = machine("dgx1-v100")
    found = search(graph.weights, parse_edges("0-1"), 2, 255, Measure.BOTTLENECK, [1 << i for i in range(8)], must=0b100)
    assert found is not None
    assert 2 in indices_of(found.mask)


def test_links_of_any_speed_add_up_without_overflow() -> None:
    graph = graph_of(dict.fromkeys(combinations(range(4), 2), (1 << 53) - 1), 4)
    edges = make_edges((a, b, 1_000_000) for a, b in combinations(range(4), 2))
    assert edge_table_for(graph, edges, measure=Measure.SUM).value(15) == 6 * 1_000_000 * (1 << 34)


@given(edge_lists(8))
def test_edges_read_back_as_written(edges: Edges) -> None:
    assert parse_edges(text_of(edges)) == edges


@given(st.text(alphabet="0123456789-,: x²", max_size=24))
@settings(max_examples=300, deadline=None)
def test_any_text_is_edges_or_refused(text: str) -> None:
    try:
        edges = parse_edges(text)
    except InvalidInput:
        return
    assert all(0 <= edge.a < edge.b < MAX_RANKS and edge.weight > 0 for edge in edges)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "edge 1: '' is none; write"),
        ("0-1,1_2", "edge 2: '1_2' is none"),
        ("0-0", "joins two different ranks"),
        ("0-16", "ranks run from 0 to 15"),
        ("0-1:0", "weight must be from 1 to 1000000"),
    ],
)
def test_edges_that_are_none_are_refused_with_a_sentence(text: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        parse_edges(text)
