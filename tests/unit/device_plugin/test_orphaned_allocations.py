"""GPUs of pods that API server and kubelet have forgotten, but whose end nobody has seen."""

from kompakt_core.contract.gpu_holders import GpuHolder
from kompakt_device_plugin.journal import JournalEntry
from kompakt_device_plugin.orphaned_allocations import orphaned, predecessors, tenants, without
from kompakt_device_plugin.pods import NodePod, NodePods

GPUS = tuple(f"GPU-{number}" for number in range(4))


def pod(name, size=1, **more):
    return NodePod(uid=f"uid-{name}", namespace="ns", name=name, node="node-1", size=size, **more)


def held(gpu, name):
    return GpuHolder(GPUS[gpu], "ns", name, f"uid-{name}")


def living(*names):
    return lambda uids: {f"uid-{name}" for name in names}.intersection(uids)


EVERYBODY = living("a", "b", "c")


def test_gpus_are_held_while_processes_run_and_only_what_nobody_knows_is_looked_for():
    asked = []

    def alive(uids):
        asked.append(uids)
        return {"uid-a"}

    before = [held(0, "a"), held(1, "b"), GpuHolder(GPUS[2], "", "", "")]
    assert orphaned(before, (), {}, [pod("b")], (), alive) == (held(0, "a"),)
    assert asked == [{"uid-a"}]
    assert orphaned(before, (), {}, [pod("b")], (), living()) == ()


def test_a_gpu_that_kubelet_gave_to_another_is_the_others():
    assert orphaned([held(0, "a")], (), {("ns", "c"): frozenset({GPUS[0]})}, [], (), EVERYBODY) == ()


LISTED = {("ns", "a"): frozenset(GPUS[:2])}
HEIR = NodePod(uid="uid-heir", namespace="ns", name="a", node="node-1", size=2)


def test_a_later_pod_of_the_same_name_has_only_what_was_handed_over_to_it():
    before = [held(0, "a"), held(1, "a")]
    assert predecessors(before, (), LISTED, [HEIR]) == tuple(before)
    assert predecessors(before, [JournalEntry(GPUS[:1], "uid-heir", "ns", "a")], LISTED, [HEIR]) == (held(1, "a"),)
    assert predecessors(before, [JournalEntry(GPUS[:1])], LISTED, [HEIR]) == (held(1, "a"),), (
        "to whom is unknown: kubelet's word counts"
    )
    assert predecessors((), [JournalEntry(GPUS[:2], "uid-a", "ns", "a")], LISTED, [HEIR]) == tuple(before), "no report had it yet"


def test_who_has_no_successor_or_is_no_longer_listed_is_no_predecessor():
    before = [held(0, "a"), held(1, "a"), GpuHolder(GPUS[2], "ns", "a", "")]
    assert predecessors(before, (), LISTED, [pod("a", 2)]) == ()
    assert predecessors(before, (), LISTED, []) == ()
    assert predecessors(before, (), {}, [HEIR]) == ()


def test_a_list_without_some_gpus_has_no_pod_without_any():
    assert without(LISTED | {("ns", "b"): frozenset(GPUS[2:])}, [held(0, "a"), held(2, "b"), held(3, "b")]) == {
        ("ns", "a"): frozenset(GPUS[1:2])
    }


def test_what_was_handed_over_a_moment_ago_is_held_though_no_report_had_it():
    handed = [JournalEntry(GPUS[:2], "uid-a", "ns", "a")]
    assert orphaned((), handed, {}, [], [pod("a", 2)], EVERYBODY) == (held(0, "a"), held(1, "a"))
    assert orphaned((), handed, {}, [pod("a", 2)], (), EVERYBODY) == (), "the API server knows it: it is no forgotten pod"
    assert orphaned((), handed, {}, [], [pod("a", 2)], living("b")) == ()


def test_where_nobody_knows_who_was_given_a_set_it_is_a_forgotten_pod_of_that_size():
    handed = [JournalEntry(GPUS[:2])]
    assert orphaned((), handed, {}, [], [pod("a", 1), pod("b", 2)], EVERYBODY) == (held(0, "b"), held(1, "b"))
    assert orphaned((), handed, {}, [], [pod("a", 2), pod("b", 2)], EVERYBODY) == (held(0, "b"), held(1, "b")), "each GPU once"
    assert orphaned((), handed, {}, [], [pod("a", 1)], EVERYBODY) == ()


def test_tenants_are_all_that_were_given_a_gpu_and_did_not_finish():
    before, handed = [held(0, "a"), held(1, "b")], [JournalEntry(GPUS[2:], "uid-c", "ns", "c")]
    assert tenants({GPUS[0]}, before, handed, (), {"uid-b"}) == {"uid-a"}
    assert tenants({GPUS[1]}, before, handed, (), {"uid-b"}) == set(), "it finished"
    assert tenants({GPUS[2]}, before, handed, (), {"uid-b"}) == {"uid-c"}


def test_the_tenant_of_a_set_whose_owner_is_unknown_is_any_candidate_of_that_size():
    handed = [JournalEntry(GPUS[:1])]
    assert tenants({GPUS[0]}, (), handed, [pod("a"), pod("b", 2), pod("c")], {"uid-c"}) == {"uid-a"}
    assert tenants({GPUS[1]}, (), handed, [pod("a")], ()) == set()


def pod_object(name, phase="Running"):
    limits = {"limits": {"kompakt.dev/gpu": "1"}}
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"},
        "spec": {"nodeName": "node-1", "containers": [{"resources": limits}]},
        "status": {"phase": phase},
    }


def test_pods_deleted_before_they_finished_are_remembered_until_their_end_is_known():
    now = [10.0]
    pods = NodePods(lambda: now[0])
    pods.replace(pod_object(name) for name in "abc")
    pods.event("DELETED", pod_object("a"))
    pods.event("DELETED", pod_object("b", "Failed"))
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
