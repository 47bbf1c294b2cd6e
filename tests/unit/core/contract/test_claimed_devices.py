"""Devices of ResourceSlices, as GPUs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core.contract.claimed_devices import ClaimedDevice, gpus_by_device

DRIVER = "gpu.nvidia.com"
KEYS = ["spec", "driver", "pool", "name", "generation", "devices", "attributes", "uuid", "parentUUID", "string"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=20,
)


def slice_of(generation: int = 1, /, **devices: Any) -> dict[str, Any]:
    """A ResourceSlice of these devices: name = attributes."""
    found = [{"name": name, "attributes": attributes} for name, attributes in devices.items()]
    return {"spec": {"driver": DRIVER, "nodeName": "n0", "pool": {"name": "n0", "generation": generation}, "devices": found}}


@pytest.mark.parametrize(
    ("attributes", "gpu"),
    [
        ({"uuid": {"string": "GPU-0"}}, "GPU-0"),
        ({f"{DRIVER}/uuid": {"string": "GPU-0"}}, "GPU-0"),
        ({"uuid": {"string": "MIG-5"}, "parentUUID": {"string": "GPU-0"}}, "GPU-0"),
        ({"uuid": {"string": ""}}, None),
        ({"uuid": {"int": 5}}, None),
        ({"example.com/uuid": {"string": "GPU-0"}}, None),
        ({"model": {"string": "GPU-0"}}, None),
        (None, None),
    ],
)
def test_which_gpu_a_device_is(attributes: Any, gpu: str | None) -> None:
    found = gpus_by_device([slice_of(dev=attributes)])
    assert found == ({ClaimedDevice(DRIVER, "n0", "dev"): gpu} if gpu else {})


@pytest.mark.parametrize("order", [1, -1])
def test_the_newest_generation_of_a_pool_counts(order: int) -> None:
    """A driver replaces slices one by one."""
    slices = [slice_of(1, dev={"uuid": {"string": "GPU-old"}}), slice_of(2, dev={"uuid": {"string": "GPU-new"}})]
    assert list(gpus_by_device(slices[::order]).values()) == ["GPU-new"]


@given(st.lists(st.dictionaries(st.just("spec"), JSON), max_size=3))
def test_what_drivers_publish_breaks_nothing(slices: list[dict[str, Any]]) -> None:
    assert all(isinstance(gpu, str) and gpu for gpu in gpus_by_device(slices).values())
