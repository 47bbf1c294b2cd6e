"""Tables against exhaustive search and networkx, and what must hold for any link graph."""

from itertools import combinations, permutations

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuIndex, GpuUuid, indices_of, mask_of
from kompakt_core.patterns.names import SUPPORTED, Pattern
from kompakt_core.patterns.table import table_for
from kompakt_core.topology.graph import Gpu, Link, LinkGraph, LinkKind
from kompakt_core.topology.machines import machine


def graph_of(weights: dict[tuple[int, int], int], size: int) -> LinkGraph:
    gpus = tuple(Gpu(GpuIndex(i), GpuUuid(f"GPU-{i}")) for i in range(size))
    links = []
    for a, b in combinations(range(size), 2):
        weight = weights[a, b]
        kind = LinkKind.NVLINK if weight % 2 else LinkKind.SYS  # odd figures stand for NVLink
        links.append(Link(GpuIndex(a), GpuIndex(b), kind, weight % 2, weight))
    return LinkGraph(gpus, tuple(links))


@st.composite
def graphs(draw: st.DrawFn, most: int = 7) -> LinkGraph:
    size = draw(st.integers(0, most))
    # Few different weights make ties, the hard case for repeatable choices.
    weight = draw(st.sampled_from([st.integers(0, 60), st.sampled_from([10, 25, 51])]))
    return graph_of({pair: draw(weight) for pair in combinations(range(size), 2)}, size)


def ring_by_search(graph: LinkGraph, gpus: tuple[int, ...]) -> int:
    """Every order of the GPUs tried: the plainest possible reference."""
    if len(gpus) < 2:
        return 0
    if len(gpus) == 2:
        return graph.weights[gpus[0]][gpus[1]]
    orders = ((gpus[0], *rest) for rest in permutations(gpus[1:]))
    return max(sum(graph.weights[a][b] for a, b in zip(order, (*order[1:], order[0]), strict=True)) for order in orders)


@given(graphs())
@settings(max_examples=40, deadline=None)
def test_ring_values_equal_exhaustive_search(graph: LinkGraph) -> None:
    table = table_for(graph, Pattern.RING)
    for mask in range(1 << graph.size):
        assert table.value(mask) == ring_by_search(graph, indices_of(mask))


@given(graphs(8))
@settings(max_examples=60, deadline=None)
def test_the_order_is_a_ring_through_the_set_that_has_its_value(graph: LinkGraph) -> None:
    table = table_for(graph, Pattern.RING)
    for mask in range(1 << graph.size):
        order = table.order(mask)
        assert mask_of(order) == mask
        assert len(order) == mask.bit_count()
        if len(order) > 2:
            assert sum(graph.weights[a][b] for a, b in zip(order, (*order[1:], order[0]), strict=True)) == table.value(mask)
            assert order[0] == min(order)


def test_rings_of_eight_equal_networkx_cycles() -> None:
    for name in ("dgx1-v100", "a100-pcie-8-bridge-pairs", "pcie-8-pix-pxb"):
        graph = machine(name)
        table = table_for(graph, Pattern.RING)
        public = graph.to_networkx()
        for gpus in combinations(range(graph.size), 5):
            inside = public.subgraph(gpus)
            cycles = (cycle for cycle in networkx.simple_cycles(inside, 5) if len(cycle) == 5)
            best = max(
                sum(inside.edges[edge]["weight"] for edge in networkx.utils.pairwise(cycle, cyclic=True)) for cycle in cycles
            )
            assert table.value(mask_of(gpus)) == best


@given(graphs(8))
@settings(max_examples=40, deadline=None)
def test_clique_values_equal_networkx_sizes(graph: LinkGraph) -> None:
    table = table_for(graph, Pattern.CLIQUE)
    public = graph.to_networkx()
    for mask in range(1 << graph.size):
        assert table.value(mask) == public.subgraph(indices_of(mask)).size(weight="weight")


@given(graphs(), st.sampled_from(sorted(SUPPORTED)), st.data())
@settings(max_examples=60, deadline=None)
def test_more_bandwidth_never_lowers_a_value(graph: LinkGraph, pattern: Pattern, data: st.DataObject) -> None:
    if graph.size < 2:
        return
    a, b = data.draw(st.sampled_from(list(combinations(range(graph.size), 2))))
    weights = {(link.a, link.b): link.megabytes_per_second for link in graph.links}
    weights[a, b] += data.draw(st.integers(1, 100))
    before, after = table_for(graph, pattern), table_for(graph_of(weights, graph.size), pattern)
    assert all(before.value(mask) <= after.value(mask) for mask in range(1 << graph.size))


@given(graphs(), st.sampled_from(sorted(SUPPORTED)), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_relabelled_gpus_give_a_set_of_equal_value(graph: LinkGraph, pattern: Pattern, random: "object") -> None:
    new = list(range(graph.size))
    random.shuffle(new)  # type: ignore[attr-defined]
    weights = {(a, b): graph.weights[new[a]][new[b]] for a, b in combinations(range(graph.size), 2)}
    table, other = table_for(graph, pattern), table_for(graph_of(weights, graph.size), pattern)
    for free in range(1 << graph.size):
        moved = mask_of([i for i in range(graph.size) if free >> new[i] & 1])
        for size in range(free.bit_count() + 1):
            assert table.value(table.best(free, size)) == other.value(other.best(moved, size))


@given(graphs(6), st.sampled_from(sorted(SUPPORTED)))
@settings(max_examples=40, deadline=None)
def test_best_is_the_highest_value_and_the_lowest_indices(graph: LinkGraph, pattern: Pattern) -> None:
    table = table_for(graph, pattern)
    for free in range(1 << graph.size):
        for size in range(free.bit_count() + 1):
            sets = [mask_of(chosen) for chosen in combinations(indices_of(free), size)]
            assert table.best(free, size) == min(sets, key=lambda mask: (-table.value(mask), indices_of(mask)))


@given(graphs())
@settings(max_examples=40, deadline=None)
def test_with_nvlink_only_a_ring_uses_no_other_link(graph: LinkGraph) -> None:
    table = table_for(graph, Pattern.RING, fabric_only=True)
    only = graph.to_networkx()
    only.remove_edges_from([(link.a, link.b) for link in graph.links if link.kind is LinkKind.SYS])
    for mask in range(1 << graph.size):
        gpus = indices_of(mask)
        orders = [order for order in permutations(gpus) if networkx.is_path(only, [*order, order[0]])] if len(gpus) > 2 else []
        possible = len(gpus) < 2 or bool(orders) or (len(gpus) == 2 and only.has_edge(*gpus))
        assert table.possible(mask) == possible
        if orders:
            assert mask_of(table.order(mask)) == mask
            assert networkx.is_path(only, [*table.order(mask), table.order(mask)[0]])


@given(graphs())
@settings(max_examples=40, deadline=None)
def test_with_nvlink_only_a_set_without_pattern_is_connected(graph: LinkGraph) -> None:
    table = table_for(graph, Pattern.NONE, fabric_only=True)
    only = graph.to_networkx()
    only.remove_edges_from([(link.a, link.b) for link in graph.links if link.kind is LinkKind.SYS])
    for mask in range(1, 1 << graph.size):
        assert table.possible(mask) == networkx.is_connected(only.subgraph(indices_of(mask)))


def test_the_dgx1_ring_of_all_is_the_cycle_of_double_links() -> None:
    table = table_for(machine("dgx1-v100"), Pattern.RING)
    assert table.value(255) == 8 * 50_000
    assert table.order(255) == (0, 3, 2, 1, 5, 6, 7, 4)
    assert table.value(mask_of([0, 4])) == 50_000, "a ring of two counts its link once"


def test_a_machine_of_sixteen_is_matched_too() -> None:
    table = table_for(machine("dgx2-16xv100"), Pattern.CLIQUE)
    assert table.value((1 << 16) - 1) == 120 * 150_000
    assert table.best((1 << 16) - 1, 3) == 0b111


def test_graphs_that_differ_in_names_only_share_a_table() -> None:
    one, two = machine("dgx1-v100"), machine("dgx1-v100-4nic")
    assert table_for(one, Pattern.RING) is table_for(machine("dgx1-v100"), Pattern.RING)
    assert one.digest != two.digest, "NUMA nodes differ, so choices may"


def test_other_patterns_and_larger_machines_are_refused_with_a_sentence() -> None:
    with pytest.raises(InvalidInput, match="pattern Star is not supported yet; use one of Clique, None, Ring"):
        table_for(machine("dgx1-v100"), Pattern.STAR)
    with pytest.raises(InvalidInput, match="17 GPUs on one node; patterns are matched on at most 16"):
        table_for(graph_of(dict.fromkeys(combinations(range(17), 2), 1), 17), Pattern.RING)
    with pytest.raises(InvalidInput, match="9 of 8 free GPUs"):
        table_for(machine("dgx1-v100"), Pattern.RING).best(255, 9)
