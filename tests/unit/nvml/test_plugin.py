"""From the driver to kubelet and cluster: the whole plugin over NVML, beside a kubelet with real sockets."""

import shutil
import tempfile
import threading
from pathlib import Path

import pynvml
import pytest

from kompakt_core.topology.graph import HEALTHY
from kompakt_core.topology.machines import machine
from kompakt_core.topology.wire import graph_from_spec
from kompakt_device_plugin.api import NODES, TOPOLOGIES
from kompakt_device_plugin.main import Plugin
from kompakt_device_plugin.nvml.source import NvmlSource
from kompakt_device_plugin.nvml.sysfs import Sysfs
from tests.support.device_plugin.api import FakeApi
from tests.support.device_plugin.kubelet import NODE, FakeKubelet, PluginClient, wait_until
from tests.support.nvml_shim.machine import describe


class World:
    """One node with a plugin that reads the shim."""

    def __init__(self, shim, described, folder):
        self.described, self.shim = described, shim
        shim.describe(described)
        self.kubelet, self.api = FakeKubelet(folder), FakeApi()
        self.kubelet.start()
        self.api.put(f"{NODES}/{NODE}", {"metadata": {"name": NODE, "uid": "node-uid"}, "status": {"capacity": {}}})
        self.plugin = Plugin(self.api, NODE, NvmlSource(shim.path, sysfs=Sysfs(folder / "sys")), folder)
        self.thread = threading.Thread(target=self.plugin.run)
        self.thread.start()
        wait_until(lambda: self.kubelet.requests, 10)
        self.client = PluginClient(folder / "device-plugins" / self.kubelet.requests[-1].endpoint)
        self.lists = self.client.lists()

    def healthy(self):
        """The healthy devices of the next list that kubelet gets."""
        return {uuid for uuid, health in self.lists.get(timeout=10) if health == "Healthy"}

    def uuids(self, *without):
        return {gpu["uuid"] for i, gpu in enumerate(self.described.gpus) if i not in without}

    def topology(self):
        return self.api.objects[f"{TOPOLOGIES}/{NODE}"]

    def degraded(self):
        conditions = {condition["type"]: condition for condition in self.topology()["status"]["conditions"]}
        return conditions["Degraded"]["status"], conditions["Degraded"]["reason"]

    def stop(self):
        self.plugin.stop.set()
        self.thread.join(10)
        self.client.channel.close()
        self.kubelet.stop()
        assert not self.thread.is_alive()


@pytest.fixture
def world(shim):
    folder = Path(tempfile.mkdtemp(prefix="kp-"))  # short: the path of a unix socket must fit in 107 bytes
    found = World(shim, describe("dgx-a100-8"), folder)
    assert found.healthy() == found.uuids()
    yield found
    found.stop()
    shutil.rmtree(folder)


def test_an_xid_takes_its_gpu_from_kubelet_and_stands_in_the_report(world):
    spec = world.topology()["spec"]
    assert (spec["source"], spec["driverVersion"]) == ("nvml", "535.104.05")
    reported = [(link.kind, link.lanes, link.megabytes_per_second) for link in graph_from_spec(spec).links]
    assert reported == [(link.kind, link.lanes, link.megabytes_per_second) for link in machine("dgx-a100-8").links]
    world.shim.event(4, pynvml.nvmlEventTypeXidCriticalError, 31)  # the application's own: kubelet hears of none
    world.shim.event(5, pynvml.nvmlEventTypeXidCriticalError, 79)
    assert world.healthy() == world.uuids(5)
    wait_until(lambda: world.degraded()[0] == "True", 10)
    unhealthy = graph_from_spec(world.topology()["spec"]).gpus[5]
    assert (unhealthy.health != HEALTHY, unhealthy.health_reason, unhealthy.xid) == (True, "XID", 79)
    assert world.topology()["status"]["free"] == 7


def test_a_call_of_kubelets_asks_the_driver_for_nothing_but_processes_on_the_gpus_handed_over(world):
    calls = world.shim.calls
    world.shim.forget_calls()
    chosen = world.client.prefer(sorted(world.uuids()), 2)
    assert calls() == calls("nvmlEventSetWait_v2"), "which another thread waits in"
    world.client.allocate(chosen)
    assert calls("nvmlDeviceGetHandleByUUID") == calls("nvmlDeviceGetComputeRunningProcesses_v3") == 2
    assert calls() == 4 + calls("nvmlEventSetWait_v2")


def test_a_driver_that_goes_away_takes_all_gpus_from_kubelet_and_ends_no_process(world):
    world.described.fail("*", pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    world.shim.describe(world.described)
    world.shim.event(0, pynvml.nvmlEventTypeXidCriticalError, 79)
    assert world.healthy() == set()
    assert world.thread.is_alive()
