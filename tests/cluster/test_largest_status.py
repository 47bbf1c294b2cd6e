"""The status of the largest job that the schema lets pass: etcd takes it, and whoever reads it finds all of it."""

import json
from typing import Any
from uuid import UUID

import pytest

from kompakt_core import contract as c
from kompakt_core.contract import scheduling_record
from kompakt_core.contract.plan_record import PlanRecord, SeatRecord
from kompakt_core.contract.scheduling_record import Record, State
from kompakt_core.ids import GpuIndex, NodeName, PodUid
from kompakt_core.job.choices import MAX_REPLICAS, MAX_ROLES, MAX_WORKERS
from tools.kube.jobs import training_job
from tools.kube.session import ClusterSession, KubectlFailed

NOW = "2026-01-31T12:00:00Z"
PLACE = (c.GROUP, c.VERSION)
ORDER = tuple(map(GpuIndex, (0, 3, 2, 1, 5, 6, 7, 4)))
REPLICAS = MAX_WORKERS // MAX_ROLES


def node_of(rank: int) -> NodeName:
    """As long as a large cloud's names."""
    return NodeName(f"ip-10-{rank >> 8}-{rank & 255}-100.us-west-2.compute.internal")


def plan() -> PlanRecord:
    """Each pod has a node of its own, and some get another value than the one that gets least."""
    seats = tuple(
        SeatRecord(PodUid(str(UUID(int=rank << 64))), node_of(rank), (), ORDER, 25000 + rank % 2, rank)
        for rank in range(MAX_WORKERS)
    )
    return PlanRecord("Cluster", 25000, 50000, NOW, seats, "9f86d081884c7d65")


def roles(job: dict[str, Any]) -> list[dict[str, Any]]:
    names = [role["name"] for role in job["spec"]["roles"]]
    return [
        {
            "name": name,
            "active": REPLICAS,
            "pods": [
                {
                    "name": f"{'j' * 40}-{name}-{index}-a1",
                    "node": node_of(number * REPLICAS + index),
                    "gpuIndices": "0,3,2,1,5,6,7,4",
                }
                for index in range(REPLICAS)
            ],
        }
        for number, name in enumerate(names)
    ]


def large(replicas: int) -> dict[str, Any]:
    job = training_job("j" * 40, gpus=8, suspend=True, managedBy="example.com/somebody-else")
    role = job["spec"]["roles"][0]
    job["spec"]["roles"] = [{**role, "name": f"role-{number}-{'r' * 9}", "replicas": replicas} for number in range(MAX_ROLES)]
    return job


def test_the_largest_job_has_a_status_that_is_stored(cluster: ClusterSession, namespace: str) -> None:
    job = large(REPLICAS)
    where = (*PLACE, namespace, c.JOB_PLURAL)
    cluster.custom.create_namespaced_custom_object(*where, job)
    record = Record(1, State.RELEASED, "Released", "words", NOW, plan=plan())
    status = {"attempt": 1, "roles": roles(job), "scheduling": scheduling_record.encode(record)}
    applied = {"apiVersion": c.API_VERSION, "kind": c.JOB_KIND, "metadata": {"name": job["metadata"]["name"]}, "status": status}
    text = json.dumps(applied)
    print(f"{len(text) / 1e6:.2f} MB of status, {len(json.dumps(status['scheduling'])) / 1e6:.2f} MB of it the planner's")
    cluster.kubectl(
        "apply", "--server-side", "--subresource=status", "--field-manager=largest", "-n", namespace, "-f", "-", stdin=text
    )
    found = cluster.custom.get_namespaced_custom_object(*where, job["metadata"]["name"])["status"]
    assert found["roles"] == status["roles"]
    assert scheduling_record.decode(found["scheduling"]) == record


def test_a_larger_one_is_refused(cluster: ClusterSession, namespace: str) -> None:
    body = large(MAX_REPLICAS)
    body["metadata"]["namespace"] = namespace
    with pytest.raises(KubectlFailed, match="a job has at most 4096 pods, all roles together"):
        cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(body))
