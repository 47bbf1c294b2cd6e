"""Records what a true driver answers, question by question, so that the shim can give the same answers.

It asks by itself, not through the reader whose answers it is compared with.
"""

import ctypes
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pynvml

from tests.support.nvml_shim.described import Described

FIELDS = {
    "links": pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT,
    "recovery": pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION,
    "pending": pynvml.NVML_FI_DEV_REMAPPED_PENDING,
    "failed": pynvml.NVML_FI_DEV_REMAPPED_FAILURE,
}


def record(uuid: Callable[[int], str]) -> Described:
    """The machine as NVML, which must be started, tells it. `uuid` names each GPU: the true ones stay where they are."""
    handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    found = Described(str(pynvml.nvmlSystemGetDriverVersion()), [])
    for i, handle in enumerate(handles):
        found.gpus.append(_gpu(found, i, handle, uuid(i)))
        _links(found, i, handle)
        _fabric(found, i, handle)
    for a, b in combinations(range(len(handles)), 2):
        _pair(found, a, b, handles[a], handles[b])
    return found


def _ask(found: Described, call: Any, *arguments: Any, gpu: int = -1, link: int = -1, name: str = "") -> Any:
    """An answer; where it is an error, that is recorded for the shim to repeat, and the answer is None."""
    try:
        return call(*arguments)
    except pynvml.NVMLError as error:
        if error.value != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            found.fail(name or call.__name__, error.value, gpu, link)
        return None


def _gpu(found: Described, i: int, handle: Any, uuid: str) -> dict[str, Any]:
    memory = _ask(found, pynvml.nvmlDeviceGetMemoryInfo, handle, gpu=i)
    mig = _ask(found, pynvml.nvmlDeviceGetMigMode, handle, gpu=i)
    scope = pynvml.NVML_AFFINITY_SCOPE_NODE
    nodes = _ask(found, pynvml.nvmlDeviceGetMemoryAffinity, handle, 1, scope, gpu=i)
    values = _ask(found, pynvml.nvmlDeviceGetFieldValues, handle, list(FIELDS.values()), gpu=i) or ()
    told = {value.fieldId: value.value.uiVal for value in values if value.nvmlReturn == pynvml.NVML_SUCCESS}
    return {
        "uuid": uuid,
        "bus": str(pynvml.nvmlDeviceGetPciInfo(handle).busId),
        "name": _ask(found, pynvml.nvmlDeviceGetName, handle, gpu=i),
        "memory": memory.total if memory else None,
        "minor": _ask(found, pynvml.nvmlDeviceGetMinorNumber, handle, gpu=i),
        "module": _ask(found, pynvml.nvmlDeviceGetModuleId, handle, gpu=i),
        "mig": mig[0] if mig else None,
        "nodes": (nodes[0] or None) if nodes else None,
        **{key: told.get(field) for key, field in FIELDS.items()},
    }


def _links(found: Described, i: int, handle: Any) -> None:
    for lane in range(pynvml.NVML_NVLINK_MAX_LINKS):
        active = _ask(found, pynvml.nvmlDeviceGetNvLinkState, handle, lane, gpu=i, link=lane)
        if active is None:
            continue
        found.links[i, lane] = {"active": active}
        if not active:
            continue
        kind = _ask(found, pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, lane, gpu=i, link=lane)
        name = "nvmlDeviceGetNvLinkRemotePciInfo_v2"
        remote = _ask(found, pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, lane, gpu=i, link=lane, name=name)
        version = _ask(found, pynvml.nvmlDeviceGetNvLinkVersion, handle, lane, gpu=i, link=lane)
        found.links[i, lane] |= {"type": kind, "bus": str(remote.busId) if remote else None}
        found.gpus[i].setdefault("version", version)


def _fabric(found: Described, i: int, handle: Any) -> None:
    info = pynvml.c_nvmlGpuFabricInfoV_t()
    if _ask(found, pynvml.nvmlDeviceGetGpuFabricInfoV, handle, ctypes.byref(info), gpu=i) is not None:
        found.fabrics[i] = {
            "state": info.state,
            "status": info.status,
            "uuid": bytes(info.clusterUuid).hex(),
            "clique": info.cliqueId,
            "mask": info.healthMask,
        }


def _pair(found: Described, a: int, b: int, first: Any, second: Any) -> None:
    caps = range(pynvml.NVML_P2P_CAPS_INDEX_UNKNOWN)
    status = [_of_pair(pynvml.nvmlDeviceGetP2PStatus, first, second, index) for index in caps]
    level = _of_pair(pynvml.nvmlDeviceGetTopologyCommonAncestor, first, second)
    found.pairs[a, b] = {"level": level, "p2p": ",".join(map(str, status))}


def _of_pair(call: Any, *arguments: Any) -> int:
    """An answer about this pair and question alone; an error as its code, negative."""
    try:
        return int(call(*arguments))
    except pynvml.NVMLError as error:
        return -int(error.value)
