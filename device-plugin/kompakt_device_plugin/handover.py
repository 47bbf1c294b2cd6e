"""What a container is given with its GPUs: environment, and either CDI devices or device files."""

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import yaml

from kompakt_core import contract
from kompakt_core.contract import gpu_lists
from kompakt_core.ids import GpuUuid
from kompakt_device_plugin.proto import deviceplugin_pb2 as pb

log = logging.getLogger(__name__)

Answer = Callable[[tuple[GpuUuid, ...]], Any]  # GPUs in the order of their pattern -> ContainerAllocateResponse

CDI_KIND: Final = "nvidia.com/gpu"  # of the specifications that nvidia-ctk writes
CDI_FOLDERS: Final = (Path("/etc/cdi"), Path("/var/run/cdi"))  # where runtimes look by default (CDI specification)
CONTROL_FILES: Final = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")  # shared by all GPUs of a node
_MAX_SPEC: Final = 4 << 20  # bytes; those of a node with 16 GPUs are some ten thousand


class Cdi(StrEnum):
    """Whether containers get their GPUs as CDI devices."""

    AUTO = "auto"  # where the node's specifications name them and its container runtime takes CDI devices from kubelet
    ALWAYS = "always"  # where the specifications name them
    NEVER = "never"


def environment(gpus: Iterable[GpuUuid]) -> dict[str, str]:
    """CUDA numbers the GPUs in the order of their pattern; NVIDIA's container runtime makes all of them visible."""
    visible = gpu_lists.encode_uuids(gpus)
    return {contract.ENV_CUDA_VISIBLE: visible, contract.ENV_NVIDIA_VISIBLE: visible}


def environment_only(gpus: tuple[GpuUuid, ...]) -> Any:
    """For machines without real GPUs."""
    return pb.ContainerAllocateResponse(envs=environment(gpus))


def takes_cdi(runtime: str) -> bool:
    """Whether a runtime, as a Node names it (containerd://2.1.0), takes CDI devices from kubelet without further settings.

    containerd from 2.0 on (before, enable_cdi was off by default), CRI-O from 1.23 on.
    """
    found = re.fullmatch(r"(containerd|cri-o)://v?([0-9]{1,4})\.([0-9]{1,4}).*", runtime)
    if not found:
        return False
    least = (2, 0) if found[1] == "containerd" else (1, 23)
    return (int(found[2]), int(found[3])) >= least


def cdi_devices(folders: Sequence[Path]) -> dict[GpuUuid, str]:
    """Fully qualified CDI names by UUID, from all specifications that name GPUs by UUID. What cannot be read is passed over."""
    files = sorted(file for folder in folders if folder.is_dir() for file in folder.iterdir())
    names: dict[GpuUuid, str] = {}
    for file in files:
        if file.suffix in (".json", ".yaml", ".yml"):
            names.update(_devices_in(file))
    return names


def _devices_in(file: Path) -> dict[GpuUuid, str]:
    try:
        with file.open("rb") as stream:
            data = stream.read(_MAX_SPEC)
        found = json.loads(data) if file.suffix == ".json" else yaml.safe_load(data)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        log.warning("CDI specification %s is passed over: %s", file, " ".join(str(error).split())[:300])
        return {}
    if not isinstance(found, Mapping) or found.get("kind") != CDI_KIND or not isinstance(found.get("devices"), list):
        return {}
    names = (device.get("name") for device in found["devices"] if isinstance(device, Mapping))
    return {GpuUuid(name): f"{CDI_KIND}={name}" for name in names if isinstance(name, str) and name.startswith("GPU-")}


def device_files(dev: Path, minors: Iterable[int]) -> list[Any]:
    """GPUs' files in the order given, then those that all GPUs share, as far as the node has them."""
    gpus = [f"nvidia{minor}" for minor in minors]
    there = [name for name in (*gpus, *CONTROL_FILES) if (dev / name).exists()]
    return [pb.DeviceSpec(container_path=f"/dev/{name}", host_path=f"/dev/{name}", permissions="rw") for name in there]


@dataclass(frozen=True)
class RealGpus:
    """The answer for machines with NVIDIA's driver.

    `minor` gives the number in a GPU's device file, and raises InvalidInput where it is unknown: a container without that file
    would start and find no GPU. `place` gives its index; `runtime` is the Node's word for its container runtime.
    """

    minor: Callable[[GpuUuid], int]
    place: Callable[[GpuUuid], int]
    runtime: Callable[[], str]
    cdi: Cdi = Cdi.AUTO
    folders: Sequence[Path] = CDI_FOLDERS
    dev: Path = Path("/dev")

    def __call__(self, gpus: tuple[GpuUuid, ...]) -> Any:
        """CDI devices where the runtime knows all of these GPUs, else their device files; either in order of index.

        Raises InvalidInput as `minor` does.
        """
        in_order = sorted(gpus, key=self.place)
        names = cdi_devices(self.folders) if self._wants_cdi() else {}
        if all(gpu in names for gpu in in_order):
            devices = [pb.CDIDevice(name=names[gpu]) for gpu in in_order]
            return pb.ContainerAllocateResponse(envs=environment(gpus), cdi_devices=devices)
        files = device_files(self.dev, [self.minor(gpu) for gpu in in_order])
        return pb.ContainerAllocateResponse(envs=environment(gpus), devices=files)

    def _wants_cdi(self) -> bool:
        return self.cdi is Cdi.ALWAYS or (self.cdi is Cdi.AUTO and takes_cdi(self.runtime()))
