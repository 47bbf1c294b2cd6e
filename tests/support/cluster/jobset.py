"""The JobSet controller of the Kubernetes project beside a cluster: its own program, CRD and webhooks, on loopback.

Its webhooks judge pods and JobSets of namespaces with the label NAMESPACE alone, so that no other test needs it.
"""

import base64
import shutil
from typing import Any, Final

import yaml

from kompakt_core import contract as c
from tools.kube import golang
from tools.kube.binaries import find
from tools.kube.components import Component, answers
from tools.kube.ports import free_ports
from tools.kube.session import ClusterSession, eventually

GROUP, VERSION, PLURAL = "jobset.x-k8s.io", "v1alpha2", "jobsets"
NAMESPACE: Final = {"jobset": "here"}
NAME: Final = "jobset"


def install(cluster: ClusterSession) -> None:
    """Start it; the CRD is served and the webhooks answer when this returns."""
    if NAME in cluster.components:
        return
    config = golang.sources("jobset", "sigs.k8s.io/jobset") / "config" / "components"
    (crd,) = (config / "crd" / "bases").glob("*.yaml")
    cluster.kubectl("apply", "--server-side", "-f", str(crd))
    webhooks, health = free_ports(2)
    cluster.start(_component(cluster, webhooks, health))
    for manifest in yaml.safe_load_all((config / "webhook" / "manifests.yaml").read_text()):
        _hook(cluster, manifest, webhooks)
    eventually(lambda: _judges(cluster), "JobSet's webhooks in force")


def _component(cluster: ClusterSession, webhooks: int, health: int) -> Component:
    folder = cluster.plane.folder / NAME
    folder.mkdir()
    signed = cluster.plane.keys.authority.server(NAME, NAME, ["127.0.0.1"])
    for name, path in {"tls.crt": signed.certificate, "tls.key": signed.key}.items():
        shutil.copy(path, folder / name)
    settings = {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"host": "127.0.0.1", "port": webhooks, "certDir": str(folder)},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    argv = (str(find("jobset")), f"--kubeconfig={cluster.kubeconfig}", f"--config={folder / 'config.yaml'}")
    return Component(NAME, argv, lambda: answers(f"http://127.0.0.1:{health}/readyz"))


def _hook(cluster: ClusterSession, manifest: dict[str, Any], port: int) -> None:
    """As JobSet's own manifests have it, but by an address instead of a Service."""
    authority = base64.b64encode(cluster.plane.keys.authority.certificate_file.read_bytes()).decode()
    for hook in manifest["webhooks"]:
        path = hook["clientConfig"].pop("service")["path"]
        hook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": authority}
        hook["namespaceSelector"] = {"matchLabels": NAMESPACE}
    manifest["metadata"]["name"] = f"jobset-{manifest['metadata']['name']}"
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump(manifest))


def _judges(cluster: ClusterSession) -> bool:
    """Whether a JobSet gets the defaults that only its webhook writes."""
    namespace = "default"
    cluster.core.patch_namespace(namespace, {"metadata": {"labels": NAMESPACE}})
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


def judge(cluster: ClusterSession, namespace: str) -> None:
    """Its webhooks judge this namespace too from now on."""
    cluster.core.patch_namespace(namespace, {"metadata": {"labels": NAMESPACE}})


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
