"""Process 1 of a real node: private mounts, network, container runtime, kubelet, kube-proxy. By path, stdlib only.

usage: node_init.py enter SPEC     joins the node's cgroups and starts the namespaces
       node_init.py init SPEC      process 1 inside them
SPEC is the JSON file that `node.py` writes: folder, name, address, gateway, pods (CIDR), routes, groups (files of the
cgroups), controllers, programs (argument lists by name), disk_mib (size of a file system for kubelet's folder; 0: none).
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

# What kubelet wants of the kernel as a whole. It reads the files and writes only what differs; bound over the true ones
# they keep it from changing the host.
_SYSCTLS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True)


def enter(spec: dict[str, Any], path: str) -> None:
    for group in spec["groups"]:
        Path(group).write_text("0")
    flags = ["-m", "-n", "-p", "-u", "-i", "-C", "--fork", "--kill-child"]
    os.execvp("unshare", ["unshare", *flags, sys.executable, __file__, "init", path])


def init(spec: dict[str, Any]) -> None:
    folder = Path(spec["folder"])
    _run("mount", "--make-rprivate", "/")
    _run("hostname", spec["name"])
    _mount_kernel(spec["controllers"])
    _mount_folders(folder)
    if spec["disk_mib"]:
        _mount_disk(spec["disk_mib"])
    _bind_sysctls(folder / "sysctl")
    _run("mount", "--make-rshared", "/")  # the container runtime's mounts must reach its containers
    _lay_network(spec)
    _start(folder, "containerd", spec["programs"]["containerd"])
    _wait(lambda: Path("/run/containerd/containerd.sock").is_socket(), "containerd's socket")
    for name in ("kubelet", "kube-proxy"):
        _start(folder, name, spec["programs"][name])
    os.execv(sys.executable, [sys.executable, str(Path(__file__).parent / "reaper.py")])


def _mount_kernel(controllers: list[str]) -> None:
    _run("mount", "-t", "proc", "proc", "/proc")
    _run("mount", "-t", "sysfs", "sysfs", "/sys")
    _run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/sys/fs/cgroup")
    for name in controllers:
        os.mkdir(f"/sys/fs/cgroup/{name}")
        option = "none,name=systemd" if name == "systemd" else name
        _run("mount", "-t", "cgroup", "-o", option, "cgroup", f"/sys/fs/cgroup/{name}")


def _mount_folders(folder: Path) -> None:
    _run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    for name in ("/run/netns", "/run/lock"):
        os.makedirs(name)
    for name in ("lib", "log"):
        _run("mount", "--bind", str(folder / name), f"/var/{name}")


def _mount_disk(mebibytes: int) -> None:
    """A small file system, so that a full one can be had without filling the host's."""
    os.makedirs("/var/lib/kubelet", exist_ok=True)
    _run("mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,mode=750", "tmpfs", "/var/lib/kubelet")


def _bind_sysctls(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for name, value in _SYSCTLS.items():
        true = Path("/proc/sys") / name
        if true.exists():
            wanted = folder / name.replace("/", ".")
            wanted.write_text(f"{value}\n")
            _run("mount", "--bind", str(wanted), str(true))


def _lay_network(spec: dict[str, Any]) -> None:
    _run("ip", "link", "set", "lo", "up")
    _wait(lambda: Path("/sys/class/net/eth0").exists(), "the interface eth0")
    _run("ip", "addr", "add", f"{spec['address']}/24", "dev", "eth0")
    _run("ip", "link", "set", "eth0", "up")
    # Also the way to Service addresses: kube-proxy's rules rewrite them only after a route was found.
    _run("ip", "route", "add", "default", "via", spec["gateway"])
    for pods, address in spec["routes"].items():
        _run("ip", "route", "add", pods, "via", address)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _start(folder: Path, name: str, argv: list[str]) -> None:
    """Start a program and start it again whenever it ends, as an init system does: kubelet ends when it comes too early."""
    argv = ["sh", "-c", 'while :; do "$@"; sleep 0.3; done', name, *argv]
    with (folder / "log" / f"{name}.log").open("ab") as log:
        subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def _wait(ready: Any, what: str, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise SystemExit(f"{what} did not come within {seconds:.0f} s")
        time.sleep(0.02)


if __name__ == "__main__":
    what, where = sys.argv[1:]
    loaded = json.loads(Path(where).read_text())
    enter(loaded, where) if what == "enter" else init(loaded)
