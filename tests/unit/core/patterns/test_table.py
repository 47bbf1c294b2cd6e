"""Tables against exhaustive search and networkx, and what must hold for any link graph."""

from itertools import combinations, permutations

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_core.ids import indices_of, mask_of
from kompakt_core.patterns.names import NAMED, Measure, Pattern
from kompakt_core.patterns.table import table_for
from kompakt_core.topology.graph import LinkGraph, LinkKind
from kompakt_core.topology.machines import machine
from tests.support.core.graphs import by_search, edges_of, graph_of, graphs, worth
from tests.support.core.outcomes import refusal

PATTERNS = st.sampled_from(sorted(NAMED))
MEASURES = st.sampled_from(sorted(Measure))


@pytest.mark.parametrize("measure", sorted(Measure))
@pytest.mark.parametrize("pattern", sorted(NAMED))
@given(graphs(6))
@settings(max_examples=12, deadline=None)
def test_values_equal_exhaustive_search(pattern: Pattern, measure: Measure, graph: LinkGraph) -> None:
    table = table_for(graph, pattern, measure=measure)
    other = Measure.SUM if measure is Measure.BOTTLENECK else Measure.BOTTLENECK
    for mask in range(1 << graph.size):
        assert table.value(mask) == by_search(graph, pattern, indices_of(mask), measure)
        assert table.second(mask) == by_search(graph, pattern, indices_of(mask), other)


@given(graphs(8), PATTERNS, MEASURES)
@settings(max_examples=60, deadline=None)
def test_the_order_is_an_embedding_of_the_value(graph: LinkGraph, pattern: Pattern, measure: Measure) -> None:
    table = table_for(graph, pattern, measure=measure)
    for mask in range(1 << graph.size):
        order = table.order(mask)
        assert mask_of(order) == mask
        assert len(order) == mask.bit_count()
        assert worth(graph, edges_of(pattern, order, graph), measure) == table.value(mask)


@given(graphs(6))
@settings(max_examples=30, deadline=None)
def test_of_rings_with_the_fastest_slowest_link_the_one_with_the_greatest_sum(graph: LinkGraph) -> None:
    table = table_for(graph, Pattern.RING)
    for mask in range(1 << graph.size):
        rings = [edges_of(Pattern.RING, order, graph) for order in permutations(indices_of(mask))]
        best = max((worth(graph, ring, Measure.BOTTLENECK), worth(graph, ring, Measure.SUM)) for ring in rings)
        chosen = edges_of(Pattern.RING, table.order(mask), graph)
        assert (worth(graph, chosen, Measure.BOTTLENECK), worth(graph, chosen, Measure.SUM)) == best


def test_rings_of_eight_equal_networkx_cycles() -> None:
    for name in ("dgx1-v100", "a100-pcie-8-bridge-pairs", "pcie-8-pix-pxb"):
        graph = machine(name)
        sums, slowest = table_for(graph, Pattern.RING, measure=Measure.SUM), table_for(graph, Pattern.RING)
        public = graph.to_networkx()
        for gpus in combinations(range(graph.size), 5):
            inside = public.subgraph(gpus)
            cycles = [cycle for cycle in networkx.simple_cycles(inside, 5) if len(cycle) == 5]
            speeds = [[inside.edges[e]["weight"] for e in networkx.utils.pairwise(cycle, cyclic=True)] for cycle in cycles]
            assert sums.value(mask_of(gpus)) == max(map(sum, speeds))
            assert slowest.value(mask_of(gpus)) == max(map(min, speeds))


@given(graphs(6), PATTERNS, MEASURES)
@settings(max_examples=60, deadline=None)
def test_best_is_the_highest_value_and_the_lowest_indices(graph: LinkGraph, pattern: Pattern, measure: Measure) -> None:
    table = table_for(graph, pattern, measure=measure)
    for free in range(1 << graph.size):
        for size in range(free.bit_count() + 1):
            sets = [mask_of(chosen) for chosen in combinations(indices_of(free), size)]
            best = min(sets, key=lambda mask: (-table.value(mask), -table.second(mask), indices_of(mask)))
            assert table.best(free, size) == best


@given(graphs(5), MEASURES)
@settings(max_examples=40, deadline=None)
def test_with_nvlink_only_a_ring_uses_no_other_link(graph: LinkGraph, measure: Measure) -> None:
    table = table_for(graph, Pattern.RING, fabric_only=True, measure=measure)
    only = graph.to_networkx()
    only.remove_edges_from([(link.a, link.b) for link in graph.links if link.kind is LinkKind.SYS])
    able = set(table.possible(sets := _all_sets(graph)).tolist())
    for mask in sets.tolist():
        gpus = indices_of(mask)
        orders = [order for order in permutations(gpus) if networkx.is_path(only, [*order, order[0]])] if len(gpus) > 2 else []
        possible = len(gpus) < 2 or bool(orders) or (len(gpus) == 2 and only.has_edge(*gpus))
        assert (mask in able) == possible
        if orders:
            best = max(worth(graph, edges_of(Pattern.RING, order, graph), measure) for order in orders)
            assert table.value(mask) == best
            assert mask_of(table.order(mask)) == mask
            assert networkx.is_path(only, [*table.order(mask), table.order(mask)[0]])


@given(graphs())
@settings(max_examples=40, deadline=None)
def test_with_nvlink_only_a_set_without_pattern_is_connected(graph: LinkGraph) -> None:
    able = set(table_for(graph, Pattern.NONE, fabric_only=True).possible(_all_sets(graph)).tolist())
    only = graph.to_networkx()
    only.remove_edges_from([(link.a, link.b) for link in graph.links if link.kind is LinkKind.SYS])
    for mask in range(1, 1 << graph.size):
        assert (mask in able) == networkx.is_connected(only.subgraph(indices_of(mask)))


def _all_sets(graph: LinkGraph) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.arange(1 << graph.size)


def test_the_dgx1_ring_of_all_is_the_cycle_of_double_links() -> None:
    table = table_for(machine("dgx1-v100"), Pattern.RING)
    assert (table.value(255), table.second(255)) == (50_000, 8 * 50_000)
    assert table.order(255) == (0, 3, 2, 1, 5, 6, 7, 4)
    pair = mask_of([0, 4])
    assert (table.value(pair), table.second(pair)) == (50_000, 50_000), "a ring of two counts its link once"


def test_a_ring_over_two_slow_links_is_worth_less_than_one_over_nvlink_alone() -> None:
    bridges, dgx = machine("a100-pcie-8-bridge-pairs"), machine("dgx1-v100")
    for measure, better in ((Measure.SUM, bridges), (Measure.BOTTLENECK, dgx)):
        values = {graph.digest: _best_of_four(graph, measure) for graph in (bridges, dgx)}
        assert max(values, key=lambda digest: values[digest]) == better.digest
    assert _best_of_four(bridges, Measure.BOTTLENECK) == 6_000
    assert _best_of_four(dgx, Measure.BOTTLENECK) == 25_000


def _best_of_four(graph: LinkGraph, measure: Measure) -> int:
    table = table_for(graph, Pattern.RING, measure=measure)
    return table.value(table.best(graph.all_gpus, 4))


def test_a_machine_of_sixteen_is_matched_too() -> None:
    table = table_for(machine("dgx2-16xv100"), Pattern.CLIQUE)
    assert (table.value((1 << 16) - 1), table.second((1 << 16) - 1)) == (150_000, 120 * 150_000)
    assert table.best((1 << 16) - 1, 3) == 0b111


def test_bandwidths_as_large_as_the_reader_allows_are_added_up_exactly() -> None:
    graph = graph_of(dict.fromkeys(combinations(range(4), 2), (1 << 53) - 1), 4)
    assert table_for(graph, Pattern.CLIQUE, measure=Measure.SUM).value(15) == 6 * ((1 << 53) - 1)
    assert table_for(graph, Pattern.RING, measure=Measure.SUM, fabric_only=True).value(15) == 4 * ((1 << 53) - 1)


def test_graphs_that_differ_in_names_only_share_a_table() -> None:
    one, two = machine("dgx1-v100"), machine("dgx1-v100-4nic")
    assert table_for(one, Pattern.RING) is table_for(machine("dgx1-v100"), Pattern.RING)
    assert one.digest != two.digest, "NUMA nodes differ, so choices may"


def test_own_edges_and_larger_machines_have_no_table() -> None:
    dgx, large = machine("dgx1-v100"), graph_of(dict.fromkeys(combinations(range(17), 2), 1), 17)
    assert "custom edges have no table" in refusal(table_for, dgx, Pattern.CUSTOM)
    assert "17 GPUs on one node; patterns are matched on at most 16" in refusal(table_for, large, Pattern.RING)
    assert "9 of 8 free GPUs" in refusal(table_for(dgx, Pattern.RING).best, 255, 9)
