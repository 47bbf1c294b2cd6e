"""What Limits say of a job or plain pod: whether they mean it, what it asks for beyond them, and whom it may preempt.

The words and the selection are those of the chart's admission policy (charts/kompakt/templates/admission-limits.yaml).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kompakt_core.job.limits import LimitsSpec, NamespaceSelector, SelectorOperator, SelectorTerm
from kompakt_core.job.run_policy import Preemption

DEFAULT_GRACE_SECONDS: Final = 30  # of a pod that says nothing


@dataclass(frozen=True, slots=True)
class NamedLimits:
    """One Limits object."""

    name: str
    spec: LimitsSpec


@dataclass(frozen=True, slots=True)
class JobDemand:
    """What a job asks for, as far as Limits speak of it. `classes`: PriorityClasses, the job's or else its templates'.

    `grace_seconds`: of preemption; `template_grace_seconds`: the longest of a template. `wait_seconds`: of mode Fixed;
    `never_relaxes`: mode NeverRelax.
    """

    workers: int = 0
    gpus: int = 0
    edges: int = 0
    custom: bool = False
    min_runtime_seconds: int = Preemption().min_runtime_seconds
    grace_seconds: int = Preemption().grace_period_seconds
    template_grace_seconds: int = DEFAULT_GRACE_SECONDS
    classes: tuple[str, ...] = ("",)
    wait_seconds: int = 0
    never_relaxes: bool = False


def meaning(limits: Iterable[NamedLimits], labels: Mapping[str, str] | None, classes: Collection[str]) -> list[NamedLimits]:
    """Those that mean jobs of these classes in a namespace of these labels, by name.

    `labels`: None: not known yet, and then all that go by labels mean it.
    """
    found = (one for one in limits if _means(one.spec, labels, classes))
    return sorted(found, key=lambda one: one.name)


def beyond(limits: Sequence[NamedLimits], asked: JobDemand, who: str = "job") -> str:
    """The first thing that is asked for and these Limits do not let it, as a sentence; "" where there is none.

    `who`: "pod" for a plain pod, which is a gang of one.
    """
    for one in limits:
        for field, what, wanted, most in _maxima(one.spec, asked):
            if most is not None and wanted > most:
                return f"this {who} asks for {wanted} {what}; Limits {one.name} of the cluster allow {most} ({field})"
        wait = one.spec.max_consolidation_wait_seconds
        if asked.never_relaxes and wait is not None:
            return (
                f"this {who} asks for consolidation NeverRelax, a wait without end; "
                f"Limits {one.name} of the cluster allow {wait} (maxConsolidationWaitSeconds)"
            )
        if asked.custom and not one.spec.may_use_custom_patterns:
            return f"this {who} has pattern Custom; Limits {one.name} of the cluster do not let it (mayUseCustomPatterns)"
    return ""


def longest_run(limits: Iterable[NamedLimits], asked: float) -> float:
    """For how many seconds a pod that cannot say so keeps its GPUs from others: as asked, or as Limits let it."""
    maxima = (one.spec.max_min_runtime_seconds for one in limits)
    return min([asked, *(most for most in maxima if most is not None)])


def no_preemptor(limits: Iterable[NamedLimits]) -> str:
    """The name of Limits that keep a job from preempting others; "" where there are none."""
    return next((one.name for one in limits if not one.spec.may_preempt_others), "")


def no_victim(limits: Iterable[NamedLimits]) -> str:
    """The name of Limits that keep others from preempting a job; "" where there are none."""
    return next((one.name for one in limits if not one.spec.may_be_preempted_by_others), "")


def _maxima(spec: LimitsSpec, asked: JobDemand) -> tuple[tuple[str, str, int, int | None], ...]:
    wait = "as placement.consolidation.blockWaitSeconds"
    preemption, template = "as runPolicy.preemption.", "as terminationGracePeriodSeconds"
    return (
        ("maxWorkers", "pods", asked.workers, spec.max_workers),
        ("maxGPUs", "GPUs", asked.gpus, spec.max_gpus),
        ("maxEdges", "custom edges", asked.edges, spec.max_edges),
        ("maxMinRuntimeSeconds", f"{preemption}minRuntimeSeconds", asked.min_runtime_seconds, spec.max_min_runtime_seconds),
        ("maxConsolidationWaitSeconds", wait, asked.wait_seconds, spec.max_consolidation_wait_seconds),
        ("maxGracePeriodSeconds", f"{preemption}gracePeriodSeconds", asked.grace_seconds, spec.max_grace_period_seconds),
        ("maxGracePeriodSeconds", template, asked.template_grace_seconds, spec.max_grace_period_seconds),
    )


def _means(spec: LimitsSpec, labels: Mapping[str, str] | None, classes: Collection[str]) -> bool:
    named = not spec.priority_class_names or not set(spec.priority_class_names).isdisjoint(classes)
    return named and (labels is None or selected(spec.namespace_selector, labels))


def selected(selector: NamespaceSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a namespace of these labels is meant; as metav1.LabelSelector, NotIn means those without the label too."""
    if selector is None:
        return True
    wanted = selector.match_labels.items() <= labels.items()
    return wanted and all(_holds(term, labels) for term in selector.match_expressions)


def _holds(term: SelectorTerm, labels: Mapping[str, str]) -> bool:
    match term.operator:
        case SelectorOperator.EXISTS:
            return term.key in labels
        case SelectorOperator.DOES_NOT_EXIST:
            return term.key not in labels
        case operator:
            return (operator is SelectorOperator.IN) == (labels.get(term.key) in term.values)
