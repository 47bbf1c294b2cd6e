"""A gang that could be placed waits for a better level: timers, words, takeovers, rejected nodes."""

import asyncio

import pytest

from kompakt_extender.consolidation import ClusterPolicy
from tests.support.extender.office import Office, gates
from tests.support.extender.racks import half_full, occupy, on_racks

FIXED = {"mode": "Fixed", "machineWaitSeconds": 600, "rackWaitSeconds": 1800}


async def test_a_gang_waits_for_one_machine_and_says_until_when() -> None:
    office = on_racks()
    half_full(office)
    office.world.add_gang("j", 2, 4, consolidation=FIXED)
    await office.settle()
    found = office.scheduling("j")
    assert (found["state"], found["reason"], found["waitsFor"]) == ("Waiting", "WaitingForLevel", "Machine")
    assert (found["placeableSince"], found["until"]) == ("2026-01-31T12:00:00Z", "2026-01-31T12:10:00Z")
    assert found["message"].startswith("waits for one machine until 12:10:00Z; now there is room only in one rack")
    assert all(gates(office.world, f"j-worker-{index}-a1") for index in range(2))
    sent = len(office.world.sent)
    office.wait(599)
    await office.settle()
    assert len(office.world.sent) == sent, "nothing is written while nothing changes"


async def test_it_is_placed_at_once_when_a_machine_becomes_free() -> None:
    office = on_racks()
    half_full(office)
    office.world.add_gang("j", 2, 4, consolidation=FIXED)
    await office.settle()
    office.wait(60)
    for index in range(4):
        office.world.delete_pod(f"b1-{index}")
    await office.settle()
    found = office.scheduling("j")
    assert (found["state"], found["plan"]["level"]) == ("Released", "Machine")
    assert {seat["node"] for seat in found["plan"]["pods"]} == {"b1"}
    assert "until" not in found
    assert "waitsFor" not in found


async def test_it_relaxes_when_its_timer_runs_out_although_nothing_else_happens() -> None:
    office = on_racks()
    half_full(office)
    office.world.add_gang("j", 2, 4, consolidation=FIXED)
    await office.settle()
    office.wait(600)
    await office.plan()  # no watch delivered anything
    assert (office.scheduling("j")["state"], office.scheduling("j")["plan"]["level"]) == ("Released", "Rack")


async def test_the_loop_wakes_by_itself_at_the_earliest_timer() -> None:
    office = on_racks()
    half_full(office)
    for name, seconds in (("late", 630), ("early", 600)):
        office.world.add_gang(name, 2, 4, consolidation={"mode": "Fixed", "machineWaitSeconds": seconds})
    await office.settle()
    assert office.planner._pause() == 1.0, "a look each second at least"
    office.wait(599.8)
    assert office.planner._pause() == pytest.approx(0.2)
    office.planner.start()
    office.run_clock()
    while office.scheduling("early")["state"] != "Released":
        await asyncio.sleep(0.01)
    office.planner.stop()
    assert office.scheduling("late")["state"] == "Waiting"


async def test_timers_go_on_after_a_takeover() -> None:
    office = on_racks()
    half_full(office)
    office.world.add_gang("j", 2, 4, consolidation=FIXED)
    await office.settle()
    successor = Office(office.world)
    successor.wait(599)
    successor.take_over()
    await successor.settle()
    assert (successor.scheduling("j")["state"], successor.scheduling("j")["until"]) == ("Waiting", "2026-01-31T12:10:00Z")
    late = Office(office.world)
    late.wait(5000)  # the timer ran out while nobody decided
    late.take_over()
    await late.plan()
    assert late.scheduling("j")["plan"]["level"] == "Rack"


async def test_timers_begin_when_the_gang_could_first_be_placed() -> None:
    office = on_racks()
    for node in ("a0", "a1", "b0", "b1"):
        occupy(office, node, 8)
    office.world.add_gang("j", 2, 4, consolidation=FIXED)
    await office.settle()
    assert "placeableSince" not in office.scheduling("j")
    office.wait(3600)
    for node in ("a0", "a1"):
        for index in range(4):
            office.world.delete_pod(f"{node}-{index}")
    await office.settle()
    found = office.scheduling("j")
    assert found["waitingSince"] == "2026-01-31T12:00:00Z"
    assert (found["placeableSince"], found["until"]) == ("2026-01-31T13:00:00Z", "2026-01-31T13:10:00Z")


async def test_the_level_that_is_waited_for_may_become_a_wider_one() -> None:
    office = on_racks()
    half_full(office, "a0", "b0")
    occupy(office, "a1", 8)
    occupy(office, "b1", 8)
    office.world.add_gang("j", 2, 4, consolidation=FIXED)
    await office.settle()
    found = office.scheduling("j")
    assert (found["waitsFor"], found["until"]) == ("Rack", "2026-01-31T12:30:00Z")
    assert "across the whole cluster" in found["message"]
    office.wait(1800)
    await office.plan()
    assert office.scheduling("j")["plan"]["level"] == "Cluster"


@pytest.mark.parametrize(
    ("policy", "sensitivity", "until"),
    [
        (ClusterPolicy("kompakt"), "High", "2026-01-31T12:28:30Z"),  # an hour * 0.5 * (1 - 0.05)
        (ClusterPolicy("kompakt"), "Auto", "2026-01-31T12:08:33Z"),
        (ClusterPolicy("kompakt"), "Low", None),
        (ClusterPolicy("no-wait"), "High", None),
        (ClusterPolicy("fixed"), "Low", "2026-01-31T12:10:00Z"),
        (ClusterPolicy("never-relax"), "Low", ""),
    ],
    ids=lambda value: value.name if isinstance(value, ClusterPolicy) else str(value),
)
async def test_the_clusters_policy_decides_for_jobs_that_say_nothing(
    policy: ClusterPolicy, sensitivity: str, until: str | None
) -> None:
    office = on_racks(policy)
    half_full(office)
    office.world.add_gang("j", 2, 4)
    for index in range(2):
        made = office.world.pods[f"j-worker-{index}-a1"]
        made["metadata"]["annotations"]["kompakt.dev/bandwidth-sensitivity"] = sensitivity
        office.world.add_pod(made)
    await office.settle()
    found = office.scheduling("j")
    assert (found["state"] == "Released") == (until is None)
    assert found.get("until", "") == (until or "")


async def test_a_job_may_leave_the_clusters_policy() -> None:
    office = on_racks(ClusterPolicy("fixed"))
    half_full(office)
    office.world.add_gang("hasty", 2, 4, consolidation={"mode": "NoWait"})
    office.world.add_gang("proud", 2, 4, consolidation={"mode": "NeverRelax"})
    await office.settle()
    assert office.scheduling("hasty")["plan"]["level"] == "Rack"
    assert office.scheduling("proud")["message"].startswith("waits for one machine however long it takes")
    office.wait(10**6)
    await office.settle()
    assert office.scheduling("proud")["state"] == "Waiting"


async def test_who_waits_for_a_level_holds_nothing_and_others_pass() -> None:
    office = on_racks()
    half_full(office)
    office.world.add_gang("patient", 2, 4, consolidation={"mode": "NeverRelax"})
    await office.settle()
    office.wait(1)
    for number in range(4):
        office.world.add_gang(f"small-{number}", 1, 4)
    await office.settle()
    assert {office.scheduling(f"small-{number}")["state"] for number in range(4)} == {"Released"}


async def test_a_node_that_kube_scheduler_rejects_leads_to_a_new_plan_elsewhere_and_not_to_a_new_wait() -> None:
    office = on_racks()
    half_full(office, "a0", "a1", "b0")
    office.world.add_gang("j", 2, 4, consolidation={**FIXED, "machineWaitSeconds": 300})
    await office.settle()
    assert {seat["node"] for seat in office.scheduling("j")["plan"]["pods"]} == {"b1"}
    office.wait(121)  # nobody binds it there
    await office.settle()
    found = office.scheduling("j")
    assert [one["node"] for one in found["excludedNodes"]] == ["b1"]
    assert (found["waitsFor"], found["until"]) == ("Machine", "2026-01-31T12:07:01Z"), "timers begin with the first refusal"
    office.wait(300)
    await office.plan()
    assert {seat["node"] for seat in office.scheduling("j")["plan"]["pods"]} == {"a0", "a1"}


async def test_two_gangs_that_each_need_all_never_hold_a_part_each() -> None:
    """A and B want both machines of the one rack that is left; whoever comes first gets both, the other nothing."""
    office = on_racks()
    for node in ("b0", "b1"):
        occupy(office, node, 8)
    for name in ("a", "b"):
        office.world.add_gang(name, 2, 8, consolidation=FIXED)
    await office.settle()
    states = {name: office.scheduling(name)["state"] for name in "ab"}
    assert states == {"a": "Released", "b": "Waiting"}
    assert all(gates(office.world, f"b-worker-{index}-a1") for index in range(2))
    for index in range(2):
        assert await office.bind(f"a-worker-{index}-a1", office.scheduling("a")["plan"]["pods"][index]["node"]) == ""
        office.world.finish_pod(f"a-worker-{index}-a1")
    office.world.jobs["a"]["status"]["conditions"].append({"type": "Complete", "status": "True"})
    office.world.put("jobs", "a", office.world.jobs["a"])
    await office.settle()
    assert office.scheduling("b")["state"] == "Released"


@pytest.mark.parametrize(
    ("left", "until"),
    [
        (36000, "2026-01-31T16:45:00Z"),  # ten hours x 0.5 x (1 - 0.05), since 12:00
        (60, "2026-01-31T12:00:29Z"),
        (1 << 53, "2026-07-24T08:24:00Z"),  # no more than a year is believed
        (None, "2026-01-31T12:28:30Z"),  # an hour, as nobody knows
    ],
)
async def test_how_long_waiting_can_pay_follows_from_what_is_left_to_do(left: int | None, until: str | None) -> None:
    office = on_racks(ClusterPolicy("kompakt"))
    half_full(office)
    office.world.add_gang("j", 2, 4)
    found = office.world.jobs["j"]
    found["status"]["progress"] = {"loss": "0.1"} if left is None else {"remainingSeconds": left}
    office.world.put("jobs", "j", found)
    await office.settle()
    assert office.scheduling("j")["waitsFor"] == "Machine"
    assert office.scheduling("j").get("until") == until


async def test_a_level_required_is_never_left_though_the_timers_run_out() -> None:
    office = on_racks()
    half_full(office)
    office.world.add_gang("j", 2, 4, consolidation=FIXED)
    office.world.jobs["j"]["spec"]["placement"]["requiredLevel"] = "Machine"
    office.world.put("jobs", "j", office.world.jobs["j"])
    await office.settle()
    office.wait(10**5)
    await office.settle()
    assert office.scheduling("j")["state"] == "Waiting"
    assert "not within the level Machine" in office.scheduling("j")["message"]


@pytest.mark.parametrize(
    ("word", "measured", "until"),
    [
        ("Auto", "0.2", "2026-01-31T12:11:24Z"),  # an hour x 0.2 x (1 - 0.05)
        ("Auto", None, "2026-01-31T12:28:30Z"),  # as the word on the pods is taken to mean, which is High here
        ("High", "0.2", "2026-01-31T12:28:30Z"),
        ("Auto", "a lot", "2026-01-31T12:28:30Z"),
        ("Auto", "0", None),
    ],
)
async def test_what_was_measured_takes_the_place_of_what_is_assumed(word: str, measured: str | None, until: str | None) -> None:
    office = on_racks(ClusterPolicy("kompakt"))
    half_full(office)
    office.world.add_gang("j", 2, 4)
    found = office.world.jobs["j"]
    found["spec"]["communication"] = {"bandwidthSensitivity": word}
    found["status"]["profile"] = {} if measured is None else {"communication": measured}
    office.world.put("jobs", "j", found)
    await office.settle()
    assert office.scheduling("j").get("until") == until
