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
from kompakt_device_plugin.pods import NodePod
from kompakt_device_plugin.prefer import OfferedDevices, admit, admitted, best_free, valid, warm

GRAPH = read_description("dgx1-v100", "node-1")
ALL = tuple(gpu.uuid for gpu in GRAPH.gpus)


def pod(name, gpus=(), size=None, **more):
    return NodePod(uid=name, namespace="default", name=name, node="node-1", size=size or len(gpus), gpus=tuple(gpus), **more)


def test_the_written_set_is_answered_in_its_order():
    chosen = (ALL[6], ALL[1])
    assert admit([pod("a", chosen)], OfferedDevices(ALL, (), 2), (), GRAPH) == chosen


def test_of_two_pods_the_one_that_came_first_is_admitted():
    pods = [pod("first", ALL[2:4]), pod("second", ALL[:2])]
    assert admitted(pods, OfferedDevices(ALL, (), 2), ()).name == "first"


def test_a_pod_whose_gpus_are_not_all_offered_is_not_the_one():
    pods = [pod("running", ALL[:2]), pod("new", ALL[2:4])]
    assert admitted(pods, OfferedDevices(ALL[1:], (), 2), ()).name == "new"


def test_a_pod_that_holds_gpus_does_not_ask_again_even_when_they_are_free_again():
    pods = [pod("ending", ALL[:2]), pod("new", ALL[2:4])]
    assert admitted(pods, OfferedDevices(ALL, (), 2), {"ending"}).name == "new"


def test_a_pod_on_which_too_few_gpus_are_written_is_not_the_one():
    assert admitted([pod("torn", ALL[:2], size=4), pod("new", ALL[2:4])], OfferedDevices(ALL, (), 2), ()).name == "new"


def test_a_finished_pod_is_never_admitted():
    assert admitted([pod("done", ALL[:2], finished=True)], OfferedDevices(ALL, (), 2), ()) is None


def test_a_pod_being_deleted_is_admitted_only_when_no_other_matches():
    leaving, staying = pod("leaving", ALL[:2], deleting=True), pod("staying", ALL[2:4])
    assert admitted([leaving, staying], OfferedDevices(ALL, (), 2), ()) is staying
    assert admitted([leaving], OfferedDevices(ALL, (), 2), ()) is leaving


def test_what_kubelet_insists_on_must_be_in_the_written_set():
    pods = [pod("a", ALL[:2]), pod("b", ALL[2:4])]
    assert admitted(pods, OfferedDevices(ALL, (ALL[3],), 2), ()).name == "b"


def test_without_a_match_promised_gpus_are_left_alone():
    chosen = best_free([pod("other", ALL[:4])], OfferedDevices(ALL, (), 2), (), GRAPH)
    assert not set(chosen) & set(ALL[:4])


def test_a_pod_that_names_more_gpus_than_it_asks_for_is_promised_none():
    greedy = pod("greedy", ALL[:7], size=1)
    assert best_free([greedy], OfferedDevices(ALL, (), 2), (), GRAPH) == best_free([], OfferedDevices(ALL, (), 2), (), GRAPH)


def test_promised_gpus_are_taken_when_nothing_else_suffices():
    assert set(best_free([pod("other", ALL[:6])], OfferedDevices(ALL, (), 8), (), GRAPH)) == set(ALL)


def test_ids_that_nobody_knows_are_chosen_last_and_keep_the_others_from_nothing():
    strange = ("GPU-unknown-1", *ALL, "GPU-unknown-2")
    assert best_free([], OfferedDevices(strange, (), 4), (), GRAPH) == best_free([], OfferedDevices(ALL, (), 4), (), GRAPH)
    assert set(ALL) < set(best_free([], OfferedDevices(strange, (), 9), (), GRAPH))


def test_without_a_match_the_pattern_of_the_waiting_pod_decides():
    ring = pod("bypassed", size=4, annotations={"kompakt.dev/pattern": "Ring", "kompakt.dev/bandwidth-sensitivity": "High"})
    fast = best_free([ring], OfferedDevices(tuple(reversed(ALL)), (), 4), (), GRAPH)
    ring_sum = {gpu.uuid: gpu.index for gpu in GRAPH.gpus}
    from kompakt_core.patterns.table import table_for

    table = table_for(GRAPH, Pattern.RING)
    mask = sum(1 << ring_sum[uuid] for uuid in fast)
    assert table.value(mask) == table.value(table.best(255, 4))


CLIQUE = {"kompakt.dev/pattern": "Clique", "kompakt.dev/required-link": "NVLink"}
ONE_NUMA_NODE = {"kompakt.dev/same-numa-node": "true"}
PLACE = {gpu.uuid: gpu for gpu in GRAPH.gpus}


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
    bypassed = pod("bypassed", size=size, annotations=demand | {"kompakt.dev/policy": policy})
    chosen = best_free([bypassed], OfferedDevices(offered, must, size), (), GRAPH)
    possible = any(met(some) and set(must) <= set(some) for some in combinations(offered, size))
    assert met(chosen) or not possible
    assert valid(chosen, OfferedDevices(offered, must, size))


def test_a_demand_goes_before_a_promise_to_a_pod_that_demands_nothing():
    easy = pod("easy", ALL[:2])
    picky = pod("picky", size=2, annotations=ONE_NUMA_NODE)
    offer = OfferedDevices((*ALL[:3], ALL[4]), (), 2)
    assert set(best_free([easy, picky], offer, (), GRAPH)) < set(ALL[:3])


def test_a_demand_breaks_no_promise_to_a_pod_that_demands_as_well():
    first = pod("first", ALL[:2], annotations=ONE_NUMA_NODE)
    second = pod("second", size=2, annotations=ONE_NUMA_NODE)
    offer = OfferedDevices((*ALL[:3], ALL[4]), (), 2)
    assert set(best_free([first, second], offer, (), GRAPH)) == {ALL[2], ALL[4]}


def test_a_demand_takes_no_gpu_that_is_to_be_avoided():
    picky = pod("picky", size=2, annotations=ONE_NUMA_NODE)
    offer = OfferedDevices((*ALL[:2], ALL[4]), (), 2)
    assert set(best_free([picky], offer, (), GRAPH, avoid=ALL[:1])) == {ALL[1], ALL[4]}


UUIDS = st.sampled_from([*ALL, "GPU-unknown-1", "GPU-unknown-2"])
SETS = st.lists(UUIDS, unique=True, max_size=10).map(tuple)


@st.composite
def offers(draw):
    offered = draw(st.lists(UUIDS, unique=True, min_size=1).map(tuple))
    size = draw(st.integers(1, len(offered)))
    must = draw(st.lists(st.sampled_from(offered), unique=True, max_size=size).map(tuple))
    return OfferedDevices(offered, must, size)


@st.composite
def some_pods(draw):
    def one(number):
        written = draw(SETS)
        notes = draw(
            st.sampled_from([{}, {"kompakt.dev/pattern": "Ring"}, {"kompakt.dev/pattern": "Custom"}, CLIQUE, ONE_NUMA_NODE])
        )
        return replace(pod(f"p{number}", written, size=draw(st.integers(1, 8))), finished=draw(st.booleans()), annotations=notes)

    return [one(number) for number in range(draw(st.integers(0, 4)))]


@settings(max_examples=100, deadline=None)
@given(offers(), some_pods(), st.booleans(), st.sets(st.sampled_from(["p0", "p1"])))
def test_every_answer_is_one_that_kubelet_takes_as_it_is(offer, pods, known, holding):
    answer = admit(pods, offer, holding, GRAPH if known else None)
    assert valid(answer, offer)


@given(offers())
def test_validity_is_size_and_offer_and_insistence(offer):
    answer = best_free([], offer, (), GRAPH)
    assert not valid(answer[1:], offer)
    assert not valid((*answer[1:], "GPU-not-offered"), offer)
    assert not valid((*answer[1:], answer[-1]), offer) or len(answer) == 1


@pytest.mark.parametrize("link", ["Any", "NVLink"])
@pytest.mark.parametrize("pattern", [pattern for pattern in Pattern if pattern is not Pattern.CUSTOM])
def test_what_an_answer_needs_is_worked_out_before_kubelet_asks(pattern, link):
    graph = read_description("a100-pcie-8-bridge-pairs", f"warm-{pattern}")
    for known in (table._table, choose._decide):
        known.cache_clear()
    warm(graph)
    built = table._table.cache_info().misses
    one = pod("a", size=3, annotations={"kompakt.dev/pattern": str(pattern), "kompakt.dev/required-link": link})
    offered = tuple(gpu.uuid for gpu in graph.gpus)
    assert len(best_free([one], OfferedDevices(offered, (), 3), (), graph)) == 3
    assert table._table.cache_info().misses == built
