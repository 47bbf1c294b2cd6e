"""Conditions in the standard shape (metav1.Condition): types and fixed reasons of our objects, and how they are written."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


class Type(StrEnum):
    """A TrainingJob's conditions."""

    SUSPENDED = "Suspended"
    RUNNING = "Running"
    COMPRESSION_ACTIVE = "CompressionActive"
    COMPLETE = "Complete"
    FAILED = "Failed"
    DEGRADED = "Degraded"  # a GPU of the job is unhealthy
    RECONCILING = "Reconciling"  # read by kstatus: in progress
    STALLED = "Stalled"  # read by kstatus: does not go on by itself
    PLACED = "Placed"
    PREEMPTION_REQUESTED = "PreemptionRequested"


PLANNERS: Final = (Type.PLACED, Type.PREEMPTION_REQUESTED)
OPERATORS: Final = tuple(type_ for type_ in Type if type_ not in PLANNERS)  # in the order in which they are written


class TopologyType(StrEnum):
    """A GPUTopology's conditions, all by the device plugin."""

    READY = "Ready"
    DEGRADED = "Degraded"
    CONFLICT = "Conflict"
    ISOLATED = "Isolated"  # False: whoever asks by NVIDIA_VISIBLE_DEVICES is shown GPUs


class ConditionReason(StrEnum):
    """Reasons that stand by themselves. Others are told by what decided: why an attempt ended (`job.pods.Cause`), why a gang
    waits (`placement.model.Reason`), what is unusual about a link graph (`topology.flags.Flag`).
    """

    # of a TrainingJob, by the operator
    NOT_YET = "NotYet"
    WORKERS_NOT_RUNNING = "WorkersNotRunning"
    ALL_WORKERS_RAN = "AllWorkersRan"
    WORKERS_EXIST = "WorkersExist"
    FINISHED = "Finished"
    SUSPEND_REQUESTED = "SuspendRequested"
    SUSPENDED = "Suspended"
    NOT_SUSPENDED = "NotSuspended"
    RESTARTING = "Restarting"
    REPEATED_DISRUPTIONS = "RepeatedDisruptions"
    GPU_UNHEALTHY = "GPUUnhealthy"
    INVALID_SPEC = "InvalidSpec"
    INVALID_TEMPLATE = "InvalidTemplate"
    NAME_TAKEN = "NameTaken"
    QUOTA_EXCEEDED = "QuotaExceeded"
    INJECTION_SKIPPED = "InjectionSkipped"
    NO_REPORT = "NoReport"
    NO_REPORT_YET = "NoReportYet"
    # of a TrainingJob, by the planner
    HIGHER_PRIORITY = "HigherPriority"
    # of a GPUTopology
    REPORTED = "Reported"
    BROKEN_DESCRIPTION = "BrokenDescription"
    UNKNOWN_GPUS = "UnknownGPUs"
    CDI_SPEC_MISSING = "CDISpecMissing"
    VARIABLE_HONOURED = "VariableHonoured"
    VARIABLE_REFUSED = "VariableRefused"
    NOT_PROBED = "NotProbed"
    CONFLICT = "Conflict"
    NO_OTHER_PLUGIN = "NoOtherPlugin"
    OTHER_DEVICE_PLUGIN = "OtherDevicePlugin"
    OWN_GPUS_ONLY = "OwnGPUsOnly"
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
