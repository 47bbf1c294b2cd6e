"""What the explain API reads and answers, typed for its OpenAPI page. Bandwidths are one direction, in MB/s (10^6 bytes)."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

MAX_GPUS_ASKED = 1024
MAX_OFFERS = 200
MAX_NODES = 1000
MAX_NODES_HELD = 200  # where their pods are asked for: the ledger is read while kube-scheduler waits
EXAMPLES = 5  # nodes named for each reason
ROOMS = 20  # nodes listed one by one beside them

GpuCount = Annotated[int, Field(ge=1, le=MAX_GPUS_ASKED)]


def _key(name: str) -> str:
    return to_camel(name).replace("Numa", "NUMA")  # as in TrainingJob's sameNUMANode


class Model(BaseModel):
    """Keys are written as in Kubernetes objects: bestLeft, not best_left."""

    model_config = ConfigDict(alias_generator=_key, populate_by_name=True, extra="forbid")


class Why(Model):
    """A reason as a word for programs and as a sentence for people."""

    reason: str
    message: str


class BestLeft(Model):
    """The best Ring among the free GPUs of a node, for one size; 0 when fewer are free."""

    gpus: int
    value: int
    empty: int = Field(description="the same on the node when all its GPUs are free")


class Holder(Model):
    """Who has a GPU, or has it promised."""

    namespace: str
    name: str
    uid: str
    how: str = Field(description="Bound, Planned (by the planner), Binding (no outcome yet), or Reported (by the device plugin)")


class HeldBy(Holder):
    """A pod and how many GPUs of one node it has."""

    gpus: int


class NodeSummary(Model):
    """A node in the list."""

    name: str
    gpus: int
    free: list[int] = Field(description="indices of the GPUs that can be given away now")
    free_mask: int = Field(description="the same as a bit mask: bit i stands for GPU i")
    usable: bool = Field(description="false when no pod without special tolerations could get a GPU here now")
    why_not: list[Why]
    best_left: list[BestLeft]
    held_by: list[HeldBy] = Field(default=[], description="pods with GPUs there, those with most first; with `holders=true` only")


class NodePage(Model):
    """Some of the nodes, by name."""

    items: list[NodeSummary]
    total: int = Field(description="nodes the extender knows")
    next: str | None = Field(description="pass it as `after` for the next page; null on the last one")


class GpuOfNode(Model):
    """One GPU of a node."""

    index: int
    uuid: str
    model: str
    numa_node: int = Field(description="-1: unknown")
    health: str
    free: bool
    holders: list[Holder]


class LinkOfNode(Model):
    """What joins two GPUs of a node."""

    a: int
    b: int
    kind: str
    lanes: int
    megabytes_per_second: int


class NodeAnswer(NodeSummary):
    """Everything the extender knows of a node."""

    gpu_list: list[GpuOfNode]
    links: list[LinkOfNode]
    labels: dict[str, str]
    free_cpu_millis: int
    free_memory_bytes: int
    free_pods: int


class WhatIf(Model):
    """A request that nobody has made: either a number of GPUs and how to choose them, or a pod as one would create it.

    The words are those of TrainingJob and of the pod annotations: `pattern` Ring, Clique, ..., `policy` Best, Preserve, Packed,
    First, `sensitivity` High, Medium, Auto, Low, None, `requiredLink` Any or NVLink.
    """

    model_config = ConfigDict(json_schema_extra={"example": {"gpus": 4, "pattern": "Ring", "sensitivity": "High"}})

    gpus: GpuCount | None = None
    pattern: str | None = None
    edges: str | None = None
    policy: str | None = None
    sensitivity: str | None = None
    required_link: str | None = None
    same_numa_node: bool = False
    pod: dict[str, Any] | None = Field(default=None, description="a pod's manifest; its requests and annotations are read")
    limit: int = Field(default=20, ge=1, le=MAX_OFFERS, description="how many nodes to list, best first")


class Asked(Model):
    """The request as it was understood."""

    gpus: int
    pattern: str
    edges: str | None = Field(description="custom edges over ranks, each pair once and in order; null for every other pattern")
    policy: str
    sensitive: bool
    required_link: str
    same_numa_node: bool


class WhatIfNode(Model):
    """What one node would give. `score` is what prioritize would tell kube-scheduler, 0 to 10."""

    node: str
    gpus: list[int] = Field(description="in the order in which the pattern visits them")
    value: int
    score: int
    free_after: int


class NodeRejections(Model):
    """Nodes that cannot take the request for one reason, and some of their names."""

    reason: str
    message: str
    nodes: int
    examples: list[str]


class NodeRoom(Model):
    """What one node has for the largest worker of a job that waits, or for one pod."""

    node: str
    rack: str = Field(description="the node's label kompakt.dev/rack; empty without one")
    block: str = Field(description="the node's label kompakt.dev/block; empty without one")
    free: int = Field(description="GPUs that can be given away now")
    takes: int = Field(description="how many such workers this node could take now, of those that wait")
    message: str = Field(description="why it takes none, and what to do; empty when it takes any")


class WhatIfAnswer(Model):
    """Which nodes could take the request at this moment, best first. Nothing is reserved."""

    asked: Asked
    ideal: int = Field(description="the best value of that many GPUs on an empty node of this cluster")
    nodes: int
    fits: int
    offers: list[WhatIfNode]
    rejections: list[NodeRejections]
    rooms: list[NodeRoom] = Field(description="of the nodes that cannot take it, those that come nearest, at most 20")
    never: str = Field(default="", description="why not even the empty cluster could take it; empty when it could")


class GpuSet(Model):
    """GPU indices in pattern order, and what the pattern gets on them."""

    gpus: list[int]
    value: int


class OtherNode(Model):
    """A set on another node."""

    node: str
    gpus: list[int]
    value: int


class Decision(Model):
    """How a pod got its place, as it was at that moment; kept in memory by the process that bound it."""

    at: str
    node: str
    free_before: list[int]
    chosen: GpuSet
    chosen_by: str = Field(description="Planner: the gang's plan named the GPUs. Extender: they were chosen at bind")
    second_set: GpuSet | None = Field(
        description="the set this node would have given otherwise; null when it had no other or none can be told"
    )
    second_node: OtherNode | None
    note: str


class PodAnswer(Model):
    """Why a pod is where it is, or why it waits."""

    namespace: str
    name: str
    uid: str
    state: str = Field(description="Waiting, Planned, Bound or Finished")
    message: str
    job: str
    gang: str = Field(description="of pods that others made and that are placed together")
    node: str
    gpus: list[str]
    gpu_indices: list[int]
    asked: Asked | None
    value: int | None
    ideal: int | None = Field(description="the best value of that many GPUs on an empty node of this cluster")
    decision: Decision | None
    fits: int = Field(description="for a waiting pod: nodes that could take it alone")
    rejections: list[NodeRejections]
    rooms: list[NodeRoom] = Field(description="the nodes that come nearest to taking it, at most 20")


class Workers(Model):
    """How many of a job's pods there are."""

    expected: int
    present: int
    bound: int


class PodOfJob(Model):
    """One pod of a job's attempt."""

    name: str
    node: str
    gpus: list[str]
    asks: int = Field(description="GPUs that it asks for")


class JobAnswer(Model):
    """What is decided about a job; `scheduling` is the job's status.scheduling as it counts now."""

    job: str
    state: str = Field(
        description="Complete, Failed, Suspended, WaitingForQuota, or the planner's: Waiting, Reserved, Released, Withdrawn"
    )
    message: str = Field(description="the same as a sentence")
    attempt: int
    suspended: bool
    workers: Workers
    scheduling: dict[str, Any]
    pods: list[PodOfJob]
    fits: int = Field(description="for a waiting job: nodes that could take its largest worker alone")
    rejections: list[NodeRejections]
    rooms: list[NodeRoom] = Field(description="for a waiting job: the nodes that come nearest to taking workers, at most 20")


class JobLife(Model):
    """What the operator tells of a TrainingJob, as it stands in its status."""

    phase: str
    attempt: int
    restarts: int = Field(description="those that count towards backoffLimit")
    disruptions: int = Field(description="those that do not: nodes that went, preemption")
    start_time: str
    completion_time: str
    last_restart: dict[str, Any]
    conditions: list[dict[str, Any]] = Field(description="with the moments of their last transitions: the job's moves")
    progress: dict[str, Any]
    compression: dict[str, Any] = Field(description="figures of the runtime; what it tells of each layer as well, where it does")
    profile: dict[str, Any]
    batch: dict[str, Any]


class Sentence(Model):
    """The body of every answer but 200: what was wrong."""

    detail: str
