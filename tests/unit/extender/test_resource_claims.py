"""Gangs whose GPUs come by ResourceClaims: the planner writes these before any gate goes, another scheduler binds the pods."""

import pytest

from kompakt_core import contract as c
from kompakt_core.contract import gpu_claim
from kompakt_core.contract.gpu_claim import ClaimOwner
from kompakt_extender.planner.released_gangs import WITHDRAW_SECONDS
from kompakt_extender.resource_claims import SETTLE_SECONDS
from tests.support.extender.claims import DEVICES, Claims
from tests.support.extender.leader import gates

FIRST, SECOND = "j-worker-0-a1", "j-worker-1-a1"


@pytest.fixture
async def placed() -> Claims:
    """j has its places and its claims, and no pod is bound."""
    claims = Claims()
    claims.add_gang()
    await claims.leader.settle()
    return claims


def told(claims: Claims) -> tuple[str, str]:
    return claims.leader.scheduling("j")["state"], claims.leader.scheduling("j")["reason"]


async def test_all_claims_stand_before_any_gate_goes(placed: Claims) -> None:
    assert placed.writes == [f"POST {FIRST}", f"POST {SECOND}", f"gate {FIRST} 1", f"gate {SECOND} 1"]
    for seat, name in zip(placed.leader.seats("j"), (FIRST, SECOND), strict=True):
        assert placed.uuids(name) == gpu_claim.expression(seat.gpus, DEVICES)
        assert gates(placed.world, name) == []


async def test_a_bound_pod_has_the_gpus_of_its_claim_and_they_are_written_on_it(placed: Claims) -> None:
    placed.bind(FIRST)
    free = [state.taken.bit_count() for state in placed.leader.ledger.snapshot().nodes.values()]
    placed.bind(SECOND)
    await placed.leader.settle()
    assert sum(free) == 8, "nobody else gets them, though nothing was written on the pod yet"
    for seat, name in zip(placed.leader.seats("j"), (FIRST, SECOND), strict=True):
        notes = placed.leader.annotations(name)
        assert notes[c.ANN_GPUS].split(",") == list(seat.gpus)
        assert notes[c.ANN_GPU_INDICES] == ",".join(map(str, seat.indices))
        assert notes[c.ANN_VALUE] == str(seat.value)


async def test_what_is_written_on_a_bound_pod_is_what_its_claim_was_given(placed: Claims) -> None:
    """A scheduler that was behind gave the claim the devices it had chosen for an older one of that name."""
    seat = placed.leader.seats("j")[0]
    others = sorted(set(range(8)) - set(seat.indices))
    other_node = next(name for name in placed.world.nodes if name != placed.leader.seats("j")[1].node)
    placed.bind(FIRST, gpus=others)
    placed.bind(SECOND, other_node, gpus=(0, 1, 2, 3))
    before = placed.leader.metrics.corrections._value.get()
    await placed.leader.settle()
    first, second = (placed.leader.annotations(name) for name in (FIRST, SECOND))
    assert set(first[c.ANN_GPUS].split(",")) == {f"GPU-{seat.node}-{index}" for index in others}
    assert set(first[c.ANN_GPU_INDICES].split(",")) == set(map(str, others))
    assert set(second[c.ANN_GPUS].split(",")) == {f"GPU-{other_node}-{index}" for index in range(4)}
    assert int(second[c.ANN_VALUE]) == seat.value, "four GPUs of a quad are worth what the plan's are"
    assert placed.leader.metrics.corrections._value.get() > before


async def test_nothing_is_written_before_the_claim_is_seen_allocated(placed: Claims) -> None:
    for name in (FIRST, SECOND):
        pod = placed.world.pods[name]
        pod["spec"]["nodeName"] = placed.leader.annotations(name)[c.ANN_PLANNED_NODE]
        placed.leader.add_pod(pod)
    await placed.leader.settle()
    assert c.ANN_GPUS not in placed.leader.annotations(FIRST)
    placed.bind(FIRST)
    placed.bind(SECOND)
    await placed.leader.settle()
    assert c.ANN_GPUS in placed.leader.annotations(FIRST)


async def test_without_claims_no_gate_goes_and_the_job_says_why() -> None:
    claims = Claims()
    claims.full = True
    claims.add_gang()
    await claims.leader.settle()
    assert told(claims) == ("Released", "ClaimRefused")
    assert "exceeded quota: gpus" in claims.leader.scheduling("j")["message"]
    assert [len(gates(claims.world, name)) for name in (FIRST, SECOND)] == [1, 1]
    claims.full = False
    await claims.leader.settle()
    assert told(claims) == ("Released", "Released")
    assert [len(gates(claims.world, name)) for name in (FIRST, SECOND)] == [0, 0]


async def test_places_for_which_there_are_no_claims_for_long_go_to_others() -> None:
    claims = Claims()
    claims.full = True
    claims.add_gang()
    await claims.leader.settle()
    claims.leader.wait(WITHDRAW_SECONDS)
    await claims.leader.plan()
    assert told(claims)[0] == "Withdrawn"
    assert "exceeded quota: gpus" in claims.leader.scheduling("j")["message"]


async def test_a_withdrawn_plan_takes_its_claims_along_and_the_next_one_uses_the_names_again(placed: Claims) -> None:
    before = placed.uuids(FIRST), placed.by_name[FIRST]["metadata"]["uid"]
    placed.leader.wait(WITHDRAW_SECONDS)
    await placed.leader.settle()
    assert [write for write in placed.writes if write.startswith("DELETE")] == [f"DELETE {FIRST}", f"DELETE {SECOND}"]
    assert [pause for pause in placed.leader.pauses if 0 < pause <= SETTLE_SECONDS], "until the scheduler has seen them go"
    assert told(placed)[0] == "Released"
    seat = placed.leader.seats("j")[0]
    assert (placed.uuids(FIRST), placed.by_name[FIRST]["metadata"]["uid"]) != before
    assert placed.uuids(FIRST) == gpu_claim.expression(seat.gpus, DEVICES)
    assert placed.leader.annotations(FIRST)[c.ANN_PLANNED_NODE] == seat.node


async def test_names_that_were_not_used_wait_for_nothing(placed: Claims) -> None:
    assert placed.leader.pauses == []


async def test_a_claim_with_which_a_pod_is_being_bound_stays(placed: Claims) -> None:
    placed.by_name[FIRST]["status"] = {"reservedFor": [{"resource": "pods", "name": FIRST, "uid": f"uid-{FIRST}"}]}
    placed.leader.wait(WITHDRAW_SECONDS)
    await placed.leader.plan()
    assert (FIRST in placed.by_name, SECOND in placed.by_name) == (True, False)


async def test_after_a_crash_between_claims_and_gates_the_release_goes_on() -> None:
    """The process before this one wrote the claims of this plan, and no gate went."""
    claims = Claims()
    claims.full = True
    claims.add_gang()
    await claims.leader.settle()
    claims.full = False
    for seat, name in zip(claims.leader.seats("j"), (FIRST, SECOND), strict=True):
        claims.by_name[name] = gpu_claim.encode(ClaimOwner("default", name, f"uid-{name}"), seat.gpus, DEVICES)
    await claims.leader.settle()
    assert [len(gates(claims.world, name)) for name in (FIRST, SECOND)] == [0, 0]


async def test_a_claim_of_somebody_else_is_left_alone_and_named() -> None:
    claims = Claims()
    claims.by_name[SECOND] = {"metadata": {"name": SECOND, "uid": "theirs", "resourceVersion": "1"}, "spec": {}}
    claims.add_gang()
    await claims.leader.settle()
    assert f"ResourceClaim {SECOND} exists and does not belong to pod {SECOND}" in claims.leader.scheduling("j")["message"]
    assert claims.by_name[SECOND]["metadata"]["uid"] == "theirs"
    assert gates(claims.world, FIRST) != []
