"""What placement decides on: nodes, workers, gangs; and what it answers: plans and rejections. Plain frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from kompakt_core.contract.words import NEVER_FITS
from kompakt_core.contract.words import Level as Level
from kompakt_core.contract.words import PlacementPolicy as PlacementPolicy
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import NO_BANDWIDTH, NO_GPUS, GpuIndex, GpuMask, JobUid, MegabytesPerSecond, NodeName, PodUid
from kompakt_core.patterns.edges import Edges
from kompakt_core.patterns.names import Measure, Pattern
from kompakt_core.topology.graph import LinkGraph


class Reason(StrEnum):
    """Why a node, or a whole cluster, cannot take a request; shells word it for people."""

    NO_TOPOLOGY = "NoTopology"  # no GPUTopology for this node
    STALE_TOPOLOGY = "StaleTopology"  # written for an earlier Node object, or not in step with allocatable
    UNREADABLE_HOLDER = "UnreadableHolder"  # status.held has an entry that names no GPU; wait for the plugin's report
    UNREPORTED_POD = "UnreportedPod"  # a pod was bound past us; wait for the plugin's report
    NODE_NOT_READY = "NodeNotReady"
    CORDONED = "Cordoned"
    TAINTED = "Tainted"
    SELECTOR = "NodeSelector"
    EXCLUDED = "Excluded"  # refused this gang a short while ago
    CPU = "NotEnoughCPU"
    MEMORY = "NotEnoughMemory"
    PODS = "TooManyPods"
    NOT_ENOUGH_GPUS = "NotEnoughFreeGPUs"
    MACHINE_TOO_SMALL = "MachineTooSmall"  # more GPUs are asked for than the node has in all
    RESERVED = "GPUsReserved"  # enough would be free, but some are reserved for a gang that waits
    VALUE_TOO_LOW = "ValueTooLow"
    LINK_TOO_WEAK = "RequiredLinkMissing"
    NUMA_SPLIT = "SameNUMANodeMissing"  # enough free GPUs, but not on one NUMA node (or NUMA nodes unknown)
    TOO_FEW_RANKS = "TooFewGPUsForEdges"  # custom edges name ranks that the pod does not have
    NOT_WEIGHED = "NotWeighed"  # custom edges were not weighed there in the time that they may take
    PARTITION_SPLIT = "NoFreePartition"  # the fabric offers NVLink in partitions only, and none of that size is free
    MAPA_BLOCKED = "BlockedByMAPA"  # the published rules take no set although the request fits; policy mapa2021 only
    TOO_MANY_GPUS = "TooManyGPUs"  # the node has more GPUs than patterns are matched on
    NOT_PLANNED = "NotPlanned"  # the pod's plan names another node, and no other will do
    PLANNED_TAKEN = "PlannedTaken"  # the planned GPUs are not free, or not there
    UNKNOWN_NODE = "UnknownNode"
    NO_PLAN = "NoPlan"  # a worker of a gang that has no plan
    WITHDRAWN = "Withdrawn"
    NO_GPUS = "NoGPUs"  # none are asked for
    INVALID_REQUEST = "InvalidRequest"  # detail: what is wrong with it
    BOUND_ELSEWHERE = "BoundElsewhere"  # detail: the node
    PLUGIN_BEHIND = "PluginBehind"  # the device plugin has not reported an earlier pod of the size
    OUTCOME_UNKNOWN = "OutcomeUnknown"  # of a write; detail: what was heard
    BINDING_REFUSED = "BindingRefused"  # detail: the API server's message
    POD_UNREADABLE = "PodUnreadable"  # detail: why nobody can say what became of it
    POD_GONE = "PodGone"
    POD_REPLACED = "PodReplaced"
    NOT_SENT = "NotSent"  # detail: why the write never left
    BEYOND_LIMITS = "BeyondLimits"  # detail: which of an administrator's Limits, and both numbers
    NEVER_FITS = NEVER_FITS
    DOES_NOT_FIT_NOW = "DoesNotFitNow"


FINAL: Final = frozenset(
    {
        Reason.NOT_PLANNED,
        Reason.NO_PLAN,
        Reason.NO_GPUS,
        Reason.INVALID_REQUEST,
        Reason.BEYOND_LIMITS,
        Reason.MACHINE_TOO_SMALL,
        Reason.NEVER_FITS,
    }
)


@dataclass(frozen=True, slots=True)
class Rejection:
    """A no with its reason as data. `have` and `need` are counts or MB/s as the reason says; `node` None: all nodes."""

    reason: Reason
    node: NodeName | None = None
    have: int = 0
    need: int = 0
    detail: str = ""  # a name, e.g. of the taint; never a number that changes from call to call

    @property
    def final(self) -> bool:
        """Whether taking pods off the node would not help."""
        return self.reason in FINAL


@dataclass(frozen=True, slots=True)
class Choice:
    """The GPUs one pod gets on a node: as a set, in pattern order, and the value of the pattern on them.

    `second` is the pattern's value by the measure that the request did not name. `bound` None: the value is exact; else it is
    the best found, and no set has more than `bound`.
    """

    mask: GpuMask
    order: tuple[GpuIndex, ...]
    value: MegabytesPerSecond
    second: MegabytesPerSecond = NO_BANDWIDTH
    bound: MegabytesPerSecond | None = None


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    effect: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class Toleration:
    """Empty key with operator Exists tolerates all; empty effect all effects."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Selector:
    """One requirement on a node's labels: operator In, NotIn, Exists, DoesNotExist, Gt, Lt (as in node affinity)."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node as the planner sees it. `taken` holds GPUs that are held, planned, reserved or unhealthy; `reserved` those of them
    that nobody has, so that a rejection can say why it does not count them; equal nodes may differ in it.

    `cpu_millis`, `memory_bytes`, `pods`: what it has for pods in all.
    """

    name: NodeName
    graph: LinkGraph | None
    taken: GpuMask = NO_GPUS
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    problem: Reason | None = None  # NO_TOPOLOGY, STALE_TOPOLOGY, UNREADABLE_HOLDER, UNREPORTED_POD
    free_cpu_millis: int = 1 << 62
    free_memory_bytes: int = 1 << 62
    free_pods: int = 1 << 30
    cpu_millis: int = 1 << 62
    memory_bytes: int = 1 << 62
    pods: int = 1 << 30
    reserved: GpuMask = field(default=NO_GPUS, compare=False)

    @property
    def kept(self) -> int:
        """How many GPUs would be free if none were reserved for others."""
        return (self.taken & self.reserved).bit_count()

    @property
    def free(self) -> GpuMask:
        """GPUs that can be given away now."""
        return GpuMask(0) if self.graph is None else GpuMask(((1 << self.graph.size) - 1) & ~self.taken)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All nodes at one moment; a trial makes a new snapshot."""

    nodes: Mapping[NodeName, NodeState]

    def with_taken(self, node: NodeName, gpus: GpuMask) -> "Snapshot":
        """The same cluster with these GPUs of one node taken as well."""
        state = self.nodes[node]
        return Snapshot({**self.nodes, node: replace(state, taken=GpuMask(state.taken | gpus))})


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """How one pod's GPUs are to be chosen. Raises InvalidInput when pattern Custom comes without edges, or edges without it."""

    pattern: Pattern = Pattern.NONE
    policy: PlacementPolicy = PlacementPolicy.PRESERVE
    sensitive: bool = False  # bandwidth sensitivity High, Medium or Auto
    required_link: str = "Any"  # Any NVLink
    same_numa_node: bool = False
    measure: Measure = Measure.BOTTLENECK  # which value counts; the other one decides between equals
    edges: Edges = ()  # of pattern Custom, between ranks of one pod

    def __post_init__(self) -> None:
        if bool(self.edges) != (self.pattern is Pattern.CUSTOM):
            raise InvalidInput("custom edges and pattern Custom go together: give both or neither")

    def without_pattern(self) -> "GpuRequest":
        """The same with pattern None."""
        return replace(self, pattern=Pattern.NONE, edges=())


@dataclass(frozen=True, slots=True)
class Worker:
    """One pod to be placed."""

    index: int  # over all roles; also decides the rank
    pod: str
    uid: PodUid
    gpus: int
    cpu_millis: int = 0
    memory_bytes: int = 0
    node_selector: Mapping[str, str] = field(default_factory=dict)
    # Required node affinity: any of the terms, all selectors of a term; () = no requirement.
    affinity: tuple[tuple[Selector, ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    edges: Edges = ()  # where the gang has edges of its own: those inside this pod


@dataclass(frozen=True, slots=True)
class Gang:
    """All workers of one attempt; all or nothing.

    `edges` join ranks of the whole gang: its GPUs, worker by worker in the order of their indices. Then `gpu_request`
    names no pattern and `workers` come from rank_mapping.with_edges.
    """

    job_uid: JobUid
    attempt: int
    workers: tuple[Worker, ...]
    gpu_request: GpuRequest
    required_level: Level = Level.CLUSTER
    excluded: frozenset[NodeName] = frozenset()
    edges: Edges = ()

    def gpu_request_of(self, worker: Worker) -> GpuRequest:
        """How this worker's own GPUs are to be chosen."""
        return replace(self.gpu_request, pattern=Pattern.CUSTOM, edges=worker.edges) if worker.edges else self.gpu_request


@dataclass(frozen=True, slots=True)
class Seat:
    """What one worker gets: GPUs in pattern order, and the value of the pattern on them. `rank` = node rank in the gang."""

    worker: Worker
    node: NodeName
    gpus: tuple[GpuIndex, ...]
    value: MegabytesPerSecond
    rank: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole gang's places. `value` = the smallest of its seats' values; `ideal` = the same on an empty cluster."""

    level: Level
    value: MegabytesPerSecond
    ideal: MegabytesPerSecond
    seats: tuple[Seat, ...]
