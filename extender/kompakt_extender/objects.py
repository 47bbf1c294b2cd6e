"""API objects as the API server and kube-scheduler send them: only the fields we read, everything else is skipped."""

from typing import Any, Final

import msgspec

from kompakt_client.lease import LeaseSpec

Texts = dict[str, str]
NULL: Final = msgspec.Raw(b"null")


class Meta(msgspec.Struct, rename="camel"):
    """metadata of any object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: Texts | None = None
    annotations: Texts | None = None
    owner_references: list[dict[str, Any]] | None = None


class Resources(msgspec.Struct):
    """Quantities as text ("500m", "2Gi"); numbers are accepted as the API server accepts them."""

    limits: dict[str, str | int | float] | None = None
    requests: dict[str, str | int | float] | None = None


class Container(msgspec.Struct, rename="camel"):
    name: str = ""
    resources: Resources | None = None
    restart_policy: str | None = None  # "Always" on an init container makes it a sidecar


class NamedGate(msgspec.Struct):
    name: str = ""


class TolerationObject(msgspec.Struct):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class Expression(msgspec.Struct):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class Term(msgspec.Struct, rename="camel"):
    match_expressions: list[Expression] | None = None
    match_fields: list[Expression] | None = None


class NodeSelectorObject(msgspec.Struct, rename="camel"):
    node_selector_terms: list[Term] | None = None


class NodeAffinity(msgspec.Struct):
    preferred: list[msgspec.Raw] | None = msgspec.field(default=None, name="preferredDuringSchedulingIgnoredDuringExecution")
    required: msgspec.Raw = msgspec.field(default=NULL, name="requiredDuringSchedulingIgnoredDuringExecution")


class Affinity(msgspec.Struct, rename="camel"):
    """Of what kube-scheduler alone understands, only whether it is there."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: dict[str, msgspec.Raw] | None = None
    pod_anti_affinity: dict[str, msgspec.Raw] | None = None


class Volume(msgspec.Struct, rename="camel"):
    """Only whether it waits for a PersistentVolume; what it says otherwise does not matter here."""

    persistent_volume_claim: dict[str, Any] | None = None
    ephemeral: dict[str, Any] | None = None


class PodSpec(msgspec.Struct, rename="camel"):
    containers: list[Container] | None = None
    volumes: list[Volume] | None = None
    init_containers: list[Container] | None = None
    node_name: str | None = None
    scheduler_name: str | None = None
    scheduling_gates: list[NamedGate] | None = None
    node_selector: msgspec.Raw = NULL  # these three are read of few pods (node_rules.py)
    affinity: msgspec.Raw = NULL
    topology_spread_constraints: list[msgspec.Raw] | None = None
    tolerations: msgspec.Raw = NULL
    overhead: dict[str, str | int | float] | None = None
    priority: int | None = None
    preemption_policy: str | None = None
    priority_class_name: str | None = None
    termination_grace_period_seconds: int | None = None


class ContainerStatus(msgspec.Struct, rename="camel"):
    container_id: str | None = msgspec.field(default=None, name="containerID")


class PodStatus(msgspec.Struct, rename="camel"):
    phase: str = ""
    reason: str | None = None
    start_time: str | None = None
    container_statuses: list[ContainerStatus] | None = None


class Pod(msgspec.Struct):
    metadata: Meta
    spec: PodSpec
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class TaintObject(msgspec.Struct):
    key: str = ""
    effect: str = ""
    value: str | None = None


class NodeSpec(msgspec.Struct):
    unschedulable: bool | None = None
    taints: list[TaintObject] | None = None


class ConditionObject(msgspec.Struct, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class NodeStatus(msgspec.Struct):
    allocatable: dict[str, str | int | float] | None = None
    conditions: list[ConditionObject] | None = None


class NodeObject(msgspec.Struct):
    metadata: Meta
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class TopologyStatus(msgspec.Struct):
    """As it stands: contract.gpu_holders and contract.conditions read it."""

    held: Any = None
    conditions: Any = None


class Topology(msgspec.Struct):
    """A GPUTopology; its spec stays raw, so that an unchanged one is recognised without reading it again."""

    metadata: Meta
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: TopologyStatus = msgspec.field(default_factory=TopologyStatus)


class TemplateSpec(msgspec.Struct, rename="camel"):
    priority_class_name: str | None = None
    termination_grace_period_seconds: int | None = None


class TemplateObject(msgspec.Struct):
    spec: TemplateSpec | None = None


class RoleObject(msgspec.Struct, rename="camel"):
    name: str = ""
    replicas: int = 1
    gpus_per_replica: int = 0
    template: TemplateObject | None = None


class ConsolidationSpec(msgspec.Struct, rename="camel"):
    mode: str | None = None
    machine_wait_seconds: int | None = None
    rack_wait_seconds: int | None = None
    block_wait_seconds: int | None = None


class PlacementSpec(msgspec.Struct, rename="camel"):
    required_level: str | None = None
    consolidation: ConsolidationSpec | None = None
    same_numa_node: bool | None = msgspec.field(default=None, name="sameNUMANode")


class EdgeSpec(msgspec.Struct):
    start: int = msgspec.field(default=0, name="from")
    to: int = 0
    weight: int = 1


class CustomEdgesSpec(msgspec.Struct):
    scope: str | None = None
    edges: list[EdgeSpec] = []


class CommunicationSpec(msgspec.Struct, rename="camel"):
    bandwidth_sensitivity: str | None = None
    custom_edges: CustomEdgesSpec | None = None


class PreemptionSpec(msgspec.Struct, rename="camel"):
    min_runtime_seconds: int | None = None
    grace_period_seconds: int | None = None


class RunPolicySpec(msgspec.Struct):
    preemption: PreemptionSpec | None = None


class JobSpec(msgspec.Struct, rename="camel"):
    suspend: bool | None = None
    managed_by: str | None = None
    priority_class_name: str | None = None
    roles: list[RoleObject] = []
    placement: PlacementSpec | None = None
    communication: CommunicationSpec | None = None
    run_policy: RunPolicySpec | None = None


class ProfileStatus(msgspec.Struct):
    communication: str | None = None


class ProgressStatus(msgspec.Struct, rename="camel"):
    remaining_seconds: int | None = None


class ExpectedRoleObject(msgspec.Struct):
    name: str = ""
    pod: msgspec.Raw = NULL


class ExpectedPodsObject(msgspec.Struct):
    """status.expectedPods: what the pods of an attempt will ask for."""

    attempt: int = 0
    roles: list[ExpectedRoleObject] = []


class JobStatusObject(msgspec.Struct):
    attempt: int | None = None
    phase: str | None = None
    conditions: list[ConditionObject] | None = None
    scheduling: dict[str, Any] | None = None
    profile: ProfileStatus | None = None
    progress: ProgressStatus | None = None
    expected_pods: msgspec.Raw = msgspec.field(default=NULL, name="expectedPods")  # project_job.py reads it


class JobObject(msgspec.Struct):
    metadata: Meta
    spec: JobSpec = msgspec.field(default_factory=JobSpec)
    status: JobStatusObject = msgspec.field(default_factory=JobStatusObject)


class GangSpecObject(msgspec.Struct, rename="camel"):
    size: int = 0
    required_level: str | None = None


class GangObject(msgspec.Struct):
    metadata: Meta
    spec: GangSpecObject = msgspec.field(default_factory=GangSpecObject)
    status: JobStatusObject = msgspec.field(default_factory=JobStatusObject)


class LimitsObject(msgspec.Struct):
    """Its spec stays raw: core declares it."""

    metadata: Meta
    spec: msgspec.Raw = msgspec.Raw(b"{}")


class Namespace(msgspec.Struct):
    metadata: Meta


class Lease(msgspec.Struct):
    metadata: Meta
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


class ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_token: str | None = msgspec.field(default=None, name="continue")


class RawList(msgspec.Struct):
    """One page of a list."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class RawEvent(msgspec.Struct):
    """One line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""

    type: str
    object: msgspec.Raw
