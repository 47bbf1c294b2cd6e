"""A node whose GPUs somebody else hands out: it is reported, nothing is offered, and pods stay as they are."""

import pytest

from kompakt_core import contract
from kompakt_device_plugin.api import SLICES
from kompakt_device_plugin.gpu_resource import Allocation, GpuResource
from tests.support.device_plugin.api import pod_object

THEIRS = "nvidia.com/gpu"
DRIVER = "gpu.nvidia.com"


@pytest.fixture
def reporting(plugin_with, kubelet):
    kubelet.resource = THEIRS
    one = plugin_with(resource=GpuResource(THEIRS, Allocation.REPORT))
    one.node({"capacity": {THEIRS: "8"}})
    return one.start()


def bind(running, name, gpus):
    """A pod that asks by the other's name and has these GPUs."""
    pod = pod_object(name, len(gpus))
    pod["spec"]["containers"][0]["resources"]["limits"] = {THEIRS: str(len(gpus))}
    running.api.put(f"/api/v1/namespaces/default/pods/{name}", pod)
    running.kubelet.held["default", name] = gpus


def test_who_holds_what_is_reported_and_the_other_plugin_is_no_conflict(reporting, gpus, until):
    bind(reporting, "a", gpus[2:4])
    until(lambda: reporting.held() == {gpus[2]: "a", gpus[3]: "a"})
    assert reporting.conditions() == {"Ready": "True", "Degraded": "False", "Conflict": "False"}
    reasons = {one["type"]: one["reason"] for one in reporting.topology()["status"]["conditions"]}
    assert reasons["Conflict"] == "ReportOnly"
    said = {one["type"]: one["message"] for one in reporting.topology()["status"]["conditions"]}
    assert said["Ready"] == "the link graph is reported and others hand out the GPUs"
    assert reporting.topology()["status"]["free"] == 6


def test_nothing_is_offered_and_nothing_is_written_on_pods_or_into_kubelets_folder(reporting, gpus, until):
    bind(reporting, "a", gpus[:2])
    until(reporting.held)
    reporting.rounds(3)
    assert reporting.kubelet.requests == []
    assert [one for one in (reporting.kubelet.folder / "device-plugins").iterdir() if one.name != "kubelet.sock"] == []
    written = reporting.api.objects["/api/v1/namespaces/default/pods/a"]["metadata"].get("annotations") or {}
    assert contract.ANN_GPUS not in written
    assert not reporting.events()


def test_gpus_that_pods_have_by_claims_are_held(reporting, gpus, until):
    """Whole ones, and one of which a pod has a part; a device of another driver is no GPU."""
    devices = [("gpu-0", {"uuid": {"string": gpus[0]}}), ("gpu-1-mig", {"parentUUID": {"string": gpus[1]}})]
    published = [{"name": name, "attributes": attributes} for name, attributes in devices]
    spec = {"driver": DRIVER, "nodeName": "node-1", "pool": {"name": "node-1"}, "devices": published}
    reporting.api.put(f"{SLICES}/slice-a", {"metadata": {"name": "slice-a"}, "spec": spec})
    for name, device in (("whole", "gpu-0"), ("part", "gpu-1-mig")):
        reporting.api.put(f"/api/v1/namespaces/default/pods/{name}", pod_object(name, 0))
        reporting.kubelet.claimed["default", name] = ((DRIVER, "node-1", device), ("nic.example.com", "node-1", device))
    until(lambda: reporting.held() == {gpus[0]: "whole", gpus[1]: "part"})
    until(lambda: reporting.topology()["status"]["free"] == 6)
    assert reporting.conditions()["Conflict"] == "False"
    del reporting.kubelet.claimed["default", "part"]
    until(lambda: reporting.held() == {gpus[0]: "whole"})


def test_two_may_report_while_one_is_replaced(reporting, plugin_with, until):
    """No lock of the node keeps them apart: it would have to lie in kubelet's folder."""
    until(lambda: reporting.topology()["status"].get("free") == 8)
    second = plugin_with(resource=GpuResource(THEIRS, Allocation.REPORT)).start()
    until(second.plugin.agent.settled.is_set)
