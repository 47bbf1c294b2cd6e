"""A cluster with real nodes: the control plane, the nodes and kwok, all inside one set of namespaces.

The folder of the cluster lies in the cache folder, since the nodes' image stores are hard links into it. It is gone,
like everything else, when the cluster is removed.
"""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kompakt_core.contract import LABEL_MACHINE
from tools.kube import cgroups, kwok, namespaces, node
from tools.kube.cache import cache_root
from tools.kube.command import output
from tools.kube.components import Addresses, Find, Keys, control_plane, make_keys
from tools.kube.control_plane import ControlPlane, await_service_account, start_groups
from tools.kube.namespaces import ADDRESS, Namespaces
from tools.kube.node import RealNode, Supplies
from tools.kube.node_config import ContainerRuntime
from tools.kube.pki import certificate_kubeconfig

Say = Callable[[str], None]

GRACE_SECONDS = 10  # without a sign of life; 3 s are enough on an idle machine, but call nodes lost on a busy one
# Renewed at a quarter of it. Were simulated nodes slower than the grace, they would count as lost, and the controller
# manager evicts nothing while most nodes are.
SIMULATED_LEASE_SECONDS = 4
# Lost nodes are noticed, and their pods given up, within seconds instead of minutes.
_MORE = {
    "kube-apiserver": (
        "--default-not-ready-toleration-seconds=5",
        "--default-unreachable-toleration-seconds=5",
        # The control plane has no kube-proxy: webhooks and the service proxy go straight to pods.
        "--enable-aggregator-routing=true",
    ),
    "kube-controller-manager": ("--node-monitor-period=1s", f"--node-monitor-grace-period={GRACE_SECONDS}s"),
}
KWOK_PORT = 10247


@dataclass(frozen=True, slots=True)
class RealCluster:
    """A running cluster; `kubeconfig` works from the host, by a forwarded loopback port."""

    name: str
    folder: Path
    spaces: Namespaces
    plane: ControlPlane
    nodes: tuple[RealNode, ...]

    @property
    def kubeconfig(self) -> Path:
        return kubeconfig_of(self.folder)


def cluster_folder(name: str) -> Path:
    return cache_root() / "clusters" / name


def kubeconfig_of(folder: Path) -> Path:
    return folder / "kubeconfig"


def start(name: str, find: Find, machines: Sequence[str], images: Path, pause: str, say: Say) -> RealCluster:
    """Bring up a control plane and one real node per entry of `machines` (the value of its machine label).

    `images` is a filled containerd root, `pause` the image in it that holds pods' namespaces. What a crashed run of that
    name left is removed first.

    Raises:
        StartFailed, RuntimeError: something did not start; the text holds the end of its log.
    """
    remove(name, say)
    folder = cluster_folder(name)
    folder.mkdir(parents=True, mode=0o700)
    began = time.monotonic()
    spaces = namespaces.open_namespaces(name, folder / "keeper.log")
    with namespaces.network_of(spaces):
        plane = _start_plane(folder, find, spaces)
        say(f"API server, controller manager and scheduler serve after {time.monotonic() - began:.1f} s")
        nodes = tuple(RealNode(index, folder, {LABEL_MACHINE: machine}) for index, machine in enumerate(machines, start=1))
        _route_pods(spaces, nodes)
        supplies = Supplies(find, plane.addresses, plane.keys, images, pause)
        for one in nodes:
            node.prepare(one, nodes, spaces, supplies)
            node.start(one, spaces)
        await_service_account(plane)
        plane.start_component(kwok.component(find, plane.kubeconfig, folder, KWOK_PORT, lease_seconds=SIMULATED_LEASE_SECONDS))
    _write_kubeconfig(folder, plane.keys, namespaces.forward(spaces, plane.addresses.api, folder / "forward.log"))
    say(f"{len(nodes)} nodes started after {time.monotonic() - began:.1f} s")
    return RealCluster(name, folder, spaces, plane, nodes)


def remove(name: str, say: Say) -> bool:
    """End every process of the cluster and delete its cgroups and files; True if there was anything of it."""
    there = bool(cgroups.processes(namespaces.cgroup_of(name)))
    if there:
        say(f"removing cluster {name}")
    namespaces.close_namespaces(name)
    folder = cluster_folder(name)
    existed = folder.exists()
    shutil.rmtree(folder, ignore_errors=True)
    if folder.parent.exists() and not any(folder.parent.iterdir()):
        folder.parent.rmdir()
    return there or existed


def _start_plane(folder: Path, find: Find, spaces: Namespaces) -> ControlPlane:
    addresses = Addresses(api_host=ADDRESS, api_bind="0.0.0.0")
    plane = ControlPlane(folder, addresses, make_keys(folder / "pki", addresses), spaces.launch)
    for group in start_groups(control_plane(find, addresses, plane.keys, folder, more=_MORE)):
        for component in group:
            plane.begin_component(component)
        for component in group:
            plane.await_component(component)
    return plane


def _route_pods(spaces: Namespaces, nodes: Sequence[RealNode]) -> None:
    for one in nodes:
        output(spaces.in_network(["ip", "route", "add", one.pods, "via", one.address]))


def _write_kubeconfig(folder: Path, keys: Keys, port: int) -> None:
    admin = keys.authority.client("admin-outside", "kubernetes-admin", "system:masters")
    certificate_kubeconfig(kubeconfig_of(folder), f"https://127.0.0.1:{port}", keys.authority.certificate_file, admin)
    (folder / "up.json").write_text(json.dumps({"port": port}))


def add_node(
    cluster: RealCluster,
    machine: str,
    find: Find,
    images: Path,
    pause: str,
    runtime: ContainerRuntime = node.HOSTS,
    disk_mib: int = 0,
) -> RealNode:
    """One more node for a running cluster; the others reach its pods by way of the control plane. Raises as `start` does.

    Without a `machine` it says nothing of the machine that it plays. `disk_mib`: the size of a disk of its own for kubelet.
    """
    one = RealNode(len(cluster.nodes) + 1, cluster.folder, {LABEL_MACHINE: machine} if machine else {}, disk_mib)
    _route_pods(cluster.spaces, [one])
    supplies = Supplies(find, cluster.plane.addresses, cluster.plane.keys, images, pause, runtime)
    node.prepare(one, cluster.nodes, cluster.spaces, supplies)
    node.start(one, cluster.spaces)
    return one


def remove_node(cluster: RealCluster, one: RealNode) -> None:
    """End an added node and delete its files; its Node object is for the caller to delete."""
    node.kill(one, cluster.spaces)
    cgroups.remove(one.cgroup(cluster.name))
    output(cluster.spaces.in_network(["ip", "route", "del", one.pods]))
    shutil.rmtree(one.home, ignore_errors=True)
