"""What kube-scheduler shows people: texts that never hold a number or a name that changes from call to call.

kube-scheduler writes them into the pod's condition, and a changed condition makes it try again at once: with a counter in
the text it was seen to retry 19 times a second.
"""

from typing import Final

from kompakt_core import contract
from kompakt_core.placement.model import Reason

TEXTS: Final = {
    Reason.NO_TOPOLOGY: "node(s) reported no GPU topology",
    Reason.STALE_TOPOLOGY: "node(s) had a GPU topology out of step with the node",
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
    Reason.VALUE_TOO_LOW: "node(s) had no free GPU set as fast as planned",
    Reason.LINK_TOO_WEAK: "node(s) had no free GPU set joined by the required link",
    Reason.NUMA_SPLIT: "node(s) had no free GPU set on one NUMA node",
    Reason.TOO_FEW_RANKS: "the pod's custom edges name ranks that it does not have",
    Reason.PARTITION_SPLIT: "node(s) had no free fabric partition of the size",
    Reason.TOO_MANY_GPUS: "node(s) have more GPUs than patterns are matched on",
}
NOT_PLANNED: Final = "node(s) are not the planned one"
PLANNED_TAKEN: Final = "node(s) lost the planned GPUs to another pod"
UNKNOWN_NODE: Final = "node(s) are not known to the extender yet"
NO_PLAN: Final = "the pod belongs to a TrainingJob but has no plan: only the planner may remove its scheduling gate"
WITHDRAWN: Final = "the plan of this pod's gang was withdrawn"
NOT_ALL_REPORTED: Final = (
    "no node that has reported its GPUs could hold the gang; it waits for the nodes whose device plugin has not reported yet"
)
NO_GPUS: Final = f"the pod asks for no {contract.RESOURCE}"


def text_of(reason: Reason) -> str:
    """The stable text of a reason."""
    return TEXTS.get(reason, f"node(s) refused: {reason.value}")
