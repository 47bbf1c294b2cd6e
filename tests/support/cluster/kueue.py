"""Kueue beside a cluster: quotas for Jobs and JobSets, which it suspends until they are admitted, and for TrainingJobs."""

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from kompakt_core import contract as c
from tests.support.cluster import controllers
from tools.kube.ports import free_ports
from tools.kube.session import ClusterSession, KubectlFailed, eventually

GROUP, VERSION = "kueue.x-k8s.io", "v1beta1"
NAME: Final = "kueue"
OWN_NAMESPACE: Final = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
OURS: Final = f"{c.JOB_KIND}.{c.VERSION}.{c.GROUP}"
QUEUE: Final = "training"
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
KINDS: Final = ("job", "jobset", "clusterqueue", "resourceflavor", "workload", "cohort", "localqueue")
WEBHOOKS: Final = frozenset(f"{letter}{kind}.kb.io" for letter in "mv" for kind in KINDS)


def install(cluster: ClusterSession, *frameworks: str) -> None:
    """Start it; its kinds are served and its webhooks answer when this returns. `frameworks`: whose jobs it suspends."""
    if NAME in cluster.components:
        return
    if subprocess.run([*OWN_NAMESPACE, "mount -t overlay overlay -o lowerdir=/tmp:/etc /etc"], check=False).returncode:
        pytest.skip("no user namespace of this machine may mount an overlay, which Kueue's certificates need here")
    config = controllers.manifests(NAME, "sigs.k8s.io/kueue")
    controllers.define(cluster, config, GROUP)
    webhooks, health = free_ports(2)
    settings = lambda folder: _settings(folder, webhooks, health, frameworks)  # noqa: E731
    component = controllers.component(cluster, NAME, settings, health, "--feature-gates=VisibilityOnDemand=false")
    cluster.start(replace(component, argv=_with_certificates(cluster.plane.folder / NAME, component.argv)))
    controllers.hook(cluster, NAME, config / "webhook" / "manifests.yaml", webhooks, WEBHOOKS)


def _settings(folder: Path, webhooks: int, health: int, frameworks: Sequence[str]) -> dict[str, Any]:
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta1",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": webhooks, "certDir": str(folder)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "integrations": {"frameworks": list(frameworks), "externalFrameworks": [OURS]},
        "fairSharing": {"enable": True},
    }


def _with_certificates(folder: Path, argv: tuple[str, ...]) -> tuple[str, ...]:
    """Those of its metrics it reads from a fixed place in /etc: in a namespace of its own /etc has them as well."""
    above = folder / "etc"
    shutil.copytree(folder, above / "kueue" / "metrics" / "certs", ignore=shutil.ignore_patterns("etc", "*.yaml"))
    mount = 'mount -t overlay overlay -o "lowerdir=$0:/etc" /etc && exec "$@"'
    return (*OWN_NAMESPACE, mount, str(above), *argv)


def queue(
    cluster: ClusterSession, namespace: str, gpus: int, flavor: dict[str, Any] | None = None, cohort: str = "", **spec: Any
) -> None:
    """A queue of that namespace with so many GPUs, and of all else as much as is asked for. `spec`: of the ClusterQueue;
    queues of a `cohort` have a flavor in common.
    """
    name, together = cohort or namespace, {"cohort": cohort} if cohort else {}
    quota = [
        {"name": name, "nominalQuota": amount} for name, amount in ((c.RESOURCE, str(gpus)), ("cpu", "1000"), ("memory", "1Ti"))
    ]
    group = {"coveredResources": [one["name"] for one in quota], "flavors": [{"name": name, "resources": quota}]}
    objects = [
        ("ResourceFlavor", {"name": name}, flavor or {}),
        ("ClusterQueue", {"name": namespace}, {"namespaceSelector": {}, "resourceGroups": [group], **together, **spec}),
        ("LocalQueue", {"name": QUEUE, "namespace": namespace}, {"clusterQueue": namespace}),
    ]
    made = [
        {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": metadata, "spec": spec} for kind, metadata, spec in objects
    ]
    controllers.judge(cluster, namespace)
    eventually(lambda: _applied(cluster, yaml.safe_dump_all(made)), "Kueue's webhooks take a queue")


def _applied(cluster: ClusterSession, text: str) -> bool:
    try:
        cluster.kubectl("apply", "--server-side", "-f", "-", stdin=text)
    except KubectlFailed:
        return False
    return True


def remove(cluster: ClusterSession, namespace: str) -> None:
    """What `queue` made outside of the namespace, but the flavor of a cohort."""
    for kind in ("clusterqueues", "resourceflavors"):
        cluster.kubectl("delete", f"{kind}.{GROUP}", namespace, "--ignore-not-found", "--wait=false")
