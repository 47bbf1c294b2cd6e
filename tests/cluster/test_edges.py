"""Edges between the GPUs of several pods, placed by the real kube-scheduler with our extender."""

from typing import Any

from kompakt_core import contract as c
from kompakt_core.topology.wire import graph_from_spec
from tools.kube.jobs import apply, training_job
from tools.kube.session import ClusterSession, eventually


def test_pods_that_talk_share_a_machine_and_its_fastest_links(kompakt: ClusterSession, namespace: str) -> None:
    """Four pods of three GPUs on two DGX-1: the first and the third exchange most, and so do the second and the fourth."""
    edges = [{"from": 0, "to": 6, "weight": 3}, {"from": 3, "to": 9, "weight": 3}, {"from": 0, "to": 3}]
    document = training_job("talk", replicas=4, gpus=3, seconds=None)
    document["spec"]["communication"] = {"pattern": "Custom", "customEdges": {"scope": "Gang", "edges": edges}}
    document["spec"]["roles"][0]["template"]["spec"]["nodeSelector"] = {c.LABEL_MACHINE: "dgx1-v100"}
    job = apply(kompakt, namespace, document)
    job.await_phase("Running")
    pods = sorted(job.pods(), key=lambda pod: str(pod.metadata.name))
    nodes = [pod.spec.node_name for pod in pods]
    assert nodes[0] == nodes[2] != nodes[1] == nodes[3]
    assert [pod.metadata.annotations[c.ANN_RANK] for pod in pods] == ["0", "1", "2", "3"]
    for a, b in ((0, 2), (1, 3)):
        spec: dict[str, Any] = kompakt.custom.get_cluster_custom_object(c.GROUP, c.VERSION, c.TOPOLOGY_PLURAL, nodes[a])["spec"]
        weights = graph_from_spec(spec).weights
        first, second = (int(pods[one].metadata.annotations[c.ANN_GPU_INDICES].split(",")[0]) for one in (a, b))
        assert weights[first][second] == max(max(row) for row in weights)
        assert job.status["scheduling"]["plan"]["value"] == weights[first][second] // 3
    job.delete()
    eventually(lambda: not job.pods(), "the deleted job's pods are gone")
