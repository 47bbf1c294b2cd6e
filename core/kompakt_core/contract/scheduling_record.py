"""status.scheduling: what the planner has decided about a gang, as values, and how it is written.

All that a gate's removal needs follows from the record and the nodes' GPUTopologies: a new leader that finds a gang half released
finishes it as written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from kompakt_core.contract import plan_record, preempt_request, timestamps
from kompakt_core.contract.plan_record import PlanRecord
from kompakt_core.contract.preempt_request import PreemptRequest
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuUuid, NodeName

PODS_NOT_CREATED: Final = "PodsNotCreated"  # a reason: the gang had places, and gave them back since its pods did not come


class State(StrEnum):
    """Where a gang stands."""

    WAITING = "Waiting"
    RESERVED = "Reserved"  # waiting, while GPUs are reserved for it; with a plan: for its pods, which are being created
    RELEASED = "Released"
    WITHDRAWN = "Withdrawn"


@dataclass(frozen=True, slots=True)
class Excluded:
    """A node left out for this gang until a moment (RFC 3339, UTC)."""

    node: NodeName
    until: str
    reason: str


@dataclass(frozen=True, slots=True)
class Victim:
    """A job that ends for this one: its attempt, and its priority as it was when that was decided; attempt 0: a plain pod. One of
    another namespace has no names here: of those a job's owner is told uids and numbers only.
    """

    namespace: str
    name: str
    uid: str
    attempt: int
    priority: int

    @property
    def called(self) -> str:
        """For people, in sentences on the other job."""
        kind = "job" if self.attempt else "pod"
        return f"{self.namespace}/{self.name}" if self.name else f"a {kind} of another namespace (uid {self.uid})"

    @property
    def key(self) -> tuple[str, int]:
        """Which attempt it is, whoever's status names it."""
        return self.uid, self.attempt


@dataclass(frozen=True, slots=True)
class Record:
    """status.scheduling.

    `waiting_since`: when the gang was first complete; it gives the order. `placeable_since`: when it could first have been placed
    anywhere, where its timers begin; empty as long as it could not, or has nothing to wait for. `waits_for` and `until`: the
    level that it waits for although it could be placed, and when it stops; empty while it does not, or never stops.
    `overtaken`: how many later gangs were placed before it. `reserved_counts`: GPUs by node that nobody else gets (Reserved).
    `victims`: whom it preempts, and `reserved_gpus`: exactly the GPUs that nobody else gets meanwhile (state Reserved);
    `decided_at`: when that was decided. `preempt`: that it is asked to end itself for another.
    """

    attempt: int
    state: State
    reason: str
    message: str
    waiting_since: str
    excluded: tuple[Excluded, ...] = ()
    plan: PlanRecord | None = None
    placeable_since: str = ""
    waits_for: str = ""
    until: str = ""
    overtaken: int = 0
    reserved_counts: tuple[tuple[NodeName, int], ...] = ()
    victims: tuple[Victim, ...] = ()
    reserved_gpus: tuple[tuple[NodeName, tuple[GpuUuid, ...]], ...] = ()
    decided_at: str = ""
    preempt: PreemptRequest | None = None

    def excluding(self, nodes: Sequence[NodeName], until: str, reason: str) -> "Record":
        """The same with these nodes left out; one that is left out already stays so until its own time."""
        known = {one.node for one in self.excluded}
        fresh = tuple(Excluded(node, until, reason) for node in dict.fromkeys(nodes) if node not in known)
        return replace(self, excluded=self.excluded + fresh)

    def without_expired(self, now: datetime) -> "Record":
        """The same without the nodes whose time is over."""
        if not self.excluded:
            return self
        return replace(self, excluded=tuple(one for one in self.excluded if timestamps.decode(one.until) > now))


def decode(scheduling: Mapping[str, Any]) -> Record | None:
    """The record of a status.scheduling; None where there is none.

    Raises:
        InvalidInput: somebody wrote what the planner never writes.
    """
    if not scheduling.get("state"):
        return None
    try:
        reserved = scheduling.get("reserved", ())
        return Record(
            attempt=int(scheduling.get("attempt", 0)),
            state=State(scheduling["state"]),
            reason=str(scheduling.get("reason", "")),
            message=str(scheduling.get("message", "")),
            waiting_since=str(scheduling.get("waitingSince", "")),
            excluded=tuple(
                Excluded(
                    NodeName(str(one["node"])),
                    timestamps.canonical(one["until"], "until"),
                    str(one.get("reason", "")),
                )
                for one in scheduling.get("excludedNodes", ())
            ),
            plan=plan_record.decode(scheduling["plan"]) if scheduling.get("plan") else None,
            placeable_since=_read_moment(scheduling, "placeableSince"),
            waits_for=str(scheduling.get("waitsFor", "")),
            until=_read_moment(scheduling, "until"),
            overtaken=int(scheduling.get("overtaken", 0)),
            reserved_counts=tuple((NodeName(str(one["node"])), int(one["gpus"])) for one in reserved if not one.get("uuids")),
            victims=tuple(_read_victim(one) for one in scheduling.get("victims", ())),
            reserved_gpus=tuple(
                (NodeName(str(one["node"])), tuple(map(GpuUuid, one["uuids"]))) for one in reserved if one.get("uuids")
            ),
            decided_at=_read_moment(scheduling, "victimsSince"),
            preempt=preempt_request.readable(scheduling.get("preempt")),
        )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise InvalidInput(
            f"status.scheduling is not as the planner writes it: {error!r}; right would be what it last wrote"
        ) from error


@dataclass(frozen=True, slots=True)
class GangStanding:
    """What the operator reads of the record: how far the planner is with which attempt, and how the gang is placed.

    `has_places`: they are kept for pods that do not exist yet. `waiting_since`: as in the record.
    """

    attempt: int = 0
    state: str = ""
    reason: str = ""
    level: str = ""
    has_places: bool = False
    waiting_since: str = ""


def standing(scheduling: Mapping[str, Any]) -> GangStanding:
    """The same record in short; what is missing or malformed reads as not yet written."""
    attempt, plan, state = scheduling.get("attempt"), scheduling.get("plan"), str(scheduling.get("state", ""))
    known = attempt if type(attempt) is int and attempt >= 0 else 0
    planned = isinstance(plan, Mapping) and bool(plan)
    level = plan.get("level", "") if isinstance(plan, Mapping) else ""
    reason, since = str(scheduling.get("reason", "")), str(scheduling.get("waitingSince", ""))
    return GangStanding(known, state, reason, str(level), planned and state == State.RESERVED, since)


def _read_victim(one: Mapping[str, Any]) -> Victim:
    names = str(one.get("namespace", "")), str(one.get("name", ""))
    return Victim(*names, str(one["uid"]), int(one["attempt"]), int(one["priority"]))


def _victim(one: Victim) -> dict[str, Any]:
    return {key: value for key, value in asdict(one).items() if value or key not in ("namespace", "name")}


def _read_moment(scheduling: Mapping[str, Any], name: str) -> str:
    return timestamps.canonical(scheduling[name], name) if scheduling.get(name) else ""


def encode(record: Record) -> dict[str, Any]:
    """status.scheduling as it is written."""
    scheduling: dict[str, Any] = {
        "attempt": record.attempt,
        "state": record.state.value,
        "reason": record.reason,
        "message": record.message,
        "excludedNodes": [{"node": one.node, "until": one.until, "reason": one.reason} for one in record.excluded],
    }
    moments = {
        "waitingSince": record.waiting_since,
        "placeableSince": record.placeable_since,
        "waitsFor": record.waits_for,
        "until": record.until,
    }
    scheduling |= {name: text for name, text in moments.items() if text}
    if record.overtaken:
        scheduling["overtaken"] = record.overtaken
    reserved: list[dict[str, Any]] = [{"node": node, "gpus": gpus} for node, gpus in record.reserved_counts]
    if reserved := reserved + [{"node": node, "gpus": len(uuids), "uuids": list(uuids)} for node, uuids in record.reserved_gpus]:
        scheduling["reserved"] = reserved
    if record.victims:
        scheduling |= {"victims": [_victim(one) for one in record.victims], "victimsSince": record.decided_at}
    if record.preempt is not None:
        scheduling["preempt"] = preempt_request.encode(record.preempt)
    if record.plan is not None:
        scheduling["plan"] = plan_record.encode(record.plan)
    return scheduling
