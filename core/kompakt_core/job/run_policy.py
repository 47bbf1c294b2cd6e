"""`spec.runPolicy`: when a job ends, begins anew, or is removed."""

from typing import Annotated

from msgspec import field

from kompakt_core.job.choices import (
    MAX_EXIT_CODES,
    MAX_GRACE_SECONDS,
    MAX_ROLE_NAME,
    MAX_ROLES,
    MAX_RULES,
    MAX_WAIT_SECONDS,
    CleanPodPolicy,
    Evictions,
    ExitOperator,
    FailureAction,
    SuccessOperator,
)
from kompakt_core.schema.meta import Declared, about

ExitCode = Annotated[
    int, about("An exit code.", low=1, high=255, right="an exit code of a failure is a whole number from 1 to 255")
]
RoleName = Annotated[str, about("A role's name.", longest=MAX_ROLE_NAME)]


class ExitCodes(Declared, frozen=True, kw_only=True):
    """Exit codes of a container. `container_name` "" matches every container."""

    container_name: Annotated[
        str, about("Container whose exit code counts. Absent: any container of the pod.", longest=63, example="trainer")
    ] = ""
    operator: Annotated[
        ExitOperator,
        about("In: the rule matches the codes in values. NotIn: it matches all other codes but 0.", example="NotIn"),
    ] = ExitOperator.IN
    values: Annotated[
        tuple[ExitCode, ...],
        about("Exit codes, each from 1 to 255.", shortest=1, longest=MAX_EXIT_CODES, example=[42, 137]),
    ]


class FailureRule(Declared, frozen=True):
    """One podFailurePolicy rule."""

    on_exit_codes: Annotated[ExitCodes, about("Exit codes that this rule matches.")]
    action: Annotated[
        FailureAction,
        about(
            "FailJob: the job fails for good. RestartGang: the gang starts again, counted by backoffLimit. Ignore: it starts "
            "again and nothing is counted.",
            example="FailJob",
        ),
    ] = FailureAction.RESTART_GANG

    def matches(self, container: str, exit_code: int) -> bool:
        """Whether this rule speaks about that container's exit code (0 never matches, as in batch/v1)."""
        codes = self.on_exit_codes
        if exit_code == 0 or codes.container_name not in ("", container):
            return False
        return (exit_code in codes.values) == (codes.operator is ExitOperator.IN)


class PodFailurePolicy(Declared, frozen=True):
    """Rules by exit code."""

    rules: Annotated[
        tuple[FailureRule, ...],
        about(
            "The first rule that matches decides; failures that no rule matches restart the gang and are counted.",
            longest=MAX_RULES,
            example=[{"onExitCodes": {"values": [42]}, "action": "FailJob"}],
        ),
    ] = ()


class SuccessPolicy(Declared, frozen=True):
    """`roles` () means all roles."""

    roles: Annotated[
        tuple[RoleName, ...],
        about("Roles that decide whether the job succeeded. Empty: all roles.", longest=MAX_ROLES, example=["worker"]),
    ] = field(default=(), name="targetRoles")
    operator: Annotated[
        SuccessOperator,
        about("All: all pods of these roles must end with exit code 0. Any: one pod is enough.", example="Any"),
    ] = SuccessOperator.ALL


class Preemption(Declared, frozen=True):
    """What a job has when it is ended for one of higher priority: time for a checkpoint, and time to run before that happens."""

    grace_period_seconds: Annotated[
        int,
        about(
            "Time between SIGTERM and SIGKILL when the job is preempted: enough to write a checkpoint.",
            unit="seconds",
            low=1,
            high=MAX_GRACE_SECONDS,
            example=120,
        ),
    ] = 60
    min_runtime_seconds: Annotated[
        int,
        about(
            "How long each attempt runs before it may be preempted, from the moment all workers run.",
            unit="seconds",
            low=0,
            high=MAX_WAIT_SECONDS,
            example=600,
        ),
    ] = 300


class RunPolicy(Declared, frozen=True):
    """None for a deadline or a time to live: there is none."""

    backoff_limit: Annotated[
        int,
        about("Failures that restart the gang before the job fails for good.", unit="restarts", low=0, high=1000, example=10),
    ] = 3
    active_deadline_seconds: (
        Annotated[
            int,
            about(
                "How long the job may run, from the moment all workers have a node; then it fails. Waiting is not counted, and "
                "suspension starts it anew. Absent: no limit.",
                unit="seconds",
                low=1,
                example=86400,
            ),
        ]
        | None
    ) = None
    ttl_seconds_after_finished: (
        Annotated[
            int,
            about("How long a finished job is kept before it is deleted. Absent: for ever.", unit="seconds", low=0, example=3600),
        ]
        | None
    ) = None
    clean_pod_policy: Annotated[
        CleanPodPolicy,
        about("Which pods of a finished job are deleted: those still Running, All, or None.", example="None"),
    ] = CleanPodPolicy.RUNNING
    pod_failure_policy: Annotated[PodFailurePolicy, about("What exit codes of failed containers lead to.")] = PodFailurePolicy()
    success: Annotated[SuccessPolicy, about("When the job has succeeded.")] = field(default=SuccessPolicy(), name="successPolicy")
    evictions: Annotated[
        Evictions,
        about("Refuse: a PodDisruptionBudget keeps kubectl drain from evicting workers until the job ends.", example="Refuse"),
    ] = Evictions.ALLOW
    preemption: Annotated[Preemption, about("What the job is given when a job of higher priority preempts it.")] = Preemption()

    @property
    def failure_rules(self) -> tuple[FailureRule, ...]:
        """What exit codes lead to; the first rule that matches decides."""
        return self.pod_failure_policy.rules
