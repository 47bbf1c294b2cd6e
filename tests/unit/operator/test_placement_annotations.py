"""What a pod's annotations say of how its GPUs are to be chosen."""

from typing import Any

import pytest

from kompakt_core import contract as c
from kompakt_core.job.spec import parse_job
from kompakt_operator.placement_annotations import annotations_of

EDGES = [{"from": 0, "to": 1, "weight": 3}, {"from": 3, "to": 4}]


def written(role: int, index: int, *gpus: int, scope: str = "Gang", edges: Any = EDGES) -> tuple[str, str]:
    """Pattern and edges on one pod of a job whose roles have two pods each, of so many GPUs."""
    template = {"spec": {"containers": [{"name": "trainer", "image": "i"}]}}
    roles = [{"name": f"r{i}", "replicas": 2, "gpusPerReplica": count, "template": template} for i, count in enumerate(gpus)]
    communication = {"pattern": "Custom", "customEdges": {"scope": scope, "edges": edges}}
    job = parse_job(
        {"metadata": {"name": "j", "namespace": "ml", "uid": "u"}, "spec": {"roles": roles, "communication": communication}}
    )
    found = annotations_of(job, job.roles[role], index)
    return found[c.ANN_PATTERN], found.get(c.ANN_EDGES, "")


@pytest.mark.parametrize(
    ("role", "index", "gpus", "pattern", "edges"),
    [
        (0, 0, (2, 2), "Custom", "0-1:3"),
        (0, 1, (2, 2), "None", ""),
        (0, 1, (3,), "Custom", "0-1"),
        (1, 0, (1, 3), "Custom", "1-2"),
        (0, 0, (0, 3), "None", ""),
        (1, 1, (0, 3), "Custom", "0-1"),
    ],
)
def test_a_pod_carries_those_edges_of_its_gang_that_lie_inside_it(
    role: int, index: int, gpus: tuple[int, ...], pattern: str, edges: str
) -> None:
    assert written(role, index, *gpus) == (pattern, edges)


def test_edges_of_scope_pod_stand_on_every_pod() -> None:
    inside = [{"from": 1, "to": 0}]
    assert [written(0, index, 2, scope="Pod", edges=inside) for index in range(2)] == [("Custom", "0-1")] * 2


@pytest.mark.parametrize(("asked", "text"), [({"sameNUMANode": True}, "true"), ({"sameNUMANode": False}, None), ({}, None)])
def test_one_numa_node_stands_on_the_pods_of_a_job_that_demands_it(asked: dict[str, Any], text: str | None) -> None:
    roles = [{"name": "r", "gpusPerReplica": 2, "template": {"spec": {"containers": [{"name": "trainer", "image": "i"}]}}}]
    job = parse_job({"metadata": {"name": "j", "namespace": "ml", "uid": "u"}, "spec": {"roles": roles, "placement": asked}})
    assert annotations_of(job, job.roles[0], 0).get(c.ANN_SAME_NUMA) == text
