"""Conditions in the standard shape (metav1.Condition): types and fixed reasons of our objects, and how they are written."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


class Type(StrEnum):
    """A TrainingJob's conditions; the comment says who writes it -> who reads it: what True means."""

    # operator -> users: `spec.suspend` is in force
    SUSPENDED = "Suspended"
    # operator -> users: all workers run or have ended well
    RUNNING = "Running"
    # operator -> users: activations are compressed; else the reason says why not
    COMPRESSION_ACTIVE = "CompressionActive"
    # operator -> users: a step takes more than `memoryBudget` even with all packed; the message has a budget that is sure
    # to work. Absent until a plan was made
    BUDGET_NOT_REACHED = "BudgetNotReached"
    # operator -> users, kstatus: the job has ended well
    COMPLETE = "Complete"
    # operator -> users, kstatus: the job has failed for good
    FAILED = "Failed"
    # operator -> users: a GPU of the job became unhealthy; the gang was made anew elsewhere and has not run yet
    DEGRADED = "Degraded"
    # operator -> kstatus: in progress: not all workers have run yet
    RECONCILING = "Reconciling"
    # operator -> kstatus: the job does not go on by itself
    STALLED = "Stalled"
    # planner -> operator, users: every worker has its node and GPUs; else the reason says why not yet
    PLACED = "Placed"
    # planner -> operator, users: the job is asked to end for one of higher priority, which the message names; absent otherwise
    PREEMPTION_REQUESTED = "PreemptionRequested"


PLANNERS: Final = (Type.PLACED, Type.PREEMPTION_REQUESTED)
OPERATORS: Final = tuple(type_ for type_ in Type if type_ not in PLANNERS)  # in the order in which they are written


class TopologyType(StrEnum):
    """A GPUTopology's conditions, all by the device plugin."""

    # device plugin -> extender, users: the node's GPUs are offered; False: nothing new is
    READY = "Ready"
    # device plugin -> users: GPUs or links are not as they should be; the reason says how
    DEGRADED = "Degraded"
    # device plugin -> users: another driver offers GPUs of this node
    CONFLICT = "Conflict"
    # device plugin -> users: no container is shown GPUs because it asks by NVIDIA_VISIBLE_DEVICES; False: it is
    ISOLATED = "Isolated"


class ConditionReason(StrEnum):
    """Reasons that stand by themselves. Others are told by what decided: why an attempt ended (`job.pods.Cause`), why a gang
    waits (`placement.model.Reason`), what is unusual about a link graph (`topology.flags.Flag`).
    """

    # operator -> users: what the condition tells has not happened so far
    NOT_YET = "NotYet"
    # operator -> users: at least one worker does not run
    WORKERS_NOT_RUNNING = "WorkersNotRunning"
    # operator -> users: all workers of this attempt ran at some moment
    ALL_WORKERS_RAN = "AllWorkersRan"
    # operator -> users: all workers exist
    WORKERS_EXIST = "WorkersExist"
    # operator -> users: the job is over
    FINISHED = "Finished"
    # operator -> users: `spec.suspend` is set
    SUSPEND_REQUESTED = "SuspendRequested"
    # operator -> users: the job is suspended
    SUSPENDED = "Suspended"
    # operator -> users: `spec.suspend` is not set
    NOT_SUSPENDED = "NotSuspended"
    # operator -> users: packing all that may be packed does not suffice
    ALL_PACKED = "AllPacked"
    # operator -> users: a step by the plan stays within `memoryBudget`
    WITHIN_BUDGET = "WithinBudget"
    # operator -> users: the spec names no `memoryBudget` any more
    NO_BUDGET = "NoBudget"
    # operator -> users: an attempt has ended and the next one follows
    RESTARTING = "Restarting"
    # operator -> users: too many restarts in a row that did not count; the job is tried again later
    REPEATED_DISRUPTIONS = "RepeatedDisruptions"
    # operator -> users: a GPU of the job is unhealthy
    GPU_UNHEALTHY = "GPUUnhealthy"
    # operator -> users: the spec cannot be read; the message says where and what would be right
    INVALID_SPEC = "InvalidSpec"
    # operator -> users: the API server refuses pods of the template for good
    INVALID_TEMPLATE = "InvalidTemplate"
    # operator -> users: an object that is not the job's has the name that one of the job's needs
    NAME_TAKEN = "NameTaken"
    # operator -> users: a ResourceQuota of the namespace is in the way
    QUOTA_EXCEEDED = "QuotaExceeded"
    # operator -> users: Kueue has not admitted the job; the message is Kueue's
    WAITING_FOR_QUOTA = "WaitingForQuota"
    # operator -> users: no node could ever hold the gang, and an autoscaler was asked for some; the message is the autoscaler's
    WAITING_FOR_NODES = "WaitingForNodes"
    # operator -> users: the job names a queue of Kueue, and chart value kueue.enabled is not set or Kueue is not there
    QUEUES_NOT_SERVED = "QueuesNotServed"
    # operator -> users: the runtime was not put into the workers
    INJECTION_SKIPPED = "InjectionSkipped"
    # operator -> users: the workers ended without a report of the runtime
    NO_REPORT = "NoReport"
    # operator -> users: the workers have not reported so far
    NO_REPORT_YET = "NoReportYet"
    # planner -> operator, users: a gang of higher priority needs the GPUs
    HIGHER_PRIORITY = "HigherPriority"
    # device plugin -> users: the link graph is reported
    REPORTED = "Reported"
    # device plugin -> users: the source of the link graph cannot be read; the message says what is wrong
    BROKEN_DESCRIPTION = "BrokenDescription"
    # device plugin -> users: kubelet speaks of GPUs that the plugin never offered to it
    UNKNOWN_GPUS = "UnknownGPUs"
    # device plugin -> users: no CDI specification of the node names a GPU
    CDI_SPEC_MISSING = "CDISpecMissing"
    # device plugin -> users: the container runtime shows GPUs to whoever asks by the variable
    VARIABLE_HONOURED = "VariableHonoured"
    # device plugin -> users: the container runtime does not
    VARIABLE_REFUSED = "VariableRefused"
    # device plugin -> users: it is not known whether the container runtime does
    NOT_PROBED = "NotProbed"
    # device plugin -> users: another driver offers GPUs of this node
    CONFLICT = "Conflict"
    # device plugin -> users: no other driver offers GPUs of this node
    NO_OTHER_PLUGIN = "NoOtherPlugin"
    # device plugin -> users: another device plugin offers GPUs of this node
    OTHER_DEVICE_PLUGIN = "OtherDevicePlugin"
    # device plugin -> users: another device plugin offers the node's other GPUs; kompakt offers those of `devicePlugin.ownGPUs`
    OWN_GPUS_ONLY = "OwnGPUsOnly"
    # device plugin -> users: chart value allocation: Report or ResourceClaims; somebody else hands out the node's GPUs
    REPORT_ONLY = "ReportOnly"
    # device plugin -> users: all GPUs are healthy
    ALL_HEALTHY = "AllHealthy"


MESSAGE_LIMIT: Final = 1024


@dataclass(frozen=True, slots=True)
class Condition:
    """`status` is True, False or Unknown as in objects; `since` the moment of its last change, as written."""

    type: str
    status: str
    reason: str
    message: str = ""
    since: str = ""

    @property
    def true(self) -> bool:
        """Whether it holds."""
        return self.status == "True"


def condition(type_: str, holds: bool | None, reason: str, message: str = "", *, longest: int = MESSAGE_LIMIT) -> Condition:
    """A condition without its moment; `holds` None means Unknown."""
    return Condition(type_, {True: "True", False: "False", None: "Unknown"}[holds], reason, message[:longest])


def read_conditions(items: object) -> dict[str, Condition]:
    """The conditions in an object's status by type; malformed ones are left out."""
    found = {}
    for item in items if isinstance(items, list) else ():
        if isinstance(item, Mapping) and isinstance(item.get("type"), str):
            texts = [str(item.get(key, "")) for key in ("type", "status", "reason", "message", "lastTransitionTime")]
            found[texts[0]] = Condition(*texts)
    return found


def stamped(
    wanted: Iterable[Condition], before: Mapping[str, Condition], now: str, generation: int | None = None
) -> list[dict[str, Any]]:
    """The list for the object. A condition keeps its moment until its status changes; one with a moment of its own has that.

    `now` is RFC 3339. `generation`: that of the spec which the conditions are about.
    """
    observed = {} if generation is None else {"observedGeneration": generation}
    return [{**_fields(new), "lastTransitionTime": _since(new, before.get(new.type)) or now, **observed} for new in wanted]


def _fields(new: Condition) -> dict[str, str]:
    return {"type": str(new.type), "status": new.status, "reason": str(new.reason), "message": new.message}


def _since(new: Condition, old: Condition | None) -> str:
    return new.since or (old.since if old is not None and old.status == new.status else "")
