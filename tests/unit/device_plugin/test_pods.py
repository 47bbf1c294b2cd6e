"""What is read from pod objects, and the order in which pods are known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core.contract.gpu_lists import readable_uuids
from kompakt_core.patterns.names import Pattern
from kompakt_device_plugin.pods import NodePods, read_pod


def test_a_pod_is_read_with_size_gpus_and_wish(make_pod):
    pod = read_pod(make_pod("a", 4, ("GPU-1", "GPU-0"), pattern="Ring", **{"bandwidth-sensitivity": "High"}))
    assert (pod.size, pod.gpus, pod.wish.pattern, pod.wish.sensitive) == (4, ("GPU-1", "GPU-0"), Pattern.RING, True)


def test_a_pods_demands_are_read(make_pod):
    pod = read_pod(make_pod("a", **{"required-link": "NVLink", "same-numa-node": "true"}))
    assert (pod.wish.required_link, pod.wish.same_numa_node) == ("NVLink", True)


@pytest.mark.parametrize("words", [{}, {"required-link": "Rope", "same-numa-node": "True"}, {"same-numa-node": "false"}])
def test_a_pod_without_demands_that_anybody_knows_has_none(make_pod, words):
    pod = read_pod(make_pod("a", **words))
    assert (pod.wish.required_link, pod.wish.same_numa_node) == ("Any", False)


def test_an_unknown_pattern_counts_as_none(make_pod):
    assert read_pod(make_pod("a", pattern="Moebius")).wish.pattern is Pattern.NONE


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_an_ended_pod_is_finished(make_pod, phase):
    assert read_pod(make_pod("a", phase=phase)).finished
    assert not read_pod(make_pod("a", phase="Running")).finished


@given(st.text())
def test_any_annotation_text_gives_distinct_uuids_or_none(text):
    uuids = readable_uuids(text)
    assert len(set(uuids)) == len(uuids)
    assert all(uuid == uuid.strip() and "," not in uuid and uuid for uuid in uuids)


def test_a_repeated_uuid_makes_the_annotation_unusable():
    assert readable_uuids("GPU-0,GPU-1,GPU-0") == ()


def test_pods_without_gpus_or_node_are_none_of_ours(make_pod):
    pods = NodePods()
    pods.replace([make_pod("a", 0), make_pod("b", 1, node="")])
    assert pods.all() == ()


def test_pods_keep_the_order_of_arrival_and_lists_are_ordered_by_creation(make_pod):
    def made(name, created):
        pod = make_pod(name)
        pod["metadata"]["creationTimestamp"] = created
        return pod

    pods = NodePods()
    pods.replace([made("late", "2026-01-02T00:00:00Z"), made("early", "2026-01-01T00:00:00Z")])
    pods.event("ADDED", made("bound-last", "2025-01-01T00:00:00Z"))
    pods.replace(
        [made("bound-last", "2025-01-01T00:00:00Z"), made("early", "2026-01-01T00:00:00Z"), made("late", "2026-01-02T00:00:00Z")]
    )
    assert [pod.name for pod in pods.all()] == ["early", "late", "bound-last"]


def test_a_list_beside_the_watch_brings_no_deleted_pod_back_and_no_old_state(make_pod):
    def at(version, *gpus):
        pod = make_pod("a", 1, gpus)
        pod["metadata"]["resourceVersion"] = str(version)
        return pod

    pods = NodePods()
    pods.event("ADDED", at(9, "GPU-9"))
    pods.add([at(8, "GPU-8")])
    assert pods.all()[0].gpus == ("GPU-9",)
    pods.event("DELETED", at(10))
    pods.add([at(9, "GPU-9")])
    assert pods.all() == ()
