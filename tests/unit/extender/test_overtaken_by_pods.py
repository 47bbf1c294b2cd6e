"""A plain pod is a gang of one: what is bound before a gang that waits longer counts as overtaking it."""

from typing import Any

import pytest

from kompakt_core.contract import timestamps
from tests.support.extender.leader import Leader
from tests.support.extender.made_objects import pod
from tests.support.extender.scenario import Scenario


async def waiting() -> Scenario:
    it = Scenario()
    await it.play("n0 n1 with fixed 3 / 8 pods on n0+n1")
    it.all_report()
    await it.play("big comes 2x8 of-others / 1 s; 1 pod leaves n0 -> big overtaken 0")
    return it


async def bound(leader: Leader, name: str, namespace: str = "default", **spec: Any) -> None:
    """A plain pod of one GPU comes, and is bound to n0."""
    made = pod(name, 1, **spec)
    made["metadata"] |= {"namespace": namespace, "creationTimestamp": timestamps.encode(leader.now)}
    leader.add_pod(made)
    await leader.settle()
    assert await leader.bind(name, "n0") == ""
    leader.report("n0")


@pytest.mark.parametrize(
    ("more", "count"),
    [({}, 1), ({"priority": -1}, 1), ({"priority": 1}, 0), ({"namespace": "others"}, 0)],
    ids=["a later one", "of lower priority", "not one of higher priority", "not one of its own namespace"],
)
async def test_a_plain_pod_that_is_bound_overtakes_gangs_that_wait_longer(more: dict[str, Any], count: int) -> None:
    it = await waiting()
    leader = it.leader
    await bound(leader, "late", **more)
    await it.play(f"0 s -> big overtaken {count}")
    leader.world.finish_pod("late")
    await it.play(f"0 s -> big overtaken {count}")


async def test_a_plain_pod_that_waited_longer_does_not() -> None:
    it = Scenario()
    leader = await it.play("n0 n1 with fixed 3 / 8 pods on n0+n1")
    it.all_report()
    made = pod("early", 1)
    made["metadata"]["creationTimestamp"] = timestamps.encode(leader.now)
    leader.add_pod(made)
    await it.play("1 s; big comes 2x8 of-others / 1 s; 1 pod leaves n0")
    assert await leader.bind("early", "n0") == ""
    await it.play("0 s -> big overtaken 0")


async def test_a_gang_that_these_nodes_could_not_serve_is_not_overtaken() -> None:
    it = Scenario()
    leader = await it.play("n0 n1 with fixed 3 / 8 pods on n0+n1")
    it.all_report()
    leader.world.add_gang("big", 2, 8, namespace="others", nodeSelector={"kubernetes.io/hostname": "n1"})
    await it.play("0 s / 1 s; 1 pod leaves n0")
    await bound(leader, "late")
    await it.play("0 s -> big overtaken 0")


async def test_after_enough_plain_pods_gpus_are_reserved_for_the_gang() -> None:
    it = await waiting()
    leader = it.leader
    for number in range(3):
        await bound(leader, f"late-{number}")
        leader.world.delete_pod(f"late-{number}")
        leader.report("n0")
    await it.play("0 s -> big overtaken 3; big Reserved; reserved for big")
