"""A TrainingJob as plain frozen values. Names are those of the resource; `job.spec.parse_job` makes them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from kompakt_core.ids import JobUid
from kompakt_core.patterns.names import Pattern
from kompakt_core.profile.document import Profile

MAX_JOB_NAME: Final = 40  # with role (16), index (4) and two dashes the hostname stays within 63 characters
MAX_ROLE_NAME: Final = 16
MAX_ROLES: Final = 8
MAX_REPLICAS: Final = 1024
MAX_GPUS: Final = 256
MAX_EDGES: Final = 120  # all pairs of 16 ranks
MAX_EDGE_RANK: Final = 15
MAX_RULES: Final = 20  # as in batch/v1 Job
MAX_EXIT_CODES: Final = 255
MAX_OVERRIDES: Final = 64
MAX_WAIT_SECONDS: Final = 366 * 24 * 3600
MAX_GRACE_SECONDS: Final = 24 * 3600
MAX_BATCH: Final = (1 << 31) - 1


class Sensitivity(StrEnum):
    """How much a job suffers from slow links."""

    HIGH = "High"
    MEDIUM = "Medium"
    AUTO = "Auto"
    LOW = "Low"
    NONE = "None"


class PolicyName(StrEnum):
    """How a GPU set is chosen (the words of placement's policies; a contract test compares)."""

    BEST = "Best"
    PRESERVE = "Preserve"
    PACKED = "Packed"
    FIRST = "First"


class RequiredLink(StrEnum):
    ANY = "Any"
    NVLINK = "NVLink"


class LevelName(StrEnum):
    """How far a gang may be spread (the words of placement's levels; a contract test compares)."""

    MACHINE = "Machine"
    RACK = "Rack"
    BLOCK = "Block"
    CLUSTER = "Cluster"


class ConsolidationMode(StrEnum):
    DEFAULT = "Default"
    FIXED = "Fixed"
    NO_WAIT = "NoWait"
    NEVER_RELAX = "NeverRelax"


class CompressionMode(StrEnum):
    NONE = "None"
    LOSSLESS = "Lossless"
    ERROR_BOUNDED = "ErrorBounded"


class Offload(StrEnum):
    NEVER = "Never"
    AUTO = "Auto"


class NonlinearInputs(StrEnum):
    KEEP = "Keep"
    BOUNDED = "Bounded"


class BatchSize(StrEnum):
    KEEP = "Keep"
    SUGGEST = "Suggest"
    RAISE = "Raise"


class FailurePolicy(StrEnum):
    """What happens when compression cannot run: train plainly and say why, or fail."""

    IGNORE = "Ignore"
    FAIL = "Fail"


class Injection(StrEnum):
    DEFAULT = "Default"
    NEVER = "Never"


class CleanPodPolicy(StrEnum):
    """Which pods of a finished job are deleted."""

    RUNNING = "Running"
    ALL = "All"
    NONE = "None"


class FailureAction(StrEnum):
    """What a pod's exit code leads to. Ignore restarts the gang without counting towards backoffLimit."""

    FAIL_JOB = "FailJob"
    RESTART_GANG = "RestartGang"
    IGNORE = "Ignore"


class ExitOperator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"


class SuccessOperator(StrEnum):
    ALL = "All"
    ANY = "Any"


class Evictions(StrEnum):
    """Whether a drain may evict workers. Refuse: a PodDisruptionBudget of the job keeps them."""

    ALLOW = "Allow"
    REFUSE = "Refuse"


class EdgeScope(StrEnum):
    POD = "Pod"
    GANG = "Gang"


@dataclass(frozen=True, slots=True)
class Role:
    """A group of equal pods. `gpu_container` "" means the template's first container."""

    name: str
    replicas: int
    gpus_per_replica: int
    gpu_container: str
    template: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Edge:
    start: int
    end: int
    weight: int


@dataclass(frozen=True, slots=True)
class CustomEdges:
    scope: EdgeScope
    edges: tuple[Edge, ...]


@dataclass(frozen=True, slots=True)
class Communication:
    """What the job's GPUs exchange. `gradient_bytes` -1: not said."""

    pattern: Pattern = Pattern.NONE
    sensitivity: Sensitivity = Sensitivity.LOW
    custom_edges: CustomEdges | None = None
    gradient_bytes: int = -1


@dataclass(frozen=True, slots=True)
class Consolidation:
    """How long to wait for a better level. The seconds count in mode Fixed only; each is at least the one before."""

    mode: ConsolidationMode = ConsolidationMode.DEFAULT
    machine_wait_seconds: int = 600
    rack_wait_seconds: int = 1800
    block_wait_seconds: int = 3600


@dataclass(frozen=True, slots=True)
class Placement:
    policy: PolicyName = PolicyName.PRESERVE
    required_link: RequiredLink = RequiredLink.ANY
    same_numa_node: bool = False
    required_level: LevelName = LevelName.CLUSTER
    consolidation: Consolidation = Consolidation()


@dataclass(frozen=True, slots=True)
class Override:
    """Modules whose dotted name matches the glob `modules` use another mode."""

    modules: str
    mode: CompressionMode


@dataclass(frozen=True, slots=True)
class Compression:
    """`target` is decimal text: share of the mean |momentum| that the gradient error may reach.

    `base_batch`: what Raise begins with, `max_batch`: what it never goes above; 0: not said. Raise implies policy Fail.
    """

    mode: CompressionMode = CompressionMode.NONE
    target: str = "0.01"
    overrides: tuple[Override, ...] = ()
    min_tensor_bytes: int = 65536
    nonlinear_inputs: NonlinearInputs = NonlinearInputs.KEEP
    offload: Offload = Offload.NEVER
    batch_size: BatchSize = BatchSize.KEEP
    base_batch: int = 0
    max_batch: int = 0
    failure_policy: FailurePolicy = FailurePolicy.IGNORE


@dataclass(frozen=True, slots=True)
class FailureRule:
    """One podFailurePolicy rule; `container` "" matches every container."""

    operator: ExitOperator
    values: frozenset[int]
    action: FailureAction
    container: str = ""

    def matches(self, container: str, exit_code: int) -> bool:
        """Whether this rule speaks about that container's exit code (0 never matches, as in batch/v1)."""
        if exit_code == 0 or self.container not in ("", container):
            return False
        return (exit_code in self.values) == (self.operator is ExitOperator.IN)


@dataclass(frozen=True, slots=True)
class SuccessPolicy:
    """`roles` () means all roles."""

    roles: tuple[str, ...] = ()
    operator: SuccessOperator = SuccessOperator.ALL


@dataclass(frozen=True, slots=True)
class Preemption:
    """What a job has when it is ended for one of higher priority: time for a checkpoint, and time to run before that happens."""

    grace_period_seconds: int = 60
    min_runtime_seconds: int = 300


@dataclass(frozen=True, slots=True)
class RunPolicy:
    """None for a deadline or a time to live: there is none."""

    backoff_limit: int = 3
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    clean_pod_policy: CleanPodPolicy = CleanPodPolicy.RUNNING
    failure_rules: tuple[FailureRule, ...] = ()
    success: SuccessPolicy = SuccessPolicy()
    evictions: Evictions = Evictions.ALLOW
    preemption: Preemption = Preemption()


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """One TrainingJob as its user wrote it, with the defaults filled in. `shared_memory` -1: half the memory limit.

    `profile`: what its user measured beforehand, from the annotation.
    """

    name: str
    namespace: str
    uid: JobUid
    generation: int
    roles: tuple[Role, ...]
    suspend: bool = False
    managed_by: str = ""
    communication: Communication = Communication()
    placement: Placement = Placement()
    compression: Compression = Compression()
    injection: Injection = Injection.DEFAULT
    run_policy: RunPolicy = RunPolicy()
    priority_class_name: str = ""
    shared_memory: int = -1
    profile: Profile | None = None

    @property
    def workers(self) -> int:
        """Number of pods of the whole gang."""
        return sum(role.replicas for role in self.roles)

    def first_index(self, role: str) -> int:
        """The worker index of a role's first pod; worker indices count over all roles in order."""
        return sum(r.replicas for r in self._before(role))

    def first_gpu(self, role: str) -> int:
        """The rank of the first GPU of a role's first pod; ranks count the gang's GPUs, worker by worker."""
        return sum(r.replicas * r.gpus_per_replica for r in self._before(role))

    def _before(self, role: str) -> tuple[Role, ...]:
        return self.roles[: [r.name for r in self.roles].index(role)]
