"""What is offered: taken back at once, given only after it stands in the cluster."""

from dataclasses import replace

import pytest

from kompakt_device_plugin.advertisement import only
from kompakt_device_plugin.devices import Devices
from tests.support.device_plugin.pods import ALL, GRAPH


def without(*indices):
    """Some GPUs are unhealthy."""
    return replace(GRAPH, gpus=tuple(replace(gpu, health="Unhealthy") if gpu.index in indices else gpu for gpu in GRAPH.gpus))


@pytest.mark.parametrize(
    ("reported", "read", "offered"),
    [
        pytest.param(GRAPH, without(3), {0, 1, 2, 4, 5, 6, 7}, id="one that turned unhealthy is gone before the report"),
        pytest.param(without(3), without(5), {0, 1, 2, 4, 6, 7}, id="one that recovered waits for the report"),
        pytest.param(GRAPH, only(GRAPH, ALL[:1]), {0}, id="those that are no longer read are gone"),
    ],
)
def test_of_the_gpus(reported, read, offered):
    devices = Devices()
    devices.publish(reported)
    devices.withdraw(read)
    assert {gpu.index for gpu in devices.offered.graph.gpus if gpu.health == "Healthy"} == offered
    devices.publish(read)
    assert devices.offered.graph == read


def test_nothing_is_said_before_there_was_something_and_nothing_twice():
    devices = Devices()
    devices.withdraw(None)
    assert devices.offered.version == 0
    devices.publish(GRAPH)
    devices.withdraw(GRAPH)
    assert devices.offered.version == 1
    devices.withdraw(None)
    devices.withdraw(None)
    assert (devices.offered.version, devices.offered.graph) == (2, None)
