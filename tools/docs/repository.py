"""The files of the checkout that docs speak of."""

import subprocess
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
# Each folder with a README that lists its modules; the package's name where the folder holds one.
ROOMS: Final = ("core", "client", "operator", "extender", "device-plugin", "runtime", "simulator", "sdk", "cli", "tools")
# Made by a program, without docstrings.
GENERATED: Final = ("device-plugin/kompakt_device_plugin/proto/",)


def tracked(root: Path, *patterns: str) -> list[str]:
    """Paths below the root that git knows or would add, so that environments and caches do not count."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", *patterns]
    shown = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    return sorted(name for name in set(shown.split("\0")) if name and (root / name).is_file())


def ignored(root: Path, path: Path) -> bool:
    """Whether git leaves the path out, as it does with environments and what is built."""
    inside = path.resolve().relative_to(root.resolve())
    return not _ignored(root).isdisjoint(map(str, (inside, *inside.parents)))


@cache
def _ignored(root: Path) -> frozenset[str]:
    """What git ignores; of a folder that is ignored as a whole the folder alone."""
    command = ["git", "ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z"]
    shown = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    return frozenset(name.rstrip("/") for name in shown.split("\0") if name)


def modules_of(root: Path, room: str) -> list[str]:
    """The Python files of one room that people write."""
    return [name for name in tracked(root, f"{room}/**.py") if not name.startswith(GENERATED)]
