"""What is left on the host after a cluster was removed: nothing. Also after the process that started it was killed."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools.kube import cgroups, namespaces, real, stack

NAME = "removal-test"
ROOT = Path(__file__).resolve().parent.parent.parent
SYSCTLS = [
    "net/ipv4/ip_forward",
    "net/bridge/bridge-nf-call-iptables",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
]


def said(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def host_state():
    """All that a cluster could change on the host, as comparable values (counters of the rules left out)."""
    rules = re.sub(r"\[\d+:\d+\]|^#.*$", "", said("iptables-save"), flags=re.MULTILINE)
    return {
        "links": sorted(line.split(":")[1] for line in said("ip", "-o", "link").splitlines()),
        "routes": said("ip", "route"),
        "rules": rules,
        "mounts": sorted(line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()),
        "sysctls": {name: Path("/proc/sys", name).read_text() for name in SYSCTLS},
    }


def traces():
    """Processes, cgroups and files that carry the cluster's name."""
    found = [f"process {pid}" for pid in cgroups.processes(namespaces.cgroup_of(NAME))]
    folder = str(real.cluster_folder(NAME))
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if folder.encode() in process.read_bytes():
                found.append(str(process))
        except OSError:
            continue
    found += [str(path) for path in cgroups.MOUNT.glob(f"*/{namespaces.cgroup_of(NAME)}")]
    return found + ([folder] if Path(folder).exists() else [])


def names_in(folder):
    return set(os.listdir(folder)) if os.path.isdir(folder) else set()


@pytest.fixture
def before(images):
    real.remove(NAME, print)
    assert traces() == []
    return host_state()


def test_what_a_crashed_start_left_is_removed_by_the_next_and_down_leaves_nothing(images, before):
    """The starter is killed in the middle; the next start finds what it left, removes it and comes up."""
    folders = {folder: names_in(folder) for folder in ("/var/lib", "/run", "/run/netns", "/etc")}
    crash_a_start()
    assert traces() != []
    stack.start(NAME, stack.MACHINES, (), images, print)
    assert len(cgroups.processes(namespaces.cgroup_of(NAME))) > 10
    assert host_state() == before, "a running cluster changes nothing of the host's network, rules, mounts or settings"
    assert real.remove(NAME, print)
    assert traces() == []
    assert host_state() == before
    assert {folder: names_in(folder) for folder in folders} == folders


def crash_a_start():
    code = f"from tools.kube import stack; stack.start({NAME!r}, stack.MACHINES, (), stack.prepare(print), print)"
    starter = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while not (real.cluster_folder(NAME) / "kube-apiserver.log").exists():
        assert time.monotonic() < end, "the start did not get as far as its API server"
        time.sleep(0.05)
    starter.send_signal(signal.SIGKILL)
    starter.wait()
