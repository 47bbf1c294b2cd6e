"""GPUs of pods that API server and kubelet have forgotten, but whose end nobody has seen."""

import pytest

from kompakt_core.contract.gpu_holders import GpuHolder
from kompakt_device_plugin.journal import JournalEntry
from kompakt_device_plugin.orphaned_allocations import nobodys, orphaned, predecessors, tenants, without
from kompakt_device_plugin.pods import NodePods
from tests.support.device_plugin.api import pod_object
from tests.support.device_plugin.pods import holding, node_pod, takes

GPUS = tuple(f"GPU-{number}" for number in range(4))
ONE, TWO = holding(a=GPUS[:1]), holding(a=GPUS[:2])
NOBODYS = GpuHolder(GPUS[2], "", "", "")


def handed(*gpus, to=""):
    return [JournalEntry(gpus, f"uid-{to}", "ns", to) if to else JournalEntry(gpus)]


def living(*names):
    return {f"uid-{name}" for name in names}


EVERYBODY = living("a", "b", "c")
A1, A2, B2 = node_pod("a", size=1), node_pod("a", size=2), node_pod("b", size=2)


def test_only_what_nobody_knows_is_looked_for():
    before = [*ONE, *holding(b=GPUS[1:2]), NOBODYS]
    assert nobodys(before, (), {}, [B2], ()) == ONE


@pytest.mark.parametrize(
    ("before", "handed", "taken", "pods", "gone", "alive", "held"),
    [
        pytest.param(ONE, (), {}, [], (), living(), (), id="not once it has no process"),
        pytest.param(ONE, (), takes(c=GPUS[:1]), [], (), EVERYBODY, (), id="not where kubelet gave it to another"),
        pytest.param((), handed(*GPUS[:2], to="a"), {}, [], [A2], EVERYBODY, TWO, id="handed over before any report had it"),
        pytest.param((), handed(*GPUS[:2], to="a"), {}, [A2], (), EVERYBODY, (), id="not while the API server knows the pod"),
        pytest.param((), handed(*GPUS[:2], to="a"), {}, [], [A2], living("b"), (), id="not for another that lives"),
        pytest.param((), handed(*GPUS[:2]), {}, [], [A1, B2], EVERYBODY, holding(b=GPUS[:2]), id="handed to a pod of that size"),
        pytest.param((), handed(*GPUS[:2]), {}, [], [A2, B2], EVERYBODY, holding(b=GPUS[:2]), id="each once, of two such pods"),
        pytest.param((), handed(*GPUS[:2]), {}, [], [A1], EVERYBODY, (), id="not for a pod of another size"),
    ],
)
def test_a_forgotten_pod_holds_its_gpus(before, handed, taken, pods, gone, alive, held):
    assert orphaned(nobodys(before, handed, taken, pods, gone), alive) == held


LISTED = takes(a=GPUS[:2])
HEIR = node_pod("a", size=2, uid="uid-heir")


@pytest.mark.parametrize(
    ("before", "handed", "listed", "pods", "theirs"),
    [
        pytest.param(TWO, (), LISTED, [HEIR], TWO, id="all, before anything was handed to the later one"),
        pytest.param(TWO, [JournalEntry(GPUS[:1], "uid-heir", "ns", "a")], LISTED, [HEIR], TWO[1:], id="all but what was"),
        pytest.param(TWO, handed(GPUS[0]), LISTED, [HEIR], TWO[1:], id="nor what was handed to nobody knows whom"),
        pytest.param((), handed(*GPUS[:2], to="a"), LISTED, [HEIR], TWO, id="what no report had yet"),
        pytest.param((*TWO, GpuHolder(GPUS[2], "ns", "a", "")), (), LISTED, [A2], (), id="nothing without a successor"),
        pytest.param(TWO, (), LISTED, [], (), id="nothing when no pod has that name"),
        pytest.param(TWO, (), {}, [HEIR], (), id="nothing that kubelet does not list"),
    ],
)
def test_of_what_kubelet_lists_by_name_an_earlier_pod_has(before, handed, listed, pods, theirs):
    assert predecessors(before, handed, listed, pods) == theirs


def test_a_list_without_some_gpus_has_no_pod_without_any():
    assert without(LISTED | takes(b=GPUS[2:]), holding(a=GPUS[:1], b=GPUS[2:])) == takes(a=GPUS[1:2])


@pytest.mark.parametrize(
    ("gpu", "handed", "candidates", "ended", "found"),
    [
        pytest.param(0, (), (), (), {"uid-a"}, id="who holds it"),
        pytest.param(1, (), (), {"uid-b"}, set(), id="not who has finished"),
        pytest.param(2, handed(*GPUS[2:], to="c"), (), (), {"uid-c"}, id="to whom it was handed"),
        pytest.param(2, handed(GPUS[2]), [A1, B2, node_pod("c", size=1)], {"uid-c"}, {"uid-a"}, id="any candidate of that size"),
        pytest.param(3, handed(GPUS[2]), [A1], (), set(), id="nobody who was given another"),
    ],
)
def test_tenants_of_a_gpu_are(gpu, handed, candidates, ended, found):
    assert tenants({GPUS[gpu]}, holding(a=GPUS[:1], b=GPUS[1:2]), handed, candidates, ended) == found


def test_pods_deleted_before_they_finished_are_remembered_until_their_end_is_known():
    now = [10.0]
    pods = NodePods(lambda: now[0])
    pods.replace(pod_object(name) for name in "abc")
    pods.event("DELETED", pod_object("a"))
    pods.event("DELETED", pod_object("b", phase="Failed"))
    now[0] = 12.0
    pods.replace([pod_object("d")])
    assert pods.ended() == {"uid-b"}
    assert [(one.pod.name, one.seconds) for one in pods.gone()] == [("a", 2.0), ("c", 0.0)]
    pods.forget(["uid-a", "uid-unheard-of"])
    assert [one.pod.name for one in pods.gone()] == ["c"]


def test_a_pod_that_a_list_left_out_by_its_age_is_not_gone():
    pods = NodePods(lambda: 10.0)
    pods.replace([pod_object("a")])
    pods.replace([])
    pods.event("ADDED", pod_object("a"))
    assert ([pod.name for pod in pods.all()], pods.gone()) == (["a"], ())
