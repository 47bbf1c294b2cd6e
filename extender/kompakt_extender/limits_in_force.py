"""The administrator's Limits as they are now, and the labels of namespaces by which they select jobs."""

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from kompakt_core.contract import placement_annotations
from kompakt_core.job.limited import JobDemand, NamedLimits, beyond, longest_run, meaning, no_preemptor, no_victim
from kompakt_core.job.limits import LimitsSpec
from kompakt_extender.objects import LimitsObject, Namespace
from kompakt_extender.views import JobKind, JobView, LimitsView, NamespaceView, PodView

_LOG = logging.getLogger(__name__)
_LIMITS: Final = msgspec.json.Decoder(LimitsObject)
MOST_KNOWN: Final = 4096  # tenants choose the names of classes
_NAMESPACE: Final = msgspec.json.Decoder(Namespace)


def read_limits(raw: bytes) -> LimitsView:
    """A Limits object's JSON. One that an older schema let through and that is not understood says nothing, and is logged."""
    found = _LIMITS.decode(raw)
    try:
        return LimitsView(found.metadata.name, msgspec.json.decode(found.spec, type=LimitsSpec))
    except msgspec.DecodeError as error:
        _LOG.error("Limits %s say nothing to the planner: %s", found.metadata.name, error)
        return LimitsView(found.metadata.name, LimitsSpec())


def read_namespace(raw: bytes) -> NamespaceView:
    """A Namespace's JSON."""
    meta = _NAMESPACE.decode(raw).metadata
    return NamespaceView(meta.name, meta.labels or {})


class Tenant(NamedTuple):
    """By what Limits select a job or plain pod."""

    namespace: str
    classes: tuple[str, ...]


def tenant_of(asks: JobView | PodView) -> Tenant:
    """A plain pod has the one class that the API server wrote on it."""
    return Tenant(asks.namespace, asks.asked.classes if isinstance(asks, JobView) else (asks.priority_class,))


class LimitsInForce:
    """`version`: how often anything changed that a job may be held to."""

    def __init__(self) -> None:
        self.limits: dict[str, NamedLimits] = {}
        self.labels: dict[str, Mapping[str, str]] = {}  # by namespace
        self.version = 0
        self._known: dict[Tenant, list[NamedLimits]] = {}

    def set_limits(self, view: LimitsView) -> None:
        self._changed()
        self.limits[view.name] = NamedLimits(view.name, view.spec)

    def remove_limits(self, name: str) -> None:
        self._changed()
        self.limits.pop(name, None)

    def set_namespace(self, view: NamespaceView) -> None:
        if self.labels.get(view.name) != view.labels:
            self._changed()
        self.labels[view.name] = view.labels

    def remove_namespace(self, name: str) -> None:
        self._changed()
        self.labels.pop(name, None)

    def beyond(self, job: JobView) -> str:
        """What this job asks for and Limits do not let it; "" where there is nothing."""
        who = "job" if job.kind is JobKind.TRAINING_JOB else "gang"
        return beyond(self._of(tenant_of(job)), job.asked, who) if self.limits else ""

    def beyond_pod(self, pod: PodView) -> str:
        """The same of a plain pod, a gang of one; a job's pods were looked at together when they were planned.

        How long it keeps its GPUs from others a pod cannot ask for.
        """
        if pod.job_uid or not self.limits:
            return ""
        edges = len(placement_annotations.readable(pod.annotations).edges)
        asked = JobDemand(1, pod.gpus, edges, bool(edges), 0, 0, pod.grace_seconds)
        return beyond(self._of(tenant_of(pod)), asked, "pod")

    def longest_run(self, pod: PodView, asked: float) -> float:
        """For how many seconds a plain pod keeps its GPUs from gangs of higher priority."""
        return longest_run(self._of(tenant_of(pod)), asked) if self.limits else asked

    def keeps_from(self, job: Tenant, victim: Tenant) -> str:
        """Why this job may not preempt that job or plain pod, for the former's eyes; "" where it may.

        The Limits of another namespace's jobs are not named: who wrote them for whom is nothing that it needs to know.
        """
        if not self.limits or job.namespace == victim.namespace:
            return ""
        if name := no_preemptor(self._of(job)):
            return f"Limits {name} of the cluster let it preempt no job of another namespace (mayPreemptOthers)"
        if no_victim(self._of(victim)):
            return "Limits of the cluster keep jobs from being preempted by other namespaces (mayBePreemptedByOthers)"
        return ""

    def _of(self, tenant: Tenant) -> list[NamedLimits]:
        if tenant not in self._known:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[tenant] = meaning(self.limits.values(), self.labels.get(tenant.namespace), tenant.classes)
        return self._known[tenant]

    def _changed(self) -> None:
        self.version += 1
        self._known.clear()
