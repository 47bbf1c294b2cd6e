"""GPUs that no claim could be given are not planned: without a device of their driver, or with a taint."""

import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core import contract as c
from kompakt_core.contract.offered_devices import NOT_PUBLISHED, TAINTED
from kompakt_extender.allocated_gpus import read_claim, read_slice
from kompakt_extender.offered_gpus import read_rule
from tests.support.extender.claims import Claims, a_claim, a_slice

FIRST = "j-worker-0-a1"
OFF = [{"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}]


def a_rule(name: str = "service", effect: str = "NoExecute", **selector: str) -> bytes:
    spec = {"taint": {"key": "example.com/service", "effect": effect}, "deviceSelector": selector}
    return json.dumps({"metadata": {"name": name}, "spec": spec}).encode()


def problems(claims: Claims, node: str = "n0") -> dict[int, str]:
    """Of the GPUs that count as unhealthy, why."""
    graph = claims.leader.ledger.topologies[node].graph  # type: ignore[index]
    assert graph is not None
    return {gpu.index: gpu.health_reason for gpu in graph.gpus if gpu.health != "Healthy"}


def test_a_gpu_without_a_device_is_none_that_a_claim_could_have() -> None:
    claims = Claims(nodes=1)
    assert problems(claims) == {}
    claims.publish("n0", gpus=(0, 1, 2, 5, 6, 7))
    assert problems(claims) == dict.fromkeys((3, 4), NOT_PUBLISHED)
    claims.leader.handlers.slices().remove("n0-slice")
    assert problems(claims) == dict.fromkeys(range(8), NOT_PUBLISHED)
    claims.publish("n0")
    assert problems(claims) == {}


def test_taints_of_slices_and_of_rules_count_as_long_as_they_lie_there() -> None:
    claims = Claims(nodes=2)
    rules = claims.leader.handlers.taint_rules()
    claims.publish("n0", gpu1=OFF)
    rules.set("", read_rule(a_rule(pool="n1", device="gpu-6")))
    rules.set("", read_rule(a_rule("other", device="gpu-7")))
    assert (problems(claims), problems(claims, "n1")) == ({1: TAINTED, 7: TAINTED}, {6: TAINTED, 7: TAINTED})
    rules.set("", read_rule(a_rule("other", effect="None", device="gpu-7")))
    claims.publish("n0")
    assert (problems(claims), problems(claims, "n1")) == ({}, {6: TAINTED})
    rules.remove("service")
    assert problems(claims, "n1") == {}


def test_a_gpu_that_the_node_itself_calls_unhealthy_says_so_in_its_own_words() -> None:
    claims = Claims(nodes=1)
    claims.world.break_gpu("n0", 2)
    claims.leader.see()
    claims.publish("n0", gpu2=OFF, gpu3=OFF)
    assert problems(claims) == {2: "", 3: TAINTED}


def test_a_slice_that_goes_to_another_node_takes_its_devices_along() -> None:
    claims = Claims(nodes=2)
    claims.leader.handlers.slices().set("", read_slice(a_slice("n1", "n0-slice", gpus=range(8))))
    assert problems(claims) == dict.fromkeys(range(8), NOT_PUBLISHED)
    assert problems(claims, "n1") == {}


async def test_no_gang_is_placed_where_the_driver_does_not_run() -> None:
    claims = Claims(nodes=3)
    claims.leader.handlers.slices().remove("n0-slice")
    claims.publish("n1", gpu4=OFF, gpu5=OFF, gpu6=OFF, gpu7=OFF)
    claims.add_gang(workers=3)
    await claims.leader.settle()
    seats = [(seat.node, set(seat.indices)) for seat in claims.leader.seats("j")]
    assert sorted(node for node, _ in seats) == ["n1", "n2", "n2"]
    assert {0, 1, 2, 3} in [indices for node, indices in seats if node == "n1"]


@pytest.mark.parametrize("owner", ["", f"uid-{FIRST}"])
async def test_a_plan_on_whose_gpus_a_taint_comes_to_lie_is_made_anew_unless_its_claim_has_them(owner: str) -> None:
    claims = Claims(nodes=1)
    claims.add_gang(workers=1)
    await claims.leader.settle()
    (before,) = claims.leader.seats("j")
    if owner:
        claims.leader.handlers.claims().set("", read_claim(a_claim(*(f"gpu-{one}" for one in before.indices), pod=owner)))
    claims.publish("n0", **{f"gpu{before.indices[0]}": OFF})
    await claims.leader.plan()
    withdrawn = "a taint lies on GPUs of the plan" in claims.leader.scheduling("j").get("message", "")
    assert withdrawn is not bool(owner)
    await claims.leader.settle()
    (after,) = claims.leader.seats("j")
    assert (before.indices[0] in after.indices) is bool(owner)
    assert claims.leader.annotations(FIRST)[c.ANN_PLANNED_GPUS].split(",") == list(after.gpus)


async def test_a_driver_that_publishes_anew_is_waited_for() -> None:
    """Its slices are gone for a moment."""
    claims = Claims(nodes=1)
    claims.add_gang(workers=1)
    await claims.leader.settle()
    (before,) = claims.leader.seats("j")
    claims.leader.handlers.slices().remove("n0-slice")
    await claims.leader.settle()
    claims.publish("n0")
    await claims.leader.settle()
    assert claims.leader.seats("j") == (before,)


ANYTHING: Any = st.recursive(st.none() | st.text(max_size=5), lambda inner: st.dictionaries(st.text(max_size=9), inner))


@given(st.binary(max_size=200) | ANYTHING.map(msgspec.json.encode))
def test_rules_are_read_or_refused(raw: bytes) -> None:
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
        read_rule(raw)
