"""Known machines, read through NVML's own interface, are the machines that core knows."""

import pytest

from kompakt_core.topology.machines import machine
from kompakt_device_plugin.nvml.source import REFRESH_SECONDS
from tests.support.nvml_shim.machine import MACHINES, describe
from tests.support.nvml_shim.node import NODE

LANES = (
    "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetNvLinkRemoteDeviceType",
    "nvmlDeviceGetNvLinkRemotePciInfo_v2",
    "nvmlDeviceGetNvLinkVersion",
)
PAIRS = ("nvmlDeviceGetTopologyCommonAncestor", "nvmlDeviceGetP2PStatus")


def what(graph):
    return [(link.a, link.b, link.kind, link.lanes, link.megabytes_per_second, link.generation) for link in graph.links]


@pytest.mark.parametrize("name", MACHINES)
def test_the_matrix_is_that_of_the_known_machine(read, name):
    assert what(read(describe(name))) == what(machine(name))


@pytest.mark.parametrize("name", MACHINES)
def test_a_discovery_asks_no_more_than_it_must(reader, shim, clock, name):
    """Of 8 GPUs at most 8 x 18 x 3 + 28 questions about lanes and pairs, and eleven about each GPU."""
    source = reader(describe(name))
    source.read(NODE)
    shim.forget_calls()
    clock.now += REFRESH_SECONDS
    assert source.wait(0) == ()
    size, lanes = machine(name).size, MACHINES[name]["lanes"]
    special = sum(map(shim.calls, (*LANES, *PAIRS)))
    assert size * lanes <= special <= size * (3 * lanes + 1) + 3 * size * (size - 1) // 2
    assert size != 8 or special <= 8 * 18 * 3 + 28
    others = shim.calls() - special - sum(map(shim.calls, ("nvmlDeviceGetCount_v2", "nvmlEventSetWait_v2")))
    assert 8 * size <= others <= 11 * size


def test_reading_again_asks_nothing(reader, shim):
    source = reader(describe("hgx-h100-8"))
    first = source.read(NODE)
    shim.forget_calls()
    assert source.read(NODE) is first
    assert shim.calls() == 0
