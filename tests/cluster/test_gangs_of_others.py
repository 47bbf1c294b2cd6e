"""Pods that others made are placed as one gang: a plain Job, and what becomes of its pods."""

from typing import Any

import pytest
from kubernetes import client

from kompakt_core import contract as c
from tests.support.cluster import jobset
from tools.kube.session import ClusterSession, eventually

pytestmark = pytest.mark.usefixtures("watched")
GANG = "pre-training"


def indexed_job(size: int, gpus: int, *, told: int | None = None, gang: str = GANG, **spec: Any) -> dict[str, Any]:
    """A Job of so many pods that work at the same time; `told`: the size that they say, if it is another one."""
    container = {"name": "main", "image": "simulated", "resources": {"limits": {c.RESOURCE: str(gpus)}}}
    template = {
        "metadata": {
            "labels": {c.LABEL_GANG: gang},
            "annotations": {c.ANN_GANG_SIZE: str(told or size), c.ANN_PATTERN: "Ring"},
        },
        "spec": {"restartPolicy": "Never", "containers": [container], **spec},
    }
    counts = {"completions": size, "parallelism": size, "completionMode": "Indexed"}
    return {"metadata": {"name": gang}, "spec": {**counts, "template": template}}


def pods_of(cluster: ClusterSession, namespace: str, gang: str = GANG) -> list[Any]:
    """Its pods that live, by name."""
    found = cluster.core.list_namespaced_pod(namespace, label_selector=f"{c.LABEL_GANG}={gang}").items
    living = [pod for pod in found if pod.status.phase in ("Pending", "Running") and pod.metadata.deletion_timestamp is None]
    return sorted(living, key=lambda pod: pod.metadata.name)


def gang_of(cluster: ClusterSession, namespace: str, gang: str = GANG) -> dict[str, Any]:
    """The object; {} where there is none."""
    found = cluster.custom.list_namespaced_custom_object(c.GROUP, c.VERSION, namespace, c.GANG_PLURAL)["items"]
    return next((one for one in found if one["metadata"]["name"] == gang), {})


def scheduling(cluster: ClusterSession, namespace: str, gang: str = GANG) -> dict[str, Any]:
    return dict(gang_of(cluster, namespace, gang).get("status", {}).get("scheduling", {}))


def all_run(cluster: ClusterSession, namespace: str, size: int, gang: str = GANG) -> list[Any]:
    def running() -> list[Any]:
        pods = pods_of(cluster, namespace, gang)
        return pods if len(pods) == size and all(pod.status.phase == "Running" for pod in pods) else []

    return eventually(running, f"all {size} pods of {gang} run")


def create(cluster: ClusterSession, namespace: str, job: dict[str, Any]) -> None:
    client.BatchV1Api(cluster.api).create_namespaced_job(namespace, job)


def delete(cluster: ClusterSession, namespace: str, gang: str = GANG) -> None:
    client.BatchV1Api(cluster.api).delete_namespaced_job(gang, namespace, propagation_policy="Background")


def test_a_job_is_placed_whole_and_its_object_goes_with_its_last_pod(kompakt: ClusterSession, namespace: str) -> None:
    create(kompakt, namespace, indexed_job(2, 4))
    pods = all_run(kompakt, namespace, 2)
    assert {pod.spec.scheduler_name for pod in pods} == {c.SCHEDULER_NAME}
    given = [pod.metadata.annotations[c.ANN_GPUS] for pod in pods]
    assert given == [pod.metadata.annotations[c.ANN_PLANNED_GPUS] for pod in pods]
    assert len({pod.spec.node_name for pod in pods}) == 1, "both fit on one machine"
    assert scheduling(kompakt, namespace)["plan"]["level"] == "Machine"
    assert "ownerReferences" not in gang_of(kompakt, namespace)["metadata"]
    delete(kompakt, namespace)
    eventually(lambda: not gang_of(kompakt, namespace), "the object goes")


@pytest.fixture
def jobsets(kompakt: ClusterSession) -> ClusterSession:
    """The cluster with the JobSet controller."""
    jobset.install(kompakt)
    return kompakt


def test_a_jobset_is_placed_whole_and_so_again_when_its_controller_restarts_it(jobsets: ClusterSession, namespace: str) -> None:
    jobset.create(jobsets, namespace, jobset.jobset(GANG, 2, 2, 4, failurePolicy={"maxRestarts": 3}))
    first = all_run(jobsets, namespace, 4)
    assert len({pod.spec.node_name for pod in first}) == 2
    ranks = [int(pod.metadata.annotations[c.ANN_RANK]) for pod in first]
    assert ranks == [0, 1, 2, 3], "as JobSet numbers them"
    jobsets.core.patch_namespaced_pod_status(
        first[0].metadata.name, namespace, {"status": {"phase": "Failed", "containerStatuses": []}}
    )
    eventually(lambda: jobset.restarts(jobsets, namespace, GANG) == 1, "the controller restarts it")
    second = all_run(jobsets, namespace, 4)
    assert {pod.metadata.uid for pod in second}.isdisjoint(pod.metadata.uid for pod in first)
    placed_at_once(jobsets, namespace, second)
    jobset.delete(jobsets, namespace, GANG)
    eventually(lambda: not gang_of(jobsets, namespace), "the object goes")


def placed_at_once(cluster: ClusterSession, namespace: str, pods: list[Any]) -> None:
    """All of them by one plan, with exactly the GPUs of that plan."""
    plan = scheduling(cluster, namespace)["plan"]
    seats = {seat["uid"]: (node["name"], seat["gpus"]) for node in plan["nodes"] for seat in node["pods"]}
    given = {pod.metadata.uid: (pod.spec.node_name, pod.metadata.annotations[c.ANN_GPU_INDICES]) for pod in pods}
    assert given == seats
