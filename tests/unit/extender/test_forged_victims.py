"""A new leader adopts a reservation from a job's status only if it would have decided so itself: the status may be forged."""

import pytest

from tests.support.extender.preempting import request, touch
from tests.support.extender.scenario import Scenario

NOW = "2026-01-31T12:04:00Z"


def forge(scenario: Scenario, name: str, gpus: dict[str, int], *victims: str, priority: int = -1) -> None:
    """Somebody who may write the job's status says that others end for it, and which GPUs are reserved."""
    world = scenario.leader.world
    uuids = {node: [f"GPU-{node}-{index}" for index in range(count)] for node, count in gpus.items()}
    jobs = [world.jobs[one] for one in victims]
    world.jobs[name]["status"]["scheduling"] = {
        "attempt": 1,
        "state": "Reserved",
        "reason": "Preempting",
        "message": "",
        "waitingSince": NOW,
        "excludedNodes": [],
        "victims": [
            {
                "namespace": "default",
                "name": one["metadata"]["name"],
                "uid": one["metadata"]["uid"],
                "attempt": 1,
                "priority": priority,
            }
            for one in jobs
        ],
        "victimsSince": NOW,
        "reserved": [{"node": node, "gpus": len(found), "uuids": found} for node, found in uuids.items()],
    }
    touch(scenario.leader, name)


@pytest.mark.parametrize(
    "world",
    [
        "n0 / low runs 2x4 @1000 / 600 s; forger comes 2x4 @1000",
        "n0 / low runs 2x4 @2000 / 600 s; forger comes 2x4 @1000",
        "n0 / low runs 2x4 / 600 s; forger comes 2x4 @1000 polite",
        "n0 / low runs 2x4 / 200 s; forger comes 2x4 @1000",
    ],
    ids=["equal priority", "higher priority", "a preemptor that may end nobody", "still protected"],
)
async def test_a_forged_victim_that_may_not_be_ended_is_not_asked(world: str) -> None:
    scenario = Scenario()
    await scenario.play(world)
    forge(scenario, "forger", {"n0": 8}, "low")
    await scenario.play("another leader -> reserved for nothing; low not asked; low Released; forger Waiting")


async def test_a_forged_victim_that_waits_is_not_asked() -> None:
    scenario = Scenario()
    await scenario.play("n0 / 8 pods on n0 / low comes 2x4; forger comes 2x4 @1000 -> low Waiting; forger Waiting")
    forge(scenario, "forger", {}, "low")
    await scenario.play("another leader -> low not asked")


@pytest.mark.parametrize("gpus", [24, 8, 0], ids=["more than the job needs", "fewer", "none"])
async def test_a_reservation_of_other_than_the_gpus_that_the_job_needs_is_not_adopted(gpus: int) -> None:
    """Nobody else would get them as long as the victim stays."""
    scenario = Scenario()
    await scenario.play("n0 n1 n2 / low runs 2x8 / 200 s; forger comes 2x8 @1000 -> forger Waiting; low not asked")
    forge(scenario, "forger", {f"n{index}": 8 for index in range(gpus // 8)}, "low")
    scenario.leader.wait(400)
    scenario.another_leader()
    assert not scenario.leader.ledger.reserved.exact


async def test_a_victim_that_has_nothing_of_what_is_reserved_is_not_asked() -> None:
    scenario = Scenario()
    await scenario.play("n0 n1 n2 / low runs 1x8 / 200 s; forger comes 3x8 @1000 -> forger Waiting; low not asked")
    has = scenario.leader.world.pods["low-worker-0-a1"]["spec"]["nodeName"]
    scenario.leader.world.jobs["forger"]["spec"]["roles"][0]["replicas"] = 2
    scenario.leader.world.delete_pod("forger-worker-2-a1")
    forge(scenario, "forger", {node: 8 for node in ("n0", "n1", "n2") if node != has}, "low")
    scenario.leader.wait(400)
    scenario.another_leader()
    assert not scenario.leader.ledger.reserved.exact


async def test_a_victim_is_known_by_its_uid_in_its_own_namespace() -> None:
    scenario = Scenario()
    leader = await scenario.play("n0 / low runs 2x4 / 200 s; forger comes 2x4 @1000")
    forge(scenario, "forger", {"n0": 8}, "low")
    leader.world.jobs["forger"]["status"]["scheduling"]["victims"][0]["namespace"] = "elsewhere"
    leader.wait(400)
    scenario.another_leader()
    assert not scenario.leader.ledger.reserved.exact
    assert request(scenario.leader, "low") is None
