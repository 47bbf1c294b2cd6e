"""The fields of a GPUTopology: what a node's device plugin reports of its GPUs. Schema and reference page are made from this."""

from typing import Annotated, ClassVar, Final

from msgspec import field

from kompakt_core.schema.meta import ABSENT, Declared, about
from kompakt_core.schema.standard import StatusCondition
from kompakt_core.schema.words import REPORTED, Words
from kompakt_core.topology.cells import MAX_GPUS
from kompakt_core.topology.graph import HEALTHY, LinkKind, PeerAccess

MAX_LINKS: Final = MAX_GPUS * (MAX_GPUS - 1) // 2
MAX_NICS: Final = 64
MAX_PARTITIONS: Final = 64
UNKNOWN: Final = -1
LARGEST: Final = 1 << 53  # JSON readers in other languages keep integers exactly up to here
LONGEST: Final = 256
KINDS: Final = (
    "NVLink: directly. NVSwitch: NVLink through a switch. C2C, XGMI: other fabrics. PIX: one PCIe switch. PXB: several. "
    "PHB: through the processor. NODE: within a NUMA node. SYS: between NUMA nodes."
)
LinkPath = Annotated[LinkKind, about(KINDS)]
ModuleId = Annotated[int, about("Module id of a GPU.", low=0, high=LARGEST)]


class Reported(Declared, frozen=True):
    """What a device plugin writes; a later one may write more. No default is filled in: it writes what it knows."""

    OPEN: ClassVar[bool] = True
    FILLED: ClassVar[bool] = False
    WORDS: ClassVar[Words] = REPORTED


class ReportedGpu(Reported, frozen=True, kw_only=True):
    """One GPU."""

    index: Annotated[int, about("Index of the GPU on its node, in PCI order.", low=0, high=MAX_GPUS - 1, example=0)]
    uuid: Annotated[str, about("UUID of the GPU.", shortest=1, longest=63, example="GPU-5e8c")]
    pci_bus_id: Annotated[str, about("PCI address.", longest=LONGEST, example="00000000:07:00.0")] = ""
    module_id: Annotated[
        int, about("Number by which partitions of a fabric name the GPU; -1: none.", low=UNKNOWN, high=LARGEST, example=3)
    ] = UNKNOWN
    numa_node: Annotated[
        int, about("NUMA node that the GPU is attached to; -1: unknown.", low=UNKNOWN, high=LARGEST, example=0)
    ] = UNKNOWN
    model: Annotated[str, about("Name of the GPU as its driver gives it.", longest=LONGEST, example="NVIDIA H100 80GB HBM3")] = ""
    memory_bytes: Annotated[
        int, about("Memory of the GPU; 0: unknown.", unit="bytes", low=0, high=LARGEST, example=85899345920)
    ] = 0
    mig_enabled: Annotated[bool, about("true: the GPU is split into instances and not offered.", example=False)] = False
    health: Annotated[str, about("Healthy or Unhealthy. Unhealthy GPUs are not offered.", longest=LONGEST, example=HEALTHY)] = (
        HEALTHY
    )
    health_reason: Annotated[str, about("Why the GPU is unhealthy, in one word.", longest=64, example="ECC")] = ""
    xid: Annotated[int, about("The driver's error number; 0: none.", low=0, high=LARGEST, example=94)] = 0
    clique: (
        Annotated[
            str,
            about("NVLink fabric that the GPU is registered with, as <cluster UUID>.<clique id>.", longest=64, example="7f1c.3"),
        ]
        | None
    ) = None


class ReportedLink(Reported, frozen=True, kw_only=True):
    """The link of one pair of GPUs."""

    a: Annotated[int, about("Index of one GPU of the pair.", low=0, high=MAX_GPUS - 1, example=0)]
    b: Annotated[int, about("Index of the other GPU of the pair.", low=0, high=MAX_GPUS - 1, example=1)]
    kind: Annotated[LinkKind, about(f"What joins the two. {KINDS}", example="NVSwitch")]
    lanes: Annotated[int, about("Number of NVLink or XGMI lanes; 0 for PCIe.", unit="lanes", low=0, high=LARGEST, example=18)] = 0
    megabytes_per_second: Annotated[
        int, about("Bandwidth in one direction.", unit="MB/s (10^6 bytes)", low=0, high=LARGEST, example=450000)
    ]
    generation: Annotated[int, about("Generation of NVLink, from 1 (P100); 0: unknown.", low=0, high=LARGEST, example=4)] = 0
    peer_access: Annotated[
        PeerAccess,
        about("Whether the two may read each other's memory, in the words of nvidia-smi topo -p2p.", example="OK"),
    ] = PeerAccess.UNTOLD
    uneven: Annotated[bool, about("true: the two sides report different links; this is the weaker one.", example=True)] = False


class ReportedNic(Reported, frozen=True, kw_only=True):
    """One network card."""

    name: Annotated[str, about("Name of the network card.", longest=LONGEST, example="mlx5_0")]
    numa_node: Annotated[
        int, about("NUMA node that the card is attached to; -1: unknown.", low=UNKNOWN, high=LARGEST, example=0)
    ] = UNKNOWN
    megabytes_per_second: Annotated[
        int, about("Bandwidth in one direction; 0: unknown.", unit="MB/s (10^6 bytes)", low=0, high=LARGEST, example=50000)
    ] = 0
    paths: Annotated[
        tuple[LinkPath, ...],
        about("Way to each GPU, in order of index, named as in links.", longest=MAX_GPUS, example=["PIX"]),
    ] = ()


class ReportedFabric(Reported, frozen=True):
    """The NVLink fabric of the node."""

    cluster_uuid: Annotated[str, about("UUID of the fabric.", longest=LONGEST, example="7f1c")] = ""
    clique_id: Annotated[int, about("Number of the clique inside the fabric.", low=0, high=LARGEST, example=3)] = 0


class ReportedPartition(Reported, frozen=True):
    """GPUs that the fabric offers as one whole."""

    id: Annotated[int, about("Number of the partition.", low=0, high=LARGEST, example=1)]
    module_ids: Annotated[tuple[ModuleId, ...], about("Module ids of its GPUs.", longest=MAX_GPUS, example=[1, 2, 3, 4])]


class ReportedGraph(Reported, frozen=True, kw_only=True):
    """GPUs, and all that a link graph is made of."""

    gpus: Annotated[tuple[ReportedGpu, ...], about("GPUs of the node, in order of index.", longest=MAX_GPUS)]
    links: Annotated[tuple[ReportedLink, ...], about("One entry for each pair of GPUs.", longest=MAX_LINKS)]
    nics: Annotated[tuple[ReportedNic, ...], about("Network cards of the node.", longest=MAX_NICS)] = ()
    fabric: Annotated[ReportedFabric, about("NVLink fabric of all GPUs; absent where they are in several.")] = ReportedFabric()
    partitions: Annotated[
        tuple[ReportedPartition, ...],
        about("The only sets of GPUs that NVLink joins, where the fabric is partitioned.", longest=MAX_PARTITIONS),
    ] = ()


class GPUTopologySpec(ReportedGraph, frozen=True, kw_only=True):
    """What a node has."""

    node_uid: Annotated[str, about("uid of the Node.", example="0d1e9a6c-5f0b-4d4e-9c57-7a1f6a3d2b10")] = field(name="nodeUID")
    source: Annotated[str, about("Where the report comes from: nvml, or text for a machine described by hand.", example="nvml")]
    driver_version: Annotated[str, about("Version of the GPU driver.", example="580.65.06")] = ""


class HeldGpu(Declared, frozen=True):
    """A GPU that a pod holds."""

    uuid: Annotated[str, about("UUID of the GPU.", example="GPU-5e8c")]
    namespace: Annotated[str, about("Namespace of the pod.", example="team-a")] = ABSENT
    pod: Annotated[str, about("Name of the pod.", example="train-worker-0-a1")] = ABSENT
    pod_uid: Annotated[
        str, about("uid of the pod; empty where only kubelet knows it still.", example="0d1e9a6c-5f0b-4d4e-9c57-7a1f6a3d2b10")
    ] = field(default=ABSENT, name="podUID")


class GPUTopologyStatus(Declared, frozen=True):
    """What changes while pods run."""

    gpus: Annotated[int, about("GPUs of the node.", unit="GPUs", low=0, example=8)] = ABSENT
    free: Annotated[int, about("Healthy GPUs that no pod holds.", unit="GPUs", low=0, example=4)] = ABSENT
    fabric: Annotated[str, about("Fastest kind of fabric link on the node; PCIe where there is none.", example="NVSwitch")] = (
        ABSENT
    )
    health: Annotated[str, about("Healthy, Degraded where a GPU is unhealthy, Unhealthy where all are.", example=HEALTHY)] = (
        ABSENT
    )
    held: Annotated[tuple[HeldGpu, ...], about("GPUs that pods hold.", key="uuid", longest=1024)] = ABSENT
    conditions: Annotated[
        tuple[StatusCondition, ...],
        about(
            "Ready: the GPUs are offered. Degraded: a GPU or a link is not as it should be. Conflict: another device plugin "
            "offers the same GPUs.",
            key="type",
        ),
    ] = ABSENT
