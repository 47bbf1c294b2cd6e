"""The namespaces that hold one whole cluster: mounts, network, processes, host name.

One keeper process holds them; when it dies, the kernel ends everything inside, mounts and networks included. Nothing
of the host's network is touched: the control plane and the nodes talk over a bridge inside.
"""

import ctypes
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.kube import cgroups
from tools.kube.command import Words, output
from tools.kube.processes import Process, launch_detached, wait_until

BRIDGE = "kpbr0"
ADDRESS = "10.199.0.1"  # of the control plane, on the bridge
# A bridge takes the lowest address of its ports unless it has one of its own; each new port would then leave the other
# nodes with a stale ARP entry for half a minute.
_BRIDGE_MAC = "02:00:0a:c7:00:01"
_CLONE_NEWNET = 0x40000000  # linux/sched.h
_HERE = Path(__file__).parent
# Enters the groups whose files are named before "--", then becomes the command behind it.
_JOIN = 'while [ "$1" != -- ]; do echo 0 > "$1" || exit 1; shift; done; shift; exec "$@"'


@dataclass(frozen=True, slots=True)
class Namespaces:
    """The running namespaces of one cluster: `keeper` started them, `init` is their process 1 (both host pids)."""

    name: str
    keeper: Process
    init: int

    def inside(self, argv: Words) -> list[str]:
        """The command that runs `argv` in all of the cluster's namespaces."""
        return ["nsenter", f"--target={self.init}", "-m", "-n", "-p", "-u", "-i", "--", *map(str, argv)]

    def in_network(self, argv: Words) -> list[str]:
        """The command that runs `argv` in the cluster's network only, with the host's pids."""
        return ["nsenter", f"--target={self.init}", "-n", "--", *map(str, argv)]

    def launch(self, argv: Sequence[str], log: Path, pass_fds: Sequence[int] = ()) -> Process:
        """Start a program inside, in this process' folder and the cluster's cgroup; it ends with the namespaces at the latest.

        Entering namespaces does not enter a cgroup: a control plane left in the host's would be one process against
        all nodes together, and starve while pods compute.
        """
        # Entering a mount namespace leads to its root folder.
        command = self.inside(["env", f"--chdir={Path.cwd()}", *argv])
        files = cgroups.procs_files(cgroup_of(self.name))
        return launch_detached(["sh", "-c", _JOIN, "join", *map(str, files), "--", *command], log, pass_fds=pass_fds)


def cgroup_of(name: str) -> str:
    """The cgroup that holds every process of the cluster."""
    return f"kompakt-{name}"


def open_namespaces(name: str, log: Path) -> Namespaces:
    """Start the keeper of a new cluster and lay its network.

    Raises:
        RuntimeError: the keeper ended at once (the end of its log says why).
    """
    group = cgroup_of(name)
    cgroups.create(group, weight=16)  # or a cluster of fifty processes would get a fiftieth of its due beside other work
    command: Words = [
        "unshare",
        "-m",
        "-n",
        "-p",
        "-u",
        "-i",
        "--fork",
        "--kill-child",
        "--mount-proc",
        sys.executable,
        _HERE / "reaper.py",
    ]
    keeper = launch_detached(["sh", "-c", _JOIN, "keeper", *map(str, [*cgroups.procs_files(group), "--", *command])], log)
    if not wait_until(lambda: bool(_children(keeper.pid)) or not keeper.alive(), 10) or not keeper.alive():
        raise RuntimeError(f"the keeper of the cluster's namespaces ended at once: {log.read_text()[-500:]}")
    spaces = Namespaces(name, keeper, _children(keeper.pid)[0])
    wait_until(lambda: Path(f"/proc/{spaces.init}/cmdline").read_bytes().find(b"reaper.py") > 0, 10)
    _lay_network(spaces)
    return spaces


def close_namespaces(name: str) -> None:
    """End all processes of the cluster and remove its cgroups; also after a crash of whoever started it."""
    cgroups.kill(cgroup_of(name))
    cgroups.remove(cgroup_of(name))


def plug(spaces: Namespaces, port: str, pid: int) -> None:
    """Join the network of process `pid` (a host pid) to the bridge, as its interface eth0."""
    output(spaces.in_network(["ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(pid)]))
    output(spaces.in_network(["ip", "link", "set", port, "master", BRIDGE, "up"]))


@contextmanager
def network_of(spaces: Namespaces) -> Iterator[None]:
    """Let the calling thread, and what it starts, talk inside the cluster's network until the block ends.

    Raises:
        OSError: the kernel refuses (not root, or the cluster has ended).
    """
    with open("/proc/thread-self/ns/net") as before, open(f"/proc/{spaces.init}/ns/net") as inside:
        _set_network(inside.fileno())
        try:
            yield
        finally:
            _set_network(before.fileno())


def forward(spaces: Namespaces, port: int, log: Path) -> int:
    """Forward a free loopback port of the host to `port` of the control plane; answers the host's port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = [sys.executable, str(_HERE / "forward.py"), str(listener.fileno()), ADDRESS, str(port)]
        spaces.launch(command, log, pass_fds=[listener.fileno()])
        return int(listener.getsockname()[1])


def _set_network(descriptor: int) -> None:
    # os.setns exists only from Python 3.12 on.
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot enter a network namespace: {os.strerror(number)}")


def _lay_network(spaces: Namespaces) -> None:
    for command in (
        "mount -t tmpfs -o mode=755 tmpfs /run",
        f"hostname kompakt-{spaces.name}",
        "ip link set lo up",
        f"ip link add {BRIDGE} address {_BRIDGE_MAC} type bridge",
        f"ip addr add {ADDRESS}/24 dev {BRIDGE}",
        f"ip link set {BRIDGE} up",
    ):
        output(spaces.inside(command.split()))
    for name, value in (("ipv4/ip_forward", "1"), ("bridge/bridge-nf-call-iptables", "0")):
        output(spaces.inside(["sh", "-c", f"echo {value} > /proc/sys/net/{name}"]))


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
