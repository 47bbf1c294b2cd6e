"""What the caches keep of pods, nodes, GPUTopologies, TrainingJobs, Limits and namespaces: frozen values of what we use."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from kompakt_core import contract
from kompakt_core.contract import bound_gpus, gpu_claim, planned_seat, worker_labels
from kompakt_core.contract.gang_member import GangMember
from kompakt_core.ids import GpuUuid, NodeName, PodUid
from kompakt_core.job.limited import DEFAULT_GRACE_SECONDS, JobDemand
from kompakt_core.job.limits import LimitsSpec
from kompakt_core.job.model import Consolidation, Preemption
from kompakt_core.placement.model import Level, Taint
from kompakt_core.topology.graph import LinkGraph
from kompakt_extender import node_rules

FINISHED = ("Succeeded", "Failed")
NOTHING: Mapping[str, str] = {}
ONLY_ATTEMPT: Final = 1  # of a gang that others made: who makes its pods anew does so without us


class JobKind(StrEnum):
    """What a gang's pods belong to: whose status its plan is written in."""

    TRAINING_JOB = contract.JOB_KIND
    GANG = contract.GANG_KIND

    @property
    def plural(self) -> str:
        """As in paths."""
        return contract.JOB_PLURAL if self is JobKind.TRAINING_JOB else contract.GANG_PLURAL


def gang_uid(namespace: str, name: str) -> str:
    """What stands for the uid of a gang that others made: its pods are there before its object. No object has such a uid."""
    return f"{namespace}/{name}"


class PodView(msgspec.Struct, frozen=True, gc=False):
    """A pod. `gpus` is the number of GPUs it asks for; `problem` says why that request can never be served.

    `job_uid`: the TrainingJob of its namespace that it works for, or what `gang_uid` gives for its gang; empty for a plain pod.
    `gang`: what it says of a gang that others made; None for other pods, and where that cannot be read (`problem`).
    Of pods that ask for no GPUs and work for no job only what they take of their node is kept.
    """

    uid: PodUid
    namespace: str
    name: str
    node: NodeName | None = None
    phase: str = ""
    reason: str = ""
    deleting: bool = False
    started: bool = False  # a container ran at least once
    ours: bool = False  # schedulerName is kompakt-scheduler, or the planner writes its ResourceClaim
    gates: tuple[str, ...] = ()
    gpus: int = 0
    problem: str = ""
    cpu_millis: int = 0
    memory_bytes: int = 0
    priority: int = 0
    preempts: bool = True  # its preemptionPolicy is not Never
    priority_class: str = ""
    grace_seconds: int = DEFAULT_GRACE_SECONDS
    controlled: bool = False  # something makes it anew
    created: str = ""  # RFC 3339, UTC
    since: float | None = None  # seconds since the epoch: when kubelet took it
    job_uid: str = ""
    labels: Mapping[str, str] = NOTHING  # only kompakt.dev/*
    annotations: Mapping[str, str] = NOTHING  # only kompakt.dev/*
    annotated: bool = False  # metadata.annotations exists at all (a JSON patch must know)
    rules: bytes = node_rules.NO_RULES  # what it asks of nodes, while it asks
    mounts_claims: bool = False  # a volume of it comes from a PersistentVolumeClaim, and may have to be bound first
    version: int = 0  # resourceVersion: numbers of one resource grow (KEP-5504, stable since Kubernetes 1.35); 0 = unknown
    gang: GangMember | None = None
    exists: bool = True  # False: the operator creates it when its gang has places

    @property
    def finished(self) -> bool:
        """Its containers are gone for good, and so is its hold on GPUs."""
        return self.phase in FINISHED

    @property
    def gated(self) -> bool:
        """Our gate still holds it back."""
        return contract.GATE in self.gates

    @property
    def waits_gated(self) -> bool:
        """A pod that others made, which the planner is to give a place and take our gate off."""
        return self.gang is not None and self.ours and self.gated and not (self.deleting or self.finished)

    @property
    def attempt(self) -> int | None:
        """The job's attempt that it belongs to; None for a plain pod."""
        return worker_labels.attempt(self.labels) if self.gang is None else ONLY_ATTEMPT

    @property
    def planned_node(self) -> NodeName:
        """Where the planner wants it; empty without a plan."""
        return planned_seat.node(self.annotations)

    @property
    def planned_gpus(self) -> tuple[GpuUuid, ...]:
        """Which GPUs the planner gave it, in pattern order."""
        return planned_seat.gpus(self.annotations)

    @property
    def written_gpus(self) -> tuple[GpuUuid, ...]:
        """Which GPUs were written on it when it was bound, in pattern order.

        Of a pod with a ResourceClaim of ours that nothing is written on yet those of its plan.
        """
        written = bound_gpus.uuids(self.annotations)
        return self.planned_gpus if not written and self.unnoted and self.node == self.planned_node else written

    @property
    def by_claim(self) -> bool:
        """Its GPUs come by a ResourceClaim that the planner writes."""
        return bool(self.gpus) and gpu_claim.is_asked(self.annotations)

    @property
    def unnoted(self) -> bool:
        """Bound with a ResourceClaim of ours, and its GPUs do not stand on it yet."""
        return self.node is not None and self.by_claim and not bound_gpus.uuids(self.annotations)


class NodeView(msgspec.Struct, frozen=True, gc=False):
    """A node. `gpus` = allocatable kompakt.dev/gpu. `marked`: somebody has told cluster-autoscaler whether to remove it."""

    name: NodeName
    uid: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    unschedulable: bool
    ready: bool
    cpu_millis: int
    memory_bytes: int
    pods: int
    gpus: int
    marked: bool = False


class TopologyView(msgspec.Struct, frozen=True, gc=False):
    """A GPUTopology. `graph` is None where its spec cannot be read; `problem` then says why. `held`: (uuid, pod uid).

    `holders_known`: whether `held` is all that is held; not where an entry of it names no GPU. `counted`: whether the node offers
    its healthy GPUs, one each; not where others hand them out, who may divide them, or give them by claims.
    """

    name: NodeName
    node_uid: str
    graph: LinkGraph | None
    problem: str
    healthy: int
    held: tuple[tuple[GpuUuid, PodUid], ...]
    holders_known: bool = True
    counted: bool = True


class ExpectedRole(msgspec.Struct, frozen=True, gc=False):
    """What each pod of a role will ask for: `pod` as the operator's first one of them would be."""

    name: str
    replicas: int
    pod: PodView


class JobView(msgspec.Struct, frozen=True, gc=False):
    """A TrainingJob, or a Gang of pods that others made: what the planner needs of it. `scheduling` is status.scheduling as
    written.

    `uid`: of a Gang what `gang_uid` gives; `object_uid`: that of the object, "" = the same.
    `edges`: (from, to, weight) between GPUs of the whole gang, as written. `communication`: seconds of it per second of computing
    inside a rack, as measured; None: not, or the user declared a word.
    `remaining_s`: seconds of computing that were left when the attempt before ended, if it told so.
    `asked`: what Limits speak of. `expected`: what the pods of this attempt will ask for, role by role; empty where that is not
    known.
    """

    uid: str
    namespace: str
    name: str
    resource_version: str
    generation: int
    workers: int
    attempt: int
    suspended: bool
    finished: bool
    ours: bool
    required_level: Level
    same_numa_node: bool
    scheduling: Mapping[str, Any]
    placed: tuple[str, str] | None  # condition Placed: status, lastTransitionTime
    consolidation: Consolidation = Consolidation()
    communication: float | None = None
    edges: tuple[tuple[int, int, int], ...] = ()
    running_since: float | None = None  # seconds since the epoch: when all workers of this attempt ran
    min_runtime_seconds: int = Preemption().min_runtime_seconds
    remaining_s: float | None = None
    asked: JobDemand = JobDemand()
    expected: tuple[ExpectedRole, ...] = ()
    ended: tuple[str, str] | None = None  # how it finished: the condition and its message
    queued: str = ""  # why Kueue has not admitted it; "" where it need not, or has
    nodes_asked: str = ""  # what an autoscaler says of the nodes that it was asked for; "" where it was not
    kind: JobKind = JobKind.TRAINING_JOB
    object_uid: str = ""

    @property
    def written_uid(self) -> str:
        """The uid of the object that its plan is written on."""
        return self.object_uid or self.uid


class LimitsView(msgspec.Struct, frozen=True, gc=False):
    """A Limits object."""

    name: str
    spec: LimitsSpec


class NamespaceView(msgspec.Struct, frozen=True, gc=False):
    """A Namespace."""

    name: str
    labels: Mapping[str, str]
