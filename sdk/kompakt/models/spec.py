# Made by `python -m tools.crd`; do not edit.
"""The types of a TrainingJob's spec: plain dicts, as in a manifest."""

from typing import Any, Literal, NotRequired, TypedDict


class RoleDict(TypedDict):
    """A group of equal pods."""

    name: str
    """Name of the role; part of its pods' names. Example: worker"""
    replicas: NotRequired[int]
    """Number of pods of this role. Unit: pods. Default: 1. Example: 4"""
    gpusPerReplica: int
    """Number of GPUs of each pod; 0 for a role without GPUs. The operator adds it as the limit kompakt.dev/gpu. Unit: GPUs.
    Example: 8
    """
    gpuContainer: NotRequired[str]
    """Container of the template that gets the GPUs. Absent: the first one. Example: trainer"""
    template: dict[str, Any]
    """Pod template of the role, as in a Deployment. See kubectl explain pod.spec."""


# One pair of GPUs that exchange data.
WeightedEdgeDict = TypedDict(
    "WeightedEdgeDict",
    {
        # Rank of one GPU of the pair. Example: 0
        "from": int,
        # Rank of the other GPU of the pair. Example: 1
        "to": int,
        # Shares of the traffic that go over this edge. Unit: shares. Default: 1. Example: 3
        "weight": NotRequired[int],
    },
)


class CustomEdgesDict(TypedDict):
    """The edges of pattern Custom."""

    scope: NotRequired[Literal["Pod", "Gang"]]
    """What ranks count. Pod: the GPUs of one pod, and all GPU pods communicate alike. Gang: the GPUs of the whole gang, worker
    by worker in the order of roles. Default: Pod. Example: Gang
    """
    edges: list[WeightedEdgeDict]
    """Pairs of GPUs that exchange data. Direction does not matter. Example: [{"from": 0, "to": 1, "weight": 3}]"""


class CommunicationDict(TypedDict):
    """What the job's GPUs exchange."""

    pattern: NotRequired[Literal["Ring", "Chain", "Tree", "Star", "Clique", "AllToAll", "None", "Custom"]]
    """Shape of the communication between the GPUs of the job. GPUs and links are chosen for it. Ring and Tree: all-reduce.
    Chain: pipeline. Star: one GPU talks to all others. Clique and AllToAll: every pair. None: no communication. Custom: the
    pairs in customEdges. Default: Ring. Example: Ring
    """
    customEdges: NotRequired[CustomEdgesDict]
    """The pairs of GPUs that communicate. Required with pattern Custom, refused with any other."""
    bandwidthSensitivity: NotRequired[Literal["High", "Medium", "Auto", "Low", "None"]]
    """How much slow links slow the job down; decides how good a set of GPUs must be and how long the gang waits for a better
    place. Auto: from the steps of earlier attempts (see injection) or from the annotation kompakt.dev/profile. Default:
    Auto. Example: High
    """
    gradientBytes: NotRequired[int | str]
    """Size of the gradients that one step of one rank exchanges. Counts before what is measured. Absent: measured while the
    job runs. Unit: bytes, as a Kubernetes quantity. Example: 102M
    """


class ConsolidationDict(TypedDict):
    """How long to wait for a better level."""

    mode: NotRequired[Literal["Default", "Fixed", "NoWait", "NeverRelax"]]
    """Default: as the cluster is set. Fixed: machineWaitSeconds, rackWaitSeconds and blockWaitSeconds. NoWait: take the first
    place that fits. NeverRelax: wait for the best level for ever. Default: Default. Example: NoWait
    """
    machineWaitSeconds: NotRequired[int]
    """How long the gang waits for one machine, from the moment at which it could first be placed. Mode Fixed only. Unit:
    seconds. Default: 600. Example: 300
    """
    rackWaitSeconds: NotRequired[int]
    """How long the gang waits for one rack, from the same moment; at least machineWaitSeconds. Mode Fixed only. Unit: seconds.
    Default: 1800. Example: 900
    """
    blockWaitSeconds: NotRequired[int]
    """How long the gang waits for one block of racks, from the same moment; at least rackWaitSeconds. Mode Fixed only. Unit:
    seconds. Default: 3600. Example: 3600
    """


class PlacementDict(TypedDict):
    """Which GPUs may be chosen."""

    policy: NotRequired[Literal["Best", "Preserve", "Packed", "First"]]
    """How a set of GPUs is chosen. Best: the highest value for the pattern. Preserve: the highest value, then the most NVLink
    left for others. Packed: the fewest whole islands broken. First: the lowest indices. Default: Preserve. Example: Packed
    """
    requiredLink: NotRequired[Literal["Any", "NVLink"]]
    """NVLink: the pattern uses NVLink only; the gang waits until such GPUs are free. Any: other links may be used. Default:
    Any. Example: NVLink
    """
    sameNUMANode: NotRequired[bool]
    """true: all GPUs of a pod are attached to one NUMA node. Promises nothing where NUMA nodes are unknown. Default: false.
    Example: true
    """
    requiredLevel: NotRequired[Literal["Machine", "Rack", "Block", "Cluster"]]
    """Hard limit on how wide the gang may spread: Machine, Rack, Block, or Cluster for anywhere. Racks and blocks come from
    node labels. Default: Cluster. Example: Rack
    """
    consolidation: NotRequired[ConsolidationDict]
    """How long the gang waits for a better level than the one that is free now."""


class OverrideDict(TypedDict):
    """Modules whose dotted name matches the glob `modules` use another mode."""

    modules: str
    """Modules that this entry is about: a glob over dotted module names, or class:<name> for a class of modules. Example:
    head.*
    """
    mode: NotRequired[Literal["None", "Lossless", "ErrorBounded"]]
    """The mode of these modules, in place of the job's. Default: None. Example: Lossless"""


class ActivationCompressionDict(TypedDict):
    """`target` is decimal text: share of what the optimizer steps by that the gradient error may reach."""

    mode: NotRequired[Literal["None", "Lossless", "ErrorBounded"]]
    """How saved tensors are kept. None: as they are. Lossless: smaller, gradients stay bit for bit. ErrorBounded: what the
    backward pass reads may lose precision, within bounds that follow from targetGradientError. Default: ErrorBounded.
    Example: Lossless
    """
    targetGradientError: NotRequired[str]
    """Largest error that compression may add to a layer's weight gradient. Decimal text above 0, at most 0.1. Unit: share of
    what the optimizer steps by in the layer's weight, as of the mean |momentum|. Default: 0.01. Example: 0.03
    """
    overrides: NotRequired[list[OverrideDict]]
    """Modules that use another mode than the job. Example: [{"modules": "head.*", "mode": "None"}]"""
    minTensorBytes: NotRequired[int]
    """Saved tensors smaller than this stay as they are. Unit: bytes. Default: 65536. Example: 1048576"""
    activationGradients: NotRequired[Literal["Bounded", "Exact"]]
    """Gradients of activations in mode ErrorBounded. Bounded: what norms, activation functions and attention read is packed
    too, within bounds of its own. Exact: they are those of plain training bit for bit. Absent: Bounded; a job that runs
    keeps what its first attempt had, see status.activationGradients. Example: Exact
    """
    nonlinearInputs: NotRequired[Literal["Keep", "Bounded"]]
    """Deprecated, use activationGradients: Keep is Exact, Bounded is Bounded. Example: Keep"""
    offload: NotRequired[Literal["Never", "Auto"]]
    """Auto: saved tensors wait in the host's pinned memory where copies hide behind computing; that memory counts towards the
    pod's limit. Needs a mode other than None. Default: Never. Example: Auto
    """
    memoryBudget: NotRequired[str]
    """How much memory of its GPU a step may take: an amount, or a share of the GPU's memory. Only as much is packed as keeps a
    step within it. Absent: as much as can be. Needs mode ErrorBounded. Example: 20Gi
    """
    batchSize: NotRequired[Literal["Keep", "Suggest", "Raise"]]
    """Keep: the batch is the script's. Suggest: status.compression shows how large a batch would fit. Raise: attempts after
    the first train with that batch, which the script takes from KOMPAKT_BATCH_SIZE. Default: Keep. Example: Suggest
    """
    baseBatchSize: NotRequired[int]
    """Batch that the first attempt trains with. Required with batchSize Raise, refused otherwise. Unit: samples. Example: 64"""
    maxBatchSize: NotRequired[int]
    """Batch that Raise never exceeds; at least baseBatchSize. Absent: as much as fits. Unit: samples. Example: 512"""
    failurePolicy: NotRequired[Literal["Ignore", "Fail"]]
    """What a worker does when compression cannot run. Ignore: train without it and report why. Fail: end before training.
    batchSize Raise implies Fail. Default: Ignore. Example: Fail
    """


class ExitCodesDict(TypedDict):
    """Exit codes of a container."""

    containerName: NotRequired[str]
    """Container whose exit code counts. Absent: any container of the pod. Example: trainer"""
    operator: NotRequired[Literal["In", "NotIn"]]
    """In: the rule matches the codes in values. NotIn: it matches all other codes but 0. Default: In. Example: NotIn"""
    values: list[int]
    """Exit codes, each from 1 to 255. Example: [42, 137]"""


class FailureRuleDict(TypedDict):
    """One podFailurePolicy rule."""

    onExitCodes: ExitCodesDict
    """Exit codes that this rule matches."""
    action: NotRequired[Literal["FailJob", "RestartGang", "Ignore"]]
    """FailJob: the job fails for good. RestartGang: the gang starts again, counted by backoffLimit. Ignore: it starts again
    and nothing is counted. Default: RestartGang. Example: FailJob
    """


class PodFailurePolicyDict(TypedDict):
    """Rules by exit code."""

    rules: NotRequired[list[FailureRuleDict]]
    """The first rule that matches decides; failures that no rule matches restart the gang and are counted. Example:
    [{"onExitCodes": {"values": [42]}, "action": "FailJob"}]
    """


class SuccessPolicyDict(TypedDict):
    """`roles` () means all roles."""

    targetRoles: NotRequired[list[str]]
    """Roles that decide whether the job succeeded. Empty: all roles. Example: ["worker"]"""
    operator: NotRequired[Literal["All", "Any"]]
    """All: all pods of these roles must end with exit code 0. Any: one pod is enough. Default: All. Example: Any"""


class PreemptionDict(TypedDict):
    """What a job has when it is ended for one of higher priority: time for a checkpoint, and time to run before that happens."""

    gracePeriodSeconds: NotRequired[int]
    """Time between SIGTERM and SIGKILL when the job is preempted: enough to write a checkpoint. Unit: seconds. Default: 60.
    Example: 120
    """
    minRuntimeSeconds: NotRequired[int]
    """How long each attempt runs before it may be preempted, from the moment all workers run. Unit: seconds. Default: 300.
    Example: 600
    """


class RunPolicyDict(TypedDict):
    """None for a deadline or a time to live: there is none."""

    backoffLimit: NotRequired[int]
    """Failures that restart the gang before the job fails for good. Unit: restarts. Default: 3. Example: 10"""
    activeDeadlineSeconds: NotRequired[int]
    """How long the job may run, from the moment all workers have a node; then it fails. Waiting is not counted, and suspension
    starts it anew. Absent: no limit. Unit: seconds. Example: 86400
    """
    ttlSecondsAfterFinished: NotRequired[int]
    """How long a finished job is kept before it is deleted. Absent: for ever. Unit: seconds. Example: 3600"""
    cleanPodPolicy: NotRequired[Literal["Running", "All", "None"]]
    """Which pods of a finished job are deleted: those still Running, All, or None. Default: Running. Example: None"""
    podFailurePolicy: NotRequired[PodFailurePolicyDict]
    """What exit codes of failed containers lead to."""
    successPolicy: NotRequired[SuccessPolicyDict]
    """When the job has succeeded."""
    evictions: NotRequired[Literal["Allow", "Refuse"]]
    """Refuse: a PodDisruptionBudget keeps kubectl drain from evicting workers until the job ends. Default: Allow. Example:
    Refuse
    """
    preemption: NotRequired[PreemptionDict]
    """What the job is given when a job of higher priority preempts it."""


class TrainingJobSpecDict(TypedDict):
    """What a user writes."""

    suspend: NotRequired[bool]
    """true: the job has no pods; false again begins the next attempt. Status is kept. Default: false. Example: true"""
    managedBy: NotRequired[str]
    """Controller that runs the job. With any other value than the default kompakt's operator leaves the job alone. Cannot
    change. Default: kompakt.dev/operator. Example: example.com/another-controller
    """
    roles: list[RoleDict]
    """Groups of equal pods. All pods of all roles are one gang: they are placed together or not at all."""
    communication: NotRequired[CommunicationDict]
    """What the job's GPUs exchange. Absent: nothing, so any free GPUs will do."""
    placement: NotRequired[PlacementDict]
    """Which GPUs the gang may get, and how long it waits for better ones."""
    activationCompression: NotRequired[ActivationCompressionDict]
    """How the training's saved tensors are kept smaller. Absent: they are kept as they are."""
    injection: NotRequired[Literal["Default", "Always", "Never"]]
    """Whether an init container puts the start-up hook on PYTHONPATH. Default: with compression. Always: without it too, for
    status.progress, status.profile and metrics. Never: pods run as written. Default: Default. Example: Always
    """
    runPolicy: NotRequired[RunPolicyDict]
    """When the job ends, starts again, or is removed."""
    priorityClassName: NotRequired[str]
    """PriorityClass of the pods. Gangs are served by priority; a job of higher priority may preempt this one. Example:
    high-priority
    """
    sharedMemory: NotRequired[int | str]
    """Size of /dev/shm in the GPU container. Absent: half of its memory limit. Unit: bytes, as a Kubernetes quantity. Example:
    16Gi
    """
