"""The chart as Helm renders it. A setting is PATH=JSON, as of `helm --set-json`."""

import functools
import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tools.kube import binaries

CHART = Path(__file__).resolve().parents[2] / "charts" / "kompakt"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
KUEUE = "kueue.x-k8s.io/v1beta1/Workload"
CLAIMS = "resource.k8s.io/v1/ResourceClaim"
NODE_REQUESTS = "autoscaling.x-k8s.io/v1/ProvisioningRequest"
Object = dict[str, Any]
Objects = dict[tuple[str, str], Object]
WORKLOADS = {
    "operator": ("Deployment", "kompakt-operator"),
    "scheduler": ("Deployment", "kompakt-scheduler"),
    "devicePlugin": ("DaemonSet", "kompakt-device-plugin"),
}


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(binaries.find("helm")), *arguments], capture_output=True, text=True, check=False)


def templated(
    *settings: str, version: str = "v1.37.1", apis: str = f"{KUEUE},{CLAIMS},{NODE_REQUESTS}"
) -> subprocess.CompletedProcess[str]:
    """`apis`: what the cluster serves beside Kubernetes' own kinds."""
    told = (f"--set-json={setting}" for setting in ('image.registry="localhost"', *settings))
    return helm(
        "template",
        "kompakt",
        str(CHART),
        "--namespace=kompakt-system",
        f"--kube-version={version}",
        f"--api-versions={apis}",
        *told,
    )


@functools.cache
def rendered(*settings: str, version: str = "v1.37.1") -> str:
    """The chart's objects as text."""
    done = templated(*settings, version=version)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refusal(*settings: str, version: str = "v1.37.1") -> str:
    """Helm's complaint."""
    done = templated(*settings, version=version)
    assert done.returncode != 0, done.stdout
    return done.stderr


def objects(*settings: str, version: str = "v1.37.1") -> Objects:
    """The same by kind and name."""
    documents = [found for found in yaml.load_all(rendered(*settings, version=version), Loader=LOADER) if found]
    by_name = {(found["kind"], found["metadata"]["name"]): found for found in documents}
    assert len(by_name) == len(documents), "two objects of one kind and name"
    return by_name


def of_kind(found: Objects, *kinds: str) -> dict[str, Object]:
    """By name."""
    return {name: one for (kind, name), one in found.items() if kind in kinds}


def json_of(path: str, value: object) -> str:
    return f"{path}={json.dumps(value)}"


def template(found: Objects, part: str) -> Object:
    return dict(found[WORKLOADS[part]]["spec"]["template"])


def container(found: Objects, part: str, name: str) -> Object:
    (only,) = [one for one in template(found, part)["spec"]["containers"] if one["name"] == name]
    return dict(only)


def arguments(part: str, name: str, *settings: str) -> list[str]:
    """What a program of the chart is told, as kubelet hands it over."""
    fields = {"$(NODE_NAME)": "node-1", "$(POD_NAMESPACE)": "here", "$(POD_NAME)": "me"}
    told: list[str] = container(objects(*settings), part, name)["args"]
    return [functools.reduce(lambda text, field: text.replace(*field), fields.items(), one) for one in told]
