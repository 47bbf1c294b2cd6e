"""The words and limits of a TrainingJob's fields."""

from enum import StrEnum
from typing import Final

MAX_JOB_NAME: Final = 40  # with role (16), index (4) and two dashes the hostname stays within 63 characters
MAX_ROLE_NAME: Final = 16
MAX_ROLES: Final = 8
MAX_REPLICAS: Final = 1024
MAX_WORKERS: Final = 4096  # of all roles together: what stands in the status about each must fit what etcd takes (1.5 MiB)
MAX_GPUS: Final = 256
MAX_EDGES: Final = 120  # all pairs of 16 ranks
MAX_EDGE_RANK: Final = 15
MAX_RULES: Final = 20  # as in batch/v1 Job
MAX_EXIT_CODES: Final = 255
MAX_OVERRIDES: Final = 64
MAX_WAIT_SECONDS: Final = 366 * 24 * 3600
MAX_GRACE_SECONDS: Final = 24 * 3600
MAX_BATCH: Final = (1 << 31) - 1


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


class ActivationGradients(StrEnum):
    """What a job's training may do to gradients of activations."""

    BOUNDED = "Bounded"
    EXACT = "Exact"


class NonlinearInputs(StrEnum):
    """Deprecated: what ActivationGradients was called."""

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
    """Which jobs' pods get the start-up hook. Default: those with compression."""

    DEFAULT = "Default"
    ALWAYS = "Always"
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
