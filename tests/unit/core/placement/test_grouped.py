"""Machines of more than 16 GPUs: counts per group against tables over all sets, where both can answer."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_core.ids import indices_of, mask_of
from kompakt_core.patterns.names import NAMED, Measure, Pattern
from kompakt_core.placement.choose import _grouped, choose, first_ranked, requested_facts
from kompakt_core.placement.gang_placement import plan_gang
from kompakt_core.placement.grouped import group_facts
from kompakt_core.placement.model import Choice, GpuRequest, PlacementPolicy, Reason, Rejection
from kompakt_core.placement.policies import POLICIES
from kompakt_core.topology.graph import LinkGraph
from kompakt_core.topology.machines import machine
from tests.support.core.gangs import cluster, gang, node
from tests.support.core.graphs import graph_of

CPX = machine("mi300x-8-cpx")
WISHES = st.builds(
    GpuRequest,
    st.sampled_from(sorted(NAMED)),
    st.sampled_from(sorted(PlacementPolicy)),
    st.booleans(),
    required_link=st.sampled_from(["Any", "NVLink"]),
    same_numa_node=st.booleans(),
    measure=st.sampled_from(sorted(Measure)),
)


@st.composite
def hierarchies(draw: st.DrawFn) -> LinkGraph:
    """Up to 8 GPUs in chips, chips in halves; the closer the faster, and the closest (or all, or none) by NVLink."""
    chips = draw(st.sampled_from([(4, 4), (2, 2, 2), (3, 3, 2), (1, 2, 4), (4, 3), (2, 2, 2, 2), (1, 1, 3), (5,), (1, 1)]))
    chip_of = [number for number, size in enumerate(chips) for _ in range(size)]
    half_of = [number // 2 for number in chip_of]
    speeds_of = draw(st.sampled_from([(20, 10, 5), (20, 20, 5), (20, 5, 5), (7, 3, 0), (9, 9, 9)]))
    fabric = draw(st.integers(0, 3))  # so many levels are NVLink
    place = draw(st.permutations(range(len(chip_of))))
    speeds = {}
    for a, b in combinations(range(len(chip_of)), 2):
        one, two = place[a], place[b]
        level = 0 if chip_of[one] == chip_of[two] else 1 if half_of[one] == half_of[two] else 2
        speeds[a, b] = 2 * speeds_of[level] + (level < fabric)
    nodes = draw(st.sampled_from([half_of, chip_of, [0] * 8, [-1] * 8]))
    return graph_of(speeds, len(chip_of), tuple(nodes[place[i]] for i in range(len(chip_of))))


@given(hierarchies(), WISHES, st.integers(0, 255), st.floats(0, 1), st.integers(0, 255))
@settings(max_examples=300, deadline=None)
def test_counts_give_what_tables_over_all_sets_give(
    graph: LinkGraph, gpu_request: GpuRequest, taken: int, part: float, include: int
) -> None:
    free = graph.all_gpus & ~(taken & taken >> 1)
    size = max(round(part * free.bit_count()), min(free.bit_count(), 1))
    must = mask_of(indices_of(free & include)[::-1][: size // 2])
    found, expected = _grouped(graph, free, size, gpu_request, must), choose(graph, free, size, gpu_request, must_include=must)
    if isinstance(found, Rejection) or isinstance(expected, Rejection):
        assert found == expected or (isinstance(found, Rejection) and found.reason is Reason.TOO_MANY_GPUS)
        return
    assert found.mask.bit_count() == size
    assert found.mask & ~free == must & ~found.mask == 0
    assert found.mask == expected.mask
    facts = requested_facts(graph, gpu_request)
    assert (found.value, found.second) == (facts.value(found.mask), facts.second(found.mask))
    one, other = ((choice.value, choice.second, facts.fabric(free & ~choice.mask)) for choice in (found, expected))
    assert one == other


@pytest.mark.parametrize(
    ("free", "must", "expected"),
    [
        pytest.param(0b11111111, 0, (0, 1, 3, 4), id="parts of two groups are worth a whole one and one more"),
        pytest.param(0b11111111, 1 << 6, (0, 1, 3, 6), id="what must be held is held"),
        pytest.param(0b11110111, 0, (0, 1, 4, 5), id="what is taken is left out"),
    ],
)
def test_of_equal_sets_the_lowest_indices_are_chosen_also_where_no_group_is_taken_whole(
    free: int, must: int, expected: tuple[int, ...]
) -> None:
    near, far = ({0, 1, 6}, {3, 4, 5}, {2, 7}), {2, 7}
    speeds = {
        (a, b): 40 if any({a, b} <= group for group in near) else 10 if (a in far) != (b in far) else 20
        for a, b in combinations(range(8), 2)
    }
    graph, gpu_request = graph_of(speeds, 8), GpuRequest(Pattern.CHAIN, PlacementPolicy.BEST)
    found, tables = (rule(graph, free, 4, gpu_request, must) for rule in (_grouped, _by_tables))
    assert isinstance(found, Choice)
    assert indices_of(found.mask) == expected
    assert isinstance(tables, Choice)
    assert (found.mask, found.value, found.second) == (tables.mask, tables.value, tables.second)


def _by_tables(graph: LinkGraph, free: int, size: int, gpu_request: GpuRequest, must: int) -> Choice | Rejection:
    return choose(graph, free, size, gpu_request, must_include=must)


@given(hierarchies(), WISHES, st.integers(1, 8))
@settings(max_examples=50, deadline=None)
def test_no_counts_are_looked_at_twice(graph: LinkGraph, gpu_request: GpuRequest, size: int) -> None:
    facts = group_facts(graph.shared, gpu_request.pattern, False, gpu_request.measure)
    if facts is not None and size <= graph.size:
        sets = facts.candidates(graph.all_gpus, size)
        assert len({tuple(row) for row in sets.tolist()}) == len(sets)


@pytest.mark.parametrize("pattern", sorted(NAMED))
@pytest.mark.parametrize("policy", sorted(PlacementPolicy))
def test_a_partitioned_mi300x_gives_whole_chips_first(pattern: Pattern, policy: PlacementPolicy) -> None:
    choice = choose(CPX, CPX.all_gpus, 8, GpuRequest(pattern, policy, sensitive=True))
    assert isinstance(choice, Choice)
    assert choice.mask == 0xFF
    assert sorted(choice.order) == list(range(8))
    assert choice.value == (0 if pattern is Pattern.NONE else 662_500)


def test_a_broken_chip_is_filled_before_a_whole_one_is_opened() -> None:
    free = CPX.all_gpus & ~0b1111
    choice = choose(CPX, free, 4, GpuRequest(Pattern.RING, PlacementPolicy.PRESERVE, sensitive=True))
    assert isinstance(choice, Choice)
    assert indices_of(choice.mask) == (4, 5, 6, 7)


def test_a_request_over_two_chips_is_worth_the_link_between_them() -> None:
    choice = choose(CPX, CPX.all_gpus, 12, GpuRequest(Pattern.RING, PlacementPolicy.BEST))
    assert isinstance(choice, Choice)
    assert (choice.value, choice.second) == (64_000, 7 * 662_500 + 3 * 662_500 + 2 * 64_000)
    pairs = {(a // 8, b // 8) for a, b in zip(choice.order, choice.order[1:], strict=False)}
    assert sum(a != b for a, b in pairs) == 1, "the ring crosses once there, and once back"


def test_must_include_is_kept_on_large_machines() -> None:
    choice = choose(CPX, CPX.all_gpus, 2, GpuRequest(Pattern.RING, PlacementPolicy.BEST), must_include=1 << 45)
    assert isinstance(choice, Choice)
    assert choice.mask == mask_of([40, 45])


def test_gangs_find_places_on_large_machines() -> None:
    plan = plan_gang(cluster(node("n", "mi300x-8-cpx")), gang(4, 8))
    assert not isinstance(plan, Rejection)
    assert (plan.value, plan.ideal) == (662_500, 662_500)


def test_links_that_are_no_hierarchy_are_refused_not_guessed() -> None:
    speeds = {(a, b): 10 + (b - a == 1) for a, b in combinations(range(17), 2)}
    graph = graph_of(speeds, 17)
    assert choose(graph, graph.all_gpus, 2, GpuRequest(Pattern.RING)) == Rejection(Reason.TOO_MANY_GPUS, have=17, need=16)


def test_first_takes_the_lowest_indices_also_where_groups_interleave() -> None:
    graph = graph_of({(a, b): 5 if (a - b) % 2 == 0 else 1 for a, b in combinations(range(4), 2)}, 4)
    facts = group_facts(graph.shared, Pattern.RING, False, Measure.BOTTLENECK)
    assert facts is not None
    sets = facts.candidates(graph.all_gpus, 2)
    row = sets[first_ranked(POLICIES[PlacementPolicy.FIRST](facts, graph.all_gpus, sets, False))]
    assert facts.mask(row.tolist(), graph.all_gpus) == mask_of((0, 1))
