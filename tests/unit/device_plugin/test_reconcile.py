"""What pods really hold against what is written on them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core.contract.gpu_holders import GpuHolder
from kompakt_core.contract.gpu_lists import readable_uuids
from kompakt_core.patterns.names import Pattern
from kompakt_core.patterns.table import table_for
from kompakt_core.topology.describe import read_description
from kompakt_device_plugin.pods import NodePod
from kompakt_device_plugin.reconcile import annotations_of, corrections, event_of, held_in, held_of, holders, keep, running

GRAPH = read_description("dgx1-v100", "node-1")
ALL = tuple(gpu.uuid for gpu in GRAPH.gpus)


def pod(name, gpus=(), size=None, **more):
    return NodePod(uid=f"uid-{name}", namespace="ns", name=name, node="node-1", size=size or len(gpus), gpus=tuple(gpus), **more)


def takes(**gpus):
    return {("ns", name): frozenset(of) for name, of in gpus.items()}


def test_pods_that_hold_what_is_written_need_no_correction():
    assert corrections(takes(a=(ALL[1], ALL[0])), [pod("a", ALL[:2])], GRAPH) == ()


def test_a_set_without_the_link_that_the_pod_demands_is_written_as_it_is_and_is_worth_nothing():
    demand = {"kompakt.dev/pattern": "Ring", "kompakt.dev/required-link": "NVLink"}
    (one,) = corrections(takes(a=(ALL[0], ALL[5])), [pod("a", ALL[:2], annotations=demand)], GRAPH)
    assert (set(one.gpus), set(one.indices), one.value) == ({ALL[0], ALL[5]}, {0, 5}, 0)


def test_swapped_sets_are_swapped_back_on_paper():
    pods = [pod("a", ALL[:2]), pod("b", ALL[2:4])]
    found = corrections(takes(a=ALL[2:4], b=ALL[:2]), pods, GRAPH)
    assert {one.pod.name: set(one.gpus) for one in found} == {"a": set(ALL[2:4]), "b": set(ALL[:2])}
    assert [one.pod.name for one in found if not one.gpus] == [found[0].pod.name]
    assert annotations_of(found[0])["metadata"]["annotations"]["kompakt.dev/gpus"] == ""


def test_a_gpu_that_kubelet_names_for_two_pods_is_written_on_the_later_one_when_the_earlier_is_over():
    """It lists a pod that has just ended beside the one that has its GPU by now."""
    ended, later = pod("ended", ALL[:1]), pod("later", ALL[1:2])
    taken = takes(ended=ALL[:1], later=ALL[:1])
    assert corrections(taken, [ended, later], GRAPH) == ()
    (one,) = corrections(taken, [replace(ended, finished=True), later], GRAPH)
    assert one.pod.name == "later"
    assert corrections(taken, [replace(ended, gpus=ALL[2:3]), replace(later, gpus=ALL[:1])], GRAPH) == ()


def test_what_is_written_on_a_pod_that_kubelet_has_not_named_yet_is_written_on_no_other():
    """A pod that ended while kubelet was away, and got what was meant for the next one."""
    pods = [pod("ended", ALL[:1]), pod("next", ALL[1:2])]
    assert corrections(takes(ended=ALL[1:2]), pods, GRAPH) == ()
    named = corrections(takes(ended=ALL[1:2], next=ALL[2:3]), pods, GRAPH)
    assert [(one.pod.name, one.gpus) for one in named] == [("next", ALL[2:3]), ("ended", ALL[1:2])]
    (left,) = corrections(takes(ended=ALL[1:2]), [pods[0], replace(pods[1], finished=True)], GRAPH)
    assert left.pod.name == "ended"


@given(st.permutations(range(8)), st.permutations(range(8)), st.lists(st.integers(1, 3), min_size=8, max_size=8), st.data())
def test_no_gpu_ever_stands_on_two_pods_while_corrections_are_written(before, now, sizes, data):
    """Whatever pods kubelet names; where it names all, all are corrected."""
    written, taken, at = {}, {}, 0
    for number, size in enumerate(sizes):
        if at + size <= 8:
            written[f"p{number}"] = {ALL[index] for index in before[at : at + size]}
            taken[f"p{number}"] = {ALL[index] for index in now[at : at + size]}
            at += size
    pods, every = [pod(name, gpus) for name, gpus in written.items()], dict(taken)
    for name in data.draw(st.sets(st.sampled_from(sorted(taken)))):
        del taken[name]
    for one in corrections(takes(**taken), pods, GRAPH):
        written[one.pod.name] = set(one.gpus)
        standing = [uuid for gpus in written.values() for uuid in gpus]
        assert len(standing) == len(set(standing))
    assert written == every or taken != every
    assert all(written.values())


def test_a_correction_writes_gpus_indices_and_value_in_ring_order():
    ring = {"kompakt.dev/pattern": "Ring"}
    (one,) = corrections(takes(a=ALL[:4]), [pod("a", ALL[4:], annotations=ring)], GRAPH)
    table = table_for(GRAPH, Pattern.RING)
    body = annotations_of(one)
    assert body["metadata"]["uid"] == "uid-a"
    assert body["metadata"]["annotations"] == {
        "kompakt.dev/gpus": ",".join(ALL[index] for index in table.order(0b1111)),
        "kompakt.dev/gpu-indices": ",".join(map(str, table.order(0b1111))),
        "kompakt.dev/value": str(table.value(0b1111)),
    }


def test_a_pattern_without_a_table_is_written_by_index():
    (one,) = corrections(takes(a=(ALL[3], ALL[1])), [pod("a", size=2, annotations={"kompakt.dev/pattern": "Custom"})], GRAPH)
    assert (one.indices, one.value) == ((1, 3), 0)


def test_gpus_that_the_graph_does_not_know_are_reported_but_never_written():
    taken = takes(a=("GPU-of-yesterday",))
    assert corrections(taken, [pod("a", ALL[:1])], GRAPH) == ()
    assert [held.uuid for held in held_of(taken, [pod("a", ALL[:1])])] == ["GPU-of-yesterday"]


def test_finished_pods_hold_nothing_even_while_kubelet_still_lists_them():
    assert running(takes(a=ALL[:2], b=ALL[2:4]), [pod("a", finished=True, size=2)]) == takes(b=ALL[2:4])


def holding(**gpus):
    return tuple(GpuHolder(uuid, "ns", name, f"uid-{name}") for name, of in gpus.items() for uuid in of)


def test_a_kubelet_that_just_started_and_lists_nothing_takes_no_gpu_from_a_living_pod():
    before = holding(a=ALL[:2], ended=ALL[2:4], gone=ALL[4:6])
    assert keep(before, {}, [pod("a", ALL[:2]), pod("ended", ALL[2:4], finished=True)]) == takes(a=ALL[:2])


def test_a_later_pod_of_the_same_name_inherits_nothing():
    assert keep([GpuHolder(ALL[0], "ns", "a", "uid-of-yesterday")], {}, [pod("a", ALL[1:2])]) == {}


def test_what_kubelet_says_now_wins_over_what_was_held_before():
    pods = [pod("a", ALL[:2]), pod("b", ALL[2:4])]
    assert keep(holding(a=ALL[:2]), takes(b=ALL[1:3]), pods) == takes(a=ALL[:1], b=ALL[1:3])
    assert keep(holding(a=ALL[:2]), takes(a=ALL[6:]), pods) == takes(a=ALL[6:])


def test_held_is_read_back_as_it_stands():
    entries = [{"uuid": uuid, "namespace": "ns", "pod": "a", "podUID": "uid-a"} for uuid in ALL[:2]]
    assert held_in({"status": {"held": entries}}).held == holding(a=ALL[:2])
    assert held_in(None).held == held_in({}).held == ()


def test_a_pod_that_the_cluster_forgot_holds_its_gpus_without_a_uid():
    (held,) = held_of(takes(ghost=ALL[:1]), [])
    assert (held.pod, held.pod_uid) == ("ghost", "")


def test_a_gpu_listed_twice_belongs_to_the_pod_that_came_last():
    pods = [pod("old", ALL[:1]), pod("new", ALL[:1])]
    assert [held.pod for held in held_of(takes(new=ALL[:1], old=ALL[:1]), pods)] == ["new"]


def test_holders_are_pods_by_uid():
    assert holders(takes(a=ALL[:1]), [pod("a", ALL[:1]), pod("b", ALL[1:2])]) == {"uid-a"}


def test_the_event_says_what_was_written_and_what_is_held():
    (one,) = corrections(takes(a=ALL[:1]), [pod("a", ALL[1:2])], GRAPH)
    event = event_of(one)
    assert (event.type, event.reason) == ("Warning", "GPUSetCorrected")
    assert event.note == f"it holds {ALL[0]}, but written on the pod was: {ALL[1]}"
    (one,) = corrections(takes(a=ALL[:1]), [pod("a", size=1)], GRAPH)
    assert event_of(one).reason == "GPUSetReported"


@given(st.permutations(range(8)), st.lists(st.integers(1, 3), min_size=1, max_size=3))
def test_after_the_corrections_nothing_is_left_to_correct(order, sizes):
    taken, pods, at = {}, [], 0
    for number, size in enumerate(sizes):
        if at + size > 8:
            break
        taken["ns", f"p{number}"] = frozenset(ALL[i] for i in order[at : at + size])
        pods.append(pod(f"p{number}", ALL[at : at + size]))
        at += size
    done = {one.pod.key: one for one in corrections(taken, pods, GRAPH)}
    after = [pod(p.name, done[p.key].gpus) if p.key in done else p for p in pods]
    assert corrections(taken, after, GRAPH) == ()


@pytest.mark.parametrize(
    ("written", "size", "says"),
    [
        (f"{ALL[0]},{ALL[0]}", 2, "it names a GPU twice, or none"),
        (" , ", 2, "it names a GPU twice, or none"),
        (",".join(ALL[:3]), 2, "it names 3 GPUs, the pod asks for 2"),
        (f"{ALL[0]},GPU-of-another-node", 2, "GPU-of-another-node is no GPU of this node"),
        ("x" * 5000, 1, "x" * 64 + " is no GPU of this node"),
        (f"{ALL[4]},{ALL[5]}", 2, None),  # in order, but kubelet decided otherwise
    ],
)
def test_an_annotation_that_is_of_no_use_is_told_with_the_reason(written, size, says):
    one = replace(pod("a", readable_uuids(written), size=size), annotations={"kompakt.dev/gpus": written})
    (found,) = corrections(takes(a=ALL[:size]), [one], GRAPH)
    event = event_of(found)
    assert (event.type, event.reason) == ("Warning", "GPUSetCorrected")
    assert (f"({says})" in event.note) if says else ("(" not in event.note)
    assert len(event.note) <= 1024
