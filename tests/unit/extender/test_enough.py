"""Of many nodes that can take a pod, filter lets the best hundred pass, and no good one is lost by that."""

from typing import Any

import pytest

from kompakt_core import contract as c
from kompakt_core.placement.model import Reason
from kompakt_extender.answers import ENOUGH
from kompakt_extender.rejections import TEXTS
from tests.support.extender.made_objects import RING, pod
from tests.support.extender.scheduler import Scheduler, occupy

MORE = [f"m{number:03}" for number in range(ENOUGH + 20)]
PREFERS = {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}}
NEAR = {"podAffinityTerm": {"topologyKey": "zone", "labelSelector": {}}, "weight": 1}


def many(scheduler: Scheduler) -> None:
    for name in MORE:
        scheduler.leader.world.add_node(name)
    scheduler.leader.see()


async def test_the_nodes_with_the_most_points_are_all_among_them(scheduler: Scheduler) -> None:
    many(scheduler)
    used = MORE[-10:-1]
    for name in used:
        occupy(scheduler.leader, f"on-{name}", name, 0)
        scheduler.leader.world.report(name)
    scheduler.leader.see()
    scheduler.leader.world.add_pod(pod("p", 1, annotations=RING))
    everywhere = await scheduler.scores("p", *MORE)
    passed = (await scheduler.filter("p", *MORE))["NodeNames"]
    assert len(passed) == ENOUGH
    assert set(passed) <= set(MORE)
    assert {name for name, score in everywhere.items() if score} == set(used) < set(passed)
    assert await scheduler.scores("p", *passed) == {name: everywhere[name] for name in passed}


async def test_no_more_than_enough_are_all_let_pass(scheduler: Scheduler) -> None:
    many(scheduler)
    scheduler.leader.world.add_pod(pod("p", 1))
    assert (await scheduler.filter("p", *MORE[:ENOUGH]))["NodeNames"] == MORE[:ENOUGH]


@pytest.mark.parametrize(
    "gpu_request",
    [
        {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [PREFERS]}}},
        {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [NEAR]}}},
        {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [NEAR]}}},
        {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]},
    ],
    ids=["nodes", "near", "apart", "spread"],
)
async def test_a_pod_that_prefers_some_nodes_finds_them_among_all(gpu_request: dict[str, Any], scheduler: Scheduler) -> None:
    many(scheduler)
    scheduler.leader.world.add_pod(pod("p", 1, **gpu_request))
    assert (await scheduler.filter("p", *MORE))["NodeNames"] == MORE


async def test_the_node_planned_for_a_gang_of_one_comes_first(scheduler: Scheduler) -> None:
    many(scheduler)
    await scheduler.leader.place("j", 1, 4)
    planned = scheduler.leader.annotations("j-worker-0-a1")[c.ANN_PLANNED_NODE]
    names = [*MORE, "n0", "n1"]
    passed = (await scheduler.filter("j-worker-0-a1", *names))["NodeNames"]
    assert passed[0] == planned
    assert len(set(passed)) == len(passed) == ENOUGH


async def test_of_a_larger_gang_many_others_are_named_only_where_its_own_node_is_lost(scheduler: Scheduler) -> None:
    many(scheduler)
    await scheduler.leader.place("j", 2, 4)
    planned = scheduler.leader.annotations("j-worker-0-a1")[c.ANN_PLANNED_NODE]
    names = [*MORE, "n0", "n1"]
    answer = await scheduler.filter("j-worker-0-a1", *names)
    assert answer["NodeNames"] == [planned]
    assert answer["FailedAndUnresolvableNodes"] == {}
    del scheduler.leader.world.nodes[planned]
    scheduler.leader.handlers.nodes().remove(planned)
    answer = await scheduler.filter("j-worker-0-a1", *names)
    others = dict.fromkeys(set(names) - {planned}, TEXTS[Reason.NOT_PLANNED])
    assert answer["NodeNames"] == []
    assert answer["FailedAndUnresolvableNodes"] == others
    assert answer["FailedNodes"].keys() == {planned}
