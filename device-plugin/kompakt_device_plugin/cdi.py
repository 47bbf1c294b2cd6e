"""CDI specifications of a node: which GPUs they name, and whether its container runtime goes by them."""

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import yaml

from kompakt_core.ids import GpuUuid

log = logging.getLogger(__name__)

CDI_KIND: Final = "nvidia.com/gpu"  # of the specifications that nvidia-ctk writes
CDI_FOLDERS: Final = (Path("/etc/cdi"), Path("/var/run/cdi"))  # where runtimes look by default (CDI specification)
REMEDY: Final = (
    "write specifications by UUID there: nvidia-ctk cdi generate --device-name-strategy=uuid --output=/var/run/cdi/nvidia.yaml"
)
_MAX_SPEC: Final = 4 << 20  # bytes; those of a node with 16 GPUs are some ten thousand
_Names = Mapping[GpuUuid, str]  # fully qualified CDI names


class Cdi(StrEnum):
    """Whether containers get their GPUs as CDI devices. Nothing falls back to device files by itself."""

    AUTO = "auto"  # yes; where the container runtime is not known to take CDI devices from kubelet the node offers nothing
    ALWAYS = "always"  # yes, whatever the container runtime says it is
    NEVER = "never"  # device files, and the variable that NVIDIA's container runtime goes by


@dataclass(frozen=True, slots=True)
class CdiNames:
    """The GPUs that containers of a node can get, with their names; `unusable` says why the runtime goes by none of them."""

    names: _Names = field(default_factory=dict)
    unusable: str = ""

    def lacking(self, gpus: Iterable[GpuUuid]) -> tuple[GpuUuid, ...]:
        """Those of these GPUs that no container can get."""
        return tuple(gpu for gpu in gpus if self.unusable or gpu not in self.names)


class CdiSpecifications:
    """What the files say, each read again when it has changed: parsing a large one takes tenths of a second."""

    def __init__(self, folders: Sequence[Path] = CDI_FOLDERS) -> None:
        self._folders = folders
        self._read: dict[Path, tuple[tuple[int, ...], _Names]] = {}  # by file: its stamp, and what it says

    def names(self) -> dict[GpuUuid, str]:
        """All GPUs that are named by UUID. Any thread may ask."""
        before, now = self._read, {}
        for file in self._files():
            if stamp := _stamp(file):
                known = before.get(file)
                now[file] = known if known and known[0] == stamp else (stamp, _devices_in(file))
        self._read = now
        return {gpu: name for _, names in now.values() for gpu, name in names.items()}

    def _files(self) -> list[Path]:
        files = sorted(file for folder in self._folders if folder.is_dir() for file in folder.iterdir())
        return [file for file in files if file.suffix in (".json", ".yaml", ".yml")]


@dataclass(frozen=True)
class NodeCdi:
    """CDI on one node."""

    choice: Cdi = Cdi.AUTO
    specifications: CdiSpecifications = field(default_factory=CdiSpecifications)

    def __call__(self, runtime: str) -> CdiNames | None:
        """What can be had by CDI now under this runtime, as a Node names it; None where an administrator chose device files."""
        if self.choice is Cdi.NEVER:
            return None
        if self.choice is Cdi.AUTO and not takes_cdi(runtime):
            return CdiNames(unusable=_not_taken(runtime))
        return CdiNames(self.specifications.names())


def takes_cdi(runtime: str) -> bool:
    """Whether a runtime, as a Node names it (containerd://2.1.0), takes CDI devices from kubelet without further settings.

    containerd from 2.0 on (before, enable_cdi was off by default), CRI-O from 1.23 on.
    """
    found = re.fullmatch(r"(containerd|cri-o)://v?([0-9]{1,4})\.([0-9]{1,4}).*", runtime)
    if not found:
        return False
    least = (2, 0) if found[1] == "containerd" else (1, 23)
    return (int(found[2]), int(found[3])) >= least


def _not_taken(runtime: str) -> str:
    if not runtime:
        return "the Node does not say yet which container runtime it has, and GPUs are handed over by CDI only"
    return (
        f"GPUs are handed over by CDI only, and {runtime[:64]!r} is not known to take CDI devices from kubelet (containerd 2.0 "
        "and CRI-O 1.23 are): update it; or switch CDI on in it and set devicePlugin.cdi=always; or set never, for device files, "
        "where a variable of a pod or an image may show it GPUs of others"
    )


def _stamp(file: Path) -> tuple[int, ...]:
    """What changes when a file's content does; empty where there is no such file."""
    try:
        found = file.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def _devices_in(file: Path) -> dict[GpuUuid, str]:
    try:
        with file.open("rb") as stream:
            data = stream.read(_MAX_SPEC)
        found = json.loads(data) if file.suffix == ".json" else yaml.safe_load(data)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        log.warning("CDI specification %s is passed over: %s", file, " ".join(str(error).split())[:300])
        return {}
    return _devices(found)


def _devices(found: Any) -> dict[GpuUuid, str]:
    if not isinstance(found, Mapping) or found.get("kind") != CDI_KIND or not isinstance(found.get("devices"), list):
        return {}
    names = (device.get("name") for device in found["devices"] if isinstance(device, Mapping))
    return {GpuUuid(name): f"{CDI_KIND}={name}" for name in names if isinstance(name, str) and name.startswith("GPU-")}
