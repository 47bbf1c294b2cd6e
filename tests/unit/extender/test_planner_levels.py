"""A gang that could be placed waits for a better level; later ones may pass it, but not without end."""

import asyncio
from typing import Any

import msgspec
import pytest

from kompakt_core import contract as c
from kompakt_core.ids import NodeName
from kompakt_core.placement.model import Reason
from kompakt_extender.consolidation import ClusterPolicy
from kompakt_extender.objects import Pod
from kompakt_extender.wire import ExtenderArgs
from tests.support.extender.leader import gates
from tests.support.extender.made_objects import pod
from tests.support.extender.racks import half_full, on_racks
from tests.support.extender.scenario import Scenario, played

HALF_FULL = "racks / 4 pods on a0+a1+b0+b1"
WAITING = f"{HALF_FULL} / j comes 2x4 Fixed"  # for one machine: four GPUs are free on each
# Three gangs of two GPUs come before one that needs a whole machine: then GPUs of b0 are reserved for it.
OVERTAKEN = """racks with fixed 3 / 4 pods on a0+a1+b0+b1 / big comes 2x4 NeverRelax
    1 s; s0 comes 1x2 of-others -> s0 Released; big overtaken 1
    1 s; s1 comes 1x2 of-others -> s1 Released; big Waiting
    1 s; s2 comes 1x2 of-others -> s2 Released; big Reserved; big says 8 GPUs of b0 are reserved for it; reserved for big"""
OTHERS_FULL = f"{OVERTAKEN} / 8 pods on a0+a1+b1"
STUCK = f"{OVERTAKEN} / s0 is bound; s1 is bound; s2 is bound / 8 pods on a0+a1+b1"
SCENARIOS = {
    "a gang waits for one machine and says until when": f"""{WAITING}
        -> j Waiting; j because WaitingForLevel; j waits for Machine; j placeableSince 12:00:00; j until 12:10:00
        -> j says waits for one machine until 12:10:00Z
        599 s -> j Waiting; quiet""",
    "it is placed at once when a machine becomes free": f"""{WAITING} / 60 s; 4 pods leave b1
        -> j Released; j at Machine; j on b1; j waits for no level""",
    "it relaxes when its timer runs out although nothing else happens": f"{WAITING} / 600 s -> j Released; j at Rack",
    "timers go on after a takeover": f"""{WAITING} / 599 s; another leader -> j Waiting; j until 12:10:00
        1 s -> j at Rack""",
    "a timer may run out while nobody decides": f"{WAITING} / 5000 s; another leader -> j at Rack",
    "timers begin when the gang could first be placed": """racks / 8 pods on a0+a1+b0+b1
        j comes 2x4 Fixed -> j was never placeable
        3600 s; 4 pods leave a0; 4 pods leave a1 -> j waitingSince 12:00:00; j placeableSince 13:00:00; j until 13:10:00""",
    "the level that is waited for may become a wider one": """racks / 4 pods on a0+b0; 8 pods on a1+b1
        j comes 2x4 Fixed -> j waits for Rack; j until 12:30:00; j says across the whole cluster
        1800 s -> j at Cluster""",
    "a job may leave the cluster's policy": """racks with fixed / 4 pods on a0+a1+b0+b1
        hasty comes 2x4 NoWait; proud comes 2x4 NeverRelax -> hasty at Rack; proud says waits for one machine however long
        1000000 s -> proud Waiting""",
    "who waits for a level holds nothing and others pass": f"""{HALF_FULL} / patient comes 2x4 NeverRelax
        1 s; s0 comes 1x4; s1 comes 1x4; s2 comes 1x4; s3 comes 1x4 -> s0 Released; s1 Released; s2 Released; s3 Released""",
    "a node on which nobody binds leads to a new plan elsewhere and not to a new wait": """racks / 4 pods on a0+a1+b0
        j comes 2x4 Fixed-300 -> j on b1
        121 s -> j leaves out b1; j waits for Machine; j until 12:07:01
        300 s -> j on a0+a1""",
    "of two gangs that each need all whoever comes first gets all, and the other nothing": """racks / 8 pods on b0+b1
        a comes 2x8 Fixed; b comes 2x8 Fixed -> a Released; b Waiting
        a is bound; a completes -> b Released""",
    "a required level is never left though the timers run out": f"""{HALF_FULL} / j comes 2x4 on-one-machine
        100000 s -> j Waiting; j says not within the level Machine""",
    "GPUs that are reserved by count serve the gang as they become free, and nobody else": f"""{OTHERS_FULL}
        4 pods leave b0; s0 completes; s1 completes; s2 completes; s9 comes 1x2
        -> big Released; big on b0; s9 Waiting; reserved for nothing""",
    "counts outlive a takeover": f"{OVERTAKEN} / another leader -> big Reserved; big says 8 GPUs of b0; reserved for big",
    "counts end with their job": f"{OVERTAKEN} / big is suspended -> reserved for big / big is gone -> reserved for nothing",
    "those for whom they are not hear that they are kept": f"""{STUCK} / 2 pods leave b0; s9 comes 1x2
        -> s9 Waiting; s9 says kept for a gang that waits longer; big Reserved""",
    "jobs of its own namespace do not overtake a gang": """racks with fixed 1 / 4 pods on a0+a1+b0+b1 / big comes 2x4 NeverRelax
        1 s; s0 comes 1x2; s1 comes 1x2 -> s0 Released; s1 Released; big overtaken 0; big Waiting; reserved for nothing""",
    "counts fall when none of them has become free for so long": f"""{STUCK}
        -> big until 13:00:03; big says until 2026-01-31T13:00:03Z
        3599 s -> big Reserved / 1 s -> big Waiting; big overtaken 0; reserved for nothing; quiet
        s9 comes 1x2; 1 pod leaves b0 -> big Waiting""",
    "each GPU that becomes free gives the rest as long again": f"""{STUCK} / 1800 s; 1 pod leaves b0
        -> big until 13:30:03 / 1800 s -> big Reserved / 1800 s -> big Waiting""",
    "a GPU that comes and goes does not": f"""{STUCK} / 1800 s; 2 pods leave b0 -> big until 13:30:03
        above comes 1x2 @1 / above is bound -> big Reserved / 60 s; above completes -> big until 13:30:03""",
    "the moment at which counts fall outlives a takeover": f"""{STUCK} / 1800 s; another leader
        -> big until 13:00:03 / 1799 s -> big Reserved / 1 s -> big Waiting; reserved for nothing""",
    "a node that has too few healthy GPUs now is given up": f"""{OVERTAKEN} / GPU 0 of b0 breaks
        -> big Reserved; big says 8 GPUs of b1""",
    "GPUs are reserved by count for one gang at a time": """racks with fixed 3 / 4 pods on a0+a1+b0+b1
        also comes 2x4 NeverRelax / big comes 2x4 NeverRelax / 1 s; s0 comes 1x2 of-others
        1 s; s1 comes 1x2 of-others / 1 s; s2 comes 1x2 of-others
        -> also Reserved; big Waiting; reserved for also; quiet""",
    "counts are free for a gang of higher priority, and reserved again after it": f"""{OTHERS_FULL} / 2 pods leave b0
        equal comes 1x2; above comes 1x2 @1 -> equal Waiting; above Released; big Reserved
        above is bound; above completes -> equal Waiting; big Reserved""",
    "who is overtaken while it is written about counts that": """n0 / 4 pods on n0; big is held; big comes 1x8
        1 s; small comes 1x4 of-others / big is answered -> small Released; big overtaken 1""",
}


@pytest.mark.parametrize("text", SCENARIOS.values(), ids=SCENARIOS.keys())
async def test_how_long_a_gang_waits_for_a_level(text: str) -> None:
    await played(text)


async def test_a_gang_that_waits_for_a_level_keeps_its_gates() -> None:
    leader = await played(WAITING)
    assert all(gates(leader.world, f"j-worker-{index}-a1") for index in range(2))


async def test_gpus_that_become_free_on_a_reserved_node_go_to_no_plain_pod() -> None:
    leader = await played(f"{OTHERS_FULL} / 1 pod leaves b0; s9 comes 1x2 -> s9 Waiting")
    state = leader.ledger.state(NodeName("b0"))
    assert state is not None
    assert state.free == 0


async def test_a_plain_pod_hears_that_free_gpus_are_kept_for_a_gang() -> None:
    leader = await played(f"{STUCK} / 2 pods leave b0")
    args = ExtenderArgs(msgspec.convert(pod("plain"), Pod), ["a0", "b0"], None)
    rejected = leader.answers.filter(args).rejected
    assert {name: one.reason for name, one in rejected.items()} == {"a0": Reason.NOT_ENOUGH_GPUS, "b0": Reason.RESERVED}
    assert "kept for a gang" in leader.queries.node("b0")().why_not[0].message


async def test_counts_that_do_not_add_up_to_the_gangs_gpus_are_not_believed() -> None:
    scenario = Scenario()
    leader = await scenario.play(OVERTAKEN)
    status = leader.world.jobs["big"]["status"]["scheduling"]
    status |= {"reserved": [{"node": "a0", "gpus": 8}, {"node": "b0", "gpus": 8}], "until": "2099-01-31T12:00:00Z"}
    await scenario.play("another leader -> big says 8 GPUs of b0; big until 13:00:03")


async def test_a_gang_that_waits_for_the_reservation_of_another_does_not_ask_again_and_again() -> None:
    leader = await played(SCENARIOS["GPUs are reserved by count for one gang at a time"])
    leader.planner._wake.clear()
    await leader.plan()
    assert not leader.planner._wake.is_set()


async def test_the_explain_api_answers_about_a_gang_with_reserved_gpus_as_about_a_waiting_one() -> None:
    leader = await played(OVERTAKEN)
    answer = leader.queries.job("default", "big")()
    assert answer.scheduling["state"] == "Reserved"
    assert answer.fits > 0, "a waiting job's answer counts the nodes that could take one worker"
    assert "8 GPUs of b0 are reserved for it" in leader.queries.pod("default", "big-worker-0-a1")().message


async def test_the_loop_wakes_by_itself_at_the_earliest_timer() -> None:
    leader = on_racks()
    half_full(leader)
    for name, seconds in (("late", 630), ("early", 600)):
        leader.world.add_gang(name, 2, 4, consolidation={"mode": "Fixed", "machineWaitSeconds": seconds})
    await leader.settle()
    assert leader.planner._pause() == 1.0, "each second at least"
    leader.wait(599.8)
    assert leader.planner._pause() == pytest.approx(0.2)
    leader.planner.start()
    leader.run_clock()
    while leader.scheduling("early")["state"] != "Released":
        await asyncio.sleep(0.01)
    leader.planner.stop()
    assert leader.scheduling("late")["state"] == "Waiting"


def left(seconds: int) -> dict[str, dict[str, Any]]:
    return {"status": {"progress": {"remainingSeconds": seconds}}}


def measured(word: str, share: str | None) -> dict[str, dict[str, Any]]:
    """A job that says so of its sensitivity, and what was measured of its communication."""
    profile = {} if share is None else {"communication": share}
    return {"spec": {"communication": {"bandwidthSensitivity": word}}, "status": {"profile": profile}}


LOSS = {"status": {"progress": {"loss": "0.1"}}}
KOMPAKT = ClusterPolicy("kompakt")


@pytest.mark.parametrize(
    ("policy", "on_pods", "job", "until"),
    [
        pytest.param(KOMPAKT, "High", {}, "12:28:30", id="kompakt, High: an hour x 0.5 x (1 - 0.05)"),
        pytest.param(KOMPAKT, "Auto", {}, "12:08:33", id="kompakt, Auto"),
        pytest.param(KOMPAKT, "Low", {}, None, id="kompakt, Low: not at all"),
        pytest.param(ClusterPolicy("no-wait"), "High", {}, None, id="no-wait: not at all"),
        pytest.param(ClusterPolicy("fixed"), "Low", {}, "12:10:00", id="fixed: whatever the sensitivity"),
        pytest.param(ClusterPolicy("never-relax"), "Low", {}, "", id="never-relax: without end"),
        pytest.param(KOMPAKT, "High", left(36000), "16:45:00", id="ten hours are left x 0.5 x (1 - 0.05)"),
        pytest.param(KOMPAKT, "High", left(60), "12:00:29", id="a minute is left"),
        pytest.param(KOMPAKT, "High", left(1 << 53), "2026-07-24T08:24:00Z", id="no more than a year is believed"),
        pytest.param(KOMPAKT, "High", LOSS, "12:28:30", id="an hour, as nobody knows what is left"),
        pytest.param(KOMPAKT, "High", measured("Auto", "0.2"), "12:11:24", id="measured: an hour x 0.2 x (1 - 0.05)"),
        pytest.param(KOMPAKT, "High", measured("Auto", None), "12:28:30", id="not measured: as the word on the pods says"),
        pytest.param(KOMPAKT, "High", measured("High", "0.2"), "12:28:30", id="the job's own word counts before that"),
        pytest.param(KOMPAKT, "High", measured("Auto", "a lot"), "12:28:30", id="what is no number was not measured"),
        pytest.param(KOMPAKT, "High", measured("Auto", "0"), None, id="measured to say nothing: not at all"),
    ],
)
async def test_until_when_a_gang_waits_for_one_machine(
    policy: ClusterPolicy, on_pods: str, job: dict[str, dict[str, Any]], until: str | None
) -> None:
    leader = on_racks(policy)
    half_full(leader)
    leader.world.add_gang("j", 2, 4)
    for part, more in job.items():
        leader.world.jobs["j"][part] |= more
    leader.world.put("jobs", "j", leader.world.jobs["j"])
    for index in range(2):
        made = leader.world.pods[f"j-worker-{index}-a1"]
        made["metadata"]["annotations"][c.ANN_SENSITIVITY] = on_pods
        leader.world.add_pod(made)
    await leader.settle()
    found = leader.scheduling("j")
    assert (found["state"], found.get("waitsFor")) == (("Released", None) if until is None else ("Waiting", "Machine"))
    assert found.get("until", "") == (f"2026-01-31T{until}Z" if until and "T" not in until else until or "")
