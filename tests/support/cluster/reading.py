"""What cluster tests read of jobs and their pods."""

from datetime import datetime
from typing import Any

from kompakt_core import contract as c
from tools.kube.jobs import JobManifest
from tools.kube.session import ClusterSession, eventually


def scheduling(job: JobManifest) -> dict[str, Any]:
    found: dict[str, Any] = job.status.get("scheduling", {})
    return found


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def written(pod: Any, name: str = c.ANN_GPUS) -> list[str]:
    """The entries of an annotation; none where it is not there."""
    return [entry for entry in (pod.metadata.annotations or {}).get(name, "").split(",") if entry]


def gpus_of(job: JobManifest) -> set[str]:
    """The GPUs written on its bound pods."""
    return {uuid for pod in job.bound() for uuid in written(pod)}


def nodes_of(job: JobManifest) -> set[str]:
    return {pod.spec.node_name for pod in job.bound()}


def topologies(cluster: ClusterSession) -> dict[str, Any]:
    found = cluster.custom.list_cluster_custom_object(c.GROUP, c.VERSION, c.TOPOLOGY_PLURAL)["items"]
    return {item["metadata"]["name"]: item for item in found}


def held(cluster: ClusterSession) -> dict[str, set[str]]:
    """Pod name -> GPUs that the nodes' plugins report as held."""
    pods: dict[str, set[str]] = {}
    for topology in topologies(cluster).values():
        for entry in topology.get("status", {}).get("held", ()):
            pods.setdefault(entry["pod"], set()).add(entry["uuid"])
    return pods


def await_reason(job: JobManifest, reason: str, kind: str = "Stalled") -> str:
    """The message of the condition, once it has this reason."""
    eventually(lambda: job.condition(kind).get("reason") == reason, f"{kind} of {job.name} for {reason}")
    return str(job.condition(kind)["message"])
