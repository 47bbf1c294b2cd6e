"""Plain pods end for a gang of higher priority that has no place at all: by eviction, bare ones only where that is allowed."""

import json

import pytest

from kompakt_extender.consolidation import ClusterPolicy
from tests.support.extender.leader import Leader
from tests.support.extender.racks import run_plain
from tests.support.extender.scenario import Scenario, played

FULL = "n0 / 8 replicas of default on n0 / 300 s"
URGENT = "urgent comes 2x4 @1000"
SCENARIOS = {
    "it gets their GPUs and they are evicted": f"""{FULL} / {URGENT}
        -> urgent because Preempting; 8 pods stop; reserved for urgent
        -> urgent says 8 plain pods are ended for it, of lower priority: default/n0-0; quiet
        8 pods leave n0 -> urgent Released; reserved for nothing""",
    "no more of them than are needed": f"{FULL} / urgent comes 1x4 @1000 -> 4 pods stop",
    "equal priority stays": f"n0 / 8 replicas of default on n0 @1000 / 300 s; {URGENT} -> urgent Waiting; 0 pods stop; quiet",
    "bare ones stay": f"n0 / 8 bare pods of default on n0 / 300 s; {URGENT} -> urgent Waiting; 0 pods stop; quiet",
    "not before the minimum run time": f"""n0 / 8 replicas of default on n0 / 299 s; {URGENT} -> urgent Waiting; 0 pods stop
        1 s -> 8 pods stop""",
    "a polite gang ends none": f"{FULL} / {URGENT} polite -> urgent Waiting; 0 pods stop",
    "never for a better level": """n0 n1 / 4 replicas of default on n0 / 4 replicas of others on n1 / 300 s
        urgent comes 2x4 @1000 NeverRelax -> urgent Waiting; urgent says waits for one machine; 0 pods stop""",
    "jobs end first": """n0 n1 / 8 replicas of default on n0 / low runs 2x4 @500 / 300 s
        urgent comes 2x4 @1000 -> low asked by urgent; 0 pods stop""",
    "jobs and pods together, where neither is enough": """n0 / 4 replicas of default on n0 / low runs 1x4 / 300 s
        urgent comes 2x4 @1000 -> low asked by urgent; 4 pods stop
        -> urgent says 1 running job and 4 plain pods are ended for it""",
    "of another namespace it is told uids": f"""n0 / 8 replicas of others on n0 / 300 s; {URGENT}
        -> 8 pods stop; urgent says a pod of another namespace (uid uid-n0-0)
        another leader / 0 s -> reserved for urgent; quiet""",
    "a new leader goes on": f"""{FULL} / {URGENT} -> 8 pods stop
        another leader / 0 s -> reserved for urgent; quiet / 8 pods leave n0 -> urgent Released""",
    "nothing is evicted before it stands written": f"""{FULL} / urgent is held; {URGENT} -> 0 pods stop
        urgent is answered / 0 s -> 8 pods stop""",
}


@pytest.mark.parametrize("text", SCENARIOS.values(), ids=SCENARIOS)
async def test_when_plain_pods_end(text: str) -> None:
    await played(text)


async def test_bare_pods_end_where_the_administrator_says_so() -> None:
    it = Scenario()
    it.policy = ClusterPolicy("no-wait", bare_pods=True)
    await it.play(f"n0 / 8 bare pods of default on n0 / 300 s; {URGENT} -> 8 pods stop")


async def test_a_pod_that_its_budget_keeps_is_left_alone_for_a_while_and_the_gang_planned_anew() -> None:
    it = Scenario()
    leader = await it.play("n0 n1 / 8 replicas of default on n0 / 8 replicas of default on n1 @10 / 300 s")
    leader.world.kept = {"n0-3"}
    await it.play(f"{URGENT} -> urgent because Preempting; reserved for urgent")
    assert {seat["node"] for seat in leader.scheduling("urgent")["reserved"]} == {"n1"}
    assert sum(path.endswith("/n0-3/eviction") for _, path in leader.world.sent) == 1


async def test_limits_keep_plain_pods_too() -> None:
    it = Scenario()
    it.begin("n0")
    for name in ("default", "others"):
        it.leader.world.add_namespace(name)
    await it.play(f"""Limits safe of others say {{"mayBePreemptedByOthers": false}} / 8 replicas of others on n0 / 300 s
        {URGENT} -> urgent Waiting; 0 pods stop; urgent says (mayBePreemptedByOthers)""")


async def test_limits_shorten_how_long_a_plain_pod_keeps_its_gpus() -> None:
    it = Scenario()
    it.begin("n0")
    for name in ("default", "others"):
        it.leader.world.add_namespace(name)
    await it.play(f"""8 replicas of others on n0 / 99 s; {URGENT} -> 0 pods stop
        Limits brief of others say {{"maxMinRuntimeSeconds": 100}} -> 0 pods stop / 1 s -> 8 pods stop""")


async def test_an_eviction_of_which_nothing_came_is_sent_again() -> None:
    it = Scenario()
    leader = await it.play(FULL)
    leader.world.outcomes.extend(["ok", *["lost"] * 8])  # the status, then the evictions
    await it.play(f"{URGENT} -> 0 pods stop; urgent because Preempting / 9 s -> 0 pods stop / 1 s -> 8 pods stop")


def told(leader: Leader) -> list[tuple[str, str]]:
    """Of which pods it is said why they went, and how."""
    assert {(one["type"], one["reason"], one["reportingComponent"]) for one in leader.world.events} <= {
        ("Warning", "Preempted", "kompakt-scheduler")
    }
    assert all(one["involvedObject"]["uid"] == f"uid-{one['involvedObject']['name']}" for one in leader.world.events)
    return sorted((one["involvedObject"]["name"], one["message"]) for one in leader.world.events)


async def test_the_owner_of_a_pod_sees_why_it_went() -> None:
    leader = await Scenario().play(f"{FULL} / urgent comes 1x2 @1000 -> 2 pods stop")
    words = "evicted for default/urgent, priority 1000; this pod has priority 0"
    assert told(leader) == [("n0-0", words), ("n0-1", words)]
    assert {one["metadata"]["namespace"] for one in leader.world.events} == {"default"}


async def test_the_owner_of_a_pod_of_another_namespace_is_told_a_uid() -> None:
    leader = await Scenario().play(f"n0 / 8 replicas of others on n0 / 300 s; {URGENT} -> 8 pods stop")
    words = "evicted for a job of another namespace (uid uid-urgent), priority 1000; this pod has priority 0"
    assert told(leader) == [(f"n0-{index}", words) for index in range(8)]
    assert {one["metadata"]["namespace"] for one in leader.world.events} == {"others"}
    assert "urgent" not in json.dumps(leader.world.events).replace("uid-urgent", "")


async def test_of_a_pod_that_its_budget_keeps_nothing_is_told() -> None:
    it = Scenario()
    leader = await it.play(FULL)
    leader.world.kept = {f"n0-{index}" for index in range(8)}
    await it.play(f"{URGENT} -> 0 pods stop")
    assert told(leader) == []


async def test_an_eviction_whose_answer_nobody_heard_is_told_when_the_pod_is_seen_to_end() -> None:
    it = Scenario()
    leader = await it.play(FULL)
    leader.world.outcomes.extend(["ok", *["unheard"] * 8])  # the status, then the evictions
    await it.play(f"{URGENT} -> 8 pods stop")
    assert [name for name, _ in told(leader)] == [f"n0-{index}" for index in range(8)]


async def test_an_event_that_the_api_server_did_not_take_goes_with_the_next() -> None:
    it = Scenario()
    leader = await it.play(FULL)
    leader.world.outcomes.extend(["ok", "ok", "ok", "lost", "lost"])  # the status, two evictions, their Events
    await it.play("urgent comes 1x2 @1000 -> 2 pods stop")
    assert told(leader) == []
    await it.play("11 s; other comes 1x1 @1000 -> 3 pods stop")
    assert [name for name, _ in told(leader)] == ["n0-0", "n0-1", "n0-2"]


@pytest.mark.parametrize("priority", [0, 1000], ids=["protected", "of equal priority"])
async def test_a_forged_victim_is_evicted_only_if_it_may_end(priority: int) -> None:
    it = Scenario()
    leader = await it.play("n0")
    run_plain(leader, "n0", 8, priority, controlled=True)
    await it.play(f"200 s; {URGENT} -> urgent Waiting")
    victims = [{"uid": f"uid-n0-{index}", "attempt": 0, "priority": 0} for index in range(8)]
    uuids = [f"GPU-n0-{index}" for index in range(8)]
    leader.world.jobs["urgent"]["status"]["scheduling"] |= {
        "state": "Reserved",
        "victims": victims,
        "victimsSince": "2026-01-31T12:00:00Z",
        "reserved": [{"node": "n0", "gpus": 8, "uuids": uuids}],
    }
    await it.play("urgent is written / another leader / 0 s -> 0 pods stop; urgent Waiting; reserved for nothing")
