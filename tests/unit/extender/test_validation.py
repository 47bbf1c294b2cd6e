"""What of a decision holds by the time it arrives: pure, so each case is a value."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core.contract.scheduling_record import State, Victim
from kompakt_core.ids import GpuMask, NodeName, mask_of
from kompakt_core.placement.gang_placement import LEVEL_LABELS
from kompakt_core.placement.model import Level, Plan, Reason, Rejection, Snapshot
from kompakt_core.policy.place_or_wait import GangReservation, LevelWait
from kompakt_core.policy.preempt import NotBefore
from kompakt_extender.cluster_view import may_hold
from kompakt_extender.gang_state import Depends
from kompakt_extender.planner.decision import GangDecision, decide
from kompakt_extender.planner.planning_request import PlanningRequest
from kompakt_extender.planner.validation import (
    AwaitVictims,
    GiveUpVictims,
    LetCountsFall,
    Place,
    PlanAgain,
    Present,
    Reject,
    ReserveCounts,
    WaitForLevel,
    validate,
)
from kompakt_extender.planner.waiting_status import NOT_ALL_REPORTED
from tests.support.extender.leader import on_nodes

N0 = NodeName("n0")


def request(workers: int = 2, gpus: int = 4) -> PlanningRequest:
    """Of a gang that waits on two empty machines."""
    leader = on_nodes(2)
    leader.world.add_gang("j", workers, gpus)
    leader.see()
    planner = leader.planner
    asyncio.run(planner._reconcile_all())
    found = planner._nomination.next_request("uid-j", planner._snapshot())
    assert isinstance(found, PlanningRequest)
    return found


def present(now: PlanningRequest, **more: object) -> Present:
    """Nothing is reserved for anybody."""
    nothing = Present(now, {}, False, "", None, (), 3600.0, False)
    return replace(nothing, **more)  # type: ignore[arg-type]


def plan_of(one: PlanningRequest) -> Plan:
    found = decide(one, LEVEL_LABELS)
    assert isinstance(found, Plan)
    return found


def with_taken(one: PlanningRequest, masks: dict[str, int]) -> PlanningRequest:
    nodes = {name: replace(state, taken=GpuMask(masks.get(name, 0))) for name, state in one.snapshot.nodes.items()}
    return replace(one, snapshot=Snapshot(nodes))


@given(masks=st.fixed_dictionaries({"n0": st.integers(0, 255), "n1": st.integers(0, 255)}))
def test_a_plan_holds_exactly_as_long_as_none_of_its_gpus_is_taken(masks: dict[str, int]) -> None:
    then = request()
    plan = plan_of(then)
    free = all(not mask_of(seat.gpus) & masks[seat.node] for seat in plan.seats)
    found = validate(then, GangDecision(plan), present(with_taken(then, masks)))
    assert found == (Place(plan) if free else PlanAgain(conflict=True))


@given(
    masks=st.fixed_dictionaries({"n0": st.integers(0, 255), "n1": st.integers(0, 255)}),
    shape=st.tuples(st.integers(1, 4), st.integers(1, 8)),
)
def test_where_a_gang_surely_has_no_room_core_finds_none(masks: dict[str, int], shape: tuple[int, int]) -> None:
    one = with_taken(request(*shape), masks)
    free = Counter(state.free.bit_count() for state in one.snapshot.nodes.values())
    found = decide(one, LEVEL_LABELS)
    assert may_hold(free, [worker.gpus for worker in one.gang.workers]) or isinstance(found, Rejection)
    if isinstance(found, Rejection) and shape[0] * shape[1] <= 8:
        assert not may_hold(free, [worker.gpus for worker in one.gang.workers])


class Case(NamedTuple):
    """What was decided, what is so by now, and what follows."""

    decision: Callable[[PlanningRequest], GangDecision]
    meets: Callable[[PlanningRequest], Present]
    follows: Callable[[object], bool]


REJECTED = Rejection(Reason.DOES_NOT_FIT_NOW)
NEVER = Rejection(Reason.NEVER_FITS)
WAIT = LevelWait(Level.CLUSTER, Level.MACHINE, None)
COUNTS = GangReservation(Level.CLUSTER, {N0: 8})
VICTIMS = (Victim("default", "low", "uid-low", 1, 0),)


def ending(one: PlanningRequest) -> PlanningRequest:
    record = replace(one.record, state=State.RESERVED, victims=VICTIMS, decided_at="2026-01-31T12:00:00Z")
    return replace(one, record=record)


def one_node(one: PlanningRequest) -> PlanningRequest:
    return replace(one, snapshot=Snapshot({N0: one.snapshot.nodes[N0]}))


def another_gang(one: PlanningRequest) -> PlanningRequest:
    return replace(one, gang=replace(one.gang, workers=one.gang.workers[:1]))


CASES = {
    "the gang is another one": Case(
        lambda one: GangDecision(plan_of(one)), lambda one: present(another_gang(one)), lambda found: found == PlanAgain()
    ),
    "a plan for a gang that others end for": Case(
        lambda one: GangDecision(plan_of(one)), lambda one: present(ending(one)), lambda found: isinstance(found, Place)
    ),
    "others still end for it": Case(
        lambda one: GangDecision(REJECTED),
        lambda one: present(ending(one), victims_end=True),
        lambda found: isinstance(found, AwaitVictims),
    ),
    "they do not end": Case(
        lambda one: GangDecision(REJECTED), lambda one: present(ending(one)), lambda found: found == GiveUpVictims()
    ),
    "they take too long": Case(
        lambda one: GangDecision(REJECTED),
        lambda one: present(ending(one), victims_end=True, reserved_seconds=0.0),
        lambda found: found == GiveUpVictims(),
    ),
    "it has no place": Case(
        lambda one: GangDecision(REJECTED),
        present,
        lambda found: isinstance(found, Reject) and (found.reason, found.depends) == ("Waiting", Depends.ALL),
    ),
    "it has no place before others may end": Case(
        lambda one: GangDecision(REJECTED, NotBefore(4e9)),
        present,
        lambda found: isinstance(found, Reject) and found.ends == 4e9 and "may be ended for it from" in found.message,
    ),
    "it never fits": Case(
        lambda one: GangDecision(NEVER),
        present,
        lambda found: isinstance(found, Reject) and (found.reason, found.depends) == ("NeverFits", Depends.MACHINES),
    ),
    "it never fits into what has reported": Case(
        lambda one: GangDecision(NEVER),
        lambda one: present(one, awaits_reports=True),
        lambda found: found == Reject("Waiting", NOT_ALL_REPORTED, depends=Depends.MACHINES),
    ),
    "it never fits into machines that were others": Case(
        lambda one: GangDecision(NEVER), lambda one: present(one_node(one)), lambda found: found == PlanAgain()
    ),
    "it waits for a level": Case(
        lambda one: GangDecision(WAIT, NotBefore(4e9), "kept"), present, lambda found: found == WaitForLevel(WAIT, 4e9, "kept")
    ),
    "GPUs are reserved for it": Case(
        lambda one: GangDecision(COUNTS),
        present,
        lambda found: isinstance(found, ReserveCounts) and (found.reservation, found.ends) == (COUNTS, found.counted.until),
    ),
    "GPUs are reserved for another one": Case(
        lambda one: GangDecision(COUNTS), lambda one: present(one, counts_for="uid-other"), lambda found: found == PlanAgain()
    ),
    "what is reserved for it does not become free": Case(
        lambda one: GangDecision(COUNTS), lambda one: present(one, reserved_seconds=0.0), lambda found: found == LetCountsFall()
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_follows_from_a_decision(name: str) -> None:
    then, case = request(), CASES[name]
    found = validate(then, case.decision(then), case.meets(then))
    assert case.follows(found), found
