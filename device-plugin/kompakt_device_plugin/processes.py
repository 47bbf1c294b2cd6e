"""Which pods still have processes on this node, by the cgroups of all processes that this container can see."""

from collections.abc import Collection
from pathlib import Path
from typing import Final

from kompakt_core.ids import PodUid

PROC: Final = Path("/proc")


def sees_others(proc: Path = PROC) -> bool:
    """Whether other containers' processes are seen: with the host's process ids (hostPID) number 1 is the host's, and not of
    this container's cgroup.
    """
    try:
        return (proc / "1" / "cgroup").read_text() != (proc / "self" / "cgroup").read_text()
    except OSError:
        return False


def alive(uids: Collection[PodUid], proc: Path = PROC) -> frozenset[PodUid]:
    """Those of these pods that have a process. kubelet puts a pod's uid into the names of its cgroups (cgroup driver systemd:
    with underscores). Without the host's process ids (hostPID) no other container's processes are seen, and none is alive.
    """
    names = {name: uid for uid in uids if uid for name in (uid, uid.replace("-", "_"))}
    found: set[PodUid] = set()
    if not names:
        return frozenset()
    for file in proc.glob("[0-9]*/cgroup"):
        try:
            groups = file.read_text(errors="replace")
        except OSError:  # it ended meanwhile
            continue
        found.update(uid for name, uid in names.items() if f"pod{name}" in groups)
    return frozenset(found)
