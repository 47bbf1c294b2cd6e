"""GPUs that are held for a gang while others end for it are given back in the end, whoever dies in between."""

from kompakt_core.ids import NodeName
from kompakt_extender.consolidation import ClusterPolicy
from kompakt_extender.planner.released_gangs import EXCLUDE_SECONDS
from tests.support.extender.leader import Leader, on_nodes, slow_to_write
from tests.support.extender.preempting import PROTECTED, bind_all, condition, ended, request, runs, seats, urgent
from tests.support.extender.world import worker


def successor(leader: Leader) -> Leader:
    leader.planner.stop()
    new = Leader(leader.world, ClusterPolicy("no-wait"))
    new.now = leader.now
    new.take_over()
    return new


async def test_a_victim_that_came_back_on_held_gpus_ends_the_holding(leader: Leader) -> None:
    """The planner dies between giving GPUs up and writing so; the victim's next attempt has them by then."""
    await runs(leader, "low-0")
    await runs(leader, "low-1")
    leader.wait(PROTECTED)
    urgent(leader, workers=2, gpus=8)
    await leader.settle()
    assert {request(leader, name).name for name in ("low-0", "low-1")} == {"urgent"}
    ended(leader, "low-0")
    for index in range(2):
        leader.world.add_pod(worker("low-0", index, 4, 2, priority=0))
    leader.world.turn_ready("n1")
    leader.see()
    await leader.plan()  # lets go of all GPUs
    heard = slow_to_write(leader, "urgent")
    await leader.rounds()  # writes only that low-0 is placed again
    assert leader.scheduling("low-0")["state"] == "Released"
    assert leader.scheduling("urgent")["reason"] == "Preempting"
    await bind_all(leader, "low-0", workers=2, attempt=2)
    leader.world.turn_ready("n1")
    leader = successor(leader)
    heard.set()
    assert not leader.ledger.reserved.exact
    await leader.settle()
    assert "victims" not in leader.scheduling("urgent")
    assert request(leader, "low-1") is None


async def test_gpus_that_are_free_are_held_too_while_a_victim_gives_back_processors() -> None:
    """The better half of the machine's GPUs is free, but there are too few processors for it."""

    def with_processors(leader: Leader, name: str) -> None:
        one = leader.world.pods[name]
        one["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "40"
        leader.world.add_pod(one)

    leader = on_nodes(1)
    await runs(leader, "short", 1, 4)
    leader.world.add_gang("low", 1, 4, priority=0)
    with_processors(leader, "low-worker-0-a1")
    await leader.settle()
    await bind_all(leader, "low", workers=1)
    condition(leader, "low", "Running", "True")
    leader.world.finish_pod("short-worker-0-a1")
    condition(leader, "short", "Complete", "True")
    leader.world.report("n0")
    leader.wait(PROTECTED)
    urgent(leader, workers=1, gpus=4)
    with_processors(leader, "urgent-worker-0-a1")
    await leader.settle()
    free = {gpu.uuid for gpu in leader.ledger.topologies[NodeName("n0")].graph.gpus} - seats(leader, "low")  # type: ignore[union-attr]
    assert set(leader.scheduling("urgent")["reserved"][0]["uuids"]) == free
    assert request(leader, "low").name == "urgent"
    leader.world.sent.clear()
    await leader.settle()
    assert leader.world.sent == [], "it is decided once"
    ended(leader, "low", workers=1)
    await leader.settle()
    assert leader.scheduling("urgent")["state"] == "Released"
    assert not leader.ledger.reserved.exact


async def test_of_two_gangs_that_the_same_gpus_are_written_for_the_later_one_keeps_them(leader: Leader) -> None:
    """The first one's were let go of, given to the second one, and the planner dies before it wrote so on the first."""
    await runs(leader, "low-0")
    await runs(leader, "low-1")
    leader.wait(PROTECTED)
    urgent(leader, "first", workers=2, gpus=8, priority=2000)
    await leader.settle()
    leader.wait(1)
    urgent(leader, "second")
    leader.world.turn_ready("n1")
    answered = slow_to_write(leader, "first")
    await leader.rounds()
    assert [leader.scheduling(name)["reason"] for name in ("first", "second")] == ["Preempting", "Preempting"]
    leader = successor(leader)
    answered.set()
    assert set(leader.ledger.reserved.exact) == {"uid-second"}
    await leader.settle()
    assert request(leader, "low-0").name == "second"
    assert request(leader, "low-1") is None
    assert "victims" not in leader.scheduling("first")


async def test_a_node_that_was_left_out_counts_again_after_its_time_and_a_gang_on_it_may_end() -> None:
    """All else rests by then: GPUs may be held for the first time ten minutes after anything happened."""
    leader = on_nodes(1)
    await runs(leader, "low")
    urgent(leader, priority=2000)
    leader.see()
    leader.planner.exclude("uid-urgent", NodeName("n0"), "OutOfcpu")
    leader.wait(EXCLUDE_SECONDS - 1)
    await leader.settle()
    assert (leader.scheduling("urgent")["state"], request(leader, "low")) == ("Waiting", None)
    leader.wait(1)
    await leader.settle()
    assert (leader.scheduling("urgent")["reason"], request(leader, "low").name) == ("Preempting", "urgent")
    ended(leader, "low")
    await leader.settle()
    assert leader.scheduling("urgent")["state"] == "Released"
    assert not leader.ledger.reserved.exact
