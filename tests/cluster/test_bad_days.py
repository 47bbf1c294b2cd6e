"""A TrainingJob when GPUs and nodes go: the gang comes up elsewhere, and its status says what was lost."""

from collections.abc import Iterator
from typing import Any

import pytest

from kompakt_client.transport import connect
from tests.support.cluster.machines import MACHINES
from tests.support.cluster.reading import written
from tools.kube import kwok
from tools.kube.jobs import JobManifest, apply, training_job
from tools.kube.session import ClusterSession, eventually

SICK = "simulate.kompakt.dev/unhealthy-gpus"


@pytest.fixture
def mended(kompakt: ClusterSession) -> Iterator[Any]:
    """Patches a node; afterwards every node is as it was."""

    def patch(node: str, body: dict[str, Any]) -> None:
        kompakt.core.patch_node(node, body)

    yield patch
    for node in ("dgx-0", "dgx-1", "pcie-0"):
        kompakt.core.patch_node(
            node, {"metadata": {"annotations": {SICK: None}}, "spec": {"unschedulable": None, "taints": None}}
        )

    def whole() -> bool:
        nodes = kompakt.core.list_node().items
        return all(node.status.allocatable.get("kompakt.dev/gpu") == "8" and not node.spec.taints for node in nodes)

    eventually(whole, "all GPUs offered again")


def nodes_of(job: JobManifest) -> set[str]:
    return {pod.spec.node_name for pod in job.bound()}


def running_again(job: JobManifest, attempt: int = 2) -> dict[str, Any]:
    eventually(lambda: job.status.get("attempt") == attempt and job.phase == "Running", f"attempt {attempt} running")
    return job.status


def test_a_gang_leaves_a_sick_gpu_and_says_which_it_was(kompakt: ClusterSession, namespace: str, mended: Any) -> None:
    job = apply(kompakt, namespace, training_job("unhealthy", replicas=2, gpus=4, seconds=None))
    before = job.await_phase("Running")
    (seat,) = [pod for pod in before["roles"][0]["pods"] if pod["name"] == "unhealthy-worker-0-a1"]
    index, lost = seat["gpuIndices"].split(",")[0], written(kompakt.core.read_namespaced_pod(seat["name"], namespace))[0]
    mended(seat["node"], {"metadata": {"annotations": {SICK: index}}})
    after = running_again(job)
    assert lost not in {gpu for pod in job.bound() for gpu in written(pod)}
    assert (after["restarts"], after["lastRestart"]["reason"]) == (0, "Disruption")
    assert f"{lost} (index {index}): XID 79" in after["lastRestart"]["message"]
    assert job.condition("Degraded")["status"] == "False"
    assert "has an unhealthy GPU" in kompakt.kubectl("get", "events", "-n", namespace)


def test_a_gang_leaves_a_node_that_is_tainted_and_avoids_one_that_is_cordoned(
    kompakt: ClusterSession, namespace: str, mended: Any
) -> None:
    job = apply(kompakt, namespace, training_job("moved", gpus=8, seconds=None))
    job.await_phase("Running")
    (first,) = nodes_of(job)
    second, third = sorted({"dgx-0", "dgx-1", "pcie-0"} - {first})
    mended(second, {"spec": {"unschedulable": True}})
    mended(first, {"spec": {"taints": [{"key": "broken", "effect": "NoExecute"}]}})
    running_again(job)
    assert nodes_of(job) == {third}
    assert job.status["lastRestart"]["reason"] == "Disruption"
    assert job.status["nodes"] == third


@pytest.fixture
def whole_again(kompakt: ClusterSession) -> Iterator[None]:
    """Afterwards every machine has its Node and offers its GPUs."""
    yield
    nodes = (kwok.node(n.name, n.gpus, n.machine, dict(n.labels)) for n in MACHINES)
    kwok.add_nodes(connect(kompakt.kubeconfig), nodes)

    def offered() -> bool:
        found = kompakt.core.list_node().items
        ready = [node for node in found if any(c.type == "Ready" and c.status == "True" for c in node.status.conditions or ())]
        return sum(node.status.allocatable.get("kompakt.dev/gpu") == "8" and not node.spec.taints for node in ready) == 3

    eventually(offered, "three nodes with their GPUs")


def test_a_gang_comes_up_elsewhere_when_its_node_is_deleted(kompakt: ClusterSession, namespace: str, whole_again: None) -> None:
    """Pods of a Node that is gone are removed by the controller manager, 40 s to a minute later."""
    job = apply(kompakt, namespace, training_job("orphaned", replicas=2, gpus=4, seconds=None))
    job.await_phase("Running")
    lost = sorted(nodes_of(job))[0]
    kompakt.core.delete_node(lost)
    after = running_again(job)
    assert lost not in nodes_of(job)
    assert len(nodes_of(job)) in (1, 2)
    assert (after["restarts"], after["lastRestart"]["reason"]) == (0, "Disruption")
    job.finish()
    job.await_phase("Succeeded")
