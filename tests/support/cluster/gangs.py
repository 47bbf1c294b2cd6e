"""Pods of gangs that no TrainingJob made."""

from typing import Any

from kompakt_core import contract as c
from tools.kube.session import ClusterSession

GANG = "pre-training"


def plain_pod(name: str, *, size: str | int = 1, label: str = GANG, **annotations: str) -> dict[str, Any]:
    """A pod of nobody's."""
    container = {"name": "main", "image": "simulated", "resources": {"limits": {c.RESOURCE: "2"}}}
    notes = {c.ANN_GANG_SIZE: str(size), **annotations}
    return {
        "metadata": {"name": name, "labels": {c.LABEL_GANG: label}, "annotations": notes},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }


def adds_a_gate(cluster: ClusterSession) -> bool:
    """Whether the API server gives pods of gangs our gate now: written or deleted, a policy of that counts some moments later."""
    return bool(cluster.core.create_namespaced_pod("default", plain_pod("p", size=2), dry_run="All").spec.scheduling_gates)
