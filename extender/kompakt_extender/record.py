"""status.scheduling: what the planner has decided about a gang, as values, and how it is written.

The order of `plan.pods` is the order of ranks, and all that a gate's removal needs follows from the record: a new leader that
finds a gang half released finishes it as written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from kompakt_core import contract
from kompakt_core.contract import timestamps
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuUuid, NodeName, PodUid
from kompakt_core.job import preemption
from kompakt_core.job.preemption import PreemptRequest, read_request
from kompakt_core.placement.model import Plan, Snapshot
from kompakt_extender.views import JobView


class State(StrEnum):
    """Where a gang stands."""

    WAITING = "Waiting"
    RESERVED = "Reserved"  # waiting, while GPUs are kept for it
    RELEASED = "Released"
    WITHDRAWN = "Withdrawn"


@dataclass(frozen=True, slots=True)
class SeatRecord:
    """One pod's place: node and GPU UUIDs in pattern order, MB/s, rank."""

    name: str
    uid: PodUid
    node: NodeName
    gpus: tuple[GpuUuid, ...]
    value: int
    rank: int


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """All places of a gang. `released_at`: RFC 3339, UTC."""

    level: str
    value: int
    ideal: int
    released_at: str
    pods: tuple[SeatRecord, ...]


@dataclass(frozen=True, slots=True)
class Excluded:
    """A node left out for this gang until a moment (RFC 3339, UTC)."""

    node: NodeName
    until: str
    reason: str


@dataclass(frozen=True, slots=True)
class Victim:
    """A job that ends for this one: its attempt, and both priorities as they were when that was decided."""

    namespace: str
    name: str
    uid: str
    attempt: int
    priority: int


@dataclass(frozen=True, slots=True)
class Record:
    """status.scheduling.

    `waiting_since`: when the gang was first complete; it gives the order. `placeable_since`: when it could first have been placed
    anywhere, where its timers begin; empty as long as it could not, or has nothing to wait for. `waits_for` and `until`: the
    level that it waits for although it could be placed, and when it stops; empty while it does not, or never stops.
    `overtaken`: how many later gangs were placed before it. `kept`: GPUs of nodes that nobody else gets, in state Reserved.
    `victims`: whom it ends, and `held`: exactly the GPUs that nobody else gets meanwhile (state Reserved);
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
    kept: tuple[tuple[NodeName, int], ...] = ()
    victims: tuple[Victim, ...] = ()
    held: tuple[tuple[NodeName, tuple[GpuUuid, ...]], ...] = ()
    decided_at: str = ""
    preempt: PreemptRequest | None = None

    def excluding(self, nodes: Sequence[NodeName], until: str, reason: str) -> "Record":
        """The same with these nodes left out; one that is left out already stays so until its own time."""
        known = {one.node for one in self.excluded}
        fresh = tuple(Excluded(node, until, reason) for node in dict.fromkeys(nodes) if node not in known)
        return replace(self, excluded=self.excluded + fresh)

    def without_expired(self, now: datetime) -> "Record":
        """The same without the nodes whose time is over."""
        return replace(self, excluded=tuple(one for one in self.excluded if timestamps.decode(one.until) > now))


def plan_record(plan: Plan, snapshot: Snapshot, now: datetime) -> PlanRecord:
    """A plan with UUIDs instead of indices."""

    def uuids(node: NodeName, gpus: Sequence[int]) -> tuple[GpuUuid, ...]:
        graph = snapshot.nodes[node].graph
        return tuple(graph.gpus[i].uuid for i in gpus) if graph is not None else ()

    seats = tuple(
        SeatRecord(seat.worker.pod, seat.worker.uid, seat.node, uuids(seat.node, seat.gpus), seat.value, seat.rank)
        for seat in sorted(plan.seats, key=lambda seat: seat.rank)
    )
    return PlanRecord(plan.level.value, plan.value, plan.ideal, timestamps.encode(now), seats)


def read(scheduling: Mapping[str, Any]) -> Record | None:
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
            plan=_read_plan(scheduling["plan"]) if scheduling.get("plan") else None,
            placeable_since=_read_moment(scheduling, "placeableSince"),
            waits_for=str(scheduling.get("waitsFor", "")),
            until=_read_moment(scheduling, "until"),
            overtaken=int(scheduling.get("overtaken", 0)),
            kept=tuple((NodeName(str(one["node"])), int(one["gpus"])) for one in reserved if not one.get("uuids")),
            victims=tuple(_read_victim(one) for one in scheduling.get("victims", ())),
            held=tuple((NodeName(str(one["node"])), tuple(map(GpuUuid, one["uuids"]))) for one in reserved if one.get("uuids")),
            decided_at=_read_moment(scheduling, "victimsSince"),
            preempt=read_request(scheduling.get("preempt")),
        )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise InvalidInput(f"status.scheduling is not as the planner writes it: {error!r}") from error


def _read_victim(one: Mapping[str, Any]) -> Victim:
    return Victim(str(one["namespace"]), str(one["name"]), str(one["uid"]), int(one["attempt"]), int(one["priority"]))


def _read_moment(scheduling: Mapping[str, Any], name: str) -> str:
    return timestamps.canonical(scheduling[name], name) if scheduling.get(name) else ""


def _read_plan(plan: Mapping[str, Any]) -> PlanRecord:
    seats = tuple(
        SeatRecord(
            name=str(pod["name"]),
            uid=PodUid(str(pod["uid"])),
            node=NodeName(str(pod["node"])),
            gpus=tuple(GpuUuid(str(uuid)) for uuid in pod.get("gpus", ())),
            value=int(pod.get("value", 0)),
            rank=int(pod["rank"]),
        )
        for pod in plan.get("pods", ())
    )
    released = timestamps.canonical(plan["releasedAt"], "releasedAt")
    return PlanRecord(str(plan["level"]), int(plan.get("value", 0)), int(plan.get("ideal", 0)), released, seats)


def written(record: Record) -> dict[str, Any]:
    """status.scheduling as it is written."""
    scheduling: dict[str, Any] = {
        "attempt": record.attempt,
        "state": record.state.value,
        "reason": record.reason,
        "message": record.message,
        "waitingSince": record.waiting_since,
        "excludedNodes": [{"node": one.node, "until": one.until, "reason": one.reason} for one in record.excluded],
    }
    moments = {"placeableSince": record.placeable_since, "waitsFor": record.waits_for, "until": record.until}
    scheduling |= {name: text for name, text in moments.items() if text}
    if record.overtaken:
        scheduling["overtaken"] = record.overtaken
    reserved: list[dict[str, Any]] = [{"node": node, "gpus": gpus} for node, gpus in record.kept]
    if reserved := reserved + [{"node": node, "gpus": len(uuids), "uuids": list(uuids)} for node, uuids in record.held]:
        scheduling["reserved"] = reserved
    if record.victims:
        scheduling |= {"victims": [asdict(one) for one in record.victims], "victimsSince": record.decided_at}
    if record.preempt is not None:
        scheduling["preempt"] = preemption.written(record.preempt)
    if record.plan is not None:
        plan = record.plan
        scheduling["plan"] = {
            "level": plan.level,
            "value": plan.value,
            "ideal": plan.ideal,
            "releasedAt": plan.released_at,
            "pods": [
                {"name": p.name, "uid": p.uid, "node": p.node, "gpus": list(p.gpus), "value": p.value, "rank": p.rank}
                for p in plan.pods
            ],
        }
    return scheduling


def status_apply(job: JobView, record: Record, now: datetime) -> dict[str, Any]:
    """The body of the server-side apply: always every field that the planner owns, guarded by resourceVersion."""
    placed = "True" if record.state is State.RELEASED else "False"
    since = job.placed[1] if job.placed and job.placed[0] == placed and job.placed[1] else timestamps.encode(now)
    conditions = [
        {
            "type": "Placed",
            "status": placed,
            "reason": record.reason,
            "message": record.message,
            "lastTransitionTime": since,
            "observedGeneration": job.generation,
        }
    ]
    if record.preempt is not None:
        conditions.append(
            {
                "type": "PreemptionRequested",
                "status": "True",
                "reason": "HigherPriority",
                "message": record.preempt.message,
                "lastTransitionTime": record.preempt.requested_at,
                "observedGeneration": job.generation,
            }
        )
    return {
        "apiVersion": contract.API_VERSION,
        "kind": contract.JOB_KIND,
        "metadata": {
            "name": job.name,
            "namespace": job.namespace,
            "uid": job.uid,
            "resourceVersion": job.resource_version,
        },
        "status": {"scheduling": written(record), "conditions": conditions},
    }
