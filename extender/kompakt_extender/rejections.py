"""Rejections at the edge: as texts for kube-scheduler, and as labels of metrics. Nobody reads a text back.

The texts that filter gives never hold a number or a name that changes from call to call: kube-scheduler writes them into the
pod's condition, and a changed condition makes it try again at once: with a counter it was seen to retry 19 times a second.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from kompakt_core import contract
from kompakt_core.placement.model import Reason, Rejection
from kompakt_extender.wire import BindingResult, FilterResult

TEXTS: Final[Mapping[Reason, str]] = {
    Reason.NO_TOPOLOGY: "node(s) reported no GPU topology",
    Reason.STALE_TOPOLOGY: "node(s) had a GPU topology out of step with the node",
    Reason.UNREADABLE_HOLDER: "node(s) had a GPU topology that does not say which GPUs are held",
    Reason.UNREPORTED_POD: "node(s) run a pod whose GPUs are not reported yet",
    Reason.NODE_NOT_READY: "node(s) were not ready",
    Reason.CORDONED: "node(s) were cordoned",
    Reason.TAINTED: "node(s) had an untolerated taint",
    Reason.SELECTOR: "node(s) didn't match the pod's node selector or affinity",
    Reason.EXCLUDED: "node(s) refused this job a short while ago",
    Reason.CPU: "node(s) had too little CPU",
    Reason.MEMORY: "node(s) had too little memory",
    Reason.PODS: "node(s) had too many pods",
    Reason.NOT_ENOUGH_GPUS: "node(s) had too few free GPUs",
    Reason.MACHINE_TOO_SMALL: "node(s) have fewer GPUs than the pod asks for",
    Reason.RESERVED: "node(s) had too few free GPUs beside those that are kept for a gang that waits",
    Reason.VALUE_TOO_LOW: "node(s) had no free GPU set as fast as planned",
    Reason.LINK_TOO_WEAK: "node(s) had no free GPU set joined by the required link",
    Reason.NUMA_SPLIT: "node(s) had no free GPU set on one NUMA node",
    Reason.TOO_FEW_RANKS: "the pod's custom edges name ranks that it does not have",
    Reason.NOT_WEIGHED: "node(s) were not compared in time by the pod's custom edges",
    Reason.PARTITION_SPLIT: "node(s) had no free fabric partition of the size",
    Reason.TOO_MANY_GPUS: "node(s) have more GPUs than patterns are matched on",
    Reason.NOT_PLANNED: "node(s) are not the planned one",
    Reason.PLANNED_TAKEN: "node(s) lost the planned GPUs to another pod",
    Reason.UNKNOWN_NODE: "node(s) are not known to the extender yet",
    Reason.NO_PLAN: "the pod belongs to a TrainingJob but has no plan: only the planner may remove its scheduling gate",
    Reason.WITHDRAWN: "the plan of this pod's gang was withdrawn",
    Reason.NO_GPUS: f"the pod asks for no {contract.RESOURCE}, or what devicePlugin.resourceName names in its place",
    Reason.INVALID_REQUEST: "{detail}",
    Reason.BEYOND_LIMITS: "{detail}",
    Reason.BOUND_ELSEWHERE: "the pod is bound to {detail} already",
    Reason.PLUGIN_BEHIND: "the node's device plugin has not reported an earlier pod of the same size yet",
    Reason.OUTCOME_UNKNOWN: "bind sent, outcome not known yet: {detail}",
    Reason.BINDING_REFUSED: "the API server refused the binding: {detail}",
    Reason.POD_UNREADABLE: "bind refused, and the pod could not be read: {detail}",
    Reason.POD_GONE: "the pod is gone",
    Reason.POD_REPLACED: "the pod was replaced by another one of the same name",
    Reason.NOT_SENT: "{detail}",
}


@dataclass(frozen=True)
class FilterVerdict:
    """Which nodes can take a pod, and why each other one cannot."""

    node_names: list[str]
    rejected: Mapping[str, Rejection] = field(default_factory=dict)

    @cached_property
    def reasons(self) -> Counter[str]:
        """How often each reason occurs, by its word: counted once for all who ask."""
        return counted(self.rejected.values())


def message_of(rejection: Rejection) -> str:
    """The text of a rejection; the same for the same reason, apart from the detail of those that name one."""
    text = TEXTS.get(rejection.reason, f"node(s) refused: {rejection.reason.value}")
    return text.format(detail=rejection.detail)


def filter_result(verdict: FilterVerdict) -> FilterResult:
    """filter's answer in texts; what is final stands apart, so that kube-scheduler evicts nobody in vain."""
    different = {id(one): one for one in verdict.rejected.values()}  # thousands of nodes, few rejections
    texts = {key: message_of(one) for key, one in different.items()}
    final = {key for key, one in different.items() if one.final}
    if not final:
        return FilterResult(verdict.node_names, {name: texts[id(one)] for name, one in verdict.rejected.items()})
    return FilterResult(
        verdict.node_names,
        {name: texts[id(one)] for name, one in verdict.rejected.items() if id(one) not in final},
        {name: texts[id(one)] for name, one in verdict.rejected.items() if id(one) in final},
    )


def binding_result(rejection: Rejection | None) -> BindingResult:
    """bind's answer in texts; None: bound."""
    return BindingResult() if rejection is None else BindingResult(message_of(rejection))


def counted(rejections: Iterable[Rejection]) -> Counter[str]:
    """How often each reason occurs, by its word: labels of metrics are few, fixed, and never a name."""
    found = list(rejections)
    times, different = Counter(map(id, found)), {id(one): one for one in found}
    counts: Counter[str] = Counter()
    for key, number in times.items():
        counts[different[key].reason.value] += number
    return counts
