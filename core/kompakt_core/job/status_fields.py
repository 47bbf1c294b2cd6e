"""The fields of a TrainingJob's status but `scheduling`: what the operator shows. No parser is made of them: status records have
codecs of their own, which drop what they cannot read.
"""

from typing import Annotated, Any, Final, Literal

from kompakt_core.contract.conditions import OPERATORS, PLANNERS
from kompakt_core.contract.words import Level, Sensitivity
from kompakt_core.job.batches import BatchState
from kompakt_core.job.choices import MAX_GPUS, MAX_REPLICAS, MAX_ROLES, ActivationGradients
from kompakt_core.job.phases import Phase
from kompakt_core.job.scheduling_fields import SchedulingStatus, Uuid
from kompakt_core.schema.meta import ABSENT, Declared, about, moment
from kompakt_core.schema.standard import StatusCondition

NOT_SEEN = -1
# A part of a pod: the API server has checked it as one.
PART_OF_A_POD: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "x-kubernetes-map-type": "atomic"}


class LastRestart(Declared, frozen=True):
    """Why the newest attempt but the first began."""

    time: Annotated[str, moment("When the attempt before ended.")] = ABSENT
    attempt: Annotated[int, about("The attempt that began then.", low=0, example=2)] = ABSENT
    reason: Annotated[str, about("Why the attempt before ended, in one word.", example="Preempted")] = ABSENT
    message: Annotated[
        str, about("The same as a sentence, with the pod that ended first.", example="pod train-worker-0-a1: exit code 1")
    ] = ABSENT
    delay_seconds: Annotated[
        int, about("How long the new attempt waits before its pods are created.", unit="seconds", low=0, example=10)
    ] = ABSENT


class PodPlace(Declared, frozen=True):
    """Where a pod of the current attempt runs."""

    name: Annotated[str, about("Name of the pod.", example="train-worker-0-a1")]
    node: Annotated[str, about("Node that the pod is bound to; absent until then.", example="gpu-node-7")] = ABSENT
    gpu_indices: Annotated[
        str,
        about("Indices of the pod's GPUs on the node, in pattern order; the pod's annotations have their UUIDs.", example="0,3"),
    ] = ABSENT
    gpus: Annotated[
        tuple[Uuid, ...],
        about("UUIDs of the pod's GPUs, as earlier versions wrote them.", longest=MAX_GPUS, example=["GPU-5e8c"]),
    ] = ABSENT


class RoleStatus(Declared, frozen=True):
    """The current attempt's pods of one role."""

    name: Annotated[str, about("Name of the role.", example="worker")]
    active: Annotated[int, about("Pods that have not ended and are not being deleted.", unit="pods", low=0, example=4)] = ABSENT
    ready: Annotated[int, about("Pods that run and are ready.", unit="pods", low=0, example=4)] = ABSENT
    succeeded: Annotated[int, about("Pods that ended with exit code 0.", unit="pods", low=0, example=0)] = ABSENT
    failed: Annotated[int, about("Pods that failed.", unit="pods", low=0, example=0)] = ABSENT
    pods: Annotated[tuple[PodPlace, ...], about("Each pod, its node and its GPUs.", longest=MAX_REPLICAS)] = ABSENT


class ExpectedPod(Declared, frozen=True):
    """What each pod of a role will ask for."""

    name: Annotated[str, about("Name of the role.", example="worker")]
    pod: Annotated[
        dict[str, Any],
        about(
            "A pod of the role as the API server would admit it, without what does not matter for its place.",
            example={"spec": {"priority": 1000}},
            schema=PART_OF_A_POD,
        ),
    ]


class ExpectedPodsStatus(Declared, frozen=True):
    """What the pods of an attempt will ask for. The planner finds places for them before they exist."""

    attempt: Annotated[int, about("Attempt that this is about.", low=0, example=2)]
    since: Annotated[str, moment("When the API server was asked, by a dry run.")]
    reason: Annotated[
        str,
        about(
            "Why the pods are created before they have places.",
            example="scheduling gate example.com/quota is for another controller",
        ),
    ] = ABSENT
    roles: Annotated[
        tuple[ExpectedPod, ...], about("One pod of each role; absent where the pods come first.", longest=MAX_ROLES)
    ] = ABSENT


class MemoryBudgetStatus(Declared, frozen=True):
    """What memoryBudget costs, of the rank whose plan needs most of it."""

    bytes: Annotated[int, about("The budget.", unit="bytes", low=0, example=21474836480)] = ABSENT
    peak_bytes: Annotated[int, about("The most that a step takes by the plan.", unit="bytes", low=0, example=21300000000)] = (
        ABSENT
    )
    least_bytes: Annotated[
        int,
        about(
            "The most that a step takes with all packed: a budget of as much is sure to work.",
            unit="bytes",
            low=0,
            example=14100000000,
        ),
    ] = ABSENT
    plain_bytes: Annotated[
        int, about("The most that a step would take with nothing packed.", unit="bytes", low=0, example=35100000000)
    ] = ABSENT
    milliseconds: Annotated[
        str, about("Time of packing and unpacking in a step by the plan.", unit="milliseconds", example="18.250")
    ] = ABSENT
    all_milliseconds: Annotated[str, about("The same with all packed.", unit="milliseconds", example="61.004")] = ABSENT
    more_milliseconds: Annotated[str, about("The same with a budget of 1 GiB more.", unit="milliseconds", example="14.100")] = (
        ABSENT
    )


class CompressionStatus(Declared, frozen=True):
    """What activationCompression saved."""

    attempt: Annotated[
        int,
        about("Attempt that the figures are of: until a new one has reported, the one before.", low=0, example=2),
    ] = ABSENT
    active: Annotated[bool, about("true: every worker that reported compresses.", example=True)] = ABSENT
    complete: Annotated[
        bool,
        about(
            "true: the sum of what all workers left at their end. false: figures of rank 0's pod so far, or a worker left no "
            "last report.",
            example=True,
        ),
    ] = ABSENT
    reason: Annotated[str, about("Active, or why a worker does not compress.", example="Active")] = ABSENT
    mode: Annotated[str, about("Mode that the workers train with.", example="ErrorBounded")] = ABSENT
    target: Annotated[
        str,
        about("targetGradientError that the workers train with.", unit="share of what the optimizer steps by", example="0.01"),
    ] = ABSENT
    plain_bytes: Annotated[
        int, about("What training without compression would have kept.", unit="bytes, summed over steps", low=0, example=4000000)
    ] = ABSENT
    saved_bytes: Annotated[int, about("What was kept in its place.", unit="bytes, summed over steps", low=0, example=800000)] = (
        ABSENT
    )
    ratio: Annotated[str, about("plainBytes / savedBytes.", unit="decimal text", example="5.00")] = ABSENT
    denominator: Annotated[
        str,
        about("What plainBytes counts.", example="bytes of unique storages that plain autograd keeps only for the backward pass"),
    ] = ABSENT
    peak_bytes: Annotated[
        int,
        about(
            "The most held for backward passes at a time, in any step: what was kept, copies unpacked to be read, tensors that "
            "wait to be packed, and working memory. Of the rank that held most.",
            unit="bytes",
            low=0,
            example=41000000,
        ),
    ] = ABSENT
    plain_peak_bytes: Annotated[
        int,
        about(
            "The most that training without compression would have held at a time there.", unit="bytes", low=0, example=180000000
        ),
    ] = ABSENT
    peak_step: Annotated[
        int, about("Optimizer step of peakBytes; the first ones hold most.", unit="steps, from 1", low=0, example=1)
    ] = ABSENT
    peak_tensor: Annotated[
        str,
        about(
            "Tensor that set peakBytes: the layer, and whether its tensor was saved, packed or read then.",
            example="encoder.3, read",
        ),
    ] = ABSENT
    reserved_bytes: Annotated[
        int,
        about("The most that PyTorch had taken from the GPU of the rank of peakBytes.", unit="bytes", low=0, example=21000000000),
    ] = ABSENT
    allocated_bytes: Annotated[
        int,
        about("The most of reservedBytes that tensors had at a time.", unit="bytes", low=0, example=20000000000),
    ] = ABSENT
    memory_budget: Annotated[
        MemoryBudgetStatus, about("With memoryBudget, once a plan is in force.", example={"bytes": 21474836480})
    ] = ABSENT
    overhead_percent: Annotated[
        str, about("Time that compression adds to a step, in the slowest worker.", unit="percent", example="17.2")
    ] = ABSENT
    overhead_denominator: Annotated[
        str, about("What overheadPercent is a percentage of.", example="time of a step without compression")
    ] = ABSENT
    steps: Annotated[int, about("Optimizer steps of the rank that made most.", unit="steps", low=0, example=900)] = ABSENT
    ranks: Annotated[int, about("Processes whose figures are summed.", unit="processes", low=0, example=16)] = ABSENT
    violations: Annotated[
        int, about("Elements beyond their error bound, where copies are verified.", unit="elements", low=0, example=0)
    ] = ABSENT
    batch: Annotated[int, about("Batch that was measured.", unit="samples", low=0, example=64)] = ABSENT
    suggested_batch: Annotated[
        int, about("Largest batch that would fit, with batchSize Suggest.", unit="samples", low=0, example=208)
    ] = ABSENT
    raw: Annotated[
        dict[str, Annotated[int, about("Tensors.", low=0)]],
        about("Tensors that were kept as they are, by reason.", unit="tensors", example={"Small": 12}),
    ] = ABSENT
    raw_bytes: Annotated[
        dict[str, Annotated[int, about("Bytes.", low=0)]],
        about("The same in bytes that a backward pass read.", unit="bytes, summed over steps", example={"Small": 48000}),
    ] = ABSENT
    offloaded_bytes: Annotated[
        int,
        about("What waited in host memory for its backward pass.", unit="bytes, summed over steps", low=0, example=1200000),
    ] = ABSENT
    offload_reasons: Annotated[
        dict[str, Annotated[int, about("Tensors.", low=0)]],
        about("Tensors that did not wait in host memory, by reason.", unit="tensors", example={"NotHidden": 20}),
    ] = ABSENT


class BatchStatus(Declared, frozen=True):
    """What batchSize Raise has found."""

    state: Annotated[
        BatchState,
        about("Measuring: the next attempt may be larger. Raised: a larger batch is in use. Kept: none fits.", example="Raised"),
    ] = ABSENT
    size: Annotated[int, about("Batch of the current attempt: KOMPAKT_BATCH_SIZE.", unit="samples", low=1, example=208)] = ABSENT
    base: Annotated[int, about("baseBatchSize that was measured.", unit="samples", low=1, example=64)] = ABSENT
    spec: Annotated[
        str,
        about(
            "Fingerprint of roles and activationCompression; a new one is measured again.",
            example="dd82bc891370409d",
        ),
    ] = ABSENT
    rounds: Annotated[int, about("Attempts that have measured.", unit="attempts", low=0, example=2)] = ABSENT


class ReportedProgress(Declared, frozen=True):
    """What the script reports in KOMPAKT_PROGRESS_FILE."""

    step: Annotated[int, about("Step that the script is at.", unit="steps", low=0, example=900)] = ABSENT
    total: Annotated[int, about("Steps of the whole training.", unit="steps", low=0, example=5000)] = ABSENT
    loss: Annotated[str, about("Loss that the script reports.", unit="decimal text", example="0.693")] = ABSENT
    samples_per_second: Annotated[str, about("Speed that the script reports.", unit="samples/s", example="1280")] = ABSENT
    eta: Annotated[
        str,
        moment("When the last step will be done, from the last five minutes."),
    ] = ABSENT
    remaining_seconds: Annotated[
        int,
        about(
            "What was left when the attempt before ended, without communication.",
            unit="seconds",
            low=0,
            example=7200,
        ),
    ] = ABSENT


class StallShare(Declared, frozen=True):
    """Time that a step loses."""

    seconds: Annotated[str, about("Time lost in each step.", unit="seconds", example="0.05")] = ABSENT
    percent: Annotated[str, about("The same as a share of the step.", unit="percent", example="20.0")] = ABSENT


class StallStatus(Declared, frozen=True):
    """Where steps lose time."""

    interconnect: Annotated[StallShare, about("Communication inside a machine.")] = ABSENT
    network: Annotated[StallShare, about("Communication between machines, beyond that inside one.")] = ABSENT
    prep: Annotated[StallShare, about("Waiting for data to be made ready.")] = ABSENT
    fetch: Annotated[StallShare, about("Waiting for data to be read from storage.")] = ABSENT


class MeasuredProfile(Declared, frozen=True):
    """What the training was measured to do."""

    source: Annotated[
        Literal["Steps", "Annotation"],
        about("Steps: measured in this job. Annotation: from the annotation kompakt.dev/profile.", example="Steps"),
    ] = ABSENT
    step_seconds: Annotated[str, about("Median time of an optimizer step.", unit="seconds", example="0.25")] = ABSENT
    gradient_bytes: Annotated[
        int, about("Gradients that one step of one rank exchanges.", unit="bytes", low=0, example=531000000)
    ] = ABSENT
    ranks: Annotated[int, about("Processes that train together.", unit="processes", low=0, example=16)] = ABSENT
    level: Annotated[Level, about("How wide the gang was spread when it was measured.", example="Machine")] = ABSENT
    communication: Annotated[
        str, about("Communication inside a rack.", unit="seconds per second of computing", example="0.34")
    ] = ABSENT
    sensitivity: Annotated[Sensitivity, about("What bandwidthSensitivity Auto stands for.", example="High")] = ABSENT
    stalls: Annotated[StallStatus, about("Where steps lose time; from the annotation only.")] = ABSENT


class TrainingJobStatus(Declared, frozen=True):
    """What became of the job. Programs read conditions."""

    observed_generation: Annotated[
        int,
        about("metadata.generation that this status is about; -1: the operator has not seen the job.", low=NOT_SEEN, example=3),
    ] = ABSENT
    phase: Annotated[Phase, about("Where the job stands, for people. Programs read conditions.", example="Running")] = ABSENT
    attempt: Annotated[int, about("Number of the current attempt, from 1; part of its pods' names.", low=0, example=2)] = ABSENT
    restarts: Annotated[int, about("Restarts that count towards backoffLimit.", unit="restarts", low=0, example=1)] = ABSENT
    disruptions: Annotated[
        int, about("Restarts in a row that do not count, such as evictions.", unit="restarts", low=0, example=0)
    ] = ABSENT
    last_restart: Annotated[LastRestart, about("When and why the current attempt began; absent in the first.")] = ABSENT
    start_time: Annotated[
        str,
        moment("When all workers had a node; activeDeadlineSeconds counts from it."),
    ] = ABSENT
    completion_time: Annotated[str, moment("When the job succeeded or failed.")] = ABSENT
    conditions: Annotated[
        tuple[StatusCondition, ...],
        about(
            f"{', '.join(OPERATORS[:-1])} and {OPERATORS[-1]} by the operator; {' and '.join(PLANNERS)} by the planner.",
            key="type",
        ),
    ] = ABSENT
    gpus: Annotated[int, about("GPUs of the whole gang.", unit="GPUs", low=0, example=16)] = ABSENT
    nodes: Annotated[
        str, about("Nodes of the current attempt: up to four names, then how many more.", example="gpu-node-7,gpu-node-8")
    ] = ABSENT
    roles: Annotated[tuple[RoleStatus, ...], about("Pods of the current attempt by role.", key="name", longest=MAX_ROLES)] = (
        ABSENT
    )
    scheduling: Annotated[SchedulingStatus, about("What the planner has decided about the gang.")] = ABSENT
    compression: Annotated[CompressionStatus, about("What activationCompression saved.")] = ABSENT
    activation_gradients: Annotated[
        ActivationGradients,
        about(
            "activationGradients that the pods are told: what the spec says, else what the first attempt had. Absent in other "
            "modes than ErrorBounded.",
            example="Bounded",
        ),
    ] = ABSENT
    runtime_image: Annotated[
        str,
        about(
            "Image that carries kompakt's runtime into the pods: the first attempt's, also after an upgrade of kompakt. Absent "
            "where they have none.",
            example="registry.example/kompakt-runtime:0.1.0",
        ),
    ] = ABSENT
    expected_pods: Annotated[ExpectedPodsStatus, about("What the pods will ask for; absent once all of them have a node.")] = (
        ABSENT
    )
    batch: Annotated[BatchStatus, about("What batchSize Raise has found.")] = ABSENT
    progress: Annotated[ReportedProgress, about("What the script reports in the file KOMPAKT_PROGRESS_FILE.")] = ABSENT
    profile: Annotated[MeasuredProfile, about("What was measured of the training; bandwidthSensitivity Auto goes by it.")] = (
        ABSENT
    )
