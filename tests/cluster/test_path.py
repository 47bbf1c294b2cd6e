"""The whole path on simulated nodes: apply, gated, planned, bound, Running, Succeeded, with all our processes."""

from typing import Any

import pytest

from kompakt_core.contract import (
    ANN_GPU_INDICES,
    ANN_MIN_VALUE,
    ANN_PLANNED_GPUS,
    ANN_PLANNED_NODE,
    ANN_RANK,
    ANN_VALUE,
    LABEL_MACHINE,
)
from tests.support.cluster.pods import gpu_pod
from tests.support.cluster.reading import await_reason, held, topologies, written
from tools.kube.jobs import JobManifest, apply, training_job
from tools.kube.session import ClusterSession, eventually, stays

pytestmark = pytest.mark.usefixtures("watched")


def snapshot(job: JobManifest) -> tuple[Any, ...]:
    """All that could still move."""
    found = job.read()
    return found["metadata"]["resourceVersion"], [(p.metadata.name, p.metadata.resource_version) for p in job.pods()]


def test_a_gang_goes_from_apply_to_succeeded(kompakt: ClusterSession, namespace: str) -> None:
    job = apply(kompakt, namespace, training_job("whole", replicas=2, gpus=4, seconds=None))
    status = job.await_phase("Running")
    nodes = topologies(kompakt)
    pods = job.pods()
    assert [pod.metadata.name for pod in pods] == ["whole-worker-0-a1", "whole-worker-1-a1"]
    for pod in pods:
        gpus = {gpu["uuid"]: gpu["index"] for gpu in nodes[pod.spec.node_name]["spec"]["gpus"]}
        uuids = written(pod)
        assert len(set(uuids)) == 4
        assert [str(gpus[uuid]) for uuid in uuids] == written(pod, ANN_GPU_INDICES)
        assert int(pod.metadata.annotations[ANN_VALUE]) >= int(pod.metadata.annotations.get(ANN_MIN_VALUE, "1")) > 0
        assert pod.metadata.annotations[ANN_PLANNED_NODE] == pod.spec.node_name
        assert set(written(pod, ANN_PLANNED_GPUS)) == set(uuids)
        assert pod.spec.scheduling_gates is None
    assert {pod.metadata.annotations[ANN_RANK] for pod in pods} == {"0", "1"}
    assert pods[0].metadata.annotations[ANN_RANK] == "0"
    assert len({pod.spec.node_name for pod in pods}) == 1, "two times four GPUs fit one machine"
    told = {entry["name"]: (entry["node"], entry["gpuIndices"].split(",")) for role in status["roles"] for entry in role["pods"]}
    assert told == {pod.metadata.name: (pod.spec.node_name, written(pod, ANN_GPU_INDICES)) for pod in pods}
    eventually(lambda: held(kompakt).items() >= {p.metadata.name: set(written(p)) for p in pods}.items(), "held")

    job.finish()
    status = job.await_phase("Succeeded")
    assert job.condition("Complete")["status"] == "True"
    assert job.condition("Placed")["status"] == "True"
    assert status["attempt"] == 1
    assert status.get("restarts", 0) == 0
    assert status["startTime"] <= status["completionTime"]
    plan = status["scheduling"]["plan"]
    assert status["scheduling"]["state"] == "Released"
    assert (plan["level"], [len(node["pods"]) for node in plan["nodes"]]) == ("Machine", [2])
    assert plan["value"] > 0
    eventually(lambda: not held(kompakt), "the GPUs are given back")
    stays(lambda: snapshot(job), rounds=5)


def test_the_ring_of_four_avoids_the_slow_links(kompakt: ClusterSession, namespace: str) -> None:
    """On a DGX-1 (V100) the first four GPUs form a full NVLink clique; any set across the boards loses links."""
    document = training_job("ring", gpus=4, seconds=None)
    document["spec"]["roles"][0]["template"]["spec"]["nodeSelector"] = {LABEL_MACHINE: "dgx1-v100"}
    job = apply(kompakt, namespace, document)
    job.await_phase("Running")
    (pod,) = job.pods()
    spec = topologies(kompakt)[pod.spec.node_name]["spec"]
    kinds = {frozenset((link["a"], link["b"])): link["kind"] for link in spec["links"]}
    order = [int(index) for index in written(pod, ANN_GPU_INDICES)]
    around = [frozenset((a, b)) for a, b in zip(order, [*order[1:], order[0]], strict=True)]
    assert {kinds[pair] for pair in around} == {"NVLink"}
    job.delete()
    eventually(lambda: not job.pods(), "the deleted job's pods are gone")


def test_a_gang_that_does_not_fit_waits_and_holds_nothing(kompakt: ClusterSession, namespace: str) -> None:
    blocker = apply(kompakt, namespace, training_job("blocker", replicas=2, gpus=8, seconds=None))
    blocker.await_phase("Running")
    before = held(kompakt)
    gang = apply(kompakt, namespace, training_job("gang", replicas=2, gpus=8, seconds="0.5"))
    eventually(lambda: gang.status.get("scheduling", {}).get("state") == "Waiting", "the gang waits")
    assert gang.condition("Placed")["status"] == "False"

    def still() -> Any:
        return gang.pods(), held(kompakt)

    stays(still, rounds=5)
    assert still() == ([], before)
    stays(lambda: gang.read()["metadata"]["resourceVersion"], rounds=3)
    small = apply(kompakt, namespace, training_job("small", gpus=2))
    small.await_phase("Succeeded")
    blocker.delete()
    gang.await_phase("Succeeded")


def test_a_request_no_node_can_hold_says_so_and_others_go_on(kompakt: ClusterSession, namespace: str) -> None:
    huge = apply(kompakt, namespace, training_job("huge", gpus=16))
    await_reason(huge, "NeverFits", "Placed")
    assert huge.phase == "Pending"
    apply(kompakt, namespace, training_job("other", gpus=2)).await_phase("Succeeded")
    assert not huge.bound()


def test_a_pod_that_bypasses_us_keeps_its_gpus_from_others(kompakt: ClusterSession, namespace: str) -> None:
    kompakt.core.create_namespaced_pod(namespace, gpu_pod("bypass", 6, nodeName="dgx-0", schedulerName="default-scheduler"))
    jobs = [apply(kompakt, namespace, training_job(f"beside-{i}", gpus=2, seconds=None)) for i in range(9)]
    for job in jobs:
        job.await_phase("Running")
    taken = held(kompakt)
    assert len(taken["bypass"]) == 6
    assert sum(len(uuids) for uuids in taken.values()) == 24
