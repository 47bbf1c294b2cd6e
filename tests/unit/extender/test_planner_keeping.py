"""Later gangs may go before one that waits, but not without end: then GPUs are reserved for it."""

from kompakt_core.ids import NodeName
from kompakt_extender.consolidation import ClusterPolicy
from tests.support.extender.office import Office
from tests.support.extender.racks import half_full, occupy, on_racks, vacate


def passing(office: Office, number: int) -> None:
    office.world.add_gang(f"small-{number}", 1, 2)


def leave(office: Office, name: str) -> None:
    office.world.delete_pod(f"{name}-worker-0-a1")
    office.world.jobs[name]["status"]["conditions"] = [{"type": "Complete", "status": "True"}]
    office.world.put("jobs", name, office.world.jobs[name])


async def kept() -> tuple[Office, str]:
    """An office of half-full machines that keeps GPUs for such a gang, and of which node."""
    office = on_racks(THREE)
    half_full(office)
    await passed_over(office)
    return office, office.scheduling("big")["reserved"][0]["node"]


def others_full(office: Office, kept_on: str) -> None:
    for name in ("a0", "a1", "b0", "b1"):
        if name != kept_on:
            occupy(office, name, 8)


async def passed_over(office: Office) -> None:
    """Three gangs of two GPUs come and go before one that needs a whole machine; one always runs on each machine."""
    office.world.add_gang("big", 2, 4, consolidation={"mode": "NeverRelax"})
    await office.settle()
    for number in range(3):
        office.wait(1)
        passing(office, number)
        await office.settle()
        assert office.scheduling(f"small-{number}")["state"] == "Released"


THREE = ClusterPolicy("fixed", overtaken_at_most=3)


async def test_after_bounded_overtaking_what_would_serve_the_gang_is_kept_for_it() -> None:
    office, _ = await kept()
    found = office.scheduling("big")
    assert (found["state"], found["overtaken"]) == ("Reserved", 3)
    assert "are reserved for it" in found["message"]
    ((node, gpus),) = ((one["node"], one["gpus"]) for one in found["reserved"])
    assert gpus == 8
    for name in ("a0", "a1", "b0", "b1"):
        vacate(office, name, 4)
    others_full(office, node)
    for number in range(3):
        leave(office, f"small-{number}")
    passing(office, 9)
    await office.settle()
    assert office.scheduling("big")["state"] == "Released"
    assert {seat["node"] for seat in office.scheduling("big")["plan"]["pods"]} == {node}
    assert "reserved" not in office.scheduling("big")
    assert office.ledger.reserved.counts_for == ""
    assert office.scheduling("small-9")["state"] == "Waiting"


async def test_gpus_that_become_free_on_a_kept_node_go_to_nobody_else() -> None:
    office, node = await kept()
    others_full(office, node)
    office.world.delete_pod(f"{node}-0")
    passing(office, 9)
    await office.settle()
    assert office.scheduling("small-9")["state"] == "Waiting"
    state = office.ledger.state(NodeName(node))
    assert state is not None
    assert state.free == 0, "nor to a plain pod"


async def test_a_reservation_outlives_a_takeover() -> None:
    office, _ = await kept()
    reserved = office.scheduling("big")["reserved"]
    successor = Office(office.world, THREE)
    successor.take_over()
    assert successor.ledger.reserved.counts_for == "uid-big"
    await successor.settle()
    assert successor.scheduling("big")["reserved"] == reserved


async def test_a_reservation_ends_with_its_job() -> None:
    office, _ = await kept()
    office.world.jobs["big"]["spec"]["suspend"] = True
    office.world.put("jobs", "big", office.world.jobs["big"])
    for index in range(2):
        office.world.delete_pod(f"big-worker-{index}-a1")
    await office.settle()
    assert office.ledger.reserved.counts_for == ""


async def test_gpus_are_kept_for_one_gang_at_a_time() -> None:
    """Two that each wait for what the other keeps would wait for ever."""
    office = on_racks(THREE)
    half_full(office)
    office.world.add_gang("also", 2, 4, consolidation={"mode": "NeverRelax"})
    await passed_over(office)
    states = {name: office.scheduling(name)["state"] for name in ("also", "big")}
    assert states == {"also": "Reserved", "big": "Waiting"}
    office.planner._wake.clear()
    await office.plan()
    assert not office.planner._wake.is_set(), "nobody asks again and again"


async def test_the_explain_api_answers_about_a_gang_with_gpus_kept_as_about_a_waiting_one() -> None:
    office, _ = await kept()
    answer = office.queries.job("default", "big")()
    assert answer.scheduling["state"] == "Reserved"
    assert answer.fits > 0, "a waiting job's answer counts the nodes that could take one worker"
    message = office.queries.pod("default", "big-worker-0-a1")().message
    assert "8 GPUs of" in message
    assert "are reserved for it" in message


async def test_gpus_kept_for_a_gang_are_free_for_one_of_higher_priority_and_kept_again_after_it() -> None:
    office, node = await kept()
    others_full(office, node)
    vacate(office, node, 2)
    office.world.add_gang("equal", 1, 2)
    office.world.add_gang("above", 1, 2, priority=1)
    await office.settle()
    assert [office.scheduling(name)["state"] for name in ("equal", "above", "big")] == ["Waiting", "Released", "Reserved"]
    assert await office.bind("above-worker-0-a1", node) == "", "it may be bound there as well"
    leave(office, "above")
    await office.settle()
    assert office.scheduling("equal")["state"] == "Waiting"
