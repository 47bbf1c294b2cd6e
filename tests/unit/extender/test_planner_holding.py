"""GPUs that are held for a gang while others end for it are given back in the end, whoever dies in between."""

from kompakt_core.ids import NodeName
from kompakt_extender.consolidation import ClusterPolicy
from kompakt_extender.planner.released_gangs import EXCLUDE_SECONDS
from tests.support.extender.office import Office, on_nodes, slow_to_write
from tests.support.extender.preempting import PROTECTED, bind_all, condition, ended, request, runs, seats, urgent
from tests.support.extender.world import worker


def successor(office: Office) -> Office:
    office.planner.stop()
    new = Office(office.world, ClusterPolicy("no-wait"))
    new.now = office.now
    new.take_over()
    return new


async def test_a_victim_that_came_back_on_held_gpus_ends_the_holding(office: Office) -> None:
    """The planner dies between giving GPUs up and writing so; the victim's next attempt has them by then."""
    await runs(office, "low-0")
    await runs(office, "low-1")
    office.wait(PROTECTED)
    urgent(office, workers=2, gpus=8)
    await office.settle()
    assert {request(office, name).name for name in ("low-0", "low-1")} == {"urgent"}
    ended(office, "low-0")
    for index in range(2):
        office.world.add_pod(worker("low-0", index, 4, 2, priority=0))
    office.world.turn_ready("n1")
    office.see()
    await office.plan()  # lets go of all GPUs
    heard = slow_to_write(office, "urgent")
    await office.rounds()  # writes only that low-0 is placed again
    assert office.scheduling("low-0")["state"] == "Released"
    assert office.scheduling("urgent")["reason"] == "Preempting"
    await bind_all(office, "low-0", workers=2, attempt=2)
    office.world.turn_ready("n1")
    office = successor(office)
    heard.set()
    assert not office.ledger.reserved.exact
    await office.settle()
    assert "victims" not in office.scheduling("urgent")
    assert request(office, "low-1") is None


async def test_gpus_that_are_free_are_held_too_while_a_victim_gives_back_processors() -> None:
    """The better half of the machine's GPUs is free, but there are too few processors for it."""

    def with_processors(office: Office, name: str) -> None:
        one = office.world.pods[name]
        one["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "40"
        office.world.add_pod(one)

    office = on_nodes(1)
    await runs(office, "short", 1, 4)
    office.world.add_gang("low", 1, 4, priority=0)
    with_processors(office, "low-worker-0-a1")
    await office.settle()
    await bind_all(office, "low", workers=1)
    condition(office, "low", "Running", "True")
    office.world.finish_pod("short-worker-0-a1")
    condition(office, "short", "Complete", "True")
    office.world.report("n0")
    office.wait(PROTECTED)
    urgent(office, workers=1, gpus=4)
    with_processors(office, "urgent-worker-0-a1")
    await office.settle()
    free = {gpu.uuid for gpu in office.ledger.topologies[NodeName("n0")].graph.gpus} - seats(office, "low")  # type: ignore[union-attr]
    assert set(office.scheduling("urgent")["reserved"][0]["uuids"]) == free
    assert request(office, "low").name == "urgent"
    office.world.sent.clear()
    await office.settle()
    assert office.world.sent == [], "it is decided once"
    ended(office, "low", workers=1)
    await office.settle()
    assert office.scheduling("urgent")["state"] == "Released"
    assert not office.ledger.reserved.exact


async def test_of_two_gangs_that_the_same_gpus_are_written_for_the_later_one_keeps_them(office: Office) -> None:
    """The first one's were let go of, given to the second one, and the planner dies before it wrote so on the first."""
    await runs(office, "low-0")
    await runs(office, "low-1")
    office.wait(PROTECTED)
    urgent(office, "first", workers=2, gpus=8, priority=2000)
    await office.settle()
    office.wait(1)
    urgent(office, "second")
    office.world.turn_ready("n1")
    answered = slow_to_write(office, "first")
    await office.rounds()
    assert [office.scheduling(name)["reason"] for name in ("first", "second")] == ["Preempting", "Preempting"]
    office = successor(office)
    answered.set()
    assert set(office.ledger.reserved.exact) == {"uid-second"}
    await office.settle()
    assert request(office, "low-0").name == "second"
    assert request(office, "low-1") is None
    assert "victims" not in office.scheduling("first")


async def test_a_node_that_was_left_out_counts_again_after_its_time_and_a_gang_on_it_may_end() -> None:
    """All else rests by then: GPUs may be held for the first time ten minutes after anything happened."""
    office = on_nodes(1)
    await runs(office, "low")
    urgent(office, priority=2000)
    office.see()
    office.planner.exclude("uid-urgent", NodeName("n0"), "OutOfcpu")
    office.wait(EXCLUDE_SECONDS - 1)
    await office.settle()
    assert (office.scheduling("urgent")["state"], request(office, "low")) == ("Waiting", None)
    office.wait(1)
    await office.settle()
    assert (office.scheduling("urgent")["reason"], request(office, "low").name) == ("Preempting", "urgent")
    ended(office, "low")
    await office.settle()
    assert office.scheduling("urgent")["state"] == "Released"
    assert not office.ledger.reserved.exact
