"""A gang of higher priority gets the GPUs of gangs of lower priority: reserved, written down, asked for, in this order."""

import json

import pytest

from kompakt_core import contract as c
from kompakt_core.contract import timestamps
from kompakt_core.contract.scheduling_record import Victim
from kompakt_extender.consolidation import ClusterPolicy
from tests.support.extender.preempting import PROTECTED, request, touch, urgent
from tests.support.extender.scenario import Scenario, played

FULL_NODE = "n0 / low runs 2x4 / 300 s"
URGENT = f"{FULL_NODE} / urgent comes 2x4 @1000"
TWO_NODES = "n0 n1 / low-0 runs 2x4 / low-1 runs 2x4 / 300 s"
PLACED = "n0 / low comes 2x4 / low is bound"  # and its containers never start
SCENARIOS = {
    "its GPUs go to the urgent gang and to nobody else": f"""{URGENT}
        -> urgent Reserved; urgent because Preempting; low asked by urgent; low Released; reserved for urgent
        low ends; late comes 2x4 -> urgent Released; urgent has what low had; late Waiting; reserved for nothing""",
    "equal priority stays": "n0 / other runs 2x4 @1000 / 300 s; urgent comes 2x4 @1000 -> urgent Waiting; other not asked",
    "higher priority stays": "n0 / other runs 2x4 @2000 / 300 s; urgent comes 2x4 @1000 -> urgent Waiting; other not asked",
    "preemptionPolicy Never is honoured": f"{FULL_NODE} / urgent comes 2x4 @1000 polite -> urgent Waiting; low not asked",
    "bare pods are not ended": "n0 / 8 pods on n0 / 300 s; urgent comes 2x4 @1000 -> urgent Waiting; reserved for nothing",
    "nobody is asked before its minimum run time, and the moment is told and kept": """n0 / low runs 2x4
        240 s; urgent comes 2x4 @1000 -> urgent says may be ended for it from 2026-01-31T12:05:00Z on; timer at 12:05:00
        59 s -> low not asked
        1 s -> low asked by urgent""",
    "a preempted job runs its minimum run time again before it is asked again": f"""{FULL_NODE} / first comes 2x4 @1000
        low ends / first completes; low comes back / low runs again -> low not asked
        second comes 2x4 @1000 -> low not asked
        300 s -> low asked by second""",
    "a request is taken back when the urgent job is gone": f"{URGENT} / urgent is deleted -> low not asked; low Released",
    "a request is taken back when the urgent job finds another place": """n0 n1 / low runs 2x4
        8 pods on n1; 300 s; urgent comes 2x4 @1000 -> low asked by urgent
        8 pods leave n1 -> urgent on n1; low not asked; reserved for nothing""",
    "a victim that ends by itself needs no request": f"{URGENT} / low completes -> urgent Released; low not asked",
    "two urgent gangs get two victims, and one is not asked for both": f"""{TWO_NODES}
        first comes 2x4 @1000; second comes 2x4 @1000 -> reserved for first+second
        low-0 ends; low-1 ends -> first Released; second Released""",
    "a node that is lost meanwhile ends the reservation": f"""{URGENT}
        n0 turns -> urgent Waiting; low not asked; reserved for nothing""",
    "a gang that waits for one machine has nobody ended for less": """racks with kompakt / 4 pods on a0+a1+b0+b1
        low-a runs 1x4 / low-b runs 1x4 / low-c runs 1x4 / low-d runs 1x4
        300 s; urgent comes 2x4 @1000 -> urgent Waiting; low-a not asked; low-b not asked; low-c not asked; low-d not asked
        4 pods leave a0 -> urgent because Preempting; low-a asked by urgent; low-b not asked; low-c not asked""",
    "ten minutes after a node failed the gang it counts again, and a gang on it may end": """n0 / low runs 2x4
        urgent comes 2x4 @2000; n0 fails urgent; 599 s -> urgent Waiting; low not asked
        1 s -> urgent because Preempting; low asked by urgent
        low ends -> urgent Released; reserved for nothing""",
    # The better half of the machine's GPUs is free, but there are too few processors for it.
    "GPUs that are free are reserved too while a victim gives back processors": """n0 / short runs 1x4 / low comes 1x4 heavy
        low is bound / low starts / short completes
        300 s; urgent comes 1x4 @1000 heavy -> low asked by urgent; urgent because Preempting; quiet
        low ends -> urgent has what short had; reserved for nothing""",
    # A gang that has its places and does not run, because its image cannot be pulled, say.
    "one that never ran is ended when its minimum run time since the release is over": f"""{PLACED}
        299 s; urgent comes 2x4 @1000 -> low not asked; urgent says may be ended for it from
        1 s -> low asked by urgent
        low ends -> urgent Released; urgent has what low had; reserved for nothing""",
    "so is one that runs no more": f"""{PLACED}
        low starts / low starts no more; 299 s; urgent comes 2x4 @1000 -> low not asked
        1 s -> low asked by urgent""",
    "once it runs its minimum run time begins": f"""{PLACED} / 299 s; low starts; urgent comes 2x4 @1000
        299 s -> low not asked
        1 s -> low asked by urgent""",
    "one that is suspended anyway is not asked": f"""{PLACED}
        300 s; low is suspended; urgent comes 2x4 @1000 -> low not asked""",
    "nor one that lost a pod": f"{PLACED} / 300 s; a pod of low is gone; urgent comes 2x4 @1000 -> low not asked",
    "nor one of which a pod stops": f"{PLACED} / 300 s; a pod of low stops; urgent comes 2x4 @1000 -> low not asked",
    "one that is not wholly bound is withdrawn and not ended": """n0 / low comes 2x4 brief / low is bound by 1
        60 s; urgent comes 2x4 @1000 -> low not asked
        60 s -> low Withdrawn; low not asked""",
    # What is reserved for a gang is free for one of strictly higher priority, and the other is planned anew.
    "a still more urgent gang gets the victim of the other": f"""{URGENT} / most comes 2x4 @2000
        -> most because Preempting; low asked by most; urgent Waiting; reserved for most; quiet
        low ends; low comes back -> most Released; most has what low had; urgent Waiting; low Waiting; reserved for nothing""",
    "a victim is asked for the other without being told to go on in between": f"""{URGENT}
        most is held; most comes 2x4 @2000 -> low asked by urgent
        0 s -> low asked by urgent
        most is answered -> low asked by most""",
    "a higher one gets the GPUs of a victim that stops while it is written about": f"""{URGENT} / low stops
        most is held; most comes 2x4 @2000 / low is gone -> urgent Reserved
        most is answered -> most Released; urgent Waiting""",
    "a higher one gets the GPUs of a victim that stops while it is planned": f"""{URGENT} / low stops
        most comes 2x4 @2000; meanwhile low is gone -> most Released; urgent Waiting""",
    "GPUs that are free already are taken, and who need not end goes on": f"""{TWO_NODES}
        urgent comes 2x8 @1000 -> low-0 asked by urgent; low-1 asked by urgent
        low-0 ends; most comes 2x4 @2000 -> most has what low-0 had; urgent Waiting; low-1 not asked; reserved for nothing""",
    "also by one that never ends others": f"""{TWO_NODES} / urgent comes 2x8 @1000
        low-0 ends; most comes 2x4 @2000 polite -> most has what low-0 had; urgent Waiting; low-1 not asked""",
    "equal and lower priorities do not get what is reserved": f"""{TWO_NODES} / urgent comes 2x8 @1000
        low-0 ends; equal comes 2x4 @1000; lower comes 2x4 @999 -> equal Waiting; lower Waiting; urgent because Preempting
        low-1 ends -> urgent Released; equal Waiting; lower Waiting""",
    "nobody else ends where the GPUs of the other's victim are enough": """n0 n1
        low-0 runs 2x4 / 1 s / low-1 runs 2x4 @500
        300 s; urgent comes 2x4 @1000 -> low-0 asked by urgent; low-1 not asked
        most comes 2x4 @2000 -> low-0 asked by most; low-1 asked by urgent""",
    # Reserved GPUs are given back in the end, whoever dies in between.
    "a victim that never stops does not keep the free GPUs from others": f"""{TWO_NODES} / urgent comes 2x8 @1000
        low-0 ends; a pod of low-1 stops; equal comes 2x4 @1000
        3599 s -> urgent because Preempting; equal Waiting
        1 s -> urgent Waiting; urgent because Waiting; equal Released; reserved for nothing""",
    "of two gangs that the same GPUs are written for the later one keeps them": f"""{TWO_NODES} / first comes 2x8 @2000
        1 s; second comes 2x4 @1000; n1 turns; first is held -> first because Preempting; second because Preempting
        another leader; first is answered -> low-0 asked by second; low-1 not asked; first Waiting; reserved for second""",
    "a victim that came back on reserved GPUs ends the reservation": f"""{TWO_NODES}
        urgent comes 2x8 @1000 -> low-0 asked by urgent; low-1 asked by urgent
        urgent is held; low-0 ends; low-0 comes back; n1 turns -> low-0 Released; urgent because Preempting
        low-0 is bound; n1 turns; another leader; urgent is answered -> reserved for nothing; low-1 not asked""",
    "a plan that is being written stands, though another takes what was reserved before": """n0 n1 / low runs 2x4
        8 pods on n1; 300 s; urgent comes 2x4 @1000 -> reserved for urgent
        urgent is held; 8 pods leave n1 / most comes 2x4 @2000 -> reserved for most
        urgent is answered -> urgent Released; most because Preempting""",
    "a reservation that another takes while it is written does not come back": f"""{FULL_NODE}
        urgent is held; urgent comes 2x4 @1000 -> reserved for urgent
        most comes 2x4 @2000 -> reserved for most
        urgent is answered -> urgent Waiting; most because Preempting; reserved for most""",
    "a gang that loses its reservation while that is written is not passed by one behind it": """n0 n1 / low runs 1x8
        4 pods on n1; 300 s; urgent is held; urgent comes 3x4 @1000 -> reserved for urgent
        most comes 1x8 @2000; small comes 1x4 -> reserved for most; small Waiting""",
}


@pytest.mark.parametrize("text", SCENARIOS.values(), ids=SCENARIOS.keys())
async def test_who_is_preempted_for_whom(text: str) -> None:
    await played(text)


async def test_a_victim_is_told_for_whom_it_ends_and_the_other_whom_it_waits_for() -> None:
    leader = await played(URGENT)
    message = leader.scheduling("urgent")["message"]
    assert "1 running job is ended for it, of lower priority: default/low; 8 GPUs are reserved for it" in message
    asked = request(leader, "low")
    assert (asked.attempt, asked.name, asked.uid) == (1, "urgent", "uid-urgent")
    assert asked.message == "for default/urgent, priority 1000; this job has priority 0"
    assert asked.requested_at == timestamps.encode(leader.now)
    assert {"type": "PreemptionRequested", "status": "True"}.items() <= leader.world.jobs["low"]["status"]["conditions"][
        -1
    ].items()
    assert leader.metrics.registry.get_sample_value("kompakt_planner_preemptions_total") == 1


async def test_across_namespaces_both_are_told_uids_and_numbers_only() -> None:
    leader = await played(FULL_NODE)
    urgent(leader, namespace="other")
    await leader.settle()
    waiting = leader.scheduling("urgent")
    assert waiting["victims"] == [{"uid": "uid-low", "attempt": 1, "priority": 0}]
    assert "of lower priority: a job of another namespace (uid uid-low); 8 GPUs" in waiting["message"]
    asked = leader.scheduling("low")["preempt"]
    assert asked["for"] == {"uid": "uid-urgent", "priority": 1000}
    assert asked["message"] == "for a job of another namespace (uid uid-urgent), priority 1000; this job has priority 0"
    for name, stranger in (("low", "urgent"), ("urgent", "low")):
        told = json.dumps(leader.world.jobs[name]["status"]).replace(f"uid-{stranger}", "")
        assert f"/{stranger}" not in told
        assert f'"{stranger}"' not in told


async def test_across_namespaces_a_preemption_goes_on_whatever_changes_and_whoever_leads() -> None:
    it = Scenario()
    leader = await it.play(f"{FULL_NODE} / urgent comes 2x4 @1000 of-others -> urgent because Preempting")
    began = leader.scheduling("urgent")["victimsSince"]
    leader.wait(20)
    leader.world.add_node("small", "rtx-2-ns")
    for change in ("0 s", "another leader / 0 s"):
        await it.play(change)
        assert it.leader.scheduling("urgent")["victimsSince"] == began


async def test_a_victim_is_the_same_by_whatever_name_it_goes() -> None:
    """A job of its own namespace names it, one of another does not; the lower of the two gives it up, whatever its GPUs are."""
    leader = await played(URGENT)
    assert leader.scheduling("urgent")["victims"][0]["name"] == "low"
    leader.planner._preempting.take_over(2000, set(), [Victim("", "", "uid-low", 1, 0)])
    assert not leader.ledger.reserved.exact


async def test_the_reservation_is_written_before_the_request() -> None:
    leader = await played(FULL_NODE)
    urgent(leader)
    leader.world.sent.clear()
    await leader.settle()
    assert [path.split("/")[-2] for _, path in leader.world.sent if path.endswith("/status")] == ["urgent", "low"]


async def test_it_can_be_switched_off_also_while_a_job_is_asked() -> None:
    scenario = Scenario()
    await scenario.play(URGENT)
    scenario.policy = ClusterPolicy("no-wait", preemption=False)
    await scenario.play("another leader -> urgent Waiting; low not asked; reserved for nothing")


@pytest.mark.parametrize("writes", [0, 1, 2], ids=["before the reservation", "between reservation and request", "after both"])
async def test_a_new_leader_goes_on_where_the_old_one_was(writes: int) -> None:
    scenario = Scenario()
    leader = await scenario.play(FULL_NODE)
    urgent(leader)
    leader.see()
    leader.world.sent.clear()
    while len([1 for _, path in leader.world.sent if path.endswith("/status")]) < writes:
        await leader.plan()
    scenario.another_leader()
    assert bool(scenario.leader.ledger.reserved.exact) == (writes > 0)
    await scenario.play("0 s -> low asked by urgent; urgent because Preempting")
    await scenario.play("low ends -> urgent Released")


async def test_nobody_is_asked_as_long_as_the_reservation_does_not_stand_written() -> None:
    """The waiting job changes while core plans, so that the first write of the reservation is refused."""
    leader = await played(FULL_NODE)
    leader.planner._at_once = 50  # the write is not sent before the cycle has ended
    urgent(leader)
    leader.see()
    leader.meanwhile += [lambda: None, lambda: touch(leader, "urgent")]  # core seeks a place first, then victims
    await leader.planner.run_cycle()
    touch(leader, "low")
    leader.world.deliver(leader.handlers, leader.readers)
    while leader.planner.busy:
        await leader.plan()
        assert request(leader, "low") is None or leader.scheduling("urgent").get("reason") == "Preempting"
    assert leader.scheduling("urgent") == {}, "refused: the job is newer than what was decided about"
    assert request(leader, "low") is None
    await leader.settle()
    assert request(leader, "low") is not None


async def test_a_gang_asks_as_its_least_important_pod_and_keeps_reserved_gpus_as_its_most_important_one() -> None:
    leader = await played(URGENT)
    urgent(leader, "mixed", priority=2000)
    leader.world.pods["mixed-worker-1-a1"]["spec"]["priority"] = 1000
    leader.world.add_pod(leader.world.pods["mixed-worker-1-a1"])
    await leader.settle()
    assert (leader.scheduling("mixed")["state"], request(leader, "low").name) == ("Waiting", "urgent")


async def test_a_waiting_gang_is_planned_again_once_the_record_of_another_says_that_it_may_be_ended() -> None:
    """All pods of a withdrawn plan were bound after all: nothing but the record changes when it stands again."""
    leader = await played("n0\n low comes 2x4")
    leader.wait(PROTECTED)
    began = leader.jobs.preemption_version
    for index in range(2):  # bound, but the watch is behind
        node = leader.annotations(f"low-worker-{index}-a1")[c.ANN_PLANNED_NODE]
        assert await leader.bind(f"low-worker-{index}-a1", node) == ""
        leader.world.report("n0")
        reports = [news for news in leader.world.news if news[0] == "topologies"]
        leader.world.news.extendleft(reports)
        leader.see(len(reports))
    assert not any(pod.node for pod in leader.jobs.pods_of("uid-low"))
    await leader.planner.run_cycle()  # takes the plan back
    urgent(leader)
    await leader.settle()
    assert leader.scheduling("low")["state"] == "Released"
    assert leader.jobs.preemption_version > began
    assert timestamps.decode(leader.scheduling("low")["plan"]["releasedAt"]) < leader.now
    assert request(leader, "low").name == "urgent"
