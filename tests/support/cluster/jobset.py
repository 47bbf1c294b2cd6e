"""The JobSet controller of the Kubernetes project beside a cluster."""

from pathlib import Path
from typing import Any, Final

from kompakt_core import contract as c
from tests.support.cluster import controllers
from tools.kube.ports import free_ports
from tools.kube.session import ClusterSession, eventually

GROUP, VERSION, PLURAL = "jobset.x-k8s.io", "v1alpha2", "jobsets"
NAME: Final = "jobset"


def install(cluster: ClusterSession) -> None:
    """Start it; the CRD is served and the webhooks answer when this returns."""
    if NAME in cluster.components:
        return
    config = controllers.manifests(NAME, "sigs.k8s.io/jobset")
    controllers.define(cluster, config, GROUP)
    webhooks, health = free_ports(2)
    cluster.start(controllers.component(cluster, NAME, lambda folder: _settings(folder, webhooks, health), health))
    controllers.hook(cluster, NAME, config / "webhook" / "manifests.yaml", webhooks)
    judge(cluster, "default")


def _settings(folder: Path, webhooks: int, health: int) -> dict[str, Any]:
    return {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"host": "127.0.0.1", "port": webhooks, "certDir": str(folder)},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
    }


def judge(cluster: ClusterSession, namespace: str) -> None:
    """Its webhooks judge this namespace too when this returns: the API server hears of a namespace's labels a little later than
    they are written. The controller makes no Jobs of a JobSet without the defaults of its webhook.
    """
    controllers.judge(cluster, namespace)
    eventually(lambda: _judges(cluster, namespace), f"JobSet's webhooks in force in {namespace}")


def _judges(cluster: ClusterSession, namespace: str) -> bool:
    """Whether a JobSet gets the defaults that only its webhook writes."""
    made = cluster.custom.create_namespaced_custom_object(
        GROUP, VERSION, namespace, PLURAL, jobset("probe", 1, 1, 0), dry_run="All"
    )
    return bool(made["spec"]["replicatedJobs"][0]["template"]["spec"].get("completionMode"))


def jobset(name: str, jobs: int, pods: int, gpus: int, **spec: Any) -> dict[str, Any]:
    """A JobSet of so many Jobs of so many pods each, all of one gang of that name."""
    limits = {c.RESOURCE: str(gpus)} if gpus else {}
    template = {
        "metadata": {"labels": {c.LABEL_GANG: name}, "annotations": {c.ANN_GANG_SIZE: str(jobs * pods), c.ANN_PATTERN: "Ring"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "simulated", "resources": {"limits": limits}}],
        },
    }
    job = {"spec": {"completions": pods, "parallelism": pods, "backoffLimit": 0, "template": template}}
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": [{"name": "workers", "replicas": jobs, "template": job}], **spec},
    }


def create(cluster: ClusterSession, namespace: str, made: dict[str, Any]) -> None:
    judge(cluster, namespace)
    cluster.custom.create_namespaced_custom_object(GROUP, VERSION, namespace, PLURAL, made)


def delete_all(cluster: ClusterSession, namespace: str) -> None:
    """All of a namespace, if there is such a kind at all."""
    if NAME in cluster.components:
        cluster.custom.delete_collection_namespaced_custom_object(GROUP, VERSION, namespace, PLURAL)


def restarts(cluster: ClusterSession, namespace: str, name: str) -> int:
    """How often the controller has made all Jobs anew."""
    found = cluster.custom.get_namespaced_custom_object(GROUP, VERSION, namespace, PLURAL, name)
    return int(found.get("status", {}).get("restarts", 0))
