"""What is read from pod objects, and the order in which pods are known."""

import pytest

from kompakt_core.patterns.names import Pattern
from kompakt_device_plugin.pods import NodePods, read_pod

DEFAULTS = {"pattern": Pattern.NONE, "sensitive": False, "required_link": "Any", "same_numa_node": False}


@pytest.mark.parametrize(
    ("words", "gpu_request"),
    [
        ({}, {}),
        ({"pattern": "Ring", "bandwidth-sensitivity": "High"}, {"pattern": Pattern.RING, "sensitive": True}),
        ({"required-link": "NVLink", "same-numa-node": "true"}, {"required_link": "NVLink", "same_numa_node": True}),
        ({"pattern": "Moebius", "required-link": "Rope", "same-numa-node": "True"}, {}),
        ({"same-numa-node": "false"}, {}),
    ],
)
def test_a_pod_is_read_with_size_gpus_and_what_it_requests_in_words_that_are_known(make_pod, words, gpu_request):
    pod = read_pod(make_pod("a", 4, ("GPU-1", "GPU-0"), **words))
    assert (pod.size, pod.gpus) == (4, ("GPU-1", "GPU-0"))
    assert {name: getattr(pod.gpu_request, name) for name in DEFAULTS} == DEFAULTS | gpu_request


@pytest.mark.parametrize(("phase", "finished"), [("Succeeded", True), ("Failed", True), ("Running", False)])
def test_an_ended_pod_is_finished(make_pod, phase, finished):
    assert read_pod(make_pod("a", phase=phase)).finished is finished


def test_pods_without_gpus_or_node_are_none_of_ours(make_pod):
    pods = NodePods()
    pods.replace([make_pod("a", 0), make_pod("b", 1, node="")])
    assert pods.all() == ()


def test_pods_keep_the_order_of_arrival_and_lists_are_ordered_by_creation(make_pod):
    def made(name, year):
        pod = make_pod(name)
        pod["metadata"]["creationTimestamp"] = f"{year}-01-01T00:00:00Z"
        return pod

    early, late, bound_last = made("early", 2025), made("late", 2026), made("bound-last", 2024)
    pods = NodePods()
    pods.replace([late, early])
    pods.event("ADDED", bound_last)
    pods.replace([bound_last, early, late])
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
