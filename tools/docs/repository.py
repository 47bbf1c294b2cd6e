"""The files of the checkout that docs speak of."""

import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
# Each folder with a README that lists its modules; the package's name where the folder holds one.
ROOMS: Final = ("core", "client", "operator", "extender", "device-plugin", "runtime", "simulator", "cli", "tools")
# Made by a program, without docstrings.
GENERATED: Final = ("device-plugin/kompakt_device_plugin/proto/",)


def tracked(root: Path, *patterns: str) -> list[str]:
    """Paths below the root that git knows or would add, so that environments and caches do not count."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", *patterns]
    shown = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    return sorted(name for name in set(shown.split("\0")) if name and (root / name).is_file())


def modules_of(root: Path, room: str) -> list[str]:
    """The Python files of one room that people write."""
    return [name for name in tracked(root, f"{room}/**.py") if not name.startswith(GENERATED)]
