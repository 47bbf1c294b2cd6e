"""Gangs that were told that they have no place rest; of those with one answer the first is asked when it could be another one."""

import pytest

from kompakt_core import contract as c
from kompakt_extender.planner.nomination import Nomination
from tests.support.extender.leader import Leader, on_nodes
from tests.support.extender.made_objects import worker
from tests.support.extender.scenario import Scenario

GANGS = [f"j{number}" for number in range(5)]


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Gangs that had a turn, by name."""
    found: list[str] = []
    turn = Nomination.next_request

    def noted(self: Nomination, uid: str, cycle):  # type: ignore[no-untyped-def]
        found.append(uid.removeprefix("uid-"))
        return turn(self, uid, cycle)

    monkeypatch.setattr(Nomination, "next_request", noted)
    return found


async def full(gpus: int = 8) -> Leader:
    """Two nodes of eight GPUs each; five gangs of two pods wait."""
    leader = on_nodes(2)
    for name in ("first", "second"):
        await leader.place(name, 1, 8)
        planned = leader.annotations(f"{name}-worker-0-a1")[c.ANN_PLANNED_NODE]
        assert await leader.bind(f"{name}-worker-0-a1", planned) == ""
    for name in GANGS:
        leader.world.add_gang(name, 2, gpus)
    await leader.settle()
    assert {leader.scheduling(name)["state"] for name in GANGS} == {"Waiting"}
    return leader


async def test_a_cycle_does_not_look_at_them_while_nothing_becomes_free(turns):
    leader = await full()
    turns.clear()
    await leader.place("more", 1, 4)
    assert set(turns) == {"more"}


async def test_the_first_is_asked_for_all_where_it_is_told_the_same(turns):
    leader = await full(gpus=4)
    leader.world.set_limits("none", maxGPUs=100)  # they are all asked, and each is told the same again
    await leader.settle()
    turns.clear()
    leader.world.nodes["n0"]["metadata"]["labels"]["pool"] = "a"
    leader.world.put("nodes", "n0", leader.world.nodes["n0"])
    await leader.settle()
    assert set(turns) == {"j0"}


async def test_where_the_first_is_placed_the_next_is_asked(turns):
    leader = await full(gpus=4)
    turns.clear()
    leader.world.finish_pod("first-worker-0-a1")
    await leader.settle()
    assert {leader.scheduling(name)["state"] for name in GANGS[1:]} == {"Waiting"}
    assert leader.scheduling("j0")["state"] == "Released"
    assert set(turns) == {"j0", "j1"}


async def test_where_the_first_is_told_something_else_all_are_told_it(turns):
    leader = await full()
    turns.clear()
    leader.world.remove_node("n0")
    await leader.settle()
    assert {leader.scheduling(name)["reason"] for name in GANGS} == {"NeverFits"}
    assert set(turns) == set(GANGS)
    assert turns[:5] == GANGS, "in their order"


async def test_limits_are_held_against_each_of_them():
    leader = await full()
    leader.world.set_limits("small", maxGPUs=8)
    await leader.settle()
    assert {leader.scheduling(name)["reason"] for name in GANGS} == {"BeyondLimits"}


def all_end_and_an_urgent_gang_comes(leader: Leader) -> None:
    """It takes one of the two nodes that become free."""
    leader.world.add_gang("urgent", 1, 8, priority=10)
    for name in [name for name in leader.world.pods if name.startswith("all-")]:
        leader.world.delete_pod(name)
    for node in ("n0", "n1"):
        leader.world.report(node)


async def test_where_the_first_goes_before_its_turn_comes_the_next_has_it():
    """Else one behind them would get what became free."""
    leader = on_nodes(2)
    await leader.place("all", 2, 8)
    for name in GANGS[:2]:
        await leader.place(name, 1, 8)
    await leader.place("z", 1, 7)
    all_end_and_an_urgent_gang_comes(leader)

    def first_goes() -> None:
        gone = leader.world.jobs.pop("j0")
        leader.world.news.append(("jobs", gone["metadata"]["uid"], None))
        leader.see()

    leader.meanwhile.append(first_goes)
    await leader.settle()
    assert leader.scheduling("urgent")["state"] == "Released"
    assert leader.scheduling("j1")["state"] == "Released"
    assert leader.scheduling("z")["state"] == "Waiting"


async def test_how_often_they_were_overtaken_is_written_now_and_then():
    leader = on_nodes(2)
    await leader.place("all", 2, 5)
    await leader.place("big", 2, 8)
    for number in range(10):
        assert leader.scheduling("big").get("overtaken", 0) == 0
        await leader.place(f"small{number}", 1, 1, namespace="others")
        leader.world.finish_pod(f"small{number}-worker-0-a1")
        await leader.settle()
    assert leader.scheduling("big")["overtaken"] == 10


PROTECTED = "n0 n1 n2 / low runs 2x8 / more runs 1x5 @1000 / a comes 2x8 @1000 / b comes 2x8 @1000 / c comes 2x8 @1000"


async def test_while_nobody_may_be_ended_for_them_yet_the_first_is_asked(turns):
    it = Scenario()
    leader = await it.play(f"{PROTECTED} -> a Waiting; b Waiting; c Waiting; low not asked")
    turns.clear()
    leader.world.set_limits("none", maxGPUs=100)
    await leader.settle()
    assert set(turns) == {"a", "b", "c"}
    turns.clear()
    await it.play("small comes 1x2 -> small Released")
    assert set(turns) == {"small", "a"}


async def test_once_others_may_be_ended_it_is_done_for_the_first_and_the_next_is_asked(turns):
    it = Scenario()
    await it.play(PROTECTED)
    turns.clear()
    await it.play("310 s -> low asked by a; a because Preempting; b Waiting; c Waiting")
    assert turns[:2] == ["a", "b"]


async def test_what_happens_to_a_gang_before_its_turn_comes_is_not_lost():
    """Its operator makes the next attempt while one before it in the queue is planned; it has no room in this cycle."""
    leader = on_nodes(2)
    await leader.place("all", 2, 8)
    await leader.place("z", 2, 8)
    all_end_and_an_urgent_gang_comes(leader)

    def next_attempt() -> None:
        for index in range(2):
            leader.world.delete_pod(f"z-worker-{index}-a1")
            leader.world.add_pod(worker("z", index, 8, attempt=2))
        leader.world.jobs["z"]["status"]["attempt"] = 2
        leader.world.put("jobs", "z", leader.world.jobs["z"])
        leader.see()

    leader.meanwhile.append(next_attempt)
    await leader.settle()
    assert leader.scheduling("urgent")["state"] == "Released"
    assert (leader.scheduling("z")["attempt"], leader.scheduling("z")["state"]) == (2, "Waiting")
