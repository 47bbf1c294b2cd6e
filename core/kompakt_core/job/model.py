"""A TrainingJob as frozen values. Every field of its spec is declared here or in the modules whose names are listed below:
the parser, the CustomResourceDefinition and docs/reference/trainingjob.md are made from that.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import field

from kompakt_core import contract
from kompakt_core.contract.words import Level, PlacementPolicy, RequiredLink, Sensitivity
from kompakt_core.ids import JobUid
from kompakt_core.job.choices import (
    MAX_BATCH,
    MAX_EDGE_RANK,
    MAX_EDGES,
    MAX_EXIT_CODES,
    MAX_GPUS,
    MAX_GRACE_SECONDS,
    MAX_JOB_NAME,
    MAX_OVERRIDES,
    MAX_REPLICAS,
    MAX_ROLE_NAME,
    MAX_ROLES,
    MAX_RULES,
    MAX_WAIT_SECONDS,
    ActivationGradients,
    BatchSize,
    CleanPodPolicy,
    CompressionMode,
    ConsolidationMode,
    EdgeScope,
    Evictions,
    ExitOperator,
    FailureAction,
    FailurePolicy,
    Injection,
    NonlinearInputs,
    Offload,
    SuccessOperator,
)
from kompakt_core.job.communication import NO_COMMUNICATION, Communication, CustomEdges, WeightedEdge
from kompakt_core.job.compression import NO_COMPRESSION, ActivationCompression, Override
from kompakt_core.job.placement_fields import Consolidation, Placement
from kompakt_core.job.pod_template import read_template
from kompakt_core.job.quantity import QUANTITY_SCHEMA, parse_bytes
from kompakt_core.job.rules import ACROSS, IMMUTABLE, ROLE_NAME_RULE
from kompakt_core.job.run_policy import (
    ExitCodes,
    FailureRule,
    PodFailurePolicy,
    Preemption,
    RunPolicy,
    SuccessPolicy,
)
from kompakt_core.profile.document import Profile
from kompakt_core.schema.meta import Declared, ValidationRule, about

__all__ = [
    "MAX_BATCH",
    "MAX_EDGES",
    "MAX_EDGE_RANK",
    "MAX_EXIT_CODES",
    "MAX_GPUS",
    "MAX_GRACE_SECONDS",
    "MAX_JOB_NAME",
    "MAX_OVERRIDES",
    "MAX_REPLICAS",
    "MAX_ROLES",
    "MAX_ROLE_NAME",
    "MAX_RULES",
    "MAX_WAIT_SECONDS",
    "NO_COMMUNICATION",
    "NO_COMPRESSION",
    "ActivationCompression",
    "ActivationGradients",
    "BatchSize",
    "CleanPodPolicy",
    "Communication",
    "CompressionMode",
    "Consolidation",
    "ConsolidationMode",
    "CustomEdges",
    "EdgeScope",
    "Evictions",
    "ExitCodes",
    "ExitOperator",
    "FailureAction",
    "FailurePolicy",
    "FailureRule",
    "Injection",
    "Level",
    "NonlinearInputs",
    "Offload",
    "Override",
    "Placement",
    "PlacementPolicy",
    "PodFailurePolicy",
    "Preemption",
    "RequiredLink",
    "Role",
    "RunPolicy",
    "Sensitivity",
    "SuccessOperator",
    "SuccessPolicy",
    "TrainingJob",
    "TrainingJobSpec",
    "WeightedEdge",
]


class Role(Declared, frozen=True, kw_only=True):
    """A group of equal pods. `gpu_container` "" means the template's first container."""

    name: Annotated[
        str,
        about(
            "Name of the role; part of its pods' names.",
            shortest=1,
            longest=63,
            example="worker",
            rules=(ROLE_NAME_RULE,),
        ),
    ]
    replicas: Annotated[int, about("Number of pods of this role.", unit="pods", low=1, high=MAX_REPLICAS, example=4)] = 1
    gpus_per_replica: Annotated[
        int,
        about(
            "Number of GPUs of each pod; 0 for a role without GPUs. The operator adds it as the limit kompakt.dev/gpu.",
            unit="GPUs",
            low=0,
            high=MAX_GPUS,
            example=8,
        ),
    ]
    gpu_container: Annotated[
        str, about("Container of the template that gets the GPUs. Absent: the first one.", longest=63, example="trainer")
    ] = ""
    template: Annotated[
        Mapping[str, Any],
        about("Pod template of the role, as in a Deployment. See kubectl explain pod.spec.", read=read_template, template=True),
    ]


class TrainingJobSpec(Declared, frozen=True, kw_only=True):
    """What a user writes. `shared_memory` -1: half the memory limit."""

    suspend: Annotated[
        bool,
        about("true: the job has no pods; false again begins the next attempt. Status is kept.", example=True),
    ] = False
    managed_by: Annotated[
        str,
        about(
            "Controller that runs the job. With any other value than the default kompakt's operator leaves the job alone. "
            "Cannot change.",
            longest=63,
            example="example.com/another-controller",
        ),
    ] = contract.MANAGED_BY
    roles: Annotated[
        tuple[Role, ...],
        about(
            "Groups of equal pods. All pods of all roles are one gang: they are placed together or not at all.",
            shortest=1,
            longest=MAX_ROLES,
            key="name",
            twice="two roles are named {0!r}; names must differ",
        ),
    ]
    communication: Annotated[
        Communication, about("What the job's GPUs exchange. Absent: nothing, so any free GPUs will do.", absent=True)
    ] = NO_COMMUNICATION
    placement: Annotated[Placement, about("Which GPUs the gang may get, and how long it waits for better ones.")] = Placement()
    compression: Annotated[
        ActivationCompression,
        about("How the training's saved tensors are kept smaller. Absent: they are kept as they are.", absent=True),
    ] = field(default=NO_COMPRESSION, name="activationCompression")
    injection: Annotated[
        Injection,
        about(
            "Whether an init container puts the start-up hook on PYTHONPATH. Default: with compression. Always: without it too, "
            "for status.progress, status.profile and metrics. Never: pods run as written.",
            example="Always",
        ),
    ] = Injection.DEFAULT
    run_policy: Annotated[RunPolicy, about("When the job ends, starts again, or is removed.")] = RunPolicy()
    priority_class_name: Annotated[
        str,
        about(
            "PriorityClass of the pods. Gangs are served by priority; a job of higher priority may preempt this one.",
            longest=253,
            example="high-priority",
        ),
    ] = ""
    shared_memory: Annotated[
        int,
        about(
            "Size of /dev/shm in the GPU container. Absent: half of its memory limit.",
            unit="bytes, as a Kubernetes quantity",
            example="16Gi",
            read=parse_bytes,
            schema=QUANTITY_SCHEMA,
        ),
    ] = -1

    RULES: ClassVar[tuple[ValidationRule, ...]] = (*IMMUTABLE, *ACROSS)

    @property
    def injects(self) -> bool:
        """Whether pods with GPUs get the start-up hook."""
        if self.injection is Injection.DEFAULT:
            return self.compression.mode is not CompressionMode.NONE
        return self.injection is Injection.ALWAYS

    @property
    def workers(self) -> int:
        """Number of pods of the whole gang."""
        return sum(role.replicas for role in self.roles)

    @property
    def gpus(self) -> int:
        """Number of GPUs of the whole gang."""
        return sum(role.replicas * role.gpus_per_replica for role in self.roles)

    def first_index(self, role: str) -> int:
        """The worker index of a role's first pod; worker indices count over all roles in order."""
        return sum(r.replicas for r in self._before(role))

    def first_gpu(self, role: str) -> int:
        """The rank of the first GPU of a role's first pod; ranks count the gang's GPUs, worker by worker."""
        return sum(r.replicas * r.gpus_per_replica for r in self._before(role))

    def _before(self, role: str) -> tuple[Role, ...]:
        return self.roles[: [r.name for r in self.roles].index(role)]


class TrainingJob(TrainingJobSpec, frozen=True, kw_only=True):
    """One TrainingJob as its user wrote it, with the defaults filled in.

    `profile`: what its user measured beforehand, from the annotation.
    """

    name: str
    namespace: str
    uid: JobUid
    generation: int
    profile: Profile | None = None
