"""LinkGraph: GPUs of one node, and for each unordered pair the kind of link and its bandwidth one way."""

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from kompakt_core.ids import GpuIndex, GpuUuid


class LinkKind(StrEnum):
    """What joins two GPUs; the words of `nvidia-smi topo -m`, NVLink kinds spelt out."""

    NVLINK = "NVLink"
    NVSWITCH = "NVSwitch"
    C2C = "C2C"
    XGMI = "XGMI"
    PIX = "PIX"
    PXB = "PXB"
    PHB = "PHB"
    NODE = "NODE"
    SYS = "SYS"


FABRIC_KINDS = frozenset({LinkKind.NVLINK, LinkKind.NVSWITCH, LinkKind.C2C, LinkKind.XGMI})


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. `health` is "Healthy" or "Unhealthy"; unknown numbers are -1, unknown texts empty."""

    index: GpuIndex
    uuid: GpuUuid
    numa_node: int = -1
    model: str = ""
    memory_bytes: int = 0
    pci_bus_id: str = ""
    module_id: int = -1
    mig_enabled: bool = False
    health: str = "Healthy"


@dataclass(frozen=True, slots=True)
class Link:
    """The link of one unordered pair, a < b. Bandwidth is one direction, in MB/s (10^6 bytes)."""

    a: GpuIndex
    b: GpuIndex
    kind: LinkKind
    lanes: int
    megabytes_per_second: int


@dataclass(frozen=True, slots=True)
class Nic:
    """A network card of the node."""

    name: str
    numa_node: int
    megabytes_per_second: int


@dataclass(frozen=True)
class LinkGraph:
    """GPUs ordered by index 0..n-1; `links` holds every unordered pair exactly once, ordered by (a, b)."""

    gpus: tuple[Gpu, ...]
    links: tuple[Link, ...]
    nics: tuple[Nic, ...] = ()

    @property
    def size(self) -> int:
        """Number of GPUs."""
        return len(self.gpus)

    @cached_property
    def weights(self) -> tuple[tuple[int, ...], ...]:
        """n x n symmetric matrix of MB/s one way; 0 on the diagonal."""
        rows = [[0] * self.size for _ in range(self.size)]
        for link in self.links:
            rows[link.a][link.b] = rows[link.b][link.a] = link.megabytes_per_second
        return tuple(tuple(row) for row in rows)
