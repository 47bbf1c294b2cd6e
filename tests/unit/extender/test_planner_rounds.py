"""All gangs of a round are decided from one view, in their order: what becomes free meanwhile is shown to all in the next one."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_client.requests import Answer
from kompakt_core import contract as c
from kompakt_core.ids import GpuMask, NodeName
from kompakt_core.placement.model import NodeState, Taint
from kompakt_core.topology.machines import machine
from kompakt_extender.planner.cycle import no_better
from kompakt_extender.planner.loop import LATE_AT_MOST
from tests.support.extender.leader import Leader, on_nodes, slow_to_write
from tests.support.extender.preempting import PROTECTED, runs, urgent
from tests.support.extender.racks import occupy, vacate


def leave(leader: Leader, node: str, gpus: int = 8, first: int = 0) -> None:
    """Plain pods end, and the watch shows it."""
    vacate(leader, node, gpus, first)
    leader.see()


def states(leader: Leader, *names: str) -> list[Any]:
    return [leader.scheduling(name).get("state") for name in names]


def two_gangs(leader: Leader, taken: int = 0) -> None:
    """One of high and one of low priority come; plain pods have so many GPUs of n0."""
    occupy(leader, "n0", taken)
    urgent(leader, "high")
    leader.world.add_gang("low", 2, 4)


async def both_wait(leader: Leader) -> None:
    """Both are told that there is no room."""
    two_gangs(leader, taken=8)
    await leader.settle()
    assert states(leader, "high", "low") == ["Waiting", "Waiting"]


async def test_what_becomes_free_while_a_gang_is_thought_about_is_not_given_to_one_behind_it() -> None:
    leader = on_nodes(1)
    two_gangs(leader, taken=8)
    leader.see()
    leader.meanwhile.append(lambda: leave(leader, "n0"))
    await leader.plan()
    assert leader.planner._wake.is_set(), "another round follows at once"
    await leader.settle()
    assert states(leader, "high", "low") == ["Released", "Waiting"]


async def test_a_machine_that_comes_while_a_gang_is_thought_about_is_shown_to_all_in_the_next_round() -> None:
    leader = on_nodes(1)
    await both_wait(leader)
    leader.wait(1)
    leave(leader, "n0", 1)  # too little for either, and a reason to ask both again

    def machine_comes() -> None:
        leader.world.add_node("n1")
        leader.see()

    leader.meanwhile.append(machine_comes)
    await leader.settle()
    assert states(leader, "high", "low") == ["Released", "Waiting"]


@pytest.mark.parametrize("node", ["n0", "n1"])
async def test_who_loses_its_node_while_it_is_thought_about_is_asked_again_before_those_behind_it(
    node: str, leader: Leader
) -> None:
    two_gangs(leader)
    leader.see()

    def node_falls_silent() -> None:
        leader.world.turn_ready(node)
        leader.see()

    leader.meanwhile.append(node_falls_silent)
    await leader.settle()
    assert states(leader, "high", "low") == ["Released", "Waiting"]


async def test_a_gang_whose_answers_keep_coming_too_late_does_not_hold_up_the_others(leader: Leader) -> None:
    urgent(leader, "high")
    leader.world.add_gang("low", 1, 1)
    leader.see()

    patterns = itertools.cycle(("Clique", "Ring"))

    def wish_changes() -> None:
        pattern = next(patterns)
        for one in [one for name, one in leader.world.pods.items() if name.startswith("high-")]:
            one["metadata"]["annotations"][c.ANN_PATTERN] = pattern
            leader.world.add_pod(one)
        leader.see()

    for _ in range(LATE_AT_MOST):
        leader.meanwhile.append(wish_changes)
        await leader.plan()
        assert states(leader, "high", "low") == [None, None]
    leader.meanwhile.append(wish_changes)
    await leader.plan()
    assert states(leader, "high", "low") == [None, "Released"]
    await leader.settle()
    assert states(leader, "high", "low") == ["Released", "Released"]


async def test_gangs_of_equal_priority_keep_their_order_too() -> None:
    leader = on_nodes(1)
    occupy(leader, "n0", 8)
    leader.world.add_gang("first", 2, 4)
    await leader.settle()
    leader.wait(1)
    leader.world.add_gang("second", 2, 4)
    leave(leader, "n0", 1)
    leader.meanwhile.append(lambda: leave(leader, "n0", 7, first=1))
    await leader.settle()
    assert states(leader, "first", "second") == ["Released", "Waiting"]


async def test_what_becomes_free_while_a_gang_is_written_about_is_not_given_to_one_behind_it() -> None:
    leader = on_nodes(1)
    two_gangs(leader, taken=8)
    heard = slow_to_write(leader, "high")
    await leader.rounds()
    leave(leader, "n0")
    await leader.rounds()
    assert states(leader, "high", "low") == [None, "Waiting"]
    heard.set()
    await leader.settle()
    assert states(leader, "high", "low") == ["Released", "Waiting"]


async def test_what_a_gang_refused_is_given_to_others_while_it_is_written_about() -> None:
    leader = on_nodes(1)
    occupy(leader, "n0", 4)
    urgent(leader, "high")
    slow_to_write(leader, "high")
    await leader.rounds()
    assert leader.planner._writes.writing("uid-high")
    leader.world.add_gang("low", 1, 4)
    await leader.rounds()
    assert states(leader, "high", "low") == [None, "Released"]
    leader.planner.stop()


async def test_the_places_of_a_plan_that_came_too_late_are_not_given_to_one_behind_it() -> None:
    """The job was changed at the same time: until its new version is seen it can not be planned again."""
    leader = on_nodes(1)
    two_gangs(leader)
    leader.see()
    leader.world.put("jobs", "high", leader.world.jobs["high"])
    await leader.plan()
    news = leader.world.news.popleft()
    await leader.settle()
    assert states(leader, "high", "low") == [None, "Waiting"]
    leader.world.news.append(news)
    await leader.settle()
    assert states(leader, "high", "low") == ["Released", "Waiting"]


async def test_a_gang_that_nothing_can_be_written_about_does_not_stop_the_others() -> None:
    leader = on_nodes(1)
    two_gangs(leader)
    send = leader.world.send

    async def refuse(method: str, path: str, **more: Any) -> Answer:
        return Answer(403, b'{"message": "no"}') if path.endswith("/high/status") else await send(method, path, **more)

    leader.world.send = refuse  # type: ignore[method-assign]
    await leader.settle()
    assert states(leader, "high", "low") == [None, "Released"]


async def test_who_loses_what_is_held_for_it_while_that_is_written_is_not_passed_by_one_behind_it(leader: Leader) -> None:
    """`most` takes the victim of `urgent`, of whose reservation free GPUs are left; it has not been written yet."""
    await runs(leader, "low", 1, 8)
    occupy(leader, "n1", 4)
    leader.wait(PROTECTED)
    urgent(leader, "urgent", 3, 4)
    heard = slow_to_write(leader, "urgent")
    await leader.rounds(2)
    assert leader.ledger.reserved.nodes_of("uid-urgent") == {"n0", "n1"}
    urgent(leader, "most", 1, 8, priority=2000)
    leader.world.add_gang("small", 1, 4)
    await leader.rounds()
    assert not leader.ledger.reserved.nodes_of("uid-urgent")
    assert states(leader, "small") == ["Waiting"]
    heard.set()
    await leader.settle()


GRAPH = machine("dgx1-v100")
MASKS = st.integers(0, 255).map(GpuMask)
STATES = st.builds(
    NodeState,
    name=st.just(NodeName("n")),
    graph=st.just(GRAPH),
    taken=MASKS,
    ready=st.booleans(),
    taints=st.sampled_from([(), (Taint("t", "NoSchedule"),)]),
    free_cpu_millis=st.integers(0, 3),
    free_memory_bytes=st.integers(0, 3),
    free_pods=st.integers(0, 3),
)


@given(then=st.none() | STATES, now=STATES)
def test_no_node_has_more_to_give_than_then_and_than_now(then: NodeState | None, now: NodeState) -> None:
    name = NodeName("n")
    before = {} if then is None else {name: then}
    found = no_better(before, {name: now})[name]
    assert (found.graph, found.ready, found.taints) == (now.graph, now.ready, now.taints)
    amount: Callable[[NodeState], tuple[int, int, int]] = lambda one: (one.free_cpu_millis, one.free_memory_bytes, one.free_pods)  # noqa: E731
    if then is None or (then.ready, then.taints) != (now.ready, now.taints):
        assert (found.free, found.free_pods) == (0, 0)
    else:
        assert found.free == then.free & now.free
        assert amount(found) == tuple(map(min, amount(then), amount(now)))


@pytest.mark.parametrize("taken", [0b1111, 0b11])
def test_a_view_that_is_no_better_anywhere_is_the_same_value(taken: int) -> None:
    """So that it counts as the present one, and nothing is asked twice."""
    name = NodeName("n")
    now = {name: NodeState(name, GRAPH, taken=GpuMask(0b1111))}
    assert no_better({name: NodeState(name, GRAPH, taken=GpuMask(taken))}, now) is now
