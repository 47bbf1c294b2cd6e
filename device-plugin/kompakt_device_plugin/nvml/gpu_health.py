"""Which GPUs are healthy. Pure: events and readings in, verdicts out.

XIDs are treated as NVIDIA's device plugin treats them (internal/rm/health.go at 02597b9): some are the application's fault and
never count, every other makes the GPU unhealthy; both can be overridden by number. Unlike there a GPU becomes healthy again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pynvml

from kompakt_core.errors import InvalidInput
from kompakt_device_plugin.nvml.facts import Fabric, GpuFacts, Reading

# Faults of the program that ran, not of the GPU: engine exception, page fault, stopped channel, clean-up after these,
# video processor exception, context switch timeout.
APPLICATION_XIDS: Final = frozenset({13, 31, 43, 45, 68, 109})

# How long a driver that asks for no recovery must have been asking for none before an event is forgotten.
QUIET_SECONDS: Final = 300.0

# What the driver wants done and nothing but a reset or a restart brings the GPU back. Not among them: repairing the IMEX
# domain, which concerns other nodes' memory.
_UNFIT: Final = frozenset(
    {
        pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET,
        pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT,
        pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_P2P,
        pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET,
        pynvml.NVML_GPU_RECOVERY_ACTION_BUS_RESET,
        pynvml.NVML_GPU_RECOVERY_ACTION_SYSTEM_REBOOT,
    }
)


@dataclass(frozen=True, slots=True)
class XidRules:
    """Which XIDs make a GPU unhealthy. `heeded` beats `skipped`, both beat the rest (`skip_rest`)."""

    skipped: frozenset[int] = APPLICATION_XIDS
    heeded: frozenset[int] = frozenset()
    skip_rest: bool = False

    def counts(self, xid: int) -> bool:
        """Whether this XID makes a GPU unhealthy."""
        return xid in self.heeded or not (self.skip_rest or xid in self.skipped)


def xid_rules(skip: str = "", heed: str = "") -> XidRules:
    """Rules from two lists of numbers parted by commas. `skip` comes on top of the application's own; its word all skips
    every XID that `heed` does not name, and heed's word all lets every XID count. Raises InvalidInput for anything else.
    """
    skipped, heeded = _numbers(skip, "skip"), _numbers(heed, "heed")
    if heeded is None:
        return XidRules(frozenset())
    return XidRules(APPLICATION_XIDS | (skipped or frozenset()), heeded, skip_rest=skipped is None)


def _numbers(text: str, what: str) -> frozenset[int] | None:
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    if "all" in words:
        return None
    for word in words:
        if not (word.isascii() and word.isdigit() and len(word) < 7):
            raise InvalidInput(f"XIDs to {what}: {word[:32]!r} is no XID; give numbers parted by commas, or all")
    return frozenset(map(int, words))


@dataclass(frozen=True, slots=True)
class Fault:
    """An event that made a GPU unhealthy: an XID, or (xid 0) memory whose error could not be corrected. `at` in seconds."""

    at: float
    xid: int = 0


@dataclass(frozen=True, slots=True)
class GpuHealth:
    """One GPU's health. A healthy one may have a reason too: what is not as it should be and still no fault of the GPU."""

    healthy: bool
    reason: str = ""
    xid: int = 0


def verdict(gpu: GpuFacts, fault: Fault | None) -> GpuHealth:
    """Whether a GPU may be given to pods: it answers, its memory can be mended, nothing asks for a reset, no MIG mode."""
    xid = fault.xid if fault else 0
    if gpu.trouble:
        return GpuHealth(False, gpu.trouble, xid)
    if gpu.remap_failed:
        return GpuHealth(False, "ECC", xid)
    if fault:
        return GpuHealth(False, "XID" if xid else "ECC", xid)
    if gpu.recovery in _UNFIT:
        return GpuHealth(False, "ResetRequired")
    if gpu.mig:
        return GpuHealth(False, "MIG")
    return _fabric(gpu.fabric)


def _fabric(fabric: Fabric | None) -> GpuHealth:
    """A route that the fabric calls unhealthy lets jobs hang; less bandwidth or another configuration is only worth a word."""
    mask = fabric.health_mask if fabric else 0
    if _bits(mask, "ROUTE_UNHEALTHY") == pynvml.NVML_GPU_FABRIC_HEALTH_MASK_ROUTE_UNHEALTHY_TRUE:
        return GpuHealth(False, "FabricRoute")
    if _bits(mask, "DEGRADED_BW") == pynvml.NVML_GPU_FABRIC_HEALTH_MASK_DEGRADED_BW_TRUE:
        return GpuHealth(True, "FabricBandwidth")
    if _bits(mask, "INCORRECT_CONFIGURATION") > pynvml.NVML_GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_NONE:
        return GpuHealth(True, "FabricConfiguration")
    return GpuHealth(True)


def _bits(mask: int, name: str) -> int:
    constants = vars(pynvml)
    shift, width = (constants[f"NVML_GPU_FABRIC_HEALTH_MASK_{part}_{name}"] for part in ("SHIFT", "WIDTH"))
    return int(mask >> shift & width)


def standing(faults: Mapping[str, Fault], reading: Reading, before: Reading | None, now: float) -> dict[str, Fault]:
    """The faults that still hold, by UUID.

    One is over when the GPU answers again after it did not (it was reset), or when the driver has asked for no recovery and
    QUIET_SECONDS have passed. A driver that cannot be asked about recovery leaves a fault standing until the plugin restarts:
    a reset needs every process that holds the GPU, the plugin among them, to let go of it.
    """
    gpus = {gpu.uuid: gpu for gpu in reading.gpus}
    silent = {gpu.uuid for gpu in before.gpus if gpu.trouble} if before else set()
    return {
        uuid: fault
        for uuid, fault in faults.items()
        if not (uuid in gpus and _over(fault, gpus[uuid], now, was_silent=uuid in silent))
    }


def _over(fault: Fault, gpu: GpuFacts, now: float, *, was_silent: bool) -> bool:
    if gpu.trouble:
        return False
    rested = gpu.recovery == pynvml.NVML_GPU_RECOVERY_ACTION_NONE and not gpu.remap_pending
    return was_silent or (rested and now - fault.at >= QUIET_SECONDS)
