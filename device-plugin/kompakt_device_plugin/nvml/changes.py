"""What happened between two link graphs of one node, in sentences. Pure."""

from collections.abc import Iterator
from typing import Final

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuUuid
from kompakt_core.topology.graph import HEALTHY, Gpu, LinkGraph
from kompakt_device_plugin.source import Change, ChangeKind

_SICK: Final = {
    "LostGPU": (ChangeKind.LOST, "no longer answers: it fell off the bus, or the driver lost it"),
    "Unreadable": (ChangeKind.LOST, "answers with errors that NVML does not explain"),
    "ResetRequired": (ChangeKind.SICK, "must be reset, says the driver"),
    "ECC": (ChangeKind.ECC, "has memory whose errors cannot be corrected"),
    "MIG": (ChangeKind.SICK, "is in MIG mode, which kompakt does not support; turn MIG mode off to use it"),
    "FabricRoute": (ChangeKind.FABRIC, "has an unhealthy route in the NVLink fabric"),
}


def changes(old: LinkGraph | None, new: LinkGraph) -> tuple[Change, ...]:
    """What is to be told; of a first graph only what is wrong with it."""
    before = {gpu.uuid: gpu for gpu in old.gpus} if old else {}
    now = {gpu.uuid for gpu in new.gpus}
    of_gpus = [change for gpu in new.gpus for change in _of_gpu(before.get(gpu.uuid), gpu)]
    gone = [Change(ChangeKind.LOST, uuid, f"GPU {uuid} is no longer in the driver's list") for uuid in before if uuid not in now]
    rewired = old is not None and (old.digest, old.uneven) != (new.digest, new.uneven)
    links = [Change(ChangeKind.LINKS, GpuUuid(""), "what joins the node's GPUs is other than before")] if rewired else []
    return (*of_gpus, *gone, *links)


def failed(before: LinkGraph | InvalidInput | None, error: InvalidInput) -> tuple[Change, ...]:
    """What is to be told where nothing could be read: once, not at every try."""
    said = str(before) if isinstance(before, InvalidInput) else ""
    return () if said == str(error) else (Change(ChangeKind.LOST, GpuUuid(""), str(error)),)


def _of_gpu(old: Gpu | None, new: Gpu) -> Iterator[Change]:
    was = (old.health, old.health_reason, old.xid) if old else (HEALTHY, "", 0)
    if (new.health, new.health_reason, new.xid) != was:
        yield _healthy(new) if new.health == HEALTHY else _unhealthy(new)
    if old and old.clique != new.clique:
        yield Change(ChangeKind.FABRIC, new.uuid, f"GPU {new.uuid} is registered with fabric {new.clique or 'none'} now")


def _healthy(gpu: Gpu) -> Change:
    if gpu.health_reason:
        return Change(ChangeKind.FABRIC, gpu.uuid, f"GPU {gpu.uuid} is healthy, but its fabric reports {gpu.health_reason}")
    return Change(ChangeKind.WELL, gpu.uuid, f"GPU {gpu.uuid} is healthy again")


def _unhealthy(gpu: Gpu) -> Change:
    if gpu.health_reason == "XID":
        return Change(ChangeKind.XID, gpu.uuid, f"GPU {gpu.uuid} reported XID {gpu.xid}", gpu.xid)
    kind, words = _SICK.get(gpu.health_reason, (ChangeKind.SICK, gpu.health_reason))
    return Change(kind, gpu.uuid, f"GPU {gpu.uuid} {words}", gpu.xid)
