"""LinkGraph: GPUs of one node, and for each unordered pair the kind of link and its bandwidth one way."""

import hashlib
import re
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuIndex, GpuMask, GpuUuid, mask_of

if TYPE_CHECKING:
    import networkx


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
NVLINK_KINDS = frozenset({LinkKind.NVLINK, LinkKind.NVSWITCH})


class PeerAccess(StrEnum):
    """Whether two GPUs may read each other's memory; the words of `nvidia-smi topo -p2p`, UNTOLD where nobody asked."""

    UNTOLD = ""
    OK = "OK"
    CHIPSET = "CNS"
    GPU = "GNS"
    TOPOLOGY = "TNS"
    REGISTRY_KEY = "DR"
    NOT_SUPPORTED = "NS"
    UNKNOWN = "U"


HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"

# UUIDs are joined with commas in annotations and are device ids for kubelet (at most 63 characters).
_UUID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. `health` is "Healthy" or "Unhealthy"; unknown numbers are -1, unknown texts empty.

    `health_reason` is one word such as LostGPU, ECC or XID, `xid` the driver's error number (0: none).
    `clique` is "<cluster UUID>.<clique id>" of the NVLink fabric that the GPU is registered with, empty where it is with none.
    `module_id` is NVML's module id: the only number by which partitions of a fabric name a GPU.
    """

    index: GpuIndex
    uuid: GpuUuid
    numa_node: int = -1
    model: str = ""
    memory_bytes: int = 0
    pci_bus_id: str = ""
    module_id: int = -1
    mig_enabled: bool = False
    health: str = HEALTHY
    health_reason: str = ""
    xid: int = 0
    clique: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """The link of one unordered pair, a < b. Bandwidth is one direction, in MB/s (10^6 bytes).

    `lanes` is 0 for PCIe kinds. `generation` is NVLink's, 1 (P100) to 5 (B200); 0 where it is unknown or no NVLink.
    """

    a: GpuIndex
    b: GpuIndex
    kind: LinkKind
    lanes: int
    megabytes_per_second: int
    generation: int = 0
    peer_access: PeerAccess = PeerAccess.UNTOLD


@dataclass(frozen=True, slots=True)
class Nic:
    """A network card of the node. `paths` is the kind of way to each GPU in order of index; empty where unknown."""

    name: str
    numa_node: int
    megabytes_per_second: int
    paths: tuple[LinkKind, ...] = ()


@dataclass(frozen=True, slots=True)
class Partition:
    """A set of GPUs that the fabric offers as one whole, named by module ids, never by index."""

    id: int
    module_ids: tuple[int, ...]


@dataclass(frozen=True)
class LinkGraph:
    """GPUs ordered by index 0..n-1; `links` holds every unordered pair exactly once, ordered by (a, b).

    `uneven` names the pairs whose two sides reported different links (the weaker one is in `links`): the node is degraded.
    `partitions`, where there are any, are the only sets of GPUs that NVLink joins, each exactly as offered.
    What is unusual about a graph is said by `flags.remarks`. Raises InvalidInput when a rule is broken.
    """

    gpus: tuple[Gpu, ...]
    links: tuple[Link, ...]
    nics: tuple[Nic, ...] = ()
    uneven: tuple[tuple[GpuIndex, GpuIndex], ...] = ()
    partitions: tuple[Partition, ...] = ()

    def __post_init__(self) -> None:
        _check_gpus(self.gpus)
        _check_links(self.links, len(self.gpus))
        _check_extras(self)

    def __getstate__(self) -> dict[str, object]:
        """Without what is computed from the fields: `shared` of another process would be nobody's."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @property
    def size(self) -> int:
        """Number of GPUs."""
        return len(self.gpus)

    @property
    def all_gpus(self) -> GpuMask:
        """The set of all GPUs of the node."""
        return GpuMask((1 << self.size) - 1)

    @cached_property
    def weights(self) -> tuple[tuple[int, ...], ...]:
        """n x n symmetric matrix of MB/s one way; 0 on the diagonal."""
        rows = [[0] * self.size for _ in range(self.size)]
        for link in self.links:
            rows[link.a][link.b] = rows[link.b][link.a] = link.megabytes_per_second
        return tuple(tuple(row) for row in rows)

    @cached_property
    def digest(self) -> str:
        """Equal for graphs on which every choice is equal: links, NUMA nodes, partitions and GPU order, not UUIDs or models.

        Nodes of one kind of machine share their tables through it.
        """
        numa = ",".join(str(gpu.numa_node) for gpu in self.gpus)
        links = ";".join(f"{link.kind}:{link.lanes}:{link.megabytes_per_second}" for link in self.links)
        index = {gpu.module_id: gpu.index for gpu in self.gpus}
        sets = [sorted(index.get(module, -1) for module in one.module_ids) for one in self.partitions]
        return hashlib.sha256(f"{numa}|{links}|{sorted(sets)}".encode()).hexdigest()

    @cached_property
    def shared(self) -> "SharedGraph":
        """The one object that stands for all graphs with this digest: a key that caches compare by identity."""
        return _SHARED.setdefault(self.digest, SharedGraph(self))

    @cached_property
    def partition_masks(self) -> dict[int, GpuMask]:
        """The GPU set of each partition by its id; a partition of which a GPU is not on this node is left out."""
        found = {gpu.module_id: gpu.index for gpu in self.gpus if gpu.module_id >= 0}
        whole = (part for part in self.partitions if all(module in found for module in part.module_ids))
        return {part.id: mask_of([found[module] for module in part.module_ids]) for part in whole}

    def link(self, a: int, b: int) -> Link:
        """The link between two different GPUs, in either order."""
        low, high = (a, b) if a < b else (b, a)
        # Pairs are sorted, so the position follows from counting: all pairs of the GPUs below `low` come first.
        return self.links[low * self.size - low * (low + 1) // 2 + high - low - 1]

    def to_networkx(self) -> "networkx.Graph[int]":
        """The public form: nodes are GPU indices, edges carry kind, lanes, generation and weight (MB/s one way)."""
        import networkx  # 0.1 s to import and needed by few: not at start-up

        graph: networkx.Graph[int] = networkx.Graph()
        for gpu in self.gpus:
            graph.add_node(gpu.index, uuid=gpu.uuid, numa_node=gpu.numa_node, model=gpu.model)
        for link in self.links:
            about = {"kind": link.kind, "lanes": link.lanes, "generation": link.generation}
            graph.add_edge(link.a, link.b, weight=link.megabytes_per_second, **about)
        return graph


class SharedGraph:
    """All link graphs with one digest, by the example of the first of them. Two are equal only if they are the same."""

    __slots__ = ("__weakref__", "graph")

    def __init__(self, graph: LinkGraph) -> None:
        self.graph = graph


# Weak: the entry goes with the last graph (or table) of its digest.
_SHARED: WeakValueDictionary[str, SharedGraph] = WeakValueDictionary()


def _check_gpus(gpus: tuple[Gpu, ...]) -> None:
    seen: set[str] = set()
    for position, gpu in enumerate(gpus):
        if gpu.index != position:
            raise InvalidInput(f"GPU at position {position} has index {gpu.index}; indices must run 0, 1, 2, ... in order")
        if not _UUID.fullmatch(gpu.uuid):
            raise InvalidInput(f"GPU {position}: {gpu.uuid!r} is no UUID; at most 63 letters, digits, '.', '_' or '-' are")
        if gpu.uuid in seen:
            raise InvalidInput(f"GPU {position}: UUID {gpu.uuid} appears twice; every GPU needs its own")
        if gpu.health not in (HEALTHY, UNHEALTHY):
            raise InvalidInput(f"GPU {position}: health is {gpu.health!r}; it must be {HEALTHY} or {UNHEALTHY}")
        seen.add(gpu.uuid)


def _check_links(links: tuple[Link, ...], size: int) -> None:
    for link in links:
        if link.lanes < 0 or link.megabytes_per_second < 0:
            raise InvalidInput(f"link of GPUs {link.a} and {link.b}: lanes and bandwidth must not be negative")
    if [(link.a, link.b) for link in links] == list(combinations(range(size), 2)):
        return
    counts: dict[tuple[int, int], int] = {}
    for link in links:
        counts[link.a, link.b] = counts.get((link.a, link.b), 0) + 1
    for pair, count in counts.items():
        if not 0 <= pair[0] < pair[1] < size:
            raise InvalidInput(f"link {pair[0]}-{pair[1]}: must join GPUs a < b below {size}")
        if count > 1:
            raise InvalidInput(f"GPUs {pair[0]} and {pair[1]} have {count} links; every pair must appear exactly once")
    for pair in combinations(range(size), 2):
        if pair not in counts:
            raise InvalidInput(f"no link between GPUs {pair[0]} and {pair[1]}; every pair must appear exactly once")
    raise InvalidInput("links must be ordered by (a, b)")


def _check_extras(graph: LinkGraph) -> None:
    for pair in graph.uneven:
        if not 0 <= pair[0] < pair[1] < graph.size:
            raise InvalidInput(f"uneven pair {pair[0]}-{pair[1]}: there is no such pair")
    for nic in graph.nics:
        if nic.paths and len(nic.paths) != graph.size:
            raise InvalidInput(f"NIC {nic.name}: {len(nic.paths)} paths; one for each of the {graph.size} GPUs is due, or none")
    modules = [gpu.module_id for gpu in graph.gpus if gpu.module_id >= 0]
    if len(set(modules)) != len(modules):
        raise InvalidInput(f"module ids {modules}: two GPUs share one; every GPU has its own")
    if len({part.id for part in graph.partitions}) != len(graph.partitions):
        raise InvalidInput("partitions: two have the same id")
    for part in graph.partitions:
        if not part.module_ids or len(set(part.module_ids)) != len(part.module_ids):
            raise InvalidInput(f"partition {part.id}: must name at least one module and each once")
