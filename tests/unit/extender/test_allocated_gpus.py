"""GPUs that ResourceClaims were given are taken, whoever wrote the claims; a plan that lost some of its own is made anew."""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core import contract as c
from kompakt_extender.allocated_gpus import AllocatedGpus, read_claim, read_slice
from tests.support.extender.claims import Claims, a_claim, a_slice

DRIVER = "gpu.nvidia.com"
FIRST = "j-worker-0-a1"


@pytest.fixture
def claims() -> Claims:
    return Claims(nodes=1)


class Told:
    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, str]] = {}
        self.gpus = AllocatedGpus(lambda node, owners: self.nodes.__setitem__(node, dict(owners)))

    def see(self, *objects: bytes) -> None:
        for raw in objects:
            if b'"devices": [' in raw:
                self.gpus.set_slice(read_slice(raw))
            else:
                self.gpus.set_claim(read_claim(raw))


@pytest.mark.parametrize("first", ["slice", "claim"])
def test_whichever_is_seen_first(first: str) -> None:
    told, objects = Told(), [a_slice(), a_claim("gpu-1", pod="u-1")]
    told.see(*(objects if first == "slice" else reversed(objects)))
    assert told.nodes["n0"] == {"GPU-n0-1": "u-1"}


def test_a_claim_that_goes_or_changes_gives_its_gpus_back() -> None:
    told = Told()
    told.see(a_slice(), a_claim("gpu-0", "gpu-1"), a_claim("gpu-2", uid="other"))
    told.see(a_claim("gpu-1"))
    assert told.nodes["n0"].keys() == {"GPU-n0-1", "GPU-n0-2"}
    told.gpus.remove_claim("theirs")
    assert told.nodes["n0"].keys() == {"GPU-n0-2"}


def test_a_monitors_claim_takes_nothing() -> None:
    told = Told()
    told.see(a_slice(), a_claim("gpu-0", adminAccess=True))
    assert told.nodes["n0"] == {}


def test_without_its_slice_a_device_is_no_gpu_and_with_it_again_it_is() -> None:
    told = Told()
    told.see(a_slice(), a_claim("gpu-0"))
    told.gpus.remove_slice("n0-slice")
    assert told.nodes["n0"] == {}
    told.see(a_slice())
    assert told.nodes["n0"].keys() == {"GPU-n0-0"}


def test_a_slice_that_goes_to_another_pool_takes_its_gpus_along() -> None:
    told = Told()
    told.see(a_slice("n0", "moves"), a_claim("gpu-0"), a_slice("n1", "moves"))
    assert told.nodes == {"n0": {}, "n1": {}}


def test_pools_of_one_node_are_taken_together() -> None:
    """Of drivers that make a pool for each device, and of another driver's beside the GPUs'."""
    told = Told()
    told.see(a_slice(gpus=(0,)), a_slice(name="second", pool="second", gpus=(1,)), a_slice(name="nics", pool="nics", gpus=()))
    told.see(a_claim("gpu-0", uid="one"), a_claim("gpu-1", node="second", uid="two"), a_claim("nic-0", node="nics", uid="three"))
    assert told.nodes["n0"].keys() == {"GPU-n0-0", "GPU-n0-1"}
    told.gpus.remove_claim("two")
    assert told.nodes["n0"].keys() == {"GPU-n0-0"}
    told.gpus.remove_slice("nics")
    assert told.nodes["n0"].keys() == {"GPU-n0-0"}


def test_a_name_of_a_pool_is_its_drivers_own() -> None:
    told = Told()
    told.see(a_slice("n0", pool="all"), a_slice("n1", pool="all", driver="nic.example.com"), a_claim("gpu-0", node="all"))
    assert told.nodes == {"n0": {"GPU-n0-0": ""}, "n1": {}}


ANYTHING = st.recursive(st.none() | st.text(max_size=5), lambda inner: st.dictionaries(st.text(max_size=9), inner))


@given(st.binary(max_size=200) | ANYTHING.map(msgspec.json.encode))
def test_objects_of_others_are_read_or_refused(raw: bytes) -> None:
    for read in (read_claim, read_slice):
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
            read(raw)


async def test_a_monitor_that_looks_at_all_gpus_holds_none(claims: Claims) -> None:
    """The node's agent reports it as their holder: kubelet's PodResources does not tell such claims apart."""
    devices = [f"gpu-{index}" for index in range(8)]
    claims.report_holders("n0", "monitor", range(8))
    claims.add_gang(workers=1)
    await claims.leader.settle()
    assert claims.leader.scheduling("j")["state"] == "Waiting"
    claims.leader.handlers.claims().set("", read_claim(a_claim(*devices, user="another", adminAccess=True)))
    await claims.leader.settle()
    assert claims.leader.scheduling("j")["state"] == "Waiting", "another pod's claim says nothing of this one"
    claims.leader.handlers.claims().set("", read_claim(a_claim(*devices, user="monitor", adminAccess=True)))
    await claims.leader.settle()
    assert claims.leader.scheduling("j")["state"] == "Released"


async def test_a_monitor_keeps_what_its_own_claim_was_given(claims: Claims) -> None:
    claims.report_holders("n0", "monitor", range(8))
    looks = a_claim(*(f"gpu-{index}" for index in range(8)), uid="looks", user="monitor", adminAccess=True)
    for claim in (looks, a_claim("gpu-2", "gpu-3", uid="own", user="monitor")):
        claims.leader.handlers.claims().set("", read_claim(claim))
    claims.add_gang(workers=1)
    await claims.leader.settle()
    (seat,) = claims.leader.seats("j")
    assert set(seat.indices).isdisjoint({2, 3})


async def test_who_looked_holds_again_once_the_claim_is_gone(claims: Claims) -> None:
    """Its processes may still run; the report goes on until they have ended."""
    claims.report_holders("n0", "monitor", range(8))
    looks = a_claim(*(f"gpu-{index}" for index in range(8)), user="monitor", adminAccess=True)
    claims.leader.handlers.claims().set("", read_claim(looks))
    claims.leader.handlers.claims().remove("theirs")
    claims.add_gang(workers=1)
    await claims.leader.settle()
    assert claims.leader.scheduling("j")["state"] == "Waiting"


async def test_what_another_claim_has_is_not_planned() -> None:
    claims = Claims(nodes=1)
    claims.leader.handlers.claims().set("", read_claim(a_claim("gpu-0", "gpu-3", "gpu-5")))
    claims.add_gang(workers=1)
    await claims.leader.settle()
    (seat,) = claims.leader.seats("j")
    assert set(seat.indices).isdisjoint({0, 3, 5})


async def test_a_plan_of_which_another_claim_took_gpus_is_withdrawn_at_once_and_made_anew() -> None:
    claims = Claims(nodes=1)
    claims.add_gang(workers=1)
    await claims.leader.settle()
    (before,) = claims.leader.seats("j")
    claims.leader.handlers.claims().set("", read_claim(a_claim(f"gpu-{before.indices[0]}")))
    await claims.leader.plan()
    assert "another ResourceClaim was given GPUs of the plan first" in claims.leader.scheduling("j")["message"]
    await claims.leader.settle()
    (after,) = claims.leader.seats("j")
    assert before.indices[0] not in after.indices
    assert claims.leader.annotations(FIRST)[c.ANN_PLANNED_GPUS].split(",") == list(after.gpus)


async def test_its_own_claim_is_no_reason_to_make_a_plan_anew() -> None:
    claims = Claims(nodes=1)
    claims.add_gang(workers=1)
    await claims.leader.settle()
    (seat,) = claims.leader.seats("j")
    claims.leader.handlers.claims().set("", read_claim(a_claim(*(f"gpu-{one}" for one in seat.indices), pod=f"uid-{FIRST}")))
    await claims.leader.settle()
    assert claims.leader.seats("j") == (seat,)
    assert not [write for write in claims.writes if write.startswith("DELETE")]
