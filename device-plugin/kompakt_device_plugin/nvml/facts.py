"""What NVML said, as plain values: no handles, no structures. All constants in these fields are nvidia-ml-py's."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Fabric:
    """One GPU's registration with the NVLink fabric.

    `state` is NVML_GPU_FABRIC_STATE_*; `status` (an NVML error code) says something only when the state is completed;
    `cluster` is the cluster's UUID in hexadecimal with dashes, all zero where there is no fabric beyond this node.
    """

    state: int
    status: int = 0
    cluster: str = ""
    clique: int = 0
    health_mask: int = 0


@dataclass(frozen=True, slots=True)
class Lanes:
    """One GPU's active NVLink lanes by what is at their other end. `unread` lanes answered with an error other than
    "there is no such link": nobody knows whether they work.
    """

    to_gpus: Mapping[str, int] = field(default_factory=dict)  # by bus id as core's `bus_id` writes it
    to_switches: int = 0
    unread: int = 0
    version: int = 0  # NVML_NVLINK_VERSION_*: an enumeration, no generation


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU. `trouble` is a word where it does not answer (LostGPU, ResetRequired); the rest is then what was known before.

    None means that the driver does not tell.
    """

    index: int
    uuid: str
    bus_id: str = ""
    model: str = ""
    memory_bytes: int = 0
    module_id: int | None = None
    memory_nodes: tuple[int, ...] = ()  # NUMA nodes near the GPU as the driver says; asked only where sysfs is silent
    mig: bool = False
    lanes: Lanes = field(default_factory=Lanes)
    fabric: Fabric | None = None
    recovery: int | None = None  # NVML_GPU_RECOVERY_ACTION_*
    remap_pending: bool = False
    remap_failed: bool = False
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class PairFacts:
    """One pair of GPUs. None: the driver does not tell."""

    level: int | None = None  # NVML_TOPOLOGY_*
    read_status: int | None = None  # NVML_P2P_STATUS_* of reading over any path
    nvlink_status: int | None = None  # the same of NVLink; asked only where both reach switches


@dataclass(frozen=True, slots=True)
class Reading:
    """One discovery of a node; `pairs` by indices a < b."""

    driver_version: str
    gpus: tuple[GpuFacts, ...]
    pairs: Mapping[tuple[int, int], PairFacts]
