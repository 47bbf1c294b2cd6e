"""Step 5 of a cycle, validate: what of a decision holds by now, and so what is to be done. Pure.

Nothing that was true of the snapshot is taken to be true of now. What does not hold is planned again in the next cycle.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from kompakt_core.contract import timestamps
from kompakt_core.contract.scheduling_record import State
from kompakt_core.ids import JobUid, NodeName
from kompakt_core.placement.model import Plan, Reason, Rejection
from kompakt_core.policy.place_or_wait import GangReservation, LevelWait
from kompakt_core.policy.preempt import PreemptionPlan, RunningGang, freed
from kompakt_extender.gang_state import CountedReservation, Depends
from kompakt_extender.gangs import waiting_message
from kompakt_extender.planner.decision import GangDecision
from kompakt_extender.planner.planning_request import PlanningRequest, same_gang, same_machines, stands
from kompakt_extender.planner.reserved_counts import can_come, next_reservation
from kompakt_extender.planner.waiting_status import NOT_ALL_REPORTED, from_then_on


@dataclass(frozen=True, slots=True)
class Present:
    """What a decision meets. `now`: its gang's request, as it would be made now.

    `running`: who could end for it, by job uid. `victims_end`: what is reserved for it exactly still becomes free.
    `counts_for`: the job that GPUs are reserved for by count, "" = none; `counted`: how long, if it is this gang.
    `reserved_on`: nodes with any reservation. `reserved_seconds`: as in ClusterPolicy. `awaits_reports`: as in GpuLedger.
    """

    now: PlanningRequest
    running: Mapping[JobUid, RunningGang]
    victims_end: bool
    counts_for: str
    counted: CountedReservation | None
    reserved_on: Collection[NodeName]
    reserved_seconds: float
    awaits_reports: bool


class PlanAgain(NamedTuple):
    """It does not hold. `conflict`: a place was gone by then."""

    conflict: bool = False


class Place(NamedTuple):
    """The gang gets these places."""

    plan: Plan


class EndOthers(NamedTuple):
    """The gang gets these places as soon as others have left them."""

    found: PreemptionPlan


class AwaitVictims(NamedTuple):
    """Others end for it; `until`: when it is planned anew, should they not."""

    until: float


class GiveUpVictims(NamedTuple):
    """What was reserved for it does not become free."""


class WaitForLevel(NamedTuple):
    """It could be placed and is not; `ends`: when that may change by time alone (None = never); `kept`: as in GangDecision."""

    wait: LevelWait
    ends: float | None
    kept: str


class ReserveCounts(NamedTuple):
    """Others passed it too often: so many GPUs are reserved for it; `ends`, `kept`: as in WaitForLevel."""

    reservation: GangReservation
    counted: CountedReservation
    ends: float
    kept: str


class LetCountsFall(NamedTuple):
    """What was reserved for it by count does not become free."""


class Reject(NamedTuple):
    """It has no place; `reason` and `message` are written. `ends`, `depends`: as in AttemptResult."""

    reason: str
    message: str
    ends: float | None = None
    depends: Depends = Depends.ALL


Outcome = (
    PlanAgain | Place | EndOthers | AwaitVictims | GiveUpVictims | WaitForLevel | ReserveCounts | LetCountsFall | Reject
)  # fmt: skip


def validate(then: PlanningRequest, decision: GangDecision, present: Present) -> Outcome:
    """What to do about a decision that was made on the request `then`."""
    result, now = decision.result, present.now
    if not same_gang(then, now):
        return PlanAgain()
    if now.record.victims and not isinstance(result, Plan):
        return _still_ending(present)
    if isinstance(decision.others, PreemptionPlan):
        return _ending(then, decision.others, present)
    if isinstance(result, Rejection):
        return _rejected(then, result, decision, present)
    if isinstance(result, LevelWait):
        return WaitForLevel(result, result.at if result.at is not None else decision.may_end_at, decision.kept)
    if isinstance(result, GangReservation):
        return _reserved(result, decision, present)
    return Place(result) if stands(result, then, now) else PlanAgain(conflict=True)


def _still_ending(present: Present) -> AwaitVictims | GiveUpVictims:
    """GPUs are reserved for it and not free yet; where they never will be, it is planned anew."""
    until = timestamps.decode(present.now.record.decided_at).timestamp() + present.reserved_seconds
    return AwaitVictims(until) if present.now.asked_at < until and present.victims_end else GiveUpVictims()


def _ending(then: PlanningRequest, found: PreemptionPlan, present: Present) -> EndOthers | PlanAgain:
    """If the victims are still what they were, and so are the GPUs beside theirs."""
    now = present.now
    same = all(present.running.get(one.job_uid) == one for one in found.victims)
    if same and stands(found.plan, then, replace(now, snapshot=freed(now.snapshot, found.victims))):
        return EndOthers(found)
    return PlanAgain()


def _rejected(then: PlanningRequest, result: Rejection, decision: GangDecision, present: Present) -> Reject | PlanAgain:
    """Never is said only of a cluster that is fully known, and that is still the one that was planned for."""
    if result.reason is Reason.NEVER_FITS:
        if not same_machines(then, present.now):
            return PlanAgain()
        if present.awaits_reports:
            return Reject(State.WAITING.value, NOT_ALL_REPORTED, decision.may_end_at, Depends.MACHINES)
    message = waiting_message(result, then.gang, kept=_some_kept(then, present))
    if decision.may_end_at is not None:
        message = from_then_on(message, decision.may_end_at)
    message = f"{message}; {decision.kept}" if decision.kept else message
    reason = State.WAITING.value if result.reason is Reason.DOES_NOT_FIT_NOW else result.reason.value
    return Reject(reason, message, decision.may_end_at, _depends(result, decision))


def _depends(result: Rejection, decision: GangDecision) -> Depends:
    if result.reason is Reason.NEVER_FITS:
        return Depends.MACHINES
    alone = result.reason is Reason.DOES_NOT_FIT_NOW and decision.nobody_below
    return Depends.ROOM if alone else Depends.ALL


def _some_kept(then: PlanningRequest, present: Present) -> bool:
    """Whether GPUs that nobody has were hidden from it."""
    nodes = then.snapshot.nodes
    return any(node in nodes and nodes[node].kept for node in present.reserved_on)


def _reserved(result: GangReservation, decision: GangDecision, present: Present) -> ReserveCounts | LetCountsFall | PlanAgain:
    """The counts stay the same while their nodes can give them."""
    now, mine = present.now, present.counts_for == present.now.job.uid
    if present.counts_for and not mine:
        return PlanAgain()  # another was first
    before = dict(now.record.reserved_counts)
    counts = before if before and can_come(before, now) else dict(result.gpus)
    written = timestamps.decode(now.record.until).timestamp() if counts == before and now.record.until else None
    counted = next_reservation(present.counted if mine else None, counts, now, written, present.reserved_seconds)
    if counted.until <= now.asked_at:
        return LetCountsFall()
    ends = counted.until if decision.may_end_at is None else min(decision.may_end_at, counted.until)
    return ReserveCounts(GangReservation(result.level, counts), counted, ends, decision.kept)
