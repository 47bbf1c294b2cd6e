# Made by `python -m tools.crd`; do not edit.
"""The types of a TrainingJob's status: plain dicts, as in the cluster."""

from typing import Any, Literal, NotRequired, TypedDict


class LastRestartDict(TypedDict):
    """Why the newest attempt but the first began."""

    time: NotRequired[str]
    """When the attempt before ended. Example: 2026-01-31T12:00:00Z"""
    attempt: NotRequired[int]
    """The attempt that began then. Example: 2"""
    reason: NotRequired[str]
    """Why the attempt before ended, in one word. Example: Preempted"""
    message: NotRequired[str]
    """The same as a sentence, with the pod that ended first. Example: pod train-worker-0-a1: exit code 1"""
    delaySeconds: NotRequired[int]
    """How long the new attempt waits before its pods are created. Unit: seconds. Example: 10"""


class StatusConditionDict(TypedDict):
    """metav1.Condition."""

    type: str
    """Type of the condition. Example: Running"""
    status: Literal["False", "True", "Unknown"]
    """Whether the condition holds. Example: True"""
    reason: str
    """Why, in one word. Example: AllRunning"""
    message: str
    """Why, as a sentence. Example: all workers run"""
    lastTransitionTime: str
    """When status last changed. Example: 2026-01-31T12:00:00Z"""
    observedGeneration: NotRequired[int]
    """metadata.generation that the condition is about. Example: 3"""


class PodPlaceDict(TypedDict):
    """Where a pod of the current attempt runs."""

    name: str
    """Name of the pod. Example: train-worker-0-a1"""
    node: NotRequired[str]
    """Node that the pod is bound to; absent until then. Example: gpu-node-7"""
    gpuIndices: NotRequired[str]
    """Indices of the pod's GPUs on the node, in pattern order; the pod's annotations have their UUIDs. Example: 0,3"""
    gpus: NotRequired[list[str]]
    """UUIDs of the pod's GPUs, as earlier versions wrote them. Example: ["GPU-5e8c"]"""


class RoleStatusDict(TypedDict):
    """The current attempt's pods of one role."""

    name: str
    """Name of the role. Example: worker"""
    active: NotRequired[int]
    """Pods that have not ended and are not being deleted. Unit: pods. Example: 4"""
    ready: NotRequired[int]
    """Pods that run and are ready. Unit: pods. Example: 4"""
    succeeded: NotRequired[int]
    """Pods that ended with exit code 0. Unit: pods. Example: 0"""
    failed: NotRequired[int]
    """Pods that failed. Unit: pods. Example: 0"""
    pods: NotRequired[list[PodPlaceDict]]
    """Each pod, its node and its GPUs."""


class NodeReservationDict(TypedDict):
    """GPUs of a node that only this gang gets."""

    node: str
    """Name of the node. Example: gpu-node-7"""
    gpus: NotRequired[int]
    """Number of reserved GPUs. Unit: GPUs. Example: 8"""
    uuids: NotRequired[list[str]]
    """Exactly these GPUs; absent where any of the node will do. Example: ["GPU-5e8c"]"""


class VictimJobDict(TypedDict):
    """A job or plain pod that is preempted."""

    namespace: NotRequired[str]
    """Namespace of the job. Example: team-a"""
    name: NotRequired[str]
    """Name of the job. Example: urgent"""
    uid: str
    """uid of the job. Example: 0d1e9a6c-5f0b-4d4e-9c57-7a1f6a3d2b10"""
    attempt: NotRequired[int]
    """Attempt that is preempted; 0: it is no job but a plain pod. Example: 2"""
    priority: NotRequired[int]
    """Priority of the job when that was decided. Example: 0"""


class ExcludedNodeDict(TypedDict):
    """A node that this gang does not get for a while."""

    node: str
    """Name of the node. Example: gpu-node-7"""
    until: NotRequired[str]
    """When the node is tried again. Example: 2026-01-31T12:00:00Z"""
    reason: NotRequired[str]
    """Why the node is left out, in one word. Example: NotBound"""


class SeatStatusDict(TypedDict):
    """The place of one pod on a node."""

    uid: str
    """uid of the pod; in state Reserved, its number in the attempt. Example: 0d1e9a6c-5f0b-4d4e-9c57-7a1f6a3d2b10"""
    gpus: NotRequired[str]
    """Indices of the pod's GPUs in the node's GPUTopology, in pattern order; the pod's annotation has their UUIDs. Example:
    0,3,1,2
    """
    value: NotRequired[int]
    """Bandwidth that the pattern gets on these GPUs, where it is not the plan's. Unit: MB/s. Example: 25000"""
    rank: NotRequired[int]
    """Node rank of the pod in its gang, where pods are not listed in order of ranks. Example: 0"""


class NodeSeatsStatusDict(TypedDict):
    """The pods that go to one node."""

    name: str
    """Name of the node. Example: gpu-node-7"""
    pods: list[SeatStatusDict]
    """Their places, in order of ranks."""


class NamedSeatStatusDict(TypedDict):
    """The place of one pod, as earlier versions wrote it."""

    name: NotRequired[str]
    """Name of the pod. Example: train-worker-0-a1"""
    uid: str
    """uid of the pod. Example: 0d1e9a6c-5f0b-4d4e-9c57-7a1f6a3d2b10"""
    node: NotRequired[str]
    """Node that the pod goes to. Example: gpu-node-7"""
    gpus: NotRequired[list[str]]
    """UUIDs of the pod's GPUs, in pattern order. Example: ["GPU-5e8c"]"""
    value: NotRequired[int]
    """Bandwidth that the pattern gets on these GPUs. Unit: MB/s. Example: 25000"""
    rank: NotRequired[int]
    """Node rank of the pod in its gang. Example: 0"""


class PlanStatusDict(TypedDict):
    """All places of a gang."""

    level: NotRequired[Literal["Machine", "Rack", "Block", "Cluster"]]
    """How wide the gang is spread. Example: Machine"""
    value: NotRequired[int]
    """Bandwidth that the pattern gets in the pod that gets least. Unit: MB/s. Example: 25000"""
    ideal: NotRequired[int]
    """The best value of that size on an empty node of the cluster. Unit: MB/s. Example: 25000"""
    releasedAt: NotRequired[str]
    """When the places were found. In state Released, the pods' scheduling gates were removed then. Example:
    2026-01-31T12:00:00Z
    """
    gpusDigest: NotRequired[str]
    """Of the UUIDs of all GPUs of these nodes: indices are of these GPUs. Example: 9f86d081884c7d65"""
    nodes: NotRequired[list[NodeSeatsStatusDict]]
    """The places of the pods, in order of the first rank on each node."""
    pods: NotRequired[list[NamedSeatStatusDict]]
    """The same in a plan that an earlier version made."""


class PreemptorJobDict(TypedDict):
    """The job that preempts."""

    namespace: NotRequired[str]
    """Namespace of the job. Example: team-a"""
    name: NotRequired[str]
    """Name of the job. Example: urgent"""
    uid: NotRequired[str]
    """uid of the job. Example: 0d1e9a6c-5f0b-4d4e-9c57-7a1f6a3d2b10"""
    priority: NotRequired[int]
    """Priority of the job's pods. Example: 1000"""


# The planner's request that the operator ends the current attempt.
PreemptionStatusDict = TypedDict(
    "PreemptionStatusDict",
    {
        # Attempt that is to end. Example: 2
        "attempt": NotRequired[int],
        # When the planner asked. Example: 2026-01-31T12:00:00Z
        "requestedAt": NotRequired[str],
        # The job of higher priority.
        "for": NotRequired[PreemptorJobDict],
        # Priority of this job when that was decided. Example: 0
        "priority": NotRequired[int],
        # The same as a sentence. Example: for team-a/urgent, priority 1000; this job has priority 0
        "message": NotRequired[str],
    },
)


class SchedulingStatusDict(TypedDict):
    """What the planner has decided."""

    attempt: NotRequired[int]
    """Attempt that this is about. Example: 2"""
    state: NotRequired[Literal["Released", "Reserved", "Waiting", "Withdrawn"]]
    """Waiting: has no place. Reserved: waits, and GPUs are reserved for it; with a plan, its pods are being created. Released:
    has its places. Withdrawn: its places were taken back before all pods were bound; it is planned again. Example: Released
    """
    reason: NotRequired[str]
    """Why the gang waits, in one word. Example: WaitingForLevel"""
    message: NotRequired[str]
    """The same as a sentence. Example: waits for one machine until 14:32:10Z"""
    waitingSince: NotRequired[str]
    """Since when the gang could be planned; order of equal priorities. Example: 2026-01-31T12:00:00Z"""
    placeableSince: NotRequired[str]
    """When the gang could first be placed anywhere; waits count from it. Example: 2026-01-31T12:00:00Z"""
    waitsFor: NotRequired[Literal["Machine", "Rack", "Block", "Cluster"]]
    """Level that the gang waits for although it fits. Example: Machine"""
    until: NotRequired[str]
    """When the gang stops waiting for that level; in state Reserved: when others get the GPUs, unless more come free. Example:
    2026-01-31T12:00:00Z
    """
    overtaken: NotRequired[int]
    """Later gangs that were placed before this one. Unit: gangs. Example: 3"""
    reserved: NotRequired[list[NodeReservationDict]]
    """GPUs that only this gang gets, in state Reserved."""
    victims: NotRequired[list[VictimJobDict]]
    """Jobs and plain pods of lower priority that end for this one."""
    victimsSince: NotRequired[str]
    """When the victims were chosen. Example: 2026-01-31T12:00:00Z"""
    excludedNodes: NotRequired[list[ExcludedNodeDict]]
    """Nodes that this gang does not get for a while."""
    plan: NotRequired[PlanStatusDict]
    """The places of all pods."""
    preempt: NotRequired[PreemptionStatusDict]
    """Set while this job is asked to end for one of higher priority."""


class MemoryBudgetStatusDict(TypedDict):
    """What memoryBudget costs, of the rank whose plan needs most of it."""

    bytes: NotRequired[int]
    """The budget. Unit: bytes. Example: 21474836480"""
    peakBytes: NotRequired[int]
    """The most that a step takes by the plan. Unit: bytes. Example: 21300000000"""
    leastBytes: NotRequired[int]
    """The most that a step takes with all packed: a budget of as much is sure to work. Unit: bytes. Example: 14100000000"""
    plainBytes: NotRequired[int]
    """The most that a step would take with nothing packed. Unit: bytes. Example: 35100000000"""
    milliseconds: NotRequired[str]
    """Time of packing and unpacking in a step by the plan. Unit: milliseconds. Example: 18.250"""
    allMilliseconds: NotRequired[str]
    """The same with all packed. Unit: milliseconds. Example: 61.004"""
    moreMilliseconds: NotRequired[str]
    """The same with a budget of 1 GiB more. Unit: milliseconds. Example: 14.100"""


class CompressionStatusDict(TypedDict):
    """What activationCompression saved."""

    attempt: NotRequired[int]
    """Attempt that the figures are of: until a new one has reported, the one before. Example: 2"""
    active: NotRequired[bool]
    """true: every worker that reported compresses. Example: true"""
    complete: NotRequired[bool]
    """true: the sum of what all workers left at their end. false: figures of rank 0's pod so far, or a worker left no last
    report. Example: true
    """
    reason: NotRequired[str]
    """Active, or why a worker does not compress. Example: Active"""
    mode: NotRequired[str]
    """Mode that the workers train with. Example: ErrorBounded"""
    target: NotRequired[str]
    """targetGradientError that the workers train with. Unit: share of what the optimizer steps by. Example: 0.01"""
    plainBytes: NotRequired[int]
    """What training without compression would have kept. Unit: bytes, summed over steps. Example: 4000000"""
    savedBytes: NotRequired[int]
    """What was kept in its place. Unit: bytes, summed over steps. Example: 800000"""
    ratio: NotRequired[str]
    """plainBytes / savedBytes. Unit: decimal text. Example: 5.00"""
    denominator: NotRequired[str]
    """What plainBytes counts. Example: bytes of unique storages that plain autograd keeps only for the backward pass"""
    peakBytes: NotRequired[int]
    """The most held for backward passes at a time, in any step: what was kept, copies unpacked to be read, tensors that wait
    to be packed, and working memory. Of the rank that held most. Unit: bytes. Example: 41000000
    """
    plainPeakBytes: NotRequired[int]
    """The most that training without compression would have held at a time there. Unit: bytes. Example: 180000000"""
    peakStep: NotRequired[int]
    """Optimizer step of peakBytes; the first ones hold most. Unit: steps, from 1. Example: 1"""
    peakTensor: NotRequired[str]
    """Tensor that set peakBytes: the layer, and whether its tensor was saved, packed or read then. Example: encoder.3, read"""
    reservedBytes: NotRequired[int]
    """The most that PyTorch had taken from the GPU of the rank of peakBytes. Unit: bytes. Example: 21000000000"""
    allocatedBytes: NotRequired[int]
    """The most of reservedBytes that tensors had at a time. Unit: bytes. Example: 20000000000"""
    memoryBudget: NotRequired[MemoryBudgetStatusDict]
    """With memoryBudget, once a plan is in force. Example: {"bytes": 21474836480}"""
    overheadPercent: NotRequired[str]
    """Time that compression adds to a step, in the slowest worker. Unit: percent. Example: 17.2"""
    overheadDenominator: NotRequired[str]
    """What overheadPercent is a percentage of. Example: time of a step without compression"""
    steps: NotRequired[int]
    """Optimizer steps of the rank that made most. Unit: steps. Example: 900"""
    ranks: NotRequired[int]
    """Processes whose figures are summed. Unit: processes. Example: 16"""
    violations: NotRequired[int]
    """Elements beyond their error bound, where copies are verified. Unit: elements. Example: 0"""
    batch: NotRequired[int]
    """Batch that was measured. Unit: samples. Example: 64"""
    suggestedBatch: NotRequired[int]
    """Largest batch that would fit, with batchSize Suggest. Unit: samples. Example: 208"""
    raw: NotRequired[dict[str, int]]
    """Tensors that were kept as they are, by reason. Unit: tensors. Example: {"Small": 12}"""
    rawBytes: NotRequired[dict[str, int]]
    """The same in bytes that a backward pass read. Unit: bytes, summed over steps. Example: {"Small": 48000}"""
    offloadedBytes: NotRequired[int]
    """What waited in host memory for its backward pass. Unit: bytes, summed over steps. Example: 1200000"""
    offloadReasons: NotRequired[dict[str, int]]
    """Tensors that did not wait in host memory, by reason. Unit: tensors. Example: {"NotHidden": 20}"""


class ExpectedPodDict(TypedDict):
    """What each pod of a role will ask for."""

    name: str
    """Name of the role. Example: worker"""
    pod: dict[str, Any]
    """A pod of the role as the API server would admit it, without what does not matter for its place. Example: {"spec":
    {"priority": 1000}}
    """


class ExpectedPodsStatusDict(TypedDict):
    """What the pods of an attempt will ask for."""

    attempt: int
    """Attempt that this is about. Example: 2"""
    since: str
    """When the API server was asked, by a dry run. Example: 2026-01-31T12:00:00Z"""
    reason: NotRequired[str]
    """Why the pods are created before they have places. Example: scheduling gate example.com/quota is for another controller"""
    roles: NotRequired[list[ExpectedPodDict]]
    """One pod of each role; absent where the pods come first."""


class BatchStatusDict(TypedDict):
    """What batchSize Raise has found."""

    state: NotRequired[Literal["Measuring", "Raised", "Kept"]]
    """Measuring: the next attempt may be larger. Raised: a larger batch is in use. Kept: none fits. Example: Raised"""
    size: NotRequired[int]
    """Batch of the current attempt: KOMPAKT_BATCH_SIZE. Unit: samples. Example: 208"""
    base: NotRequired[int]
    """baseBatchSize that was measured. Unit: samples. Example: 64"""
    spec: NotRequired[str]
    """Fingerprint of roles and activationCompression; a new one is measured again. Example: dd82bc891370409d"""
    rounds: NotRequired[int]
    """Attempts that have measured. Unit: attempts. Example: 2"""


class ReportedProgressDict(TypedDict):
    """What the script reports in KOMPAKT_PROGRESS_FILE."""

    step: NotRequired[int]
    """Step that the script is at. Unit: steps. Example: 900"""
    total: NotRequired[int]
    """Steps of the whole training. Unit: steps. Example: 5000"""
    loss: NotRequired[str]
    """Loss that the script reports. Unit: decimal text. Example: 0.693"""
    samplesPerSecond: NotRequired[str]
    """Speed that the script reports. Unit: samples/s. Example: 1280"""
    eta: NotRequired[str]
    """When the last step will be done, from the last five minutes. Example: 2026-01-31T12:00:00Z"""
    remainingSeconds: NotRequired[int]
    """What was left when the attempt before ended, without communication. Unit: seconds. Example: 7200"""


class StallShareDict(TypedDict):
    """Time that a step loses."""

    seconds: NotRequired[str]
    """Time lost in each step. Unit: seconds. Example: 0.05"""
    percent: NotRequired[str]
    """The same as a share of the step. Unit: percent. Example: 20.0"""


class StallStatusDict(TypedDict):
    """Where steps lose time."""

    interconnect: NotRequired[StallShareDict]
    """Communication inside a machine."""
    network: NotRequired[StallShareDict]
    """Communication between machines, beyond that inside one."""
    prep: NotRequired[StallShareDict]
    """Waiting for data to be made ready."""
    fetch: NotRequired[StallShareDict]
    """Waiting for data to be read from storage."""


class MeasuredProfileDict(TypedDict):
    """What the training was measured to do."""

    source: NotRequired[Literal["Annotation", "Steps"]]
    """Steps: measured in this job. Annotation: from the annotation kompakt.dev/profile. Example: Steps"""
    stepSeconds: NotRequired[str]
    """Median time of an optimizer step. Unit: seconds. Example: 0.25"""
    gradientBytes: NotRequired[int]
    """Gradients that one step of one rank exchanges. Unit: bytes. Example: 531000000"""
    ranks: NotRequired[int]
    """Processes that train together. Unit: processes. Example: 16"""
    level: NotRequired[Literal["Machine", "Rack", "Block", "Cluster"]]
    """How wide the gang was spread when it was measured. Example: Machine"""
    communication: NotRequired[str]
    """Communication inside a rack. Unit: seconds per second of computing. Example: 0.34"""
    sensitivity: NotRequired[Literal["High", "Medium", "Auto", "Low", "None"]]
    """What bandwidthSensitivity Auto stands for. Example: High"""
    stalls: NotRequired[StallStatusDict]
    """Where steps lose time; from the annotation only."""


class TrainingJobStatusDict(TypedDict):
    """What became of the job."""

    observedGeneration: NotRequired[int]
    """metadata.generation that this status is about; -1: the operator has not seen the job. Example: 3"""
    phase: NotRequired[Literal["Suspended", "Pending", "Starting", "Running", "Restarting", "Succeeded", "Failed"]]
    """Where the job stands, for people. Programs read conditions. Example: Running"""
    attempt: NotRequired[int]
    """Number of the current attempt, from 1; part of its pods' names. Example: 2"""
    restarts: NotRequired[int]
    """Restarts that count towards backoffLimit. Unit: restarts. Example: 1"""
    disruptions: NotRequired[int]
    """Restarts in a row that do not count, such as evictions. Unit: restarts. Example: 0"""
    lastRestart: NotRequired[LastRestartDict]
    """When and why the current attempt began; absent in the first."""
    startTime: NotRequired[str]
    """When all workers had a node; activeDeadlineSeconds counts from it. Example: 2026-01-31T12:00:00Z"""
    completionTime: NotRequired[str]
    """When the job succeeded or failed. Example: 2026-01-31T12:00:00Z"""
    conditions: NotRequired[list[StatusConditionDict]]
    """Suspended, Running, CompressionActive, BudgetNotReached, Complete, Failed, Degraded, Reconciling and Stalled by the
    operator; Placed and PreemptionRequested by the planner.
    """
    gpus: NotRequired[int]
    """GPUs of the whole gang. Unit: GPUs. Example: 16"""
    nodes: NotRequired[str]
    """Nodes of the current attempt: up to four names, then how many more. Example: gpu-node-7,gpu-node-8"""
    roles: NotRequired[list[RoleStatusDict]]
    """Pods of the current attempt by role."""
    scheduling: NotRequired[SchedulingStatusDict]
    """What the planner has decided about the gang."""
    compression: NotRequired[CompressionStatusDict]
    """What activationCompression saved."""
    activationGradients: NotRequired[Literal["Bounded", "Exact"]]
    """activationGradients that the pods are told: what the spec says, else what the first attempt had. Absent in other modes
    than ErrorBounded. Example: Bounded
    """
    runtimeImage: NotRequired[str]
    """Image that carries kompakt's runtime into the pods: the first attempt's, also after an upgrade of kompakt. Absent where
    they have none. Example: registry.example/kompakt-runtime:0.1.0
    """
    expectedPods: NotRequired[ExpectedPodsStatusDict]
    """What the pods will ask for; absent once all of them have a node."""
    batch: NotRequired[BatchStatusDict]
    """What batchSize Raise has found."""
    progress: NotRequired[ReportedProgressDict]
    """What the script reports in the file KOMPAKT_PROGRESS_FILE."""
    profile: NotRequired[MeasuredProfileDict]
    """What was measured of the training; bandwidthSensitivity Auto goes by it."""
