"""What a container is given with its GPUs: environment, and CDI devices or, where an administrator chose so, device files."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kompakt_core import contract
from kompakt_core.contract import gpu_lists
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuUuid
from kompakt_device_plugin.cdi import REMEDY, CdiNames
from kompakt_device_plugin.proto import deviceplugin_pb2 as pb

Answer = Callable[[tuple[GpuUuid, ...]], Any]  # GPUs in the order of their pattern -> ContainerAllocateResponse

CONTROL_FILES: Final = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")  # shared by all GPUs of a node


def environment(gpus: Iterable[GpuUuid]) -> dict[str, str]:
    """CUDA numbers the GPUs in the order of their pattern; NVIDIA's container runtime makes all of them visible."""
    visible = gpu_lists.encode_uuids(gpus)
    return {contract.ENV_CUDA_VISIBLE: visible, contract.ENV_NVIDIA_VISIBLE: visible}


def environment_only(gpus: tuple[GpuUuid, ...]) -> Any:
    """For machines without real GPUs."""
    return pb.ContainerAllocateResponse(envs=environment(gpus))


def device_files(dev: Path, minors: Iterable[int]) -> list[Any]:
    """GPUs' files in the order given, then those that all GPUs share, as far as the node has them."""
    gpus = [f"nvidia{minor}" for minor in minors]
    there = [name for name in (*gpus, *CONTROL_FILES) if (dev / name).exists()]
    return [pb.DeviceSpec(container_path=f"/dev/{name}", host_path=f"/dev/{name}", permissions="rw") for name in there]


@dataclass(frozen=True)
class RealGpus:
    """The answer for machines with NVIDIA's driver.

    `minor` gives the number in a GPU's device file, and raises InvalidInput where it is unknown: a container without that file
    would start and find no GPU. `place` gives its index; `cdi` what can be had by CDI, None for device files.
    """

    minor: Callable[[GpuUuid], int]
    place: Callable[[GpuUuid], int]
    cdi: Callable[[], CdiNames | None]
    dev: Path = Path("/dev")

    def __call__(self, gpus: tuple[GpuUuid, ...]) -> Any:
        """CDI devices or device files, in order of index.

        Raises InvalidInput for a GPU that no CDI specification names, and as `minor` does.
        """
        in_order = sorted(gpus, key=self.place)
        found = self.cdi()
        if found is not None:
            return _by_cdi(gpus, in_order, found)
        files = device_files(self.dev, [self.minor(gpu) for gpu in in_order])
        return pb.ContainerAllocateResponse(envs=environment(gpus), devices=files)


def _by_cdi(gpus: tuple[GpuUuid, ...], in_order: list[GpuUuid], found: CdiNames) -> Any:
    """The variable says nothing any more: what it names would come on top, and a pod or an image may set it."""
    if lacking := found.lacking(in_order):
        raise InvalidInput(found.unusable or f"no CDI specification of this node names {', '.join(lacking)}: {REMEDY}")
    return pb.ContainerAllocateResponse(
        envs={**environment(gpus), contract.ENV_NVIDIA_VISIBLE: contract.NO_GPUS},
        cdi_devices=[pb.CDIDevice(name=found.names[gpu]) for gpu in in_order],
    )
