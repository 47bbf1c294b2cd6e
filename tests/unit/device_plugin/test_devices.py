"""What is offered: taken back at once, given only after it stands in the cluster."""

from dataclasses import replace

from kompakt_device_plugin.advertisement import only
from kompakt_device_plugin.devices import Devices


def unhealthy(graph, *indices):
    return replace(graph, gpus=tuple(replace(gpu, health="Unhealthy") if gpu.index in indices else gpu for gpu in graph.gpus))


def healthy(devices):
    return {gpu.index for gpu in devices.offered.graph.gpus if gpu.health == "Healthy"}


def test_a_sick_gpu_is_taken_back_without_waiting_for_the_report(dgx1):
    devices = Devices()
    devices.publish(dgx1)
    devices.withdraw(unhealthy(dgx1, 3))
    assert healthy(devices) == {0, 1, 2, 4, 5, 6, 7}


def test_a_gpu_that_recovered_waits_for_the_report(dgx1):
    devices = Devices()
    devices.publish(unhealthy(dgx1, 3))
    devices.withdraw(unhealthy(dgx1, 5))
    assert healthy(devices) == {0, 1, 2, 4, 6, 7}, "5 is gone, 3 is not back yet"
    devices.publish(unhealthy(dgx1, 5))
    assert healthy(devices) == {0, 1, 2, 3, 4, 6, 7}


def test_a_gpu_that_is_no_longer_read_is_taken_back(dgx1):
    devices = Devices()
    devices.publish(unhealthy(dgx1))
    devices.withdraw(only(dgx1, [dgx1.gpus[0].uuid]))
    assert healthy(devices) == {0}


def test_nothing_is_said_before_there_was_something_and_nothing_twice(dgx1):
    devices = Devices()
    devices.withdraw(None)
    assert devices.offered.version == 0
    devices.publish(dgx1)
    devices.withdraw(dgx1)
    assert devices.offered.version == 1
    devices.withdraw(None)
    devices.withdraw(None)
    assert (devices.offered.version, devices.offered.graph) == (2, None)
