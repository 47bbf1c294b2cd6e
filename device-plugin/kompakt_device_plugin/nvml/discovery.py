"""One discovery of a node: every question to NVML that a link graph needs, each asked once.

For n GPUs with l lanes each: at most 3 n l calls for lanes (2 n l where they end at switches), 3 a pair and twelve a GPU.
Never call it inside a call of kubelet's.
"""

import ctypes
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Final

import pynvml

from kompakt_core.errors import InvalidInput
from kompakt_core.topology.sides import bus_id
from kompakt_device_plugin.nvml.facts import Fabric, GpuFacts, Lanes, PairFacts, Reading
from kompakt_device_plugin.nvml.library import GpuTrouble, raise_trouble, told

_FIELDS: Final = (
    pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT,
    pynvml.NVML_FI_DEV_REMAPPED_PENDING,
    pynvml.NVML_FI_DEV_REMAPPED_FAILURE,
    pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION,
)
# A tuple of one in nvidia-ml-py 13.615 (a comma too many): take the number either way.
_READ: Final = pynvml.NVML_P2P_CAPS_INDEX_READ
READ_INDEX: Final[int] = _READ[0] if isinstance(_READ, tuple) else _READ
NODE_WORDS: Final = 16  # of 64 NUMA nodes each


@dataclass(frozen=True, slots=True)
class PciPlace:
    """Where one GPU is: its handle and bus id, or the trouble that keeps it from telling."""

    handle: Any
    bus_id: str = ""
    trouble: str = ""


def discover(driver_version: str, before: Reading | None, silent: Callable[[str], bool]) -> Reading:
    """All GPUs and pairs. A GPU that does not answer keeps what `before` knew of it, and says so in `trouble`.

    `silent` tells of a bus id whether sysfs has no NUMA node for it, so that the driver is asked. Raises InvalidInput where
    the driver as a whole does not answer.
    """
    try:
        places = [_place(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as error:
        raise_trouble(error)
        raise InvalidInput(f"NVML does not tell how many GPUs there are: {error}") from None
    known = frozenset(place.bus_id for place in places)
    gpus = tuple(_gpu(index, place, before, known, silent) for index, place in enumerate(places))
    pairs = {(a, b): _pair(gpus[a], gpus[b], places[a].handle, places[b].handle) for a, b in combinations(range(len(gpus)), 2)}
    return Reading(driver_version, gpus, pairs)


def minors() -> dict[str, int]:
    """The numbers in GPUs' device files (/dev/nvidia0) by UUID, without those of GPUs that do not tell."""
    found: dict[str, int] = {}
    with suppress(pynvml.NVMLError):
        for index in range(pynvml.nvmlDeviceGetCount()):
            with suppress(pynvml.NVMLError):
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                found[str(pynvml.nvmlDeviceGetUUID(handle))] = int(pynvml.nvmlDeviceGetMinorNumber(handle))
    return found


def _place(index: int) -> PciPlace:
    """A GPU that fell off the bus has no handle: NVML says "lost" or "unknown error"."""
    handle = None
    try:
        handle = _needed(pynvml.nvmlDeviceGetHandleByIndex, index)
        return PciPlace(handle, bus_id(str(_needed(pynvml.nvmlDeviceGetPciInfo, handle).busId)))
    except GpuTrouble as trouble:
        return PciPlace(handle, trouble=trouble.reason)
    except pynvml.NVMLError as error:
        raise_trouble(error)
        return PciPlace(handle, trouble="LostGPU")


def _gpu(index: int, place: PciPlace, before: Reading | None, known: frozenset[str], silent: Callable[[str], bool]) -> GpuFacts:
    trouble = place.trouble
    if not trouble:
        try:
            return _answers(index, place, known, silent)
        except GpuTrouble as error:
            trouble = error.reason
        except pynvml.NVMLError as error:  # one unhealthy GPU must not hide the others
            trouble = _trouble_of(error)
    return replace(_remembered(index, place, before), index=index, trouble=trouble)


def _trouble_of(error: Any) -> str:
    try:
        raise_trouble(error)
    except GpuTrouble as trouble:
        return trouble.reason
    return "Unreadable"


def _remembered(index: int, place: PciPlace, before: Reading | None) -> GpuFacts:
    """What was known of a GPU that does not answer: by its bus id where it tells that, else by its place in the list."""
    known = before.gpus if before else ()
    found = next((gpu for gpu in known if (gpu.bus_id == place.bus_id if place.bus_id else gpu.index == index)), None)
    return found or GpuFacts(index, f"GPU-lost-{index}", place.bus_id)


def _answers(index: int, place: PciPlace, known: frozenset[str], silent: Callable[[str], bool]) -> GpuFacts:
    handle = place.handle
    memory = told(pynvml.nvmlDeviceGetMemoryInfo, handle)
    mig = told(pynvml.nvmlDeviceGetMigMode, handle)
    fields = _fields(handle)
    return GpuFacts(
        index=index,
        uuid=_needed(pynvml.nvmlDeviceGetUUID, handle),
        bus_id=place.bus_id,
        model=told(pynvml.nvmlDeviceGetName, handle) or "",
        memory_bytes=memory.total if memory else 0,
        module_id=told(pynvml.nvmlDeviceGetModuleId, handle),
        memory_nodes=_memory_nodes(handle) if silent(place.bus_id) else (),
        mig=mig is not None and mig[0] == pynvml.NVML_DEVICE_MIG_ENABLE,
        lanes=_lanes(handle, known, fields.get(pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT)),
        fabric=_fabric(handle),
        recovery=fields.get(pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION),
        remap_pending=bool(fields.get(pynvml.NVML_FI_DEV_REMAPPED_PENDING)),
        remap_failed=bool(fields.get(pynvml.NVML_FI_DEV_REMAPPED_FAILURE)),
    )


def _needed(call: Callable[..., Any], handle: Any) -> Any:
    """An answer without which there is no GPU to speak of: a GPU that does not give it counts as lost."""
    answer = told(call, handle)
    if answer is None:
        raise GpuTrouble("LostGPU")
    return answer


def _fields(handle: Any) -> Mapping[int, int]:
    """The fields that this GPU knows, in one call; each has an error code of its own."""
    values = told(pynvml.nvmlDeviceGetFieldValues, handle, list(_FIELDS)) or ()
    return {value.fieldId: _number(value) for value in values if value.nvmlReturn == pynvml.NVML_SUCCESS}


def _number(value: Any) -> int:
    kinds = {
        pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
        pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
        pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
        pynvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
    }
    return int(getattr(value.value, kinds.get(value.valueType, "uiVal")))


def _memory_nodes(handle: Any) -> tuple[int, ...]:
    """NUMA nodes near the GPU. Not nvmlDeviceGetNumaNodeId: that names the node that the GPU's own memory is, on Grace."""
    words = told(pynvml.nvmlDeviceGetMemoryAffinity, handle, NODE_WORDS, pynvml.NVML_AFFINITY_SCOPE_NODE) or ()
    return tuple(64 * i + bit for i, word in enumerate(words) for bit in range(64) if word >> bit & 1)


def _lanes(handle: Any, known: frozenset[str], count: int | None) -> Lanes:
    """Active lanes by the other end; `known` are the bus ids of this node's GPUs, `count` how many lanes there can be."""
    ends: list[str | None] = []
    first, unread = -1, 0
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS if count is None else min(count, pynvml.NVML_NVLINK_MAX_LINKS)):
        try:
            if told(pynvml.nvmlDeviceGetNvLinkState, handle, link):
                ends.append(_end(handle, link, known))
                first = link if first < 0 else first
        except pynvml.NVMLError:
            unread += 1  # it is there and does not tell: that is not "no NVLink"
    version = (told(pynvml.nvmlDeviceGetNvLinkVersion, handle, first) or 0) if ends else 0
    return Lanes(Counter(end for end in ends if end is not None), ends.count(None), unread, version)


def _end(handle: Any, link: int, known: frozenset[str]) -> str | None:
    """The bus id at the other end, None: a switch. Switches are told by their type: their bus ids may be all f.

    A GPU whose id is all f (virtual machines) counts as a switch, as NCCL takes it; where the type is not told (old drivers),
    everything that is no GPU of this node does.
    """
    kind = told(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
    if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
        return None
    remote = told(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
    try:
        peer = bus_id(str(remote.busId)) if remote else ""
    except InvalidInput:
        peer = ""
    named = kind in (pynvml.NVML_NVLINK_DEVICE_TYPE_GPU, pynvml.NVML_NVLINK_DEVICE_TYPE_IBMNPU)
    return peer if peer in known or (named and peer and not peer.startswith("ffffffff:")) else None


def _fabric(handle: Any) -> Fabric | None:
    """Registration with the fabric; None for drivers and GPUs that do not know it. The argument goes to C as it is: byref."""
    info = pynvml.c_nvmlGpuFabricInfoV_t()
    if told(pynvml.nvmlDeviceGetGpuFabricInfoV, handle, ctypes.byref(info)) is None:
        info = pynvml.c_nvmlGpuFabricInfo_t()
        if told(pynvml.nvmlDeviceGetGpuFabricInfo, handle, ctypes.byref(info)) is None:
            return None
    digits = bytes(info.clusterUuid).hex()
    cluster = "-".join(digits[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))
    return Fabric(info.state, info.status, cluster, info.cliqueId, getattr(info, "healthMask", 0))


def _pair(a: GpuFacts, b: GpuFacts, first: Any, second: Any) -> PairFacts:
    if a.trouble or b.trouble:
        return PairFacts()
    switched = a.lanes.to_switches and b.lanes.to_switches
    return PairFacts(
        level=_of_pair(pynvml.nvmlDeviceGetTopologyCommonAncestor, first, second),
        read_status=_of_pair(pynvml.nvmlDeviceGetP2PStatus, first, second, READ_INDEX),
        nvlink_status=_of_pair(pynvml.nvmlDeviceGetP2PStatus, first, second, pynvml.NVML_P2P_CAPS_INDEX_NVLINK)
        if switched
        else None,
    )


def _of_pair(call: Callable[..., int], *arguments: Any) -> int | None:
    """An answer about two GPUs; None where one of them fell silent meanwhile: the next reading tells which."""
    try:
        return told(call, *arguments)
    except (GpuTrouble, pynvml.NVMLError):
        return None
