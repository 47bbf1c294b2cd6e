"""What the whole plugin offers to kubelet in good and bad times."""

import threading
from dataclasses import replace

import pytest

from kompakt_client.errors import error_of
from kompakt_core import contract
from kompakt_device_plugin import agent, podresources
from kompakt_device_plugin.api import NODES, SLICES
from tests.support.device_plugin.whole import NODE, TOPOLOGY, Ailing, Running, describe


def test_a_deleted_topology_comes_back(running, until):
    running.start().listened()
    until(lambda: running.topology()["status"])
    running.api.remove(TOPOLOGY)
    until(lambda: running.topology()["status"])


def test_a_broken_description_offers_nothing_says_so_once_and_recovers(running, machines, until):
    describe(machines, "dgx-unheard-of")
    running.start()
    until(lambda: running.api.made("create", "/events"))
    assert TOPOLOGY not in running.api.objects
    assert running.kubelet.requests == []
    running.api.put(
        f"{NODES}/{NODE}", {"metadata": {"name": NODE, "uid": "n", "labels": {contract.LABEL_MACHINE: "big", "x": "y"}}}
    )
    describe(machines, "dgx1-v100")
    running.api.put(f"{NODES}/{NODE}", {"metadata": {"name": NODE, "uid": "n", "labels": {contract.LABEL_MACHINE: "big"}}})
    assert len(running.listened()[1].get(timeout=60)) == 8
    (event,) = running.api.made("create", "/events")
    assert "unknown machine 'dgx-unheard-of'" in event["message"]


def test_an_event_about_the_node_is_made_as_soon_as_the_api_server_takes_it(running, machines, until, monkeypatch):
    monkeypatch.setattr(agent, "PERIOD", 0.02)
    describe(machines, "dgx-unheard-of")
    running.api.fail = lambda verb, path: error_of(500, b"{}") if verb == "create" else None
    running.start()
    until(lambda: len(running.api.made("create", "/events")) > 1)
    running.api.fail = lambda verb, path: None
    tried = len(running.api.made("create", "/events"))
    until(lambda: len(running.api.made("create", "/events")) > tried)
    asked = len(running.kubelet.asked)
    until(lambda: len(running.kubelet.asked) > asked + 3)
    assert len(running.api.made("create", "/events")) == tried + 1


def test_gpus_of_another_plugin_are_not_registered(running, until):
    node = {
        "metadata": {"name": NODE, "labels": {contract.LABEL_MACHINE: "big"}},
        "status": {"capacity": {"nvidia.com/gpu": "8"}},
    }
    running.api.put(f"{NODES}/{NODE}", node)
    running.start()
    until(lambda: running.topology()["status"])
    conditions = {c["type"]: c["status"] for c in running.topology()["status"]["conditions"]}
    assert conditions == {"Ready": "False", "Degraded": "False", "Conflict": "True"}
    assert running.kubelet.requests == []


def test_a_resource_slice_of_another_driver_withdraws_the_devices_and_its_end_brings_them_back(running, gpus, until):
    _, lists = running.start().listened()
    assert len(lists.get(timeout=60)) == 8
    slice_ = {
        "metadata": {"name": "slice-a"},
        "spec": {"driver": "gpu.nvidia.com", "nodeName": NODE, "devices": [{"name": "gpu-0"}]},
    }
    running.api.put(f"{SLICES}/slice-a", slice_)
    assert lists.get(timeout=60) == []
    until(lambda: {c["type"]: c["status"] for c in running.topology()["status"]["conditions"]}["Conflict"] == "True")
    running.api.remove(f"{SLICES}/slice-a")
    assert len(lists.get(timeout=60)) == 8


def test_a_sick_gpu_leaves_at_once_and_comes_back_when_well(api, kubelet, machines, client, until, dgx1, monkeypatch):
    """An XID, told by the source: kubelet and GPUTopology hear of it without waiting for the next round."""
    monkeypatch.setattr(agent, "PERIOD", 60.0)
    api.put(f"{NODES}/{NODE}", {"metadata": {"name": NODE}})
    source = Ailing(dgx1)
    one = Running(api, kubelet, machines, client, until, source).start()
    _, lists = one.listened()
    assert {health for _, health in lists.get(timeout=60)} == {"Healthy"}
    until(lambda: one.topology()["status"])
    asked = len(kubelet.asked)
    source.change(replace(dgx1.gpus[3], health="Unhealthy", health_reason="XID", xid=79))
    assert [health for _, health in lists.get(timeout=60)].count("Unhealthy") == 1
    until(lambda: one.topology()["status"]["free"] == 7)
    gpu = one.topology()["spec"]["gpus"][3]
    assert (gpu["health"], gpu["xid"]) == ("Unhealthy", 79)
    degraded = next(c for c in one.topology()["status"]["conditions"] if c["type"] == "Degraded")
    assert (degraded["status"], "GPU 3 (XID, XID 79)" in degraded["message"]) == ("True", True)
    until(lambda: one.plugin.metrics.value("gpus", state="unhealthy") == 1)  # counted when the API server has answered
    source.change(dgx1.gpus[3])
    assert [health for _, health in lists.get(timeout=60)].count("Unhealthy") == 0
    until(lambda: one.topology()["status"]["health"] == "Healthy")
    assert len(kubelet.asked) > asked
    one.stop()


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
def test_a_sick_gpu_is_taken_back_while_somebody_else_does_not_answer(api, kubelet, machines, client, until, dgx1, hanging, who):
    api.put(f"{NODES}/{NODE}", {"metadata": {"name": NODE}})
    source = Ailing(dgx1)
    one = Running(api, kubelet, machines, client, until, source).start()
    _, lists = one.listened()
    lists.get(timeout=60)
    until(lambda: one.topology()["status"])
    if who == "kubelet":
        kubelet.before_list = hanging
    else:
        api.fail = hanging
    kubelet.held["default", "a"] = (dgx1.gpus[0].uuid,)  # something to write
    one.plugin.agent.allocated()
    assert hanging.called.wait(60)
    source.change(replace(dgx1.gpus[3], health="Unhealthy", health_reason="XID", xid=79))
    assert [health for _, health in lists.get(timeout=10)].count("Unhealthy") == 1
    hanging.release.set()
    until(lambda: one.topology()["status"]["free"] == 6)
    one.stop()


def test_gpus_of_another_driver_are_taken_back_while_kubelet_does_not_answer(running, hanging, monkeypatch):
    monkeypatch.setattr(podresources, "_SECONDS", 0.1)
    _, lists = running.start().listened()
    assert len(lists.get(timeout=60)) == 8
    running.kubelet.before_list = hanging
    spec = {"driver": "gpu.nvidia.com", "nodeName": NODE, "devices": [{"name": "gpu-0"}]}
    running.api.put(f"{SLICES}/slice-a", {"metadata": {"name": "slice-a"}, "spec": spec})
    assert lists.get(timeout=10) == []


def test_a_graph_that_is_out_of_date_is_not_published(api, kubelet, machines, client, until, dgx1):
    """A GPU turns unhealthy between reading and publishing: what was read is well, what is known by then is not."""
    api.put(f"{NODES}/{NODE}", {"metadata": {"name": NODE}})
    source = Ailing(dgx1)
    one = Running(api, kubelet, machines, client, until, source)
    api.fail = lambda verb, path: source.change(replace(dgx1.gpus[3], health="Unhealthy")) if verb == "apply" else None
    offered, publish = [], one.plugin.devices.publish
    one.plugin.devices.publish = lambda graph: offered.append(graph.gpus[3].health) or publish(graph)
    one.start().listened()
    assert set(offered) == {"Unhealthy"}
    one.stop()


def test_ids_that_kubelet_has_from_somebody_else_are_told_once_and_harm_nobody(running, gpus, until, caplog):
    call, _ = running.start().listened()
    until(lambda: running.topology()["status"])
    for _ in range(3):
        assert set(call.prefer(("GPU-strange", *gpus[:3]), 2)) < set(gpus[:3])
    assert call.allocate(("GPU-other", gpus[5]))
    until(lambda: len(running.api.made("create", "/events")) == 2)
    rounds = len(running.kubelet.asked)
    until(lambda: len(running.kubelet.asked) > rounds + 2)
    first, second = running.api.made("create", "/namespaces/default/events")
    assert (first["type"], first["reason"], first["involvedObject"]["name"]) == ("Warning", "UnknownGPUs", NODE)
    assert "kubelet offers GPU-strange as kompakt.dev/gpu, which kompakt never offered" in first["message"]
    assert "GPU-other" in second["message"]
    assert caplog.text.count("never offered") == 2


@pytest.mark.parametrize("ids", [{"x" * 70_000}, {f"GPU-{number}" for number in range(100_000)}, {"\ud800\n"}])
def test_whatever_ids_kubelet_has_the_sentence_about_them_is_short(ids):
    assert len(agent.unknown(ids)) < 1024


def test_a_gpu_that_turns_sick_or_well_costs_kubelet_no_pause(api, kubelet, machines, client, until, dgx1, monkeypatch):
    api.put(f"{NODES}/{NODE}", {"metadata": {"name": NODE}})
    tidied = []
    monkeypatch.setattr(agent, "trim", lambda: tidied.append(None))
    source = Ailing(dgx1)
    one = Running(api, kubelet, machines, client, until, source).start()
    _, lists = one.listened()
    for health in ("Unhealthy", "Healthy"):
        lists.get(timeout=60)
        source.change(replace(dgx1.gpus[3], health=health))
    lists.get(timeout=60)
    until(lambda: one.topology()["status"]["health"] == "Healthy")
    assert len(tidied) == 1
    one.stop()
