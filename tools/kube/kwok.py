"""Simulated nodes: kwok plays their kubelets by the stages in stages/*.yaml.

What a simulated pod does is written in its annotations (see stages/pod-end.yaml):
`simulate.kompakt.dev/seconds` how long it runs after it is Running (absent: until it is deleted),
`simulate.kompakt.dev/exit-code` what it ends with (absent: 0), `simulate.kompakt.dev/message` its termination message,
`simulate.kompakt.dev/leaving-seconds` how long it needs to stop once it is deleted (absent: no time),
`simulate.kompakt.dev/never-starts` that it stays Pending where it is bound.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kompakt_client.errors import Conflict
from kompakt_client.transport import ApiClient
from kompakt_core.contract import LABEL_MACHINE, RESOURCE
from tools.kube.components import Component, Find, answers

STAGES = Path(__file__).parent / "stages"
NODE_ANNOTATION = "kwok.x-k8s.io/node"
SECONDS_ANNOTATION = "simulate.kompakt.dev/seconds"
EXIT_CODE_ANNOTATION = "simulate.kompakt.dev/exit-code"
LEAVING_ANNOTATION = "simulate.kompakt.dev/leaving-seconds"
NEVER_STARTS_ANNOTATION = "simulate.kompakt.dev/never-starts"
MESSAGE_ANNOTATION = "simulate.kompakt.dev/message"
# Renewed at a quarter of it; the controller manager calls a node lost after 50 s without a renewal.
LEASE_SECONDS = 40


def component(
    find: Find, kubeconfig: Path, folder: Path, port: int, *, cidr: str = "10.245.0.0/16", lease_seconds: int = LEASE_SECONDS
) -> Component:
    """The one kwok process of a cluster; it touches only nodes with our annotation."""
    stages = folder / "stages.yaml"
    stages.write_text("\n---\n".join(path.read_text() for path in sorted(STAGES.glob("*.yaml"))))
    argv = (
        str(find("kwok")),
        f"--config={stages}",
        f"--kubeconfig={kubeconfig}",
        f"--manage-nodes-with-annotation-selector={NODE_ANNOTATION}=fake",
        f"--node-lease-duration-seconds={lease_seconds}",
        "--node-ip=127.0.0.1",
        f"--cidr={cidr}",
        f"--server-address=127.0.0.1:{port}",
    )
    return Component("kwok", argv, lambda: answers(f"http://127.0.0.1:{port}/healthz"))


def node(name: str, gpus: int, machine: str, labels: dict[str, str] | None = None, *, tainted: bool = False) -> dict[str, Any]:
    """A simulated Node with that many GPUs of the machine its label names.

    `tainted` keeps ordinary pods away, for clusters that have real nodes as well.
    """
    amount = {"cpu": "64", "memory": "512Gi", "pods": "110", RESOURCE: str(gpus)}
    own = {"type": "kwok", "kubernetes.io/os": "linux", "kubernetes.io/hostname": name, LABEL_MACHINE: machine}
    taints = [{"key": NODE_ANNOTATION, "value": "fake", "effect": "NoSchedule"}] if tainted else []
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": {NODE_ANNOTATION: "fake"}, "labels": {**own, **(labels or {})}},
        "spec": {"taints": taints},
        "status": {"allocatable": amount, "capacity": amount},
    }


def add_nodes(api: ApiClient, nodes: Iterable[dict[str, Any]]) -> None:
    """Create Nodes; one of the same name that is there already stays as it is."""
    for document in nodes:
        try:
            api.create("/api/v1/nodes", document)
        except Conflict:
            continue
