"""Which GPU a device of a ResourceSlice is: drivers for dynamic resource allocation name devices, kompakt names GPUs. Pure.

API resource.k8s.io/v1. NVIDIA's driver publishes a GPU with the attribute `uuid`, and a MIG device with `parentUUID` beside its
own (its documented example for MIG devices of one GPU matches `gpu.nvidia.com/parentUUID`). Drivers write what they like: what
cannot be read is no device of a GPU.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from kompakt_core.ids import GpuUuid

PARENT: Final = "parentUUID"
# In this order: who has a part of a GPU has that GPU.
_NAMES: Final = (PARENT, "uuid")
CounterSet = tuple[str, str, str]  # driver, pool, name


class ClaimedDevice(NamedTuple):
    """As kubelet's PodResources and a claim's status name it."""

    driver: str
    pool: str
    name: str


def published(slices: Iterable[Mapping[str, Any]]) -> dict[ClaimedDevice, Mapping[str, Any]]:
    """The devices of these ResourceSlices. Of a pool that is being published anew the newest generation counts."""
    found: dict[ClaimedDevice, tuple[int, Mapping[str, Any]]] = {}
    for spec in (one.get("spec") for one in slices):
        for device, generation, raw in _devices(spec) if isinstance(spec, Mapping) else ():
            if generation >= found.get(device, (0, raw))[0]:
                found[device] = generation, raw
    return {device: raw for device, (_, raw) in found.items()}


def _devices(spec: Mapping[str, Any]) -> Iterator[tuple[ClaimedDevice, int, Mapping[str, Any]]]:
    pool, driver = mapping(spec.get("pool")), str(spec.get("driver", ""))
    generation = pool.get("generation")
    for raw in map(mapping, entries(spec.get("devices"))):
        named = ClaimedDevice(driver, str(pool.get("name", "")), str(raw.get("name", "")))
        yield named, generation if isinstance(generation, int) else 0, raw


def gpus_by_device(slices: Iterable[Mapping[str, Any]]) -> dict[ClaimedDevice, GpuUuid]:
    """The GPU of each device that names one, or that draws on counters which only devices of one GPU use: a partition that is
    made when it is needed has no name before that (KEP-4815).
    """
    devices = published(slices)
    named = {device: gpu for device, raw in devices.items() if (gpu := _gpu(device.driver, raw))}
    users: dict[CounterSet, set[GpuUuid]] = {}
    for device, gpu in named.items():
        for counters in _counter_sets(device, devices[device]):
            users.setdefault(counters, set()).add(gpu)
    for device in devices.keys() - named.keys():
        drawn_on = set[GpuUuid]().union(*(users.get(one, ()) for one in _counter_sets(device, devices[device])))
        if len(drawn_on) == 1:
            named[device] = drawn_on.pop()
    return named


def _counter_sets(device: ClaimedDevice, raw: Mapping[str, Any]) -> Iterator[CounterSet]:
    for one in map(mapping, entries(raw.get("consumesCounters"))):
        yield device.driver, device.pool, str(one.get("counterSet", ""))


def _gpu(driver: str, raw: Mapping[str, Any]) -> GpuUuid | None:
    return next((GpuUuid(value) for value in (text_attribute(driver, raw, name) for name in _NAMES) if value), None)


def text_attribute(driver: str, raw: Mapping[str, Any], name: str) -> str:
    """Of a device, "" where it has none that is a text. An attribute without a domain is in the driver's own."""
    attributes = mapping(raw.get("attributes"))
    value = mapping(attributes.get(name, attributes.get(f"{driver}/{name}"))).get("string")
    return value if isinstance(value, str) else ""


def mapping(value: object) -> Mapping[str, Any]:
    """It, or nothing where a driver wrote something else."""
    return value if isinstance(value, Mapping) else {}


def entries(value: object) -> list[Any]:
    """It, or none where a driver wrote something else."""
    return value if isinstance(value, list) else []
