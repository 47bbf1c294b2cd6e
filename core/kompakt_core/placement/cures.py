"""What to do about each rejection, for people."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kompakt_core.placement.model import Reason

_NOTHING: Final = "it is tried again by itself"
_WAIT: Final = "ask for fewer GPUs, or wait until others end"
_PLUGIN: Final = "look at the device plugin's pod on that node"
_EDIT: Final = "correct the request and submit it again"

CURES: Final[Mapping[Reason, str]] = MappingProxyType(
    {
        Reason.NO_TOPOLOGY: "install the device plugin there, or read its log",
        Reason.STALE_TOPOLOGY: f"{_PLUGIN} if that takes more than a minute",
        Reason.UNREADABLE_HOLDER: f"{_PLUGIN}, which writes that list",
        Reason.UNREPORTED_POD: f"{_PLUGIN} if that takes more than a minute",
        Reason.NODE_NOT_READY: "see `kubectl describe node`",
        Reason.CORDONED: "`kubectl uncordon` lets pods in again",
        Reason.TAINTED: "add a toleration to the pod template, or remove the taint",
        Reason.SELECTOR: "change nodeSelector or affinity of the pod template, or label the node",
        Reason.EXCLUDED: _NOTHING,
        Reason.CPU: "lower the pod's CPU request, or wait until pods there end",
        Reason.MEMORY: "lower the pod's memory request, or wait until pods there end",
        Reason.PODS: "wait until pods there end, or raise maxPods of its kubelet",
        Reason.NOT_ENOUGH_GPUS: _WAIT,
        Reason.MACHINE_TOO_SMALL: "ask for fewer GPUs, or choose a larger machine",
        Reason.RESERVED: "wait, or raise the job's priority above that gang's",
        Reason.VALUE_TOO_LOW: _NOTHING,
        Reason.LINK_TOO_WEAK: "wait, ask for fewer GPUs, or set requiredLink to Any",
        Reason.NUMA_SPLIT: "wait, ask for fewer GPUs, or set sameNUMANode to false",
        Reason.TOO_FEW_RANKS: "name ranks below the number of GPUs, or ask for more",
        Reason.NOT_WEIGHED: "nothing: they are compared when the pod is tried again",
        Reason.PARTITION_SPLIT: "wait, or ask for a number of GPUs that the fabric has partitions of",
        Reason.TOO_MANY_GPUS: "pattern None can be used there",
        Reason.NOT_PLANNED: "`kompakt explain` of the pod names the planned node",
        Reason.PLANNED_TAKEN: "the gang is planned again by itself",
        Reason.UNKNOWN_NODE: _NOTHING,
        Reason.NO_PLAN: "delete the pod, and the job starts anew",
        Reason.WITHDRAWN: "the gang is planned again by itself",
        Reason.NO_GPUS: "set the limit kompakt.dev/gpu",
        Reason.INVALID_REQUEST: _EDIT,
        Reason.BOUND_ELSEWHERE: "nothing is to be done",
        Reason.PLUGIN_BEHIND: _NOTHING,
        Reason.OUTCOME_UNKNOWN: _NOTHING,
        Reason.BINDING_REFUSED: _NOTHING,
        Reason.POD_UNREADABLE: _NOTHING,
        Reason.POD_GONE: "nothing is to be done",
        Reason.POD_REPLACED: "nothing is to be done",
        Reason.NOT_SENT: _NOTHING,
        Reason.BEYOND_LIMITS: "ask for less, or ask an administrator to raise the Limits",
        Reason.MAPA_BLOCKED: "use the policy Best or Preserve",
        Reason.NEVER_FITS: "ask for less, or add nodes",
        Reason.DOES_NOT_FIT_NOW: "`kompakt explain nodes` shows what is free",
    }
)
