"""A gang that could be placed waits for a better level: timers, words, takeovers, rejected nodes."""

import asyncio
from typing import Any

import pytest

from kompakt_core import contract as c
from kompakt_extender.consolidation import ClusterPolicy
from tests.support.extender.leader import Leader, gates
from tests.support.extender.racks import half_full, occupy, on_racks, vacate

FIXED = {"mode": "Fixed", "machineWaitSeconds": 600, "rackWaitSeconds": 1800}


async def waiting() -> Leader:
    """A gang of two times four GPUs waits for one machine: four are free on each."""
    leader = on_racks()
    half_full(leader)
    leader.world.add_gang("j", 2, 4, consolidation=FIXED)
    await leader.settle()
    return leader


async def test_a_gang_waits_for_one_machine_and_says_until_when() -> None:
    leader = await waiting()
    found = leader.scheduling("j")
    assert (found["state"], found["reason"], found["waitsFor"]) == ("Waiting", "WaitingForLevel", "Machine")
    assert (found["placeableSince"], found["until"]) == ("2026-01-31T12:00:00Z", "2026-01-31T12:10:00Z")
    assert found["message"].startswith("waits for one machine until 12:10:00Z; now there is room only in one rack")
    assert all(gates(leader.world, f"j-worker-{index}-a1") for index in range(2))
    sent = len(leader.world.sent)
    leader.wait(599)
    await leader.settle()
    assert len(leader.world.sent) == sent, "nothing is written while nothing changes"


async def test_it_is_placed_at_once_when_a_machine_becomes_free() -> None:
    leader = await waiting()
    leader.wait(60)
    vacate(leader, "b1", 4)
    await leader.settle()
    found = leader.scheduling("j")
    assert (found["state"], found["plan"]["level"]) == ("Released", "Machine")
    assert {seat["node"] for seat in found["plan"]["pods"]} == {"b1"}
    assert "until" not in found
    assert "waitsFor" not in found


async def test_it_relaxes_when_its_timer_runs_out_although_nothing_else_happens() -> None:
    leader = await waiting()
    leader.wait(600)
    await leader.plan()  # no watch delivered anything
    assert (leader.scheduling("j")["state"], leader.scheduling("j")["plan"]["level"]) == ("Released", "Rack")


async def test_the_loop_wakes_by_itself_at_the_earliest_timer() -> None:
    leader = on_racks()
    half_full(leader)
    for name, seconds in (("late", 630), ("early", 600)):
        leader.world.add_gang(name, 2, 4, consolidation={"mode": "Fixed", "machineWaitSeconds": seconds})
    await leader.settle()
    assert leader.planner._pause() == 1.0, "a look each second at least"
    leader.wait(599.8)
    assert leader.planner._pause() == pytest.approx(0.2)
    leader.planner.start()
    leader.run_clock()
    while leader.scheduling("early")["state"] != "Released":
        await asyncio.sleep(0.01)
    leader.planner.stop()
    assert leader.scheduling("late")["state"] == "Waiting"


async def test_timers_go_on_after_a_takeover() -> None:
    leader = await waiting()
    successor = Leader(leader.world)
    successor.wait(599)
    successor.take_over()
    await successor.settle()
    assert (successor.scheduling("j")["state"], successor.scheduling("j")["until"]) == ("Waiting", "2026-01-31T12:10:00Z")
    late = Leader(leader.world)
    late.wait(5000)  # the timer ran out while nobody decided
    late.take_over()
    await late.plan()
    assert late.scheduling("j")["plan"]["level"] == "Rack"


async def test_timers_begin_when_the_gang_could_first_be_placed() -> None:
    leader = on_racks()
    for node in ("a0", "a1", "b0", "b1"):
        occupy(leader, node, 8)
    leader.world.add_gang("j", 2, 4, consolidation=FIXED)
    await leader.settle()
    assert "placeableSince" not in leader.scheduling("j")
    leader.wait(3600)
    for node in ("a0", "a1"):
        vacate(leader, node, 4)
    await leader.settle()
    found = leader.scheduling("j")
    assert found["waitingSince"] == "2026-01-31T12:00:00Z"
    assert (found["placeableSince"], found["until"]) == ("2026-01-31T13:00:00Z", "2026-01-31T13:10:00Z")


async def test_the_level_that_is_waited_for_may_become_a_wider_one() -> None:
    leader = on_racks()
    half_full(leader, "a0", "b0")
    occupy(leader, "a1", 8)
    occupy(leader, "b1", 8)
    leader.world.add_gang("j", 2, 4, consolidation=FIXED)
    await leader.settle()
    found = leader.scheduling("j")
    assert (found["waitsFor"], found["until"]) == ("Rack", "2026-01-31T12:30:00Z")
    assert "across the whole cluster" in found["message"]
    leader.wait(1800)
    await leader.plan()
    assert leader.scheduling("j")["plan"]["level"] == "Cluster"


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


async def test_a_job_may_leave_the_clusters_policy() -> None:
    leader = on_racks(ClusterPolicy("fixed"))
    half_full(leader)
    leader.world.add_gang("hasty", 2, 4, consolidation={"mode": "NoWait"})
    leader.world.add_gang("proud", 2, 4, consolidation={"mode": "NeverRelax"})
    await leader.settle()
    assert leader.scheduling("hasty")["plan"]["level"] == "Rack"
    assert leader.scheduling("proud")["message"].startswith("waits for one machine however long it takes")
    leader.wait(10**6)
    await leader.settle()
    assert leader.scheduling("proud")["state"] == "Waiting"


async def test_who_waits_for_a_level_holds_nothing_and_others_pass() -> None:
    leader = on_racks()
    half_full(leader)
    leader.world.add_gang("patient", 2, 4, consolidation={"mode": "NeverRelax"})
    await leader.settle()
    leader.wait(1)
    for number in range(4):
        leader.world.add_gang(f"small-{number}", 1, 4)
    await leader.settle()
    assert {leader.scheduling(f"small-{number}")["state"] for number in range(4)} == {"Released"}


async def test_a_node_that_kube_scheduler_rejects_leads_to_a_new_plan_elsewhere_and_not_to_a_new_wait() -> None:
    leader = on_racks()
    half_full(leader, "a0", "a1", "b0")
    leader.world.add_gang("j", 2, 4, consolidation={**FIXED, "machineWaitSeconds": 300})
    await leader.settle()
    assert {seat["node"] for seat in leader.scheduling("j")["plan"]["pods"]} == {"b1"}
    leader.wait(121)  # nobody binds it there
    await leader.settle()
    found = leader.scheduling("j")
    assert [one["node"] for one in found["excludedNodes"]] == ["b1"]
    assert (found["waitsFor"], found["until"]) == ("Machine", "2026-01-31T12:07:01Z"), "timers begin with the first refusal"
    leader.wait(300)
    await leader.plan()
    assert {seat["node"] for seat in leader.scheduling("j")["plan"]["pods"]} == {"a0", "a1"}


async def test_two_gangs_that_each_need_all_never_hold_a_part_each() -> None:
    """A and B want both machines of the one rack that is left; whoever comes first gets both, the other nothing."""
    leader = on_racks()
    for node in ("b0", "b1"):
        occupy(leader, node, 8)
    for name in ("a", "b"):
        leader.world.add_gang(name, 2, 8, consolidation=FIXED)
    await leader.settle()
    states = {name: leader.scheduling(name)["state"] for name in "ab"}
    assert states == {"a": "Released", "b": "Waiting"}
    assert all(gates(leader.world, f"b-worker-{index}-a1") for index in range(2))
    for index in range(2):
        assert await leader.bind(f"a-worker-{index}-a1", leader.scheduling("a")["plan"]["pods"][index]["node"]) == ""
        leader.world.finish_pod(f"a-worker-{index}-a1")
    leader.world.jobs["a"]["status"]["conditions"].append({"type": "Complete", "status": "True"})
    leader.world.put("jobs", "a", leader.world.jobs["a"])
    await leader.settle()
    assert leader.scheduling("b")["state"] == "Released"


async def test_a_level_required_is_never_left_though_the_timers_run_out() -> None:
    leader = on_racks()
    half_full(leader)
    leader.world.add_gang("j", 2, 4, consolidation=FIXED)
    leader.world.jobs["j"]["spec"]["placement"]["requiredLevel"] = "Machine"
    leader.world.put("jobs", "j", leader.world.jobs["j"])
    await leader.settle()
    leader.wait(10**5)
    await leader.settle()
    assert leader.scheduling("j")["state"] == "Waiting"
    assert "not within the level Machine" in leader.scheduling("j")["message"]
