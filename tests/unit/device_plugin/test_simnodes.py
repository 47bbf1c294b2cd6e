"""Who holds what on a simulated node."""

from kompakt_core.topology.describe import read_description
from kompakt_device_plugin.pods import NodePod
from tools.kube.simnodes import hand_out

GRAPH = read_description("dgx1-v100", "sim-0")
ALL = tuple(gpu.uuid for gpu in GRAPH.gpus)


def pod(name, gpus=(), size=None, **more):
    return NodePod(uid=name, namespace="default", name=name, node="sim-0", size=size or len(gpus), gpus=tuple(gpus), **more)


def test_a_pod_holds_what_is_written_on_it():
    assert hand_out([pod("a", ALL[3:5])], {}, GRAPH) == ({"a": frozenset(ALL[3:5])}, [])


def test_a_pod_with_nothing_written_gets_what_is_left():
    taken, refused = hand_out([pod("plain", size=4), pod("a", ALL[:4])], {}, GRAPH)
    assert taken == {"a": frozenset(ALL[:4]), "plain": frozenset(ALL[4:])}
    assert not refused


def test_a_pod_whose_gpus_are_held_gets_others():
    taken, _ = hand_out([pod("a", ALL[:2]), pod("b", ALL[:2])], {"a": frozenset(ALL[:2])}, GRAPH)
    assert not taken["a"] & taken["b"]


def test_a_pod_that_does_not_fit_is_refused_and_holds_nothing():
    big = pod("big", size=5)
    assert hand_out([pod("a", ALL[:4]), big], {"a": frozenset(ALL[:4])}, GRAPH) == ({"a": frozenset(ALL[:4])}, [big])


def test_a_finished_or_deleted_pod_gives_its_gpus_back():
    held = {"a": frozenset(ALL[:4]), "b": frozenset(ALL[4:])}
    assert hand_out([pod("a", ALL[:4], finished=True)], held, GRAPH) == ({}, [])


def test_a_second_look_changes_nothing():
    pods = [pod("a", ALL[:2]), pod("plain", size=3)]
    taken, _ = hand_out(pods, {}, GRAPH)
    assert hand_out(pods, taken, GRAPH) == (taken, [])
