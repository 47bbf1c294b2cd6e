"""The cgroups of a cluster on a host with cgroup v1: one tree per controller, named after the cluster.

Every process of a cluster lives in this tree, so the tree also tells which processes belong to a crashed run.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
# The controllers that kubelet and runc 1.x look for; "systemd" is the named hierarchy without a controller.
CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd")


def missing_controllers() -> list[str]:
    """Controllers that this host does not mount as cgroup v1 (all of them on a pure cgroup v2 host)."""
    return [name for name in CONTROLLERS if not (MOUNT / name / "cgroup.procs").exists()]


def create(path: str, weight: int = 1) -> None:
    """Make the group in every controller; a cpuset is usable only after it has CPUs and memory nodes.

    `weight` is its share of busy CPUs, in weights of one ordinary process: a group competes as one with each process
    beside it.
    """
    for controller in CONTROLLERS:
        (MOUNT / controller / path).mkdir(parents=True, exist_ok=True)
    (MOUNT / "cpu" / path / "cpu.shares").write_text(str(1024 * weight))
    below = MOUNT / "cpuset"
    for part in Path(path).parts:
        above, below = below, below / part
        for name in ("cpuset.cpus", "cpuset.mems"):
            if not (below / name).read_text().strip():
                (below / name).write_text((above / name).read_text())


def procs_files(path: str) -> list[Path]:
    """The files that a process writes "0" to in order to enter the group."""
    return [MOUNT / controller / path / "cgroup.procs" for controller in CONTROLLERS]


def processes(path: str) -> set[int]:
    """Host pids of all processes in the group and below it, in any controller."""
    return {pid for group in _groups(path) for pid in _pids(group)}


def kill(path: str, timeout: float = 10.0) -> None:
    """SIGKILL every process of the group until none is left.

    Raises:
        TimeoutError: some are still there after `timeout` seconds.
    """
    end = time.monotonic() + timeout
    while alive := processes(path):
        if time.monotonic() > end:
            raise TimeoutError(f"processes of cgroup {path} do not end: {sorted(alive)}")
        for pid in alive:
            _kill(pid)
        time.sleep(0.05)


def remove(path: str) -> None:
    """Remove the group and everything below it, deepest first; its processes must have ended."""
    for group in _groups(path):
        _remove_when_empty(group)


def _groups(path: str) -> Iterator[Path]:
    for controller in CONTROLLERS:
        for folder, _, _ in os.walk(MOUNT / controller / path, topdown=False):
            yield Path(folder)


def _pids(group: Path) -> list[int]:
    try:
        return [int(line) for line in (group / "cgroup.procs").read_text().split()]
    except (FileNotFoundError, OSError):  # the group vanished while we looked
        return []


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _remove_when_empty(group: Path) -> None:
    """A group stays busy for a moment after its last process ended."""
    for _ in range(100):
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise TimeoutError(f"{group} stays busy")
