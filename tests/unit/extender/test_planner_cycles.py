"""All gangs of a cycle are planned on one view, in their order: what becomes free meanwhile is shown to all in the next one."""

import asyncio
import itertools
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_client.requests import Answer
from kompakt_core import contract as c
from kompakt_core.errors import TryLater
from kompakt_core.ids import GpuMask, NodeName
from kompakt_core.placement.model import NodeState, Taint
from kompakt_core.topology.machines import machine
from kompakt_extender.cluster_view import comparable, gives_more
from kompakt_extender.planner.cycle import no_better
from kompakt_extender.planner.loop import LATE_AT_MOST
from kompakt_extender.release_writer import LATE_SECONDS, LONGEST_PAUSE, TRIED_SECONDS
from tests.support.extender.leader import Leader, on_nodes
from tests.support.extender.preempting import urgent
from tests.support.extender.racks import occupy, vacate
from tests.support.extender.scenario import played

TWO = "high comes 2x4 @1000; low comes 2x4"
SCENARIOS = {
    "what becomes free while a gang is planned is not given to one behind it": f"""n0
        8 pods on n0; {TWO}; meanwhile 8 pods leave n0 -> high Released; low Waiting""",
    "a machine that is added while a gang is planned is shown to all in the next cycle": f"""n0 / 8 pods on n0; {TWO}
        -> high Waiting; low Waiting
        1 s; 1 pod leaves n0; meanwhile node n1 is added -> high Released; low Waiting""",
    "who loses its node while it is planned comes again before those behind it": f"""n0 n1
        {TWO}; meanwhile n0 turns -> high Released; low Waiting""",
    "who comes while another one is planned goes before those of lower priority that are left": f"""n0 n1
        {TWO}; meanwhile urgent comes 2x4 @2000 -> high Released; urgent Released; low Waiting""",
    "and not before those of the same priority, who wait longer": f"""n0 n1
        {TWO}; meanwhile tardy comes 2x4 -> high Released; low Released; tardy Waiting""",
    "whichever node that is": f"n0 n1 / {TWO}; meanwhile n1 turns -> high Released; low Waiting",
    "gangs of equal priority keep their order too": """n0 / 8 pods on n0; first comes 2x4
        1 s; second comes 2x4; 1 pod leaves n0; meanwhile 7 pods leave n0 from 1 -> first Released; second Waiting""",
    "what becomes free while a gang is written about is not given to one behind it": f"""n0 / 8 pods on n0; high is held; {TWO}
        8 pods leave n0 -> high unwritten; low Waiting
        high is answered -> high Released; low Waiting""",
    "what does not suit a gang is given to others while it is written about": """n0 / 4 pods on n0; high is held
        high comes 2x4 @1000 / low comes 1x4 -> high unwritten; low Released""",
}


def two_gangs(leader: Leader) -> None:
    """One of high and one of low priority come."""
    urgent(leader, "high")
    leader.world.add_gang("low", 2, 4)


def states(leader: Leader, *names: str) -> list[Any]:
    return [leader.scheduling(name).get("state") for name in names]


@pytest.mark.parametrize("text", SCENARIOS.values(), ids=SCENARIOS.keys())
async def test_who_comes_first_gets_the_places(text: str) -> None:
    await played(text)


async def test_a_result_that_comes_too_late_asks_for_another_cycle() -> None:
    leader = on_nodes(1)
    occupy(leader, "n0", 8)
    two_gangs(leader)
    leader.see()
    leader.meanwhile.append(lambda: [vacate(leader, "n0", 8), leader.see()])
    await leader.plan()
    assert leader.planner._wake.is_set()


async def test_a_gang_whose_answers_keep_coming_too_late_does_not_hold_up_the_others(leader: Leader) -> None:
    urgent(leader, "high")
    leader.world.add_gang("low", 1, 1)
    leader.see()

    patterns = itertools.cycle(("Clique", "Ring"))

    def request_changes() -> None:
        pattern = next(patterns)
        for one in [one for name, one in leader.world.pods.items() if name.startswith("high-")]:
            one["metadata"]["annotations"][c.ANN_PATTERN] = pattern
            leader.world.add_pod(one)
        leader.see()

    for _ in range(LATE_AT_MOST):
        leader.meanwhile.append(request_changes)
        await leader.plan()
        assert states(leader, "high", "low") == [None, None]
    leader.meanwhile.append(request_changes)
    await leader.plan()
    assert states(leader, "high", "low") == [None, "Released"]
    await leader.settle()
    assert states(leader, "high", "low") == ["Released", "Released"]


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


async def test_a_plan_whose_write_always_fails_does_not_hold_its_gpus_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another team's webhook answers 500, say."""
    leader = on_nodes(1)
    two_gangs(leader)
    send, tried = leader.world.send, list[datetime]()

    async def fail(method: str, path: str, **more: Any) -> Answer:
        if method == "PATCH" and path.endswith("/high/status"):
            tried.append(leader.now)
            raise TryLater("the API server answers 500", 0.0)
        return await send(method, path, **more)

    async def pause(seconds: float) -> None:
        leader.wait(seconds)

    monkeypatch.setattr(leader.world, "send", fail)
    monkeypatch.setattr(leader.planner._writes._releaser, "_pause", pause)
    leader.see()
    began = leader.now
    await asyncio.wait_for(leader.plan(), 5)
    assert tried[-1] - began < timedelta(seconds=TRIED_SECONDS + LONGEST_PAUSE)
    assert leader.now - tried[-1] >= timedelta(seconds=LATE_SECONDS)  # it cannot arrive any more
    await asyncio.wait_for(leader.settle(), 5)
    assert states(leader, "high", "low") == [None, "Released"]


async def test_a_job_that_goes_while_an_urgent_one_comes_stops_nobody() -> None:
    """It was the last one left in the cycle."""
    leader = on_nodes(2)
    two_gangs(leader)

    def happen() -> None:
        leader.world.news.append(("jobs", "uid-low", None))
        urgent(leader, "urgent")
        leader.see()

    leader.meanwhile.append(happen)
    await leader.settle()
    assert states(leader, "high", "urgent") == ["Released", "Released"]


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
def test_a_node_gives_more_where_a_cycle_would_hide_that(then: NodeState | None, now: NodeState) -> None:
    before = {} if then is None else {NodeName("n"): then}
    hidden = no_better(before, {NodeName("n"): now})[NodeName("n")] != now
    assert gives_more(then, now) or not hidden
    if then is not None and comparable(then, now):
        assert gives_more(then, now) == hidden


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
