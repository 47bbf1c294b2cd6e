"""From the driver to kubelet and cluster: the whole plugin over NVML, beside a kubelet with real sockets."""

import shutil
import tempfile
from pathlib import Path

import pynvml
import pytest

from kompakt_core.topology.graph import UNHEALTHY
from kompakt_core.topology.machines import machine
from kompakt_core.topology.wire import graph_from_spec
from kompakt_device_plugin.nvml.source import NvmlSource
from kompakt_device_plugin.nvml.sysfs import Sysfs
from tests.support.device_plugin.api import FakeApi
from tests.support.device_plugin.kubelet import FakeKubelet, PluginClient, wait_until
from tests.support.device_plugin.whole import Running
from tests.support.nvml_shim.machine import describe

XID = pynvml.nvmlEventTypeXidCriticalError


class Node(Running):
    """One with a plugin that reads the shim."""

    def __init__(self, shim, folder):
        self.shim, self.described = shim, describe("dgx-a100-8")
        shim.describe(self.described)
        source = NvmlSource(shim.path, sysfs=Sysfs(folder / "sys"))
        super().__init__(FakeApi(), FakeKubelet(folder), folder, PluginClient, wait_until, source)
        self.kubelet.start()
        self.node()
        self.call, self.lists = self.start().listened()

    def healthy(self):
        """The healthy devices of the next list that kubelet gets."""
        return {uuid for uuid, health in self.lists.get(timeout=10) if health == "Healthy"}

    def uuids(self, *without):
        return {gpu["uuid"] for i, gpu in enumerate(self.described.gpus) if i not in without}


@pytest.fixture
def node(shim):
    folder = Path(tempfile.mkdtemp(prefix="kp-"))  # short: the path of a unix socket must fit in 107 bytes
    one = Node(shim, folder)
    assert one.healthy() == one.uuids()
    yield one
    one.stop()
    one.call.channel.close()
    one.kubelet.stop()
    shutil.rmtree(folder)


def test_an_xid_takes_its_gpu_from_kubelet_and_stands_in_the_report(node):
    spec = node.topology()["spec"]
    assert (spec["source"], spec["driverVersion"]) == ("nvml", "535.104.05")
    reported = [(link.kind, link.lanes, link.megabytes_per_second) for link in graph_from_spec(spec).links]
    assert reported == [(link.kind, link.lanes, link.megabytes_per_second) for link in machine("dgx-a100-8").links]
    node.shim.event(4, XID, 31)  # the application's own: kubelet hears of none
    node.shim.event(5, XID, 79)
    assert node.healthy() == node.uuids(5)
    wait_until(lambda: node.conditions()["Degraded"] == "True", 10)
    unhealthy = graph_from_spec(node.topology()["spec"]).gpus[5]
    assert (unhealthy.health, unhealthy.health_reason, unhealthy.xid) == (UNHEALTHY, "XID", 79)
    assert node.topology()["status"]["free"] == 7


def test_a_call_of_kubelets_asks_the_driver_for_nothing_but_processes_on_the_gpus_handed_over(node):
    calls = node.shim.calls
    node.shim.forget_calls()
    chosen = node.call.prefer(sorted(node.uuids()), 2)
    assert calls() == calls("nvmlEventSetWait_v2"), "which another thread waits in"
    node.call.allocate(chosen)
    assert calls("nvmlDeviceGetHandleByUUID") == calls("nvmlDeviceGetComputeRunningProcesses_v3") == 2
    assert calls() == 4 + calls("nvmlEventSetWait_v2")


def test_a_driver_that_goes_away_takes_all_gpus_from_kubelet_and_ends_no_process(node):
    node.described.fail("*", pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    node.shim.describe(node.described)
    node.shim.event(0, XID, 79)
    assert node.healthy() == set()
    assert node.thread.is_alive()
