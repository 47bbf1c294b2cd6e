"""Controllers of other projects beside a cluster: their own programs, CRDs and webhooks, on loopback.

Webhooks judge objects of namespaces with the label NAMESPACE alone, so that no other test needs them.
"""

import base64
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final

import yaml

from tools.kube import golang
from tools.kube.binaries import find
from tools.kube.components import Component, answers
from tools.kube.session import ClusterSession, eventually

NAMESPACE: Final = {"controllers-of-others": "here"}


def manifests(name: str, module: str) -> Path:
    """The folder of its manifests, as its Go module has them."""
    return golang.sources(name, module) / "config" / "components"


def define(cluster: ClusterSession, config: Path, group: str) -> None:
    """Its CRDs; the API server serves all of them when this returns."""
    folder = config / "crd" / "bases"
    cluster.kubectl("apply", "--server-side", "-f", str(folder))
    defined = [yaml.safe_load(path.read_text())["spec"]["names"]["plural"] for path in folder.glob("*.yaml")]
    eventually(lambda: set(defined) <= _served(cluster, group), f"the kinds of {group} served")


def _served(cluster: ClusterSession, group: str) -> set[str]:
    found = cluster.kubectl("api-resources", f"--api-group={group}", "--no-headers", "--cached=false")
    return {line.split()[0] for line in found.splitlines()}


def judge(cluster: ClusterSession, namespace: str) -> None:
    """Their webhooks judge this namespace too from now on."""
    cluster.core.patch_namespace(namespace, {"metadata": {"labels": NAMESPACE}})


def component(
    cluster: ClusterSession, name: str, settings: Callable[[Path], dict[str, Any]], health: int, *more: str
) -> Component:
    """The program with a configuration file; `settings` is told the folder with the certificate of its webhooks."""
    folder = cluster.plane.folder / name
    folder.mkdir()
    signed = cluster.plane.keys.authority.server(name, name, ["127.0.0.1"])
    for file, path in {"tls.crt": signed.certificate, "tls.key": signed.key}.items():
        shutil.copy(path, folder / file)
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(settings(folder)))
    argv = (str(find(name)), f"--kubeconfig={cluster.kubeconfig}", f"--config={config}", *more)
    return Component(name, argv, lambda: answers(f"http://127.0.0.1:{health}/readyz"))


def hook(cluster: ClusterSession, name: str, path: Path, port: int, wanted: Collection[str] = ()) -> None:
    """Its webhooks as its manifests have them, but by an address instead of a Service. `wanted`: their names; default: all."""
    authority = base64.b64encode(cluster.plane.keys.authority.certificate_file.read_bytes()).decode()
    for manifest in yaml.safe_load_all(path.read_text()):
        manifest["webhooks"] = [one for one in manifest["webhooks"] if not wanted or one["name"] in wanted]
        for one in manifest["webhooks"]:
            where = one["clientConfig"].pop("service")["path"]
            one["clientConfig"] = {"url": f"https://127.0.0.1:{port}{where}", "caBundle": authority}
            one["namespaceSelector"] = {"matchLabels": NAMESPACE}
        manifest["metadata"]["name"] = f"{name}-{manifest['metadata']['name']}"
        cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump(manifest))
