"""Many gangs that want the same: core is asked about one of them, and its answer goes for all while nothing changes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kompakt_core.placement.model import Level, Reason, Rejection
from kompakt_extender.consolidation import ClusterPolicy
from kompakt_extender.planner import decision, scheduling_attempt
from kompakt_extender.planner.known_rejections import KnownRejections
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


async def test_an_answer_goes_for_those_alone_that_see_and_want_the_same_and_with_the_mark_of_who_asked():
    leader = on_nodes(2, ClusterPolicy("kompakt"))
    add(leader)
    await leader.planner._reconcile_all()
    first, second = (leader.planner._nomination.next_request(f"uid-{name}", leader.planner._snapshot()) for name in GANGS[:2])
    assert isinstance(first, PlanningRequest)
    assert isinstance(second, PlanningRequest)
    known, answer = KnownRejections(), Rejection(Reason.DOES_NOT_FIT_NOW, have=1, need=2)
    known.note(first, answer)
    later = replace(second, mark=second.mark._replace(ledger=second.mark.ledger + 5, freed=second.mark.freed + 3))
    found = known.of(later)
    assert found is not None
    assert found.rejection == answer
    assert found.marked(later.mark) == later.mark._replace(ledger=first.mark.ledger, freed=first.mark.freed)
    for other in (
        replace(second, sees_as_all=False),
        replace(second, overtaken=second.patience.overtaken_at_most),
        replace(second, gang=replace(second.gang, required_level=Level.RACK)),
        replace(second, mark=second.mark._replace(machines=second.mark.machines + 1)),
    ):
        assert known.of(other) is None
    known.note(replace(first, overtaken=first.patience.overtaken_at_most), Rejection(Reason.NEVER_FITS))
    known.note(replace(first, sees_as_all=False), Rejection(Reason.NEVER_FITS))
    assert known.of(second) == found
