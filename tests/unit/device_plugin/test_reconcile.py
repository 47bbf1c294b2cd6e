"""What pods really hold against what is written on them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core.contract.gpu_holders import GpuHolder, encode
from kompakt_core.contract.gpu_lists import readable_uuids
from kompakt_core.patterns.names import Pattern
from kompakt_core.patterns.table import table_for
from kompakt_device_plugin.reconcile import annotations_of, corrections, event_of, held_in, held_of, holders, keep, running
from tests.support.device_plugin.pods import ALL, GRAPH, holding, node_pod, takes


def corrected(taken, *pods):
    """What is written on which pod, in turn."""
    return [(one.pod.name, set(one.gpus)) for one in corrections(taken, pods, GRAPH)]


def sets(**indices):
    return [(name, {ALL[index] for index in some}) for name, some in indices.items()]


A, B = node_pod("a", ALL[:1]), node_pod("b", ALL[1:2])
OVER = {"finished": True}


@pytest.mark.parametrize(
    ("taken", "pods", "written"),
    [
        pytest.param(takes(a=(ALL[1], ALL[0])), [node_pod("a", ALL[:2])], sets(), id="they hold what is written"),
        pytest.param(takes(a=("GPU-of-yesterday",)), [A], sets(), id="the graph does not know what they hold"),
        pytest.param(takes(a=ALL[:1], b=ALL[:1]), [A, B], sets(), id="kubelet names one GPU for two that live"),
        pytest.param(takes(a=ALL[:1], b=ALL[:1]), [replace(A, **OVER), B], sets(b=[0]), id="it names it for one that is over"),
        pytest.param(
            takes(a=ALL[:1], b=ALL[:1]),
            [node_pod("a", ALL[2:3]), node_pod("b", ALL[:1])],
            sets(),
            id="it names it for an earlier one as well",
        ),
        pytest.param(takes(a=ALL[1:2]), [A, B], sets(), id="what they hold stands on one that kubelet has not named yet"),
        pytest.param(takes(a=ALL[1:2], b=ALL[2:3]), [A, B], sets(b=[2], a=[1]), id="it has named that one, which comes first"),
        pytest.param(takes(a=ALL[1:2]), [A, replace(B, **OVER)], sets(a=[1]), id="what they hold stands on one that is over"),
    ],
)
def test_what_is_written_on_pods_when(taken, pods, written):
    """kubelet lists a pod that has just ended beside the one that has its GPU by now, and may be away when pods come and go."""
    assert corrected(taken, *pods) == written


def test_swapped_sets_are_swapped_back_on_paper():
    found = corrections(takes(a=ALL[2:4], b=ALL[:2]), [node_pod("a", ALL[:2]), node_pod("b", ALL[2:4])], GRAPH)
    assert {one.pod.name: set(one.gpus) for one in found} == {"a": set(ALL[2:4]), "b": set(ALL[:2])}
    assert [one.pod.name for one in found if not one.gpus] == [found[0].pod.name]
    assert annotations_of(found[0])["metadata"]["annotations"]["kompakt.dev/gpus"] == ""


@given(st.permutations(range(8)), st.permutations(range(8)), st.lists(st.integers(1, 3), min_size=8, max_size=8), st.data())
def test_no_gpu_ever_stands_on_two_pods_while_corrections_are_written(before, now, sizes, data):
    """Whatever pods kubelet names; where it names all, all are corrected, and nothing is left to correct."""
    written, taken, at = {}, {}, 0
    for number, size in enumerate(sizes):
        if at + size <= 8:
            written[f"p{number}"] = {ALL[index] for index in before[at : at + size]}
            taken[f"p{number}"] = {ALL[index] for index in now[at : at + size]}
            at += size
    pods, every = [node_pod(name, gpus) for name, gpus in written.items()], dict(taken)
    for name in data.draw(st.sets(st.sampled_from(sorted(taken)))):
        del taken[name]
    for name, gpus in corrected(takes(**taken), *pods):
        written[name] = gpus
        standing = [uuid for gpus in written.values() for uuid in gpus]
        assert len(standing) == len(set(standing))
    assert written == every or taken != every
    assert all(written.values())
    after = [node_pod(name, gpus) for name, gpus in written.items()]
    assert taken != every or corrected(takes(**taken), *after) == []


def test_a_correction_writes_gpus_indices_and_value_in_ring_order():
    ring = node_pod("a", ALL[4:], annotations={"kompakt.dev/pattern": "Ring"})
    (one,) = corrections(takes(a=ALL[:4]), [ring], GRAPH)
    table = table_for(GRAPH, Pattern.RING)
    body = annotations_of(one)
    assert body["metadata"]["uid"] == "uid-a"
    assert body["metadata"]["annotations"] == {
        "kompakt.dev/gpus": ",".join(ALL[index] for index in table.order(0b1111)),
        "kompakt.dev/gpu-indices": ",".join(map(str, table.order(0b1111))),
        "kompakt.dev/value": str(table.value(0b1111)),
    }


@pytest.mark.parametrize(
    ("annotations", "takes_indices"),
    [
        ({"kompakt.dev/pattern": "Ring", "kompakt.dev/required-link": "NVLink"}, (5, 0)),
        ({"kompakt.dev/pattern": "Custom"}, (3, 1)),
    ],
    ids=["without the link that the pod demands", "for a pattern without a table"],
)
def test_a_set_that_has_no_value_is_written_by_index(annotations, takes_indices):
    taken = takes(a=[ALL[index] for index in takes_indices])
    (one,) = corrections(taken, [node_pod("a", ALL[6:], annotations=annotations)], GRAPH)
    assert (one.indices, one.value) == (tuple(sorted(takes_indices)), 0)
    assert set(one.gpus) == taken["ns", "a"]


def test_finished_pods_hold_nothing_even_while_kubelet_still_lists_them():
    assert running(takes(a=ALL[:2], b=ALL[2:4]), [node_pod("a", finished=True, size=2)]) == takes(b=ALL[2:4])


PODS = [node_pod("a", ALL[:2]), node_pod("b", ALL[2:4]), node_pod("ended", ALL[2:4], finished=True)]


@pytest.mark.parametrize(
    ("before", "now", "kept"),
    [
        pytest.param(
            holding(a=ALL[:2], ended=ALL[2:4], gone=ALL[4:6]), {}, takes(a=ALL[:2]), id="of living pods, if it lists none"
        ),
        pytest.param([GpuHolder(ALL[0], "ns", "a", "uid-before")], {}, {}, id="not for a later pod of that name"),
        pytest.param(holding(a=ALL[:2]), takes(b=ALL[1:3]), takes(a=ALL[:1], b=ALL[1:3]), id="but for what it gives others"),
        pytest.param(holding(a=ALL[:2]), takes(a=ALL[6:]), takes(a=ALL[6:]), id="not for a pod that it lists"),
    ],
)
def test_what_was_held_before_is_kept_beside_kubelets_list(before, now, kept):
    """A kubelet that has just started lists no pods for a moment."""
    assert keep(before, now, PODS) == kept


def test_held_is_read_back_as_it_stands():
    assert held_in({"status": {"held": encode(holding(a=ALL[:2]))}}).held == tuple(sorted(holding(a=ALL[:2])))
    assert held_in(None).held == held_in({}).held == ()


@pytest.mark.parametrize(
    ("taken", "pods", "held"),
    [
        pytest.param(takes(ghost=ALL[:1]), [], ("ghost", ""), id="by a pod that the cluster forgot: no uid"),
        pytest.param(takes(new=ALL[:1], old=ALL[:1]), [node_pod("old"), node_pod("new")], ("new", "uid-new"), id="by the last"),
        pytest.param(takes(a=ALL[:1]), [node_pod("a", ALL[1:2])], ("a", "uid-a"), id="whatever is written"),
    ],
)
def test_a_gpu_is_reported_as_held(taken, pods, held):
    (one,) = held_of(taken, pods)
    assert (one.uuid, one.pod, one.pod_uid) == (ALL[0], *held)


def test_holders_are_pods_by_uid_and_unknown_gpus_are_reported():
    assert holders(takes(a=ALL[:1]), [A, B]) == {"uid-a"}
    assert [held.uuid for held in held_of(takes(a=("GPU-of-yesterday",)), [A])] == ["GPU-of-yesterday"]


def test_the_event_says_what_was_written_and_what_is_held():
    (one,) = corrections(takes(a=ALL[:1]), [node_pod("a", ALL[1:2])], GRAPH)
    event = event_of(one)
    assert (event.type, event.reason) == ("Warning", "GPUSetCorrected")
    assert event.note == f"it holds {ALL[0]}, but written on the pod was: {ALL[1]}"
    (one,) = corrections(takes(a=ALL[:1]), [node_pod("a", size=1)], GRAPH)
    assert event_of(one).reason == "GPUSetReported"


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
    one = node_pod("a", readable_uuids(written), size=size, annotations={"kompakt.dev/gpus": written})
    (found,) = corrections(takes(a=ALL[:size]), [one], GRAPH)
    event = event_of(found)
    assert (event.type, event.reason) == ("Warning", "GPUSetCorrected")
    assert (f"({says})" in event.note) if says else ("(" not in event.note)
    assert len(event.note) <= 1024
