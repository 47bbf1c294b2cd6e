"""Conditions in the standard shape (metav1.Condition); only those that the operator owns."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from kompakt_core.contract import timestamps


class Type(StrEnum):
    """The operator's conditions. `Placed` and `PreemptionRequested` are the planner's."""

    SUSPENDED = "Suspended"
    RUNNING = "Running"
    COMPRESSION_ACTIVE = "CompressionActive"
    COMPLETE = "Complete"
    FAILED = "Failed"
    DEGRADED = "Degraded"  # a GPU of the job is unhealthy
    RECONCILING = "Reconciling"  # read by kstatus: in progress
    STALLED = "Stalled"  # read by kstatus: does not go on by itself


OWNED: Final = frozenset(Type)
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


def condition(type_: Type, holds: bool | None, reason: str, message: str = "") -> Condition:
    """A condition without its moment; `holds` None means Unknown."""
    return Condition(type_, {True: "True", False: "False", None: "Unknown"}[holds], reason, message[:MESSAGE_LIMIT])


def read_conditions(items: object) -> dict[str, Condition]:
    """The conditions in an object's status by type; malformed ones are left out."""
    found = {}
    for item in items if isinstance(items, list) else ():
        if isinstance(item, Mapping) and isinstance(item.get("type"), str):
            texts = [str(item.get(key, "")) for key in ("type", "status", "reason", "message", "lastTransitionTime")]
            found[texts[0]] = Condition(*texts)
    return found


def stamped(wanted: Iterable[Condition], before: Mapping[str, Condition], generation: int, now: float) -> list[dict[str, Any]]:
    """The list for the object: a condition keeps its moment until its status changes."""
    result = []
    for new in wanted:
        old = before.get(new.type)
        since = old.since if old is not None and old.status == new.status and old.since else timestamps.encode(now)
        fields = {"type": str(new.type), "status": new.status, "reason": new.reason, "message": new.message}
        result.append({**fields, "lastTransitionTime": since, "observedGeneration": generation})
    return result
