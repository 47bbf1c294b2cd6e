"""How much memory of the host may be pinned: it counts to the pod's limit, and nobody can take it back while it is."""

from pathlib import Path
from typing import Final

# Of what is free when it is asked for; the rest is for what the script takes later, and for the page cache its data come from.
SHARE: Final = 0.5
ROOT: Final = Path("/")
MEMINFO: Final = "proc/meminfo"
# (limit, what is in use, its parts), of control groups of version 2 and 1
GROUPS: Final = tuple(
    (f"{folder}/{limit}", f"{folder}/{usage}", f"{folder}/memory.stat")
    for folder, limit, usage in (
        ("sys/fs/cgroup", "memory.max", "memory.current"),
        ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    )
)
EASILY_FREED: Final = ("inactive_file", "total_inactive_file")  # the latter is what version 1 counts for the whole group


def may_pin(ranks: int = 1, root: Path = ROOT) -> int:
    """Bytes for one of `ranks` processes; 0 where the kernel tells nothing."""
    free = [_numbers(root / MEMINFO).get("MemAvailable", 0) * 1024]
    free += [left for files in GROUPS if (left := _left(*(root / name for name in files))) is not None]
    return max(0, int(min(free) * SHARE) // max(1, ranks))


def _left(limit: Path, usage: Path, parts: Path) -> int | None:
    """What the group may still take, its page cache that nobody uses counted as free; None without a limit."""
    most, used = _text(limit), _text(usage)
    if not (most.isdigit() and used.isdigit()):
        return None
    found = _numbers(parts)
    return int(most) - int(used) + max(found.get(name, 0) for name in EASILY_FREED)


def _numbers(path: Path) -> dict[str, int]:
    words = (line.replace(":", " ").split() for line in _text(path).splitlines())
    return {line[0]: int(line[1]) for line in words if len(line) > 1 and line[1].isdigit()}


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
