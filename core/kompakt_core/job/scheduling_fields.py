"""The fields of `status.scheduling`: what the planner has decided about a gang."""

from typing import Annotated, Literal

from msgspec import field

from kompakt_core.contract.words import Level
from kompakt_core.job.choices import MAX_GPUS, MAX_WORKERS
from kompakt_core.schema.meta import ABSENT, Declared, about, moment

MOST_LISTED = 5000
LOWEST_PRIORITY = -(1 << 31)  # priorities are int32
Uuid = Annotated[str, about("UUID of a GPU.")]
Attempt = Annotated[int, about("Number of the attempt.", low=0, example=2)]
Priority = Annotated[int, about("Priority of the job's pods.", low=LOWEST_PRIORITY, example=1000)]
Name = Annotated[str, about("Name of the job.", example="urgent")]
Namespace = Annotated[str, about("Namespace of the job.", example="team-a")]
Uid = Annotated[str, about("uid of the job.", example="0d1e9a6c-5f0b-4d4e-9c57-7a1f6a3d2b10")]


class SeatStatus(Declared, frozen=True):
    """The place of one pod on a node."""

    uid: Annotated[
        str,
        about("uid of the pod; in state Reserved, its number in the attempt.", example="0d1e9a6c-5f0b-4d4e-9c57-7a1f6a3d2b10"),
    ]
    gpus: Annotated[
        str,
        about(
            "Indices of the pod's GPUs in the node's GPUTopology, in pattern order; the pod's annotation has their UUIDs.",
            example="0,3,1,2",
        ),
    ] = ABSENT
    value: Annotated[
        int,
        about("Bandwidth that the pattern gets on these GPUs, where it is not the plan's.", unit="MB/s", low=0, example=25000),
    ] = ABSENT
    rank: Annotated[
        int, about("Node rank of the pod in its gang, where pods are not listed in order of ranks.", low=0, example=0)
    ] = ABSENT


class NodeSeatsStatus(Declared, frozen=True):
    """The pods that go to one node."""

    name: Annotated[str, about("Name of the node.", example="gpu-node-7")]
    pods: Annotated[tuple[SeatStatus, ...], about("Their places, in order of ranks.", longest=MAX_WORKERS)]


class NamedSeatStatus(Declared, frozen=True, kw_only=True):
    """The place of one pod, as earlier versions wrote it."""

    name: Annotated[str, about("Name of the pod.", example="train-worker-0-a1")] = ABSENT
    uid: Annotated[str, about("uid of the pod.", example="0d1e9a6c-5f0b-4d4e-9c57-7a1f6a3d2b10")]
    node: Annotated[str, about("Node that the pod goes to.", example="gpu-node-7")] = ABSENT
    gpus: Annotated[
        tuple[Uuid, ...], about("UUIDs of the pod's GPUs, in pattern order.", longest=MAX_GPUS, example=["GPU-5e8c"])
    ] = ABSENT
    value: Annotated[int, about("Bandwidth that the pattern gets on these GPUs.", unit="MB/s", low=0, example=25000)] = ABSENT
    rank: Annotated[int, about("Node rank of the pod in its gang.", low=0, example=0)] = ABSENT


class PlanStatus(Declared, frozen=True):
    """All places of a gang."""

    level: Annotated[Level, about("How wide the gang is spread.", example="Machine")] = ABSENT
    value: Annotated[
        int, about("Bandwidth that the pattern gets in the pod that gets least.", unit="MB/s", low=0, example=25000)
    ] = ABSENT
    ideal: Annotated[
        int, about("The best value of that size on an empty node of the cluster.", unit="MB/s", low=0, example=25000)
    ] = ABSENT
    released_at: Annotated[
        str, moment("When the places were found. In state Released, the pods' scheduling gates were removed then.")
    ] = ABSENT
    gpus_digest: Annotated[
        str, about("Of the UUIDs of all GPUs of these nodes: indices are of these GPUs.", example="9f86d081884c7d65")
    ] = ABSENT
    nodes: Annotated[
        tuple[NodeSeatsStatus, ...],
        about("The places of the pods, in order of the first rank on each node.", longest=MAX_WORKERS),
    ] = ABSENT
    pods: Annotated[
        tuple[NamedSeatStatus, ...], about("The same in a plan that an earlier version made.", longest=MAX_WORKERS)
    ] = ABSENT


class ExcludedNode(Declared, frozen=True):
    """A node that this gang does not get for a while."""

    node: Annotated[str, about("Name of the node.", example="gpu-node-7")]
    until: Annotated[str, moment("When the node is tried again.")] = ABSENT
    reason: Annotated[str, about("Why the node is left out, in one word.", example="NotBound")] = ABSENT


class NodeReservation(Declared, frozen=True):
    """GPUs of a node that only this gang gets."""

    node: Annotated[str, about("Name of the node.", example="gpu-node-7")]
    gpus: Annotated[int, about("Number of reserved GPUs.", unit="GPUs", low=0, example=8)] = ABSENT
    uuids: Annotated[
        tuple[Uuid, ...],
        about("Exactly these GPUs; absent where any of the node will do.", longest=MAX_GPUS, example=["GPU-5e8c"]),
    ] = ABSENT


class VictimJob(Declared, frozen=True, kw_only=True):
    """A job or plain pod that is preempted. One of another namespace has a uid and no name."""

    namespace: Namespace = ABSENT
    name: Name = ABSENT
    uid: Uid
    attempt: Annotated[int, about("Attempt that is preempted; 0: it is no job but a plain pod.", low=0, example=2)] = ABSENT
    priority: Annotated[int, about("Priority of the job when that was decided.", low=LOWEST_PRIORITY, example=0)] = ABSENT


class PreemptorJob(Declared, frozen=True):
    """The job that preempts. One of another namespace has a uid and no name."""

    namespace: Namespace = ABSENT
    name: Name = ABSENT
    uid: Uid = ABSENT
    priority: Priority = ABSENT


class PreemptionStatus(Declared, frozen=True):
    """The planner's request that the operator ends the current attempt."""

    attempt: Annotated[int, about("Attempt that is to end.", low=0, example=2)] = ABSENT
    requested_at: Annotated[str, moment("When the planner asked.")] = ABSENT
    preemptor: Annotated[PreemptorJob, about("The job of higher priority.")] = field(default=ABSENT, name="for")
    priority: Annotated[int, about("Priority of this job when that was decided.", low=LOWEST_PRIORITY, example=0)] = ABSENT
    message: Annotated[
        str,
        about("The same as a sentence.", example="for team-a/urgent, priority 1000; this job has priority 0"),
    ] = ABSENT


class SchedulingStatus(Declared, frozen=True):
    """What the planner has decided."""

    attempt: Annotated[int, about("Attempt that this is about.", low=0, example=2)] = ABSENT
    state: Annotated[
        Literal["Waiting", "Reserved", "Released", "Withdrawn"],
        about(
            "Waiting: has no place. Reserved: waits, and GPUs are reserved for it; with a plan, its pods are being created. "
            "Released: has its places. Withdrawn: its places were taken back before all pods were bound; it is planned again.",
            example="Released",
        ),
    ] = ABSENT
    reason: Annotated[str, about("Why the gang waits, in one word.", example="WaitingForLevel")] = ABSENT
    message: Annotated[str, about("The same as a sentence.", example="waits for one machine until 14:32:10Z")] = ABSENT
    waiting_since: Annotated[str, moment("Since when the gang could be planned; order of equal priorities.")] = ABSENT
    placeable_since: Annotated[
        str,
        moment("When the gang could first be placed anywhere; waits count from it."),
    ] = ABSENT
    waits_for: Annotated[Level, about("Level that the gang waits for although it fits.", example="Machine")] = ABSENT
    until: Annotated[
        str,
        moment("When the gang stops waiting for that level; in state Reserved: when others get the GPUs, unless more come free."),
    ] = ABSENT
    overtaken: Annotated[int, about("Later gangs that were placed before this one.", unit="gangs", low=0, example=3)] = ABSENT
    reserved: Annotated[
        tuple[NodeReservation, ...], about("GPUs that only this gang gets, in state Reserved.", longest=MAX_WORKERS)
    ] = ABSENT
    victims: Annotated[
        tuple[VictimJob, ...], about("Jobs and plain pods of lower priority that end for this one.", longest=MOST_LISTED)
    ] = ABSENT
    victims_since: Annotated[str, moment("When the victims were chosen.")] = ABSENT
    excluded_nodes: Annotated[
        tuple[ExcludedNode, ...], about("Nodes that this gang does not get for a while.", longest=MOST_LISTED)
    ] = ABSENT
    plan: Annotated[PlanStatus, about("The places of all pods.")] = ABSENT
    preempt: Annotated[PreemptionStatus, about("Set while this job is asked to end for one of higher priority.")] = ABSENT
