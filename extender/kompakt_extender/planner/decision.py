"""Step 4 of a cycle, decide: what core says about one gang on the view that it was given. Pure, and run away from the loop.

It takes tenths of a second on thousands of nodes, and the verbs are served by the loop. So a decision is always one about the
past; validation says what of it still holds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from kompakt_core.placement.beside import near_neighbours, nearest_first
from kompakt_core.placement.gang_placement import plan_gang
from kompakt_core.placement.model import Level, Plan, Reason, Rejection
from kompakt_core.policy.place_or_wait import GangReservation, LevelWait, accepted_levels, place_or_wait
from kompakt_core.policy.preempt import NotBefore, PreemptionPlan, RunningGang, preempt
from kompakt_extender.planner.planning_request import PlanningRequest

PlanningResult = Plan | LevelWait | Rejection | GangReservation


class LowerGangs(NamedTuple):
    """Running gangs of lower priority that may end, and why others may not."""

    may_end: Sequence[RunningGang] = ()
    kept: str = ""


class GangDecision(NamedTuple):
    """`result`: for the gang among those that run. `others`: who could end for it, or from when on (None = nobody); `kept`: why
    some may not. `nobody_below`: there is no pod that it could have ended, now or later.
    """

    result: PlanningResult
    others: PreemptionPlan | NotBefore | None = None
    kept: str = ""
    nobody_below: bool = False

    @property
    def may_end_at(self) -> float | None:
        """When others may be ended for it, if that would help (seconds since the epoch)."""
        return self.others.at if isinstance(self.others, NotBefore) else None


def decide(one: PlanningRequest, levels: Mapping[Level, str]) -> PlanningResult:
    """Places for the gang, what it waits for, or why it has none."""
    if one.beside:
        return _decide_beside(one, levels)
    return place_or_wait(one.snapshot, one.gang, one.patience, one.since, one.asked_at, levels, one.overtaken)


def _decide_beside(one: PlanningRequest, levels: Mapping[Level, str]) -> Plan | Rejection:
    """As near to the others as there is room now: the gang trains with one pod less, or not at all, so none of it waits."""
    for level, gang in nearest_first(one.gang, one.snapshot, one.nodes_beside, levels):
        result = plan_gang(one.snapshot, gang, levels)
        if isinstance(result, Plan):
            stay = {seat.rank: seat.node for seat in one.beside}
            return near_neighbours(replace(result, level=level), stay, one.snapshot, levels)
    return Rejection(Reason.DOES_NOT_FIT_NOW, need=len(one.pods))


def wants_others_ended(request: PlanningRequest, result: PlanningResult) -> bool:
    """Whether the gang has no place by time alone, and may have others ended for one."""
    placeless = (
        isinstance(result, GangReservation)
        or (isinstance(result, LevelWait) and result.at is None)
        or (isinstance(result, Rejection) and result.reason is Reason.DOES_NOT_FIT_NOW)
    )
    return placeless and request.priority is not None and not request.record.victims


def decide_who_ends(
    one: PlanningRequest, result: PlanningResult, running: Sequence[RunningGang], levels: Mapping[Level, str]
) -> PreemptionPlan | NotBefore | None:
    """Plain pods end for a place at all, never for a better one, and only where jobs are not enough."""
    assert one.priority is not None
    accepts = accepted_levels(one.snapshot, one.gang, one.patience, one.since, one.asked_at, levels)
    jobs, priority, at = [each for each in running if each.attempt], one.priority, one.asked_at
    found = preempt(one.snapshot, one.gang, priority, jobs, accepts, at, levels)
    if isinstance(found, PreemptionPlan) or len(jobs) == len(running) or not isinstance(result, Rejection):
        return found
    return preempt(one.snapshot, one.gang, priority, running, accepts, at, levels) or found
