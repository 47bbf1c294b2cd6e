"""Many gangs that want the same: core is asked about one of them, and its answer goes for all while nothing changes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from kompakt_core.placement.model import Level, Reason, Rejection
from kompakt_core.policy.place_or_wait import NO_DELAY
from kompakt_extender.consolidation import ClusterPolicy
from kompakt_extender.gang_state import GangKind
from kompakt_extender.planner import decision, scheduling_attempt
from kompakt_extender.planner.decision import GangDecision
from kompakt_extender.planner.known_rejections import KnownRejections, kind_of
from kompakt_extender.planner.planning_request import PlanningRequest
from tests.support.extender.leader import Leader, on_nodes

GANGS = [f"j{number}" for number in range(6)]


@pytest.fixture
def asked(monkeypatch) -> list[str]:
    """Jobs that core is asked about."""
    found: list[str] = []

    def counted(request: PlanningRequest, levels: Any) -> Any:
        found.append(request.job.name)
        return decision.decide(request, levels)

    monkeypatch.setattr(scheduling_attempt, "decide", counted)
    return found


async def full() -> Leader:
    """Two nodes of eight GPUs each, which one gang has."""
    leader = on_nodes(2)
    await leader.place("first", 2, 8)
    assert leader.scheduling("first")["state"] == "Released"
    return leader


def add(leader: Leader, gpus: Callable[[int], int] = lambda number: 8, **more: Any) -> None:
    for number, name in enumerate(GANGS):
        leader.world.add_gang(name, 2, gpus(number), **more)
    leader.see()


async def test_of_gangs_that_want_the_same_one_is_asked_about(asked):
    leader = await full()
    asked.clear()
    add(leader)
    await leader.settle()
    assert set(asked) == {"j0"}
    assert {leader.scheduling(name)["state"] for name in GANGS} == {"Waiting"}
    assert len({leader.scheduling(name)["message"] for name in GANGS}) == 1


async def test_those_that_want_something_else_are_asked_about(asked):
    leader = await full()
    asked.clear()
    add(leader, lambda number: 4 if number % 2 else 8)
    await leader.settle()
    assert set(asked) == {"j0", "j1"}


async def test_once_something_was_placed_it_is_asked_again(asked):
    """Six gangs of eight GPUs on two nodes of eight: two find a place, one after the other."""
    leader = on_nodes(2)
    add(leader, lambda number: 4)
    await leader.settle()
    placed = [name for name in GANGS if leader.scheduling(name)["state"] == "Released"]
    assert placed == ["j0", "j1"]
    assert asked[:3] == ["j0", "j1", "j2"]
    assert not {"j4", "j5"} & set(asked)


async def test_what_ends_is_given_to_the_first_of_them(asked):
    leader = await full()
    add(leader)
    await leader.settle()
    asked.clear()
    for name in [name for name in leader.world.pods if name.startswith("first-")]:
        leader.world.delete_pod(name)
    leader.see()
    for node in ("n0", "n1"):
        leader.report(node)
    await leader.settle()
    states = [leader.scheduling(name)["state"] for name in GANGS]
    assert states == ["Released"] + ["Waiting"] * 5


async def requests() -> list[PlanningRequest]:
    """Of two gangs that differ in nothing."""
    leader = on_nodes(2, ClusterPolicy("kompakt"))
    add(leader)
    await leader.planner._reconcile_all()
    found = [leader.planner._nomination.next_request(f"uid-{name}", leader.planner._snapshot()) for name in GANGS[:2]]
    return [one for one in found if isinstance(one, PlanningRequest)]


def kind(request: PlanningRequest, *, below: bool = False, limited: bool = False) -> GangKind | None:
    return kind_of(request, anybody_below=below, limited=limited)


async def test_gangs_of_one_kind_see_and_want_the_same():
    first, second = await requests()
    assert kind(first) == kind(second) is not None
    assert kind(replace(second, gang=replace(second.gang, required_level=Level.RACK))) != kind(first)
    assert kind(replace(second, priority=5)) != kind(first)
    assert kind(replace(second, sees_as_all=False)) is None
    assert kind(replace(second, overtaken=second.patience.overtaken_at_most)) is None


async def test_whom_they_may_have_ended_tells_kinds_apart():
    first, second = await requests()
    first, second = replace(first, priority=5), replace(second, priority=5)
    assert kind(first, below=True) == kind(second, below=True) is not None
    hasty = replace(second, patience=NO_DELAY)
    assert kind(hasty) == kind(first)
    assert kind(hasty, below=True) != kind(first, below=True)
    assert kind(replace(second, since=second.asked_at - 1), below=True) is None, "how long it waits counts"
    elsewhere = replace(second, job=structs.replace(second.job, namespace="elsewhere"))
    assert kind(elsewhere, below=True) == kind(first, below=True)
    assert kind(elsewhere, below=True, limited=True) != kind(first, below=True, limited=True)


async def test_an_answer_goes_while_the_machines_are_those_with_the_mark_of_who_asked():
    first, second = await requests()
    known, answer = KnownRejections(), GangDecision(Rejection(Reason.DOES_NOT_FIT_NOW, have=1, need=2))
    known.note(kind(first), first, answer)
    later = replace(second, mark=second.mark._replace(ledger=second.mark.ledger + 5, freed=second.mark.freed + 3))
    found = known.of(kind(later), later)
    assert found is not None
    assert found.decision == answer
    assert later.mark.after(found.mark) == later.mark._replace(ledger=first.mark.ledger, freed=first.mark.freed)
    other = replace(second, mark=second.mark._replace(machines=second.mark.machines + 1))
    assert known.of(kind(other), other) is None
    known.note(None, first, GangDecision(Rejection(Reason.NEVER_FITS)))
    assert known.of(kind(second), second) == found
