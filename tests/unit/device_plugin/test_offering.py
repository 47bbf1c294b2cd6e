"""What the whole plugin offers to kubelet in good and bad times."""

import threading

import pytest

from kompakt_client.errors import error_of
from kompakt_device_plugin import agent, podresources
from kompakt_device_plugin.api import SLICES
from tests.support.device_plugin.pods import xid
from tests.support.device_plugin.whole import NODE, TOPOLOGY, describe


def unhealthy(devices):
    return [health for _, health in devices].count("Unhealthy")


def claim(running):
    """Another driver offers a GPU of this node."""
    spec = {"driver": "gpu.nvidia.com", "nodeName": NODE, "devices": [{"name": "gpu-0"}]}
    running.api.put(f"{SLICES}/slice-a", {"metadata": {"name": "slice-a"}, "spec": spec})


def test_a_deleted_topology_comes_back(running, until):
    running.start().listened()
    until(lambda: running.topology()["status"])
    running.api.remove(TOPOLOGY)
    until(lambda: running.topology()["status"])


def test_a_broken_description_offers_nothing_says_so_once_and_recovers(running, machines, until):
    describe(machines, "dgx-unheard-of")
    running.start()
    until(running.events)
    assert TOPOLOGY not in running.api.objects
    assert running.kubelet.requests == []
    running.node(x="y")
    describe(machines, "dgx1-v100")
    running.node()
    assert len(running.listened()[1].get(timeout=60)) == 8
    (event,) = running.events()
    assert "unknown machine 'dgx-unheard-of'" in event["message"]


def test_an_event_about_the_node_is_made_as_soon_as_the_api_server_takes_it(running, machines, until, monkeypatch):
    monkeypatch.setattr(agent, "PERIOD", 0.02)
    describe(machines, "dgx-unheard-of")
    running.api.fail = lambda verb, path: error_of(500, b"{}") if verb == "create" else None
    running.start()
    until(lambda: len(running.events()) > 1)
    running.api.fail = lambda verb, path: None
    tried = len(running.events())
    until(lambda: len(running.events()) > tried)
    running.rounds(3)
    assert len(running.events()) == tried + 1


def test_gpus_of_another_plugin_are_not_registered(running, until):
    running.node(status={"capacity": {"nvidia.com/gpu": "8"}})
    running.start()
    until(lambda: running.conditions() == {"Ready": "False", "Degraded": "False", "Conflict": "True"})
    assert running.kubelet.requests == []


def test_a_resource_slice_of_another_driver_withdraws_the_devices_and_its_end_brings_them_back(running, until):
    _, lists = running.start().listened()
    assert len(lists.get(timeout=60)) == 8
    claim(running)
    assert lists.get(timeout=60) == []
    until(lambda: running.conditions()["Conflict"] == "True")
    running.api.remove(f"{SLICES}/slice-a")
    assert len(lists.get(timeout=60)) == 8


def test_an_unhealthy_gpu_leaves_at_once_and_comes_back_when_well(ailing, until, dgx1, monkeypatch):
    """An XID, told by the source: kubelet and GPUTopology hear of it without waiting for the next round, and nobody tidies up."""
    tidied = []
    monkeypatch.setattr(agent, "PERIOD", 60.0)
    monkeypatch.setattr(agent, "trim", lambda: tidied.append(None))
    _, lists = ailing.start().listened()
    assert unhealthy(lists.get(timeout=60)) == 0
    until(lambda: ailing.topology()["status"])
    asked = len(ailing.kubelet.asked)
    ailing.source.change(xid(dgx1, 3))
    assert unhealthy(lists.get(timeout=60)) == 1
    until(lambda: ailing.topology()["status"]["free"] == 7)
    gpu = ailing.topology()["spec"]["gpus"][3]
    assert (gpu["health"], gpu["xid"]) == ("Unhealthy", 79)
    degraded = next(c for c in ailing.topology()["status"]["conditions"] if c["type"] == "Degraded")
    assert (degraded["status"], "GPU 3 (XID, XID 79)" in degraded["message"]) == ("True", True)
    until(lambda: ailing.plugin.metrics.value("gpus", state="unhealthy") == 1)  # counted when the API server has answered
    ailing.source.change(dgx1.gpus[3])
    assert unhealthy(lists.get(timeout=60)) == 0
    until(lambda: ailing.topology()["status"]["health"] == "Healthy")
    assert len(ailing.kubelet.asked) > asked
    assert len(tidied) == 1, "once for the machine: that costs kubelet a pause"


class Hanging:
    """Somebody who does not answer, from the first call on until released."""

    def __init__(self):
        self.called, self.release = threading.Event(), threading.Event()

    def __call__(self, *_):
        self.called.set()
        self.release.wait(60)


@pytest.fixture
def hanging():
    one = Hanging()
    yield one
    one.release.set()


@pytest.mark.parametrize("who", ["kubelet", "API server"])
def test_an_unhealthy_gpu_is_taken_back_while_somebody_else_does_not_answer(ailing, until, dgx1, hanging, who):
    _, lists = ailing.start().listened()
    lists.get(timeout=60)
    until(lambda: ailing.topology()["status"])
    if who == "kubelet":
        ailing.kubelet.before_list = hanging
    else:
        ailing.api.fail = hanging
    ailing.kubelet.held["default", "a"] = (dgx1.gpus[0].uuid,)  # something to write
    ailing.plugin.agent.allocated()
    assert hanging.called.wait(60)
    ailing.source.change(xid(dgx1, 3))
    assert unhealthy(lists.get(timeout=10)) == 1
    hanging.release.set()
    until(lambda: ailing.topology()["status"]["free"] == 6)


def test_gpus_of_another_driver_are_taken_back_while_kubelet_does_not_answer(running, hanging, monkeypatch):
    monkeypatch.setattr(podresources, "_SECONDS", 0.1)
    _, lists = running.start().listened()
    assert len(lists.get(timeout=60)) == 8
    running.kubelet.before_list = hanging
    claim(running)
    assert lists.get(timeout=10) == []


def test_a_graph_that_is_out_of_date_is_not_published(ailing, dgx1):
    """A GPU turns unhealthy between reading and publishing: what was read is well, what is known by then is not."""
    ailing.api.fail = lambda verb, path: ailing.source.change(xid(dgx1, 3)) if verb == "apply" else None
    offered, publish = [], ailing.plugin.devices.publish
    ailing.plugin.devices.publish = lambda graph: offered.append(graph.gpus[3].health) or publish(graph)
    ailing.start().listened()
    assert set(offered) == {"Unhealthy"}


def test_ids_that_kubelet_has_from_somebody_else_are_told_once_and_harm_nobody(running, gpus, until, caplog):
    call, _ = running.start().listened()
    until(lambda: running.topology()["status"])
    for _ in range(3):
        assert set(call.prefer(("GPU-strange", *gpus[:3]), 2)) < set(gpus[:3])
    assert call.allocate(("GPU-other", gpus[5]))
    until(lambda: len(running.events()) == 2)
    running.rounds(2)
    first, second = running.events()
    assert (first["type"], first["reason"], first["involvedObject"]["name"]) == ("Warning", "UnknownGPUs", NODE)
    assert "kubelet offers GPU-strange as kompakt.dev/gpu, which kompakt never offered" in first["message"]
    assert "GPU-other" in second["message"]
    assert caplog.text.count("never offered") == 2


@pytest.mark.parametrize("ids", [{"x" * 70_000}, {f"GPU-{number}" for number in range(100_000)}, {"\ud800\n"}])
def test_whatever_ids_kubelet_has_the_sentence_about_them_is_short(ids):
    assert len(agent.unknown(ids)) < 1024
