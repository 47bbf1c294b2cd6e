"""The ResourceClaim of a worker: for these GPUs of this driver, whatever else the cluster's drivers publish."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core import contract as c
from kompakt_core.contract import gpu_claim
from kompakt_core.contract.gpu_claim import ClaimedDevices, ClaimOwner
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuUuid

DEVICES = ClaimedDevices("gpu.nvidia.com", "gpu.nvidia.com")
POD = ClaimOwner("team", "train-worker-0", "u-1")
TWO = (GpuUuid("GPU-b"), GpuUuid("GPU-a"))


def test_a_claim_is_named_after_its_pod_and_goes_with_it():
    claim = gpu_claim.encode(POD, TWO, DEVICES)
    assert (claim["metadata"]["name"], claim["metadata"]["namespace"]) == ("train-worker-0", "team")
    (owner,) = claim["metadata"]["ownerReferences"]
    assert owner == {"apiVersion": "v1", "kind": "Pod", "name": "train-worker-0", "uid": "u-1", "controller": True}


def test_a_claim_is_for_as_many_devices_as_it_names():
    (request,) = gpu_claim.encode(POD, (*TWO, TWO[0]), DEVICES)["spec"]["devices"]["requests"]
    assert request["exactly"]["count"] == 2
    assert request["exactly"]["selectors"][0]["cel"]["expression"] == (
        'device.driver == "gpu.nvidia.com" && has(device.attributes["gpu.nvidia.com"].uuid) && '
        'device.attributes["gpu.nvidia.com"].uuid in ["GPU-a", "GPU-b"]'
    )


@given(st.text(max_size=40))
def test_a_uuid_never_ends_its_literal(uuid):
    """Of a driver that publishes nonsense: the expression stays one comparison."""
    written = gpu_claim.expression([GpuUuid(uuid)], DEVICES)
    literal = written[written.index(" in [") + 5 : -1]
    inner = literal[1:-1].replace("\\\\", "").replace('\\"', "")
    assert literal[0] == literal[-1] == '"'
    assert '"' not in inner
    assert "\n" not in inner
    assert "\\" not in inner.replace("\\n", "").replace("\\r", "")


def test_a_claim_as_read_is_the_one_that_was_written():
    written, read = gpu_claim.encode(POD, TWO, DEVICES), gpu_claim.encode(POD, reversed(TWO), DEVICES)
    read["metadata"]["uid"] = "its own"
    read["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = None
    assert gpu_claim.is_for(read, written)


@pytest.mark.parametrize(
    ("owner", "gpus"),
    [
        pytest.param(ClaimOwner("team", "train-worker-0", "u-2"), TWO, id="another pod of that name"),
        pytest.param(POD, TWO[:1], id="fewer GPUs"),
        pytest.param(POD, (TWO[0], GpuUuid("GPU-c")), id="other GPUs"),
    ],
)
def test_another_claim_is_not_taken_for_it(owner, gpus):
    assert not gpu_claim.is_for(gpu_claim.encode(owner, gpus, DEVICES), gpu_claim.encode(POD, TWO, DEVICES))


def test_a_claim_on_its_way_out_is_for_nobody():
    written = gpu_claim.encode(POD, TWO, DEVICES)
    leaving = {**written, "metadata": {**written["metadata"], "deletionTimestamp": "2026-01-31T12:00:00Z"}}
    assert not gpu_claim.is_for(leaving, written)


@pytest.mark.parametrize("claim", [{}, {"metadata": {"ownerReferences": [{"uid": "u-1"}]}}], ids=["nobody's", "no controller"])
def test_a_claim_without_a_controller_is_no_pods(claim):
    assert not gpu_claim.belongs_to(claim, "u-1")
    assert not gpu_claim.in_use(claim)


def test_a_claim_is_in_use_while_a_pod_has_reserved_it():
    assert gpu_claim.in_use({"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u-1"}]}})
    assert not gpu_claim.in_use({"status": {"allocation": {}}})


def test_how_many_gpus_a_worker_gets_by_claim():
    assert gpu_claim.size({}) is None
    assert gpu_claim.size(gpu_claim.encode_size(0)) == 0
    assert gpu_claim.size(gpu_claim.encode_size(8)) == 8


@pytest.mark.parametrize("text", ["33", "-1", "", "two", " 2"])
def test_a_size_that_no_claim_can_have_is_an_error(text):
    with pytest.raises(InvalidInput, match=c.ANN_GPUS_BY_CLAIM):
        gpu_claim.size({c.ANN_GPUS_BY_CLAIM: text})
