"""Later gangs may go before one that waits, but not without end: then GPUs are reserved for it."""

from kompakt_core.ids import NodeName
from kompakt_extender.consolidation import ClusterPolicy
from tests.support.extender.leader import Leader
from tests.support.extender.racks import half_full, occupy, on_racks, vacate


def passing(leader: Leader, number: int) -> None:
    leader.world.add_gang(f"small-{number}", 1, 2)


def leave(leader: Leader, name: str) -> None:
    leader.world.delete_pod(f"{name}-worker-0-a1")
    leader.world.jobs[name]["status"]["conditions"] = [{"type": "Complete", "status": "True"}]
    leader.world.put("jobs", name, leader.world.jobs[name])


async def kept() -> tuple[Leader, str]:
    """A leader of half-full machines that keeps GPUs for such a gang, and of which node."""
    leader = on_racks(THREE)
    half_full(leader)
    await passed_over(leader)
    return leader, leader.scheduling("big")["reserved"][0]["node"]


def others_full(leader: Leader, kept_on: str) -> None:
    for name in ("a0", "a1", "b0", "b1"):
        if name != kept_on:
            occupy(leader, name, 8)


async def passed_over(leader: Leader) -> None:
    """Three gangs of two GPUs come and go before one that needs a whole machine; one always runs on each machine."""
    leader.world.add_gang("big", 2, 4, consolidation={"mode": "NeverRelax"})
    await leader.settle()
    for number in range(3):
        leader.wait(1)
        passing(leader, number)
        await leader.settle()
        assert leader.scheduling(f"small-{number}")["state"] == "Released"


THREE = ClusterPolicy("fixed", overtaken_at_most=3)


async def test_after_bounded_overtaking_what_would_serve_the_gang_is_kept_for_it() -> None:
    leader, _ = await kept()
    found = leader.scheduling("big")
    assert (found["state"], found["overtaken"]) == ("Reserved", 3)
    assert "are reserved for it" in found["message"]
    ((node, gpus),) = ((one["node"], one["gpus"]) for one in found["reserved"])
    assert gpus == 8
    for name in ("a0", "a1", "b0", "b1"):
        vacate(leader, name, 4)
    others_full(leader, node)
    for number in range(3):
        leave(leader, f"small-{number}")
    passing(leader, 9)
    await leader.settle()
    assert leader.scheduling("big")["state"] == "Released"
    assert {seat["node"] for seat in leader.scheduling("big")["plan"]["pods"]} == {node}
    assert "reserved" not in leader.scheduling("big")
    assert leader.ledger.reserved.counts_for == ""
    assert leader.scheduling("small-9")["state"] == "Waiting"


async def test_gpus_that_become_free_on_a_kept_node_go_to_nobody_else() -> None:
    leader, node = await kept()
    others_full(leader, node)
    leader.world.delete_pod(f"{node}-0")
    passing(leader, 9)
    await leader.settle()
    assert leader.scheduling("small-9")["state"] == "Waiting"
    state = leader.ledger.state(NodeName(node))
    assert state is not None
    assert state.free == 0, "nor to a plain pod"


async def test_a_reservation_outlives_a_takeover() -> None:
    leader, _ = await kept()
    reserved = leader.scheduling("big")["reserved"]
    successor = Leader(leader.world, THREE)
    successor.take_over()
    assert successor.ledger.reserved.counts_for == "uid-big"
    await successor.settle()
    assert successor.scheduling("big")["reserved"] == reserved


async def test_a_reservation_ends_with_its_job() -> None:
    leader, _ = await kept()
    leader.world.jobs["big"]["spec"]["suspend"] = True
    leader.world.put("jobs", "big", leader.world.jobs["big"])
    for index in range(2):
        leader.world.delete_pod(f"big-worker-{index}-a1")
    await leader.settle()
    assert leader.ledger.reserved.counts_for == ""


async def test_gpus_are_kept_for_one_gang_at_a_time() -> None:
    """Two that each wait for what the other keeps would wait for ever."""
    leader = on_racks(THREE)
    half_full(leader)
    leader.world.add_gang("also", 2, 4, consolidation={"mode": "NeverRelax"})
    await passed_over(leader)
    states = {name: leader.scheduling(name)["state"] for name in ("also", "big")}
    assert states == {"also": "Reserved", "big": "Waiting"}
    leader.planner._wake.clear()
    await leader.plan()
    assert not leader.planner._wake.is_set(), "nobody asks again and again"


async def test_the_explain_api_answers_about_a_gang_with_gpus_kept_as_about_a_waiting_one() -> None:
    leader, _ = await kept()
    answer = leader.queries.job("default", "big")()
    assert answer.scheduling["state"] == "Reserved"
    assert answer.fits > 0, "a waiting job's answer counts the nodes that could take one worker"
    message = leader.queries.pod("default", "big-worker-0-a1")().message
    assert "8 GPUs of" in message
    assert "are reserved for it" in message


async def test_gpus_kept_for_a_gang_are_free_for_one_of_higher_priority_and_kept_again_after_it() -> None:
    leader, node = await kept()
    others_full(leader, node)
    vacate(leader, node, 2)
    leader.world.add_gang("equal", 1, 2)
    leader.world.add_gang("above", 1, 2, priority=1)
    await leader.settle()
    assert [leader.scheduling(name)["state"] for name in ("equal", "above", "big")] == ["Waiting", "Released", "Reserved"]
    assert await leader.bind("above-worker-0-a1", node) == "", "it may be bound there as well"
    leave(leader, "above")
    await leader.settle()
    assert leader.scheduling("equal")["state"] == "Waiting"
