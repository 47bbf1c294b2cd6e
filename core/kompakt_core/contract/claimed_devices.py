"""Which GPU a device of a ResourceSlice is: drivers for dynamic resource allocation name devices, kompakt names GPUs. Pure.

API resource.k8s.io/v1. NVIDIA's driver publishes a GPU with the attribute `uuid`, and a MIG device with `parentUUID` beside its
own (its documented example for MIG devices of one GPU matches `gpu.nvidia.com/parentUUID`).
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from kompakt_core.ids import GpuUuid

# In this order: who has a part of a GPU has that GPU.
_NAMES: Final = ("parentUUID", "uuid")


class ClaimedDevice(NamedTuple):
    """As kubelet's PodResources and a claim's status name it."""

    driver: str
    pool: str
    name: str


def gpus_by_device(slices: Iterable[Mapping[str, Any]]) -> dict[ClaimedDevice, GpuUuid]:
    """The GPU of each device that names one. Drivers write what they like: what cannot be read names none. Of a pool that is
    being published anew the newest generation counts.
    """
    found: dict[ClaimedDevice, tuple[int, GpuUuid]] = {}
    for spec in (one.get("spec") for one in slices):
        for device, generation, gpu in _named(spec) if isinstance(spec, Mapping) else ():
            if generation >= found.get(device, (0, gpu))[0]:
                found[device] = generation, gpu
    return {device: gpu for device, (_, gpu) in found.items()}


def _named(spec: Mapping[str, Any]) -> Iterable[tuple[ClaimedDevice, int, GpuUuid]]:
    pool, devices = _mapping(spec.get("pool")), spec.get("devices")
    driver, generation = str(spec.get("driver", "")), pool.get("generation")
    for device in devices if isinstance(devices, list) else ():
        attributes = _mapping(_mapping(device).get("attributes"))
        if gpu := _gpu(driver, attributes):
            named = ClaimedDevice(driver, str(pool.get("name", "")), str(device.get("name", "")))
            yield named, generation if isinstance(generation, int) else 0, gpu


def _gpu(driver: str, attributes: Mapping[str, Any]) -> GpuUuid | None:
    """An attribute without a domain is in the driver's own."""
    values = (_mapping(attributes.get(name, attributes.get(f"{driver}/{name}"))).get("string") for name in _NAMES)
    return next((GpuUuid(value) for value in values if isinstance(value, str) and value), None)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
