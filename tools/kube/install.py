"""kompakt in a cluster with real nodes: the chart as users install it, and the stand-in plugin for simulated nodes."""

from collections.abc import Mapping
from pathlib import Path

from kompakt_core.contract import RESOURCE
from tools.kube import binaries, namespaces, stack
from tools.kube.command import output
from tools.kube.elsewhere import Elsewhere
from tools.kube.images import PACKAGES, ROOT
from tools.kube.kubectl import Kubectl, await_state
from tools.kube.parts import NAMESPACE, RELEASE, Parts
from tools.kube.real import RealCluster
from tools.kube.stack import Images

CHART = ROOT / "charts/kompakt"
# The stand-in for the device plugins of simulated nodes works with the administrator's account.
WRITERS = {"admission.writers": "{kubernetes-admin}"}


def helm_install(
    cluster: RealCluster | Elsewhere,
    images: Images,
    values: Mapping[str, str] | None = None,
    chart: Path = CHART,
    seconds: int = 120,
) -> None:
    """Install the chart with our images, or upgrade to it, and wait until its pods are ready.

    Raises:
        CommandFailed: Helm refused, or something did not become ready in time.
    """
    ours, _, tag = images.names[f"kompakt-{PACKAGES[0]}"].rpartition(":")
    settings = {
        "image.registry": ours.rpartition("/")[0],
        "image.tag": tag,
        "schedulerImage": images.names.get("kube-scheduler", ""),  # "": the chart's own choice
        **{f"devicePlugin.machines.{machine}": machine for machine in stack.MACHINES},
        **(WRITERS if isinstance(cluster, RealCluster) else {}),
        **(values or {}),
    }
    output(
        [
            *(binaries.find("helm"), "upgrade", "--install", RELEASE, chart, "--take-ownership"),
            *(f"--kubeconfig={cluster.kubeconfig}", f"--namespace={NAMESPACE}", "--create-namespace"),
            *(f"--set-string={name}={value}" for name, value in settings.items()),
            *("--wait", f"--timeout={seconds}s"),
        ]
    )


def helm_uninstall(cluster: RealCluster | Elsewhere) -> None:
    """Remove the release; nothing happens where there is none. Raises CommandFailed."""
    where = (f"--kubeconfig={cluster.kubeconfig}", f"--namespace={NAMESPACE}")
    output([binaries.find("helm"), "uninstall", RELEASE, *where, "--ignore-not-found", "--wait", "--timeout=120s"])


def start_simulated_plugins(cluster: RealCluster) -> None:
    """Start what plays the device plugin on simulated nodes, inside the cluster's namespaces."""
    with namespaces.network_of(cluster.spaces):
        cluster.plane.start_component(Parts(cluster.plane, binaries.find).simulated_plugins())


def await_gpus(kubectl: Kubectl, nodes: Mapping[str, int], seconds: float = 60) -> None:
    """Wait until each node offers that many GPUs and its GPUTopology shows them.

    Raises:
        TimeoutError: they did not come.
    """
    await_state(
        lambda: all(_offered(kubectl, node) == count for node, count in nodes.items()), f"GPUs of {', '.join(nodes)}", seconds
    )


def _offered(kubectl: Kubectl, node: str) -> int:
    offered = int(kubectl.get("node", node)["status"]["allocatable"].get(RESOURCE, "0"))
    return min(offered, len(kubectl.get("gputopology", node)["spec"]["gpus"]))
