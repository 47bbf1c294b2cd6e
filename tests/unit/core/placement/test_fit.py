"""The rules of Kubernetes' own scheduler that the planner respects, one claim each."""

from dataclasses import replace
from typing import Any

import pytest

from kompakt_core.ids import GpuMask, JobUid, NodeName, PodUid
from kompakt_core.placement.explain import sentence
from kompakt_core.placement.fit import node_rejection, selected, tolerated
from kompakt_core.placement.model import Gang, GpuRequest, NodeState, Reason, Rejection, Selector, Taint, Toleration, Worker
from kompakt_core.topology.machines import machine

NODE = NodeState(NodeName("n"), machine("dgx1-v100"), labels={"zone": "a", "cores": "64", "odd": "6x"})
WORKER = Worker(0, "p", PodUid("u"), gpus=2, cpu_millis=1000, memory_bytes=1 << 30)
GPU_TAINT = Taint("nvidia.com/gpu", "NoSchedule", "yes")


def gang(**fields: Any) -> Gang:
    return Gang(JobUid("j"), 1, (WORKER,), GpuRequest(), **fields)


def test_a_node_with_everything_takes_the_worker() -> None:
    assert node_rejection(NODE, WORKER, gang()) is None


@pytest.mark.parametrize(
    ("change", "rejection"),
    [
        ({"ready": False}, Rejection(Reason.NODE_NOT_READY, NodeName("n"))),
        ({"unschedulable": True}, Rejection(Reason.CORDONED, NodeName("n"))),
        ({"taints": (GPU_TAINT,)}, Rejection(Reason.TAINTED, NodeName("n"), detail="nvidia.com/gpu")),
        ({"taints": (Taint("k", "NoExecute"),)}, Rejection(Reason.TAINTED, NodeName("n"), detail="k")),
        ({"free_pods": 0}, Rejection(Reason.PODS, NodeName("n"), have=0, need=1)),
        ({"free_cpu_millis": 999}, Rejection(Reason.CPU, NodeName("n"), have=999, need=1000)),
        ({"free_memory_bytes": -5}, Rejection(Reason.MEMORY, NodeName("n"), have=0, need=1 << 30)),
        ({"graph": None}, Rejection(Reason.NO_TOPOLOGY, NodeName("n"))),
        ({"problem": Reason.STALE_TOPOLOGY}, Rejection(Reason.STALE_TOPOLOGY, NodeName("n"))),
        ({"taken": GpuMask(0b11111110)}, Rejection(Reason.NOT_ENOUGH_GPUS, NodeName("n"), have=1, need=2)),
    ],
)
def test_each_lack_has_its_reason(change: dict[str, Any], rejection: Rejection) -> None:
    assert node_rejection(replace(NODE, **change), WORKER, None) == rejection
    assert sentence(rejection)


def test_a_node_that_has_fewer_gpus_in_all_is_no_node_to_wait_for() -> None:
    found = node_rejection(replace(NODE, taken=GpuMask(0b11)), replace(WORKER, gpus=9), None)
    assert found == Rejection(Reason.MACHINE_TOO_SMALL, NodeName("n"), have=8, need=9)
    assert found.final


def test_a_soft_taint_refuses_nobody() -> None:
    assert node_rejection(replace(NODE, taints=(Taint("k", "PreferNoSchedule"),)), WORKER, None) is None


def test_an_excluded_node_is_refused_for_that_gang_only() -> None:
    excluded = gang(excluded=frozenset({NodeName("n")}))
    assert node_rejection(NODE, WORKER, excluded) == Rejection(Reason.EXCLUDED, NodeName("n"))
    assert node_rejection(NODE, WORKER, None) is None


def test_a_worker_without_gpus_needs_no_topology() -> None:
    assert node_rejection(replace(NODE, graph=None, problem=Reason.NO_TOPOLOGY), replace(WORKER, gpus=0), None) is None


@pytest.mark.parametrize(
    ("toleration", "answer"),
    [
        (Toleration("nvidia.com/gpu", "Exists"), True),
        (Toleration("nvidia.com/gpu", "Equal", "yes"), True),
        (Toleration("nvidia.com/gpu", "", "yes", "NoSchedule"), True),
        (Toleration(operator="Exists"), True),
        (Toleration("nvidia.com/gpu", "Equal", "no"), False),
        (Toleration("nvidia.com/gpu", "Exists", effect="NoExecute"), False),
        (Toleration("other", "Exists"), False),
        (Toleration(), False),
        (Toleration("nvidia.com/gpu", "Gt", "yes"), False),
    ],
)
def test_tolerations(toleration: Toleration, answer: bool) -> None:
    assert tolerated(GPU_TAINT, replace(WORKER, tolerations=(toleration,))) is answer


def test_a_cordon_is_tolerated_like_its_taint() -> None:
    worker = replace(WORKER, tolerations=(Toleration("node.kubernetes.io/unschedulable", "Exists"),))
    assert node_rejection(replace(NODE, unschedulable=True), worker, None) is None


@pytest.mark.parametrize(
    ("selector", "answer"),
    [
        (Selector("zone", "In", ("a", "b")), True),
        (Selector("zone", "In", ("b",)), False),
        (Selector("none", "In", ("a",)), False),
        (Selector("zone", "NotIn", ("b",)), True),
        (Selector("none", "NotIn", ("b",)), True),
        (Selector("zone", "NotIn", ("a",)), False),
        (Selector("zone", "Exists"), True),
        (Selector("none", "Exists"), False),
        (Selector("none", "DoesNotExist"), True),
        (Selector("zone", "DoesNotExist"), False),
        (Selector("cores", "Gt", ("63",)), True),
        (Selector("cores", "Gt", ("64",)), False),
        (Selector("cores", "Lt", ("65",)), True),
        (Selector("cores", "Lt", ("64",)), False),
        (Selector("odd", "Gt", ("1",)), False),
        (Selector("none", "Lt", ("1",)), False),
        (Selector("cores", "Gt", ("x",)), False),
        (Selector("cores", "Gt", ("1", "2")), False),
        (Selector("zone", "Like", ("a",)), False),
    ],
)
def test_required_node_affinity(selector: Selector, answer: bool) -> None:
    assert selected(NODE.labels, replace(WORKER, affinity=((selector,),))) is answer


def test_affinity_takes_any_term_and_all_of_its_requirements() -> None:
    yes, no = Selector("zone", "Exists"), Selector("zone", "In", ("b",))
    assert selected(NODE.labels, replace(WORKER, affinity=((no,), (yes, yes))))
    assert not selected(NODE.labels, replace(WORKER, affinity=((yes, no),)))
    assert not selected(NODE.labels, replace(WORKER, affinity=((),))), "an empty term matches nothing"


def test_the_node_selector_must_match_besides_the_affinity() -> None:
    assert selected(NODE.labels, replace(WORKER, node_selector={"zone": "a"}))
    assert not selected(NODE.labels, replace(WORKER, node_selector={"zone": "b"}))


def test_every_reason_has_its_sentence_and_says_it_again() -> None:
    for reason in Reason:
        rejection = Rejection(reason, have=1, need=2, detail="Star")
        assert sentence(rejection) == sentence(rejection)
        assert not sentence(rejection).endswith(".")
