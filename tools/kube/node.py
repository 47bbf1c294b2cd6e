"""One real node: containerd, kubelet and kube-proxy in namespaces of their own, nested in the cluster's."""

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools.kube import cgroups, node_config
from tools.kube.components import Addresses, Find, Keys
from tools.kube.image_store import clone
from tools.kube.namespaces import ADDRESS, Namespaces, cgroup_of, plug
from tools.kube.node_config import ContainerRuntime
from tools.kube.processes import wait_until

HOSTS: Final = ContainerRuntime()
_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Supplies:
    """What nodes of a cluster are made from: `images` is a filled containerd root, `pause` an image in it."""

    find: Find
    addresses: Addresses
    keys: Keys
    images: Path
    pause: str
    runtime: ContainerRuntime = HOSTS


@dataclass(frozen=True, slots=True)
class RealNode:
    """A node of the cluster: its number gives name, address and the range of its pods' addresses."""

    index: int
    folder: Path  # of the cluster
    labels: Mapping[str, str] = field(default_factory=dict)
    disk_mib: int = 0  # size of a file system of its own for kubelet's folder; 0: it shares the host's

    @property
    def name(self) -> str:
        return f"node-{self.index}"

    @property
    def address(self) -> str:
        return f"10.199.0.{10 + self.index}"

    @property
    def pods(self) -> str:
        return f"10.244.{self.index}.0/24"

    @property
    def home(self) -> Path:
        """The node's own files: its /var/lib, /var/log and configuration."""
        return self.folder / self.name

    def cgroup(self, cluster: str) -> str:
        return f"{cgroup_of(cluster)}/{self.name}"


def prepare(node: RealNode, nodes: Sequence[RealNode], spaces: Namespaces, supplies: Supplies) -> None:
    """Write all files of the node: configuration, certificates, and a containerd root that holds the images."""
    for name in ("lib", "log", "etc"):
        (node.home / name).mkdir(parents=True)
    clone(supplies.images, node.home / "lib/containerd")
    spec = {
        "folder": str(node.home),
        "name": node.name,
        "address": node.address,
        "gateway": ADDRESS,
        "routes": {other.pods: other.address for other in nodes if other != node},
        "groups": [str(path) for path in cgroups.procs_files(node.cgroup(spaces.name))],
        "controllers": list(cgroups.CONTROLLERS),
        "disk_mib": node.disk_mib,
        "programs": _programs(node, supplies),
    }
    (node.home / "spec.json").write_text(json.dumps(spec, indent=1))


def _programs(node: RealNode, supplies: Supplies) -> dict[str, list[str]]:
    folder = node.home / "etc"
    node_config.pod_network(folder, node.pods)
    identity = node_config.Identity(node.name, node.address, node.labels, own_disk=bool(node.disk_mib))
    return {
        "containerd": node_config.containerd(folder, supplies.pause, supplies.runtime),
        "kubelet": node_config.kubelet(folder, identity, supplies.find, supplies.keys, supplies.addresses),
        "kube-proxy": node_config.kube_proxy(folder, identity, supplies.find, supplies.keys, supplies.addresses),
    }


def start(node: RealNode, spaces: Namespaces) -> None:
    """Start a prepared node, or one that was killed (as after a reboot: its disk is kept).

    Raises:
        RuntimeError: its first process did not start; the end of its log says why.
    """
    # Groups left by a killed node cost its kubelet 25 s at the start (three seconds for each dead container).
    cgroups.remove(node.cgroup(spaces.name))
    cgroups.create(node.cgroup(spaces.name), weight=2)  # the API server, one process beside it, must not starve
    log = node.home / "node.log"
    spaces.launch([sys.executable, str(_HERE / "node_init.py"), "enter", str(node.home / "spec.json")], log)
    if not wait_until(lambda: first_process(node, spaces) is not None, 10):
        raise RuntimeError(f"{node.name} did not start: {log.read_text()[-500:]}")
    pid = first_process(node, spaces)
    assert pid is not None
    plug(spaces, f"kp{node.index}", pid)


def kill(node: RealNode, spaces: Namespaces) -> None:
    """The machine is gone at once: every process of the node, its mounts and its network."""
    pid = first_process(node, spaces)
    if pid is not None:
        os.kill(pid, signal.SIGKILL)
    cgroups.kill(node.cgroup(spaces.name))


def first_process(node: RealNode, spaces: Namespaces) -> int | None:
    """Host pid of the node's process 1; None while it does not run."""
    for pid in cgroups.processes(node.cgroup(spaces.name)):
        if _pids_inside(pid)[-1:] == ["1"] and any(script in command_line(pid) for script in (b"node_init.py", b"reaper.py")):
            return pid
    return None


def inside(node: RealNode, spaces: Namespaces, argv: Sequence[str]) -> list[str]:
    """The command that runs `argv` in all namespaces of the node."""
    return ["nsenter", f"--target={first_process(node, spaces)}", "-a", "--", *argv]


def _pids_inside(pid: int) -> list[str]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return next((line.split()[1:] for line in lines if line.startswith("NSpid:")), [])


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
