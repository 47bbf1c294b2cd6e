"""Which GPUs kubelet is told to take."""

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_core.patterns import table
from kompakt_core.patterns.names import Pattern
from kompakt_core.placement import choose
from kompakt_core.topology.describe import read_description
from kompakt_core.topology.graph import NVLINK_KINDS
from kompakt_device_plugin.prefer import OfferedDevices, admit, admitted, best_free, valid, warm
from tests.support.device_plugin.pods import ALL, GRAPH, node_pod

RING = {"kompakt.dev/pattern": "Ring"}
CLIQUE = {"kompakt.dev/pattern": "Clique", "kompakt.dev/required-link": "NVLink"}
ONE_NUMA_NODE = {"kompakt.dev/same-numa-node": "true"}
PLACE = {gpu.uuid: gpu for gpu in GRAPH.gpus}
NEW = node_pod("new", ALL[2:4])


def offer(size=2, offered=ALL, must=()):
    return OfferedDevices(tuple(offered), tuple(must), size)


def best(*pods, **offered):
    return best_free(pods, offer(**offered), (), GRAPH)


def test_the_written_set_is_answered_in_its_order():
    chosen = (ALL[6], ALL[1])
    assert admit([node_pod("a", chosen)], offer(), (), GRAPH) == chosen


@pytest.mark.parametrize(
    ("other", "offered", "is_admitted"),
    [
        pytest.param(node_pod("other", ALL[:2]), offer(), True, id="which came first"),
        pytest.param(node_pod("other", ALL[:2]), offer(offered=ALL[1:]), False, id="whose GPUs are not all offered"),
        pytest.param(node_pod("holding", ALL[:2]), offer(), False, id="which holds GPUs, even when they are free again"),
        pytest.param(node_pod("other", ALL[:2], size=4), offer(), False, id="on which too few are written"),
        pytest.param(node_pod("other", ALL[:2], finished=True), offer(), False, id="which has finished"),
        pytest.param(node_pod("other", ALL[:2], deleting=True), offer(), False, id="which is being deleted"),
        pytest.param(node_pod("other", ALL[:2]), offer(must=ALL[3:4]), False, id="without a GPU that kubelet insists on"),
    ],
)
def test_before_a_waiting_pod_comes_another(other, offered, is_admitted):
    assert admitted([other, NEW], offered, {"uid-holding"}) is (other if is_admitted else NEW)
    alone = is_admitted or other.deleting  # which is admitted only when no other matches
    assert admitted([other], offered, {"uid-holding"}) is (other if alone else None)


def test_without_a_match_promised_gpus_are_left_alone_unless_nothing_else_suffices():
    assert not set(best(node_pod("other", ALL[:4]))) & set(ALL[:4])
    assert best(node_pod("greedy", ALL[:7], size=1)) == best(), "who names more GPUs than it asks for is promised none"
    assert set(best(node_pod("other", ALL[:6]), size=8)) == set(ALL)


def test_ids_that_nobody_knows_are_chosen_last_and_keep_the_others_from_nothing():
    strange = ("GPU-unknown-1", *ALL, "GPU-unknown-2")
    assert best(size=4, offered=strange) == best(size=4)
    assert set(ALL) < set(best(size=9, offered=strange))


def test_without_a_match_the_pattern_of_the_waiting_pod_decides():
    ring = node_pod("bypassed", size=4, annotations=RING | {"kompakt.dev/bandwidth-sensitivity": "High"})
    mask = sum(1 << PLACE[uuid].index for uuid in best(ring, size=4, offered=reversed(ALL)))
    rings = table.table_for(GRAPH, Pattern.RING)
    assert rings.value(mask) == rings.value(rings.best(255, 4))


def all_linked(gpus):
    return all(GRAPH.link(PLACE[a].index, PLACE[b].index).kind in NVLINK_KINDS for a, b in combinations(gpus, 2))


def on_one_numa_node(gpus):
    return len({PLACE[uuid].numa_node for uuid in gpus}) == 1


@pytest.mark.parametrize("policy", ["Best", "Preserve", "Packed", "First"])
@pytest.mark.parametrize(("demand", "met"), [(CLIQUE, all_linked), (ONE_NUMA_NODE, on_one_numa_node)], ids=["link", "numa"])
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_plugins_own_choice_keeps_what_the_pod_demands(policy, demand, met, data):
    offered = data.draw(st.lists(st.sampled_from(ALL), unique=True, min_size=2).map(tuple))
    size = data.draw(st.integers(2, len(offered)))
    must = data.draw(st.lists(st.sampled_from(offered), unique=True, max_size=2).map(tuple))
    bypassed = node_pod("bypassed", size=size, annotations=demand | {"kompakt.dev/policy": policy})
    chosen = best(bypassed, size=size, offered=offered, must=must)
    possible = any(met(some) and set(must) <= set(some) for some in combinations(offered, size))
    assert met(chosen) or not possible
    assert valid(chosen, offer(size, offered, must))


@pytest.mark.parametrize(
    ("promise", "offered", "avoid", "chosen"),
    [
        pytest.param({}, (0, 1, 2, 4), (), {0, 1, 2}, id="goes before a promise to a pod that demands nothing"),
        pytest.param(ONE_NUMA_NODE, (0, 1, 2, 4), (), {2, 4}, id="breaks no promise to a pod that demands as well"),
        pytest.param(None, (0, 1, 4), (0,), {1, 4}, id="takes no GPU that is to be avoided"),
    ],
)
def test_a_demand(promise, offered, avoid, chosen):
    pods = [] if promise is None else [node_pod("promised", ALL[:2], annotations=promise)]
    pods.append(node_pod("picky", size=2, annotations=ONE_NUMA_NODE))
    some = offer(offered=[ALL[i] for i in offered])
    assert set(best_free(pods, some, (), GRAPH, avoid=[ALL[i] for i in avoid])) <= {ALL[i] for i in chosen}


UUIDS = st.sampled_from([*ALL, "GPU-unknown-1", "GPU-unknown-2"])


@st.composite
def offers(draw):
    offered = draw(st.lists(UUIDS, unique=True, min_size=1))
    size = draw(st.integers(1, len(offered)))
    return offer(size, offered, draw(st.lists(st.sampled_from(offered), unique=True, max_size=size)))


PODS = st.lists(
    st.builds(
        node_pod,
        st.sampled_from(["p0", "p1", "p2"]),
        st.lists(UUIDS, unique=True, max_size=10),
        size=st.integers(1, 8),
        finished=st.booleans(),
        annotations=st.sampled_from([{}, RING, {"kompakt.dev/pattern": "Custom"}, CLIQUE, ONE_NUMA_NODE]),
    ),
    max_size=4,
)


@settings(max_examples=100, deadline=None)
@given(offers(), PODS, st.booleans(), st.sets(st.sampled_from(["uid-p0", "uid-p1"])))
def test_every_answer_is_one_that_kubelet_takes_as_it_is(some, pods, known, holding):
    assert valid(admit(pods, some, holding, GRAPH if known else None), some)


@given(offers())
def test_validity_is_size_and_offer_and_insistence(some):
    answer = best_free([], some, (), GRAPH)
    assert not valid(answer[1:], some)
    assert not valid((*answer[1:], "GPU-not-offered"), some)
    assert not valid((*answer[1:], answer[-1]), some) or len(answer) == 1
    assert not valid(answer, replace(some, must=("GPU-not-chosen",)))


@pytest.mark.parametrize("link", ["Any", "NVLink"])
@pytest.mark.parametrize("pattern", [pattern for pattern in Pattern if pattern is not Pattern.CUSTOM])
def test_what_an_answer_needs_is_worked_out_before_kubelet_asks(pattern, link):
    graph = read_description("a100-pcie-8-bridge-pairs", f"warm-{pattern}")
    for known in (table._table, choose._decide):
        known.cache_clear()
    warm(graph)
    built = table._table.cache_info().misses
    one = node_pod("a", size=3, annotations={"kompakt.dev/pattern": str(pattern), "kompakt.dev/required-link": link})
    assert len(best_free([one], offer(3, (gpu.uuid for gpu in graph.gpus)), (), graph)) == 3
    assert table._table.cache_info().misses == built
