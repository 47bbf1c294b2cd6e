"""What the host must have before real nodes can run on it, and installing what only needs a package."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from tools import debian
from tools.kube import cgroups, image_store
from tools.kube.cache import cache_root
from tools.kube.command import output

Say = Callable[[str], None]

DISK_COLD = 35  # GB free while the images are made: build store, archives and image store exist together for a while
DISK_WARM = 6
# Which program shows that a package of Debian or Ubuntu is there.
_PACKAGES = {
    "containerd": "containerd",
    "runc": "runc",
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "/etc/containers/policy.json": "golang-github-containers-common",
    "/etc/ssl/certs/ca-certificates.crt": "ca-certificates",
    "iptables": "iptables",
    "ip": "iproute2",
    "nsenter": "util-linux",
}
# Each node mounts its own over these, so nothing that its programs need may lie there.
_COVERED = (Path("/var/lib"), Path("/var/log"), Path("/run"))
_ADMIN_PATH = "/usr/local/sbin:/usr/sbin:/sbin"


class CannotRun(RuntimeError):
    """Why real nodes cannot run here, as one sentence that also says what would help."""


def obstacle() -> str | None:
    """Why real nodes cannot run here; None where they can."""
    try:
        check()
    except CannotRun as reason:
        return str(reason)
    return None


def check() -> None:
    """Refuse a host on which real nodes cannot run; looks only, and changes nothing.

    Raises:
        CannotRun: the first thing found that is missing.
    """
    if _ADMIN_PATH not in os.environ["PATH"]:
        os.environ["PATH"] += f":{_ADMIN_PATH}"  # sbin is not in everybody's PATH, not even in every root's
    if os.geteuid() != 0:
        raise CannotRun("real nodes need root: run it with sudo")
    if missing := cgroups.missing_controllers():
        raise CannotRun(
            f"real nodes need cgroup v1, and this host does not mount its {', '.join(missing)}: "
            "boot with systemd.unified_cgroup_hierarchy=0"
        )
    _check_folders()
    _check_disk(DISK_WARM if image_store.latest() is not None else DISK_COLD)
    if missing_packages() and shutil.which("apt-get") is None:
        raise CannotRun(f"there is no apt-get to install {', '.join(missing_packages())}: install them by hand")


def install_packages(say: Say) -> None:
    """Install what is missing with apt-get, and stop services that the packages started.

    Raises:
        CommandFailed: apt-get did.
    """
    missing = missing_packages()
    if not missing:
        return
    say(f"installing {', '.join(missing)}")
    before = _running_services()
    debian.install(missing)
    for service in sorted(_running_services() - before):
        say(f"stopping {service}, which a package started")
        output(["systemctl", "disable", "--now", service])


def missing_packages() -> list[str]:
    return sorted(package for sign, package in _PACKAGES.items() if not (Path(sign).exists() or shutil.which(sign)))


def check_kernel() -> None:
    """Try what nodes need of the kernel, each in namespaces that vanish at once; the packages must be there.

    Raises:
        CannotRun: names the first thing that the kernel refuses, with its own words.
    """
    if shutil.which("modprobe"):  # where the kernel has them as modules, this loads them
        subprocess.run(["modprobe", "--quiet", "--all", "overlay", "br_netfilter"], check=False, stderr=subprocess.DEVNULL)
    probes = {
        "namespaces": ["unshare", "-m", "-n", "-p", "-u", "-i", "-C", "--fork", "true"],
        "network bridges": ["unshare", "-n", "ip", "link", "add", "kp0", "type", "bridge"],
        "network pairs (veth)": ["unshare", "-n", "ip", "link", "add", "kp0", "type", "veth", "peer", "name", "kp1"],
        "packet rules (iptables)": ["unshare", "-n", "iptables", "-t", "nat", "-A", "OUTPUT", "-m", "comment", "--comment", "x"],
    }
    for name, command in probes.items():
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CannotRun(f"real nodes need {name}, and this kernel refuses them: {done.stderr.strip()[-200:]}")
    for path, name in (("/proc/sys/net/bridge", "br_netfilter"), ("/proc/filesystems", "overlay")):
        if not Path(path).exists() or (name == "overlay" and name not in Path(path).read_text()):
            raise CannotRun(f"real nodes need the kernel module {name}, which this kernel does not have")


def _check_folders() -> None:
    checkout = Path(__file__).resolve().parent.parent.parent
    for what, place in (("cache folder (XDG_CACHE_HOME)", cache_root().resolve()), ("checkout", checkout)):
        if any(place.is_relative_to(covered) for covered in _COVERED):
            raise CannotRun(f"the {what} is {place}, which a node would cover with its own folder: use another place")


def _check_disk(gigabytes: int) -> None:
    free = shutil.disk_usage(cache_root()).free / 1e9
    if free < gigabytes:
        raise CannotRun(f"{cache_root()} has {free:.0f} GB free, {gigabytes} are needed: free some or set XDG_CACHE_HOME")


def _running_services() -> set[str]:
    if not Path("/run/systemd/system").exists():
        return set()
    lines = output(["systemctl", "list-units", "--type=service", "--state=running", "--plain", "--no-legend"]).splitlines()
    return {line.split()[0] for line in lines if line.strip()}
