"""Which GPUs a claim could be given, as drivers and administrators say it."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core.contract.claimed_devices import gpus_by_device
from kompakt_core.contract.gpu_claim import ClaimedDevices
from kompakt_core.contract.offered_devices import OFFERED, SHARED, TAINTED, offers

DRIVER = "gpu.nvidia.com"
NVIDIAS = ClaimedDevices(DRIVER, DRIVER)
A100 = "GPU-2fa81118-5a5f-aa66-7660-471eed407181"
PUBLISHED = yaml.safe_load((Path(__file__).parent / "data" / "nvidia_devices.yaml").read_text())
KEEPS_OFF = {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}


def slice_of(*devices: dict[str, Any], driver: str = DRIVER) -> dict[str, Any]:
    pool = {"name": "n0", "generation": 1, "resourceSliceCount": 1}
    return {"spec": {"driver": driver, "nodeName": "n0", "pool": pool, "devices": list(devices)}}


def gpu(name: str, uuid: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "attributes": {"uuid": {"string": uuid}}, **more}


def rule(selector: dict[str, str] | None, effect: str = "NoExecute") -> dict[str, Any]:
    spec: dict[str, Any] = {"taint": {"key": "example.com/service", "effect": effect}}
    return {"spec": spec if selector is None else {**spec, "deviceSelector": selector}}


def test_what_nvidias_driver_publishes() -> None:
    whole, part, passed = PUBLISHED
    assert offers([slice_of(*PUBLISHED)], [], NVIDIAS) == {A100: OFFERED}
    assert offers([slice_of({**whole, "taints": [KEEPS_OFF]}, part)], [], NVIDIAS) == {A100: TAINTED}
    assert {device.name: one for device, one in gpus_by_device([slice_of(*PUBLISHED)]).items()} == {
        one["name"]: A100 for one in (whole, part, passed)
    }


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"taints": [KEEPS_OFF]}, TAINTED),
        ({"taints": [{**KEEPS_OFF, "effect": "NoExecute"}]}, TAINTED),
        ({"taints": [{**KEEPS_OFF, "effect": "None"}, {**KEEPS_OFF, "effect": "Later"}]}, OFFERED),
        ({"taints": None}, OFFERED),
        ({"allowMultipleAllocations": True}, SHARED),
        ({"allowMultipleAllocations": False}, OFFERED),
    ],
)
def test_what_keeps_claims_off_a_device(more: dict[str, Any], problem: str) -> None:
    assert offers([slice_of(gpu("gpu-0", "GPU-0", **more))], [], NVIDIAS) == {"GPU-0": problem}


@pytest.mark.parametrize(
    ("selector", "tainted"),
    [
        ({"driver": DRIVER, "pool": "n0", "device": "gpu-0"}, ["GPU-0"]),
        ({"pool": "n0"}, ["GPU-0", "GPU-1"]),
        ({"device": "gpu-1"}, ["GPU-1"]),
        ({"driver": "other.example.com"}, []),
        ({}, ["GPU-0", "GPU-1"]),
        (None, []),
    ],
)
def test_what_a_rule_selects(selector: dict[str, str] | None, tainted: list[str]) -> None:
    slices = [slice_of(gpu("gpu-0", "GPU-0"), gpu("gpu-1", "GPU-1"))]
    found = offers(slices, [rule(selector)], NVIDIAS)
    assert [uuid for uuid, problem in found.items() if problem == TAINTED] == tainted
    assert set(offers(slices, [rule(selector, "None")], NVIDIAS).values()) == {OFFERED}


def test_of_a_gpu_that_is_published_twice_both_must_be_offered() -> None:
    """Only one of them is in the DeviceClass."""
    off, on = gpu("gpu-0", "GPU-0", taints=[KEEPS_OFF]), gpu("vfio-0", "GPU-0")
    for devices in ((off, on), (on, off)):
        assert offers([slice_of(*devices)], [], NVIDIAS) == {"GPU-0": TAINTED}
    assert offers([slice_of(on, gpu("gpu-0", "GPU-0"))], [], NVIDIAS) == {"GPU-0": OFFERED}


def test_only_the_driver_whose_claims_are_written_counts_and_only_by_its_key() -> None:
    assert offers([slice_of(gpu("gpu-0", "GPU-0"), driver="other.example.com")], [], NVIDIAS) == {}
    assert offers([slice_of(gpu("gpu-0", "GPU-0"))], [], ClaimedDevices(DRIVER, DRIVER, "serial")) == {}


def test_a_partition_without_a_name_is_of_the_gpu_whose_counters_it_uses() -> None:
    """As a MIG device before it is made. Counters that several GPUs use say nothing."""
    draws = [{"counterSet": "gpu-0-counters", "counters": {"memory": {"value": "5Gi"}}}]
    both = [{"counterSet": "machine", "counters": {"power": {"value": "1"}}}]
    devices = [
        gpu("gpu-0", "GPU-0", consumesCounters=draws + both),
        gpu("gpu-1", "GPU-1", consumesCounters=both),
        {"name": "part", "consumesCounters": draws},
        {"name": "fan", "consumesCounters": both},
    ]
    found = {device.name: one for device, one in gpus_by_device([slice_of(*devices)]).items()}
    assert found == {"gpu-0": "GPU-0", "gpu-1": "GPU-1", "part": "GPU-0"}


WORDS = ["spec", "driver", "pool", "name", "devices", "attributes", "uuid", "string", "taints", "effect", "taint"]
WORDS += ["deviceSelector", "consumesCounters", "counterSet", "allowMultipleAllocations", DRIVER]
LEAVES = st.none() | st.booleans() | st.integers() | st.sampled_from([DRIVER, "NoSchedule", "x"])
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4), max_leaves=20
)
OBJECTS = st.lists(st.dictionaries(st.just("spec"), JSON), max_size=3)


@given(OBJECTS, OBJECTS)
def test_what_others_publish_breaks_nothing(slices: list[dict[str, Any]], rules: list[dict[str, Any]]) -> None:
    found = offers([*slices, slice_of(gpu("gpu-0", "GPU-0"))], rules, NVIDIAS)
    assert found["GPU-0"] in (OFFERED, TAINTED)
    assert set(found.values()) <= {OFFERED, TAINTED, SHARED}
    gpus_by_device(slices)
