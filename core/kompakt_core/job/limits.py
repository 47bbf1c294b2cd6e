"""The fields of Limits: what an administrator lets jobs of some namespaces and priorities ask for, and whom they may preempt. The
CRD and the reference page are made from this; the chart's admission policies and the extender (`limited.py`) hold jobs to it, and
plain pods as gangs of one."""

from enum import StrEnum
from typing import Annotated, Final

from msgspec import field

from kompakt_core.job.choices import MAX_EDGES, MAX_GPUS, MAX_GRACE_SECONDS, MAX_REPLICAS, MAX_ROLES, MAX_WAIT_SECONDS
from kompakt_core.schema.meta import Declared, about

MAX_CLASSES: Final = 64
MAX_TERMS: Final = 16
MOST_WORKERS: Final = MAX_ROLES * MAX_REPLICAS
Word = Annotated[str, about("A value.", longest=63)]


class SelectorOperator(StrEnum):
    """How a label is asked for."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class SelectorTerm(Declared, frozen=True, kw_only=True):
    """One line of a selector."""

    key: Annotated[str, about("Label of the namespace.", shortest=1, longest=317, example="kubernetes.io/metadata.name")]
    operator: Annotated[
        SelectorOperator,
        about("In, NotIn: its value is, or is not, one of values. Exists, DoesNotExist: whether it is there.", example="In"),
    ]
    values: Annotated[tuple[Word, ...], about("For In and NotIn.", longest=MAX_CLASSES, example=["ml"])] = ()


class NamespaceSelector(Declared, frozen=True):
    """metav1.LabelSelector of namespaces; all that stands in it must hold."""

    match_labels: Annotated[
        dict[str, Annotated[str, about("A value.", longest=63)]],
        about("Labels that the namespace has.", longest=MAX_TERMS, example={"team": "vision"}),
    ] = field(default_factory=dict)
    match_expressions: Annotated[
        tuple[SelectorTerm, ...],
        about(
            "Further conditions on labels.",
            longest=MAX_TERMS,
            example=[{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["research"]}],
        ),
    ] = ()


class LimitsSpec(Declared, frozen=True):
    """None: no limit; a right that says nothing is given. Who is selected by several Limits is held to each of them.

    A plain pod that asks for GPUs is held to all of it as a job of one pod.
    """

    namespace_selector: (
        Annotated[
            NamespaceSelector,
            about(
                "Namespaces whose jobs and plain pods are meant. Absent: all namespaces.",
                example={"matchLabels": {"team": "vision"}},
            ),
        ]
        | None
    ) = None
    priority_class_names: Annotated[
        tuple[Annotated[str, about('A PriorityClass; "" means jobs that name none.', longest=253)], ...],
        about("PriorityClasses whose jobs are meant. Empty: all jobs.", longest=MAX_CLASSES, example=["low-priority"]),
    ] = ()
    max_workers: Annotated[int, about("Most pods of a job.", unit="pods", low=1, high=MOST_WORKERS, example=64)] | None = None
    max_gpus: (
        Annotated[int, about("Most GPUs of a job or plain pod.", unit="GPUs", low=0, high=MOST_WORKERS * MAX_GPUS, example=128)]
        | None
    ) = field(default=None, name="maxGPUs")
    max_edges: (
        Annotated[
            int, about("Most edges of pattern Custom; 0: no custom pattern.", unit="edges", low=0, high=MAX_EDGES, example=32)
        ]
        | None
    ) = None
    max_min_runtime_seconds: (
        Annotated[
            int,
            about(
                "Largest runPolicy.preemption.minRuntimeSeconds: so long a job may keep its GPUs from others of higher priority. "
                "Jobs that say nothing ask for 300. Plain pods, which cannot say it, keep theirs for 300 seconds or this, "
                "whichever is less.",
                unit="seconds",
                low=0,
                high=MAX_WAIT_SECONDS,
                example=3600,
            ),
        ]
        | None
    ) = None
    max_grace_period_seconds: (
        Annotated[
            int,
            about(
                "Largest runPolicy.preemption.gracePeriodSeconds (60 where a job says nothing) and terminationGracePeriodSeconds "
                "of a template or plain pod (30): so long one may keep its GPUs when told to end.",
                unit="seconds",
                low=1,
                high=MAX_GRACE_SECONDS,
                example=300,
            ),
        ]
        | None
    ) = None
    max_consolidation_wait_seconds: (
        Annotated[
            int,
            about(
                "Largest placement.consolidation.blockWaitSeconds of mode Fixed (3600 where a job says nothing), and no mode "
                "NeverRelax: so long a job may wait for better GPUs than it could have. Mode Default waits as the cluster does.",
                unit="seconds",
                low=0,
                high=MAX_WAIT_SECONDS,
                example=1800,
            ),
        ]
        | None
    ) = None
    may_preempt_others: Annotated[
        bool,
        about("Whether these jobs may preempt jobs of other namespaces. Those of their own namespace they may in any case."),
    ] = True
    may_be_preempted_by_others: Annotated[
        bool,
        about("Whether jobs of other namespaces may preempt these jobs. Those of their own namespace may in any case."),
    ] = True
    may_use_custom_patterns: Annotated[bool, about("Whether these jobs may have pattern Custom.")] = True
