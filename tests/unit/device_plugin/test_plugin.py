"""The whole plugin: a kubelet with real sockets on one side, an API server of dictionaries on the other."""

import threading

import pytest
from kubernetes.client.exceptions import ApiException

from kompakt_core import contract
from kompakt_device_plugin.api import NODES, PODS, TOPOLOGIES, pod_path
from kompakt_device_plugin.main import Plugin, main, options_of
from kompakt_device_plugin.source import TextSource

NODE = "node-1"
TOPOLOGY = f"{TOPOLOGIES}/{NODE}"


class Running:
    """A plugin in a thread, and the kubelet that found it."""

    def __init__(self, api, kubelet, machines, client, until):
        self.api, self.kubelet, self.machines, self.client, self.until = api, kubelet, machines, client, until
        self.plugin = Plugin(api, NODE, TextSource(machines), kubelet.folder)
        self.thread = threading.Thread(target=self.plugin.run)

    def start(self):
        self.thread.start()
        return self

    def listened(self):
        """The first list of devices and a client, as kubelet has them after a registration."""
        self.until(lambda: self.kubelet.requests)
        call = self.client(self.kubelet.folder / "device-plugins" / self.kubelet.requests[-1].endpoint)
        return call, call.lists()

    def topology(self):
        return {"spec": {}, "status": {}, **self.api.objects.get(TOPOLOGY, {})}

    def held(self):
        return {entry["uuid"]: entry["pod"] for entry in self.topology()["status"].get("held", [])}

    def stop(self):
        self.plugin.stop.set()
        self.thread.join(5)
        assert not self.thread.is_alive()


@pytest.fixture
def machines(tmp_path):
    (tmp_path / "big").write_text("dgx1-v100")
    return tmp_path


@pytest.fixture
def running(api, kubelet, machines, client, until):
    api.put(f"{NODES}/{NODE}", {"metadata": {"name": NODE, "labels": {contract.LABEL_MACHINE: "big"}}})
    one = Running(api, kubelet, machines, client, until)
    yield one
    one.stop()


@pytest.fixture
def gpus(dgx1):
    return tuple(gpu.uuid for gpu in dgx1.gpus)


def describe(machines, text):
    """In one move, as kubelet changes a mounted ConfigMap."""
    (machines / "new").write_text(text)
    (machines / "new").rename(machines / "big")


def bind(api, pod):
    api.put(pod_path("default", pod["metadata"]["name"]), pod)


def test_the_topology_stands_before_kubelet_hears_of_the_devices(running, gpus):
    stood = []
    running.kubelet.requests = type(
        "Seen", (list,), {"append": lambda me, x: (stood.append(TOPOLOGY in running.api.objects), list.append(me, x))}
    )()
    _, lists = running.start().listened()
    assert lists.get(timeout=5) == [(uuid, "Healthy") for uuid in gpus]
    assert stood == [True]


def test_kubelet_hears_of_nothing_while_the_topology_cannot_be_written(running, gpus, until):
    running.api.fail = lambda verb, path: ApiException(status=500) if verb == "apply" else None
    running.start()
    until(lambda: running.api.made("apply", TOPOLOGY))
    assert running.plugin.devices.offered.version == 0
    running.api.fail = lambda verb, path: None
    running.api.put(f"{NODES}/{NODE}", {"metadata": {"name": NODE, "labels": {contract.LABEL_MACHINE: "big", "a": "change"}}})
    assert len(running.listened()[1].get(timeout=5)) == 8


def test_what_kubelet_lists_a_moment_after_allocate_is_reported_within_a_second(running, gpus, until):
    call, _ = running.start().listened()
    until(lambda: running.topology()["status"])
    call.allocate(gpus[:1])
    until(lambda: len(running.kubelet.asked) > 2)
    running.kubelet.held["default", "slow"] = gpus[:1]
    until(lambda: running.held() == {gpus[0]: "slow"}, 1.5)


def test_gpus_stay_held_while_a_kubelet_that_just_started_lists_no_pods(running, make_pod, gpus, until):
    call, _ = running.start().listened()
    bind(running.api, make_pod("a", 2, gpus[:2]))
    running.kubelet.held["default", "a"] = gpus[:2]
    call.allocate(gpus[:2])
    until(lambda: len(running.held()) == 2)
    running.kubelet.held.clear()
    asked = len(running.kubelet.asked)
    call.allocate(gpus[4:5])
    until(lambda: len(running.kubelet.asked) > asked + 1)
    assert len(running.held()) == 2
    running.api.remove(pod_path("default", "a"))
    until(lambda: not running.held())


def test_a_bound_pod_gets_its_set_and_the_cluster_hears_of_it(running, make_pod, gpus, until):
    call, _ = running.start().listened()
    bind(running.api, make_pod("a", 2, (gpus[5], gpus[2])))
    until(lambda: call.prefer(gpus, 2) == (gpus[5], gpus[2]))
    running.kubelet.held["default", "a"] = (gpus[2], gpus[5])
    assert call.allocate((gpus[2], gpus[5]))["CUDA_VISIBLE_DEVICES"] == f"{gpus[5]},{gpus[2]}"
    until(lambda: running.held() == {gpus[5]: "a", gpus[2]: "a"}, 1.0)
    assert not running.api.made("apply", "/pods/")


def test_swapped_sets_are_corrected_after_held_is_written_and_told(running, make_pod, gpus, until):
    call, _ = running.start().listened()
    bind(running.api, make_pod("a", 2, gpus[:2]))
    bind(running.api, make_pod("b", 2, gpus[2:4]))
    running.kubelet.held.update({("default", "a"): gpus[2:4], ("default", "b"): gpus[:2]})
    call.allocate(gpus[:2])
    notes = lambda name: running.api.objects[pod_path("default", name)]["metadata"]["annotations"]  # noqa: E731
    until(lambda: set(notes("a")[contract.ANN_GPUS].split(",")) == set(gpus[2:4]))
    until(lambda: set(notes("b")[contract.ANN_GPUS].split(",")) == set(gpus[:2]))
    until(lambda: len(running.api.made("create", "/events")) == 2)
    order = [
        path
        for verb, path, body in running.api.calls
        if verb == "apply" and (path == pod_path("default", "a") or "held" in str(body))
    ]
    assert order.index(f"{TOPOLOGY}/status") < order.index(pod_path("default", "a"))
    assert running.plugin.metrics()["kompakt_device_plugin_corrected_pods_total"] == 2


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
    assert len(running.listened()[1].get(timeout=5)) == 8
    (event,) = running.api.made("create", "/events")
    assert "unknown machine 'dgx-unheard-of'" in event["message"]


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


def test_a_restarted_kubelet_gets_its_plugin_back(running, until):
    running.start().listened()
    running.kubelet.stop()
    running.kubelet.requests.clear()
    running.kubelet.start()
    _, lists = running.listened()
    assert len(lists.get(timeout=5)) == 8


def test_without_the_api_server_the_process_is_alive_and_offers_nothing(running, until):
    running.api.fail = lambda verb, path: ConnectionRefusedError("no API server")
    running.start()
    until(lambda: ("list", PODS) in [(verb, path) for verb, path, _ in running.api.calls])
    assert running.plugin.alive()
    assert running.kubelet.requests == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--node-name=n", "--source=nvml"], "--source nvml is not there yet"),
        ([], "the node has no name"),
        (["--node-name=n", "--health-port=70000"], "is no port"),
        (["--node-name=n", "--kubelet-dir=/nonexistent"], "must name kubelet's folder"),
        (["--node-name=n", "--source=magic"], "invalid choice"),
    ],
)
def test_a_wrong_command_line_is_refused_with_a_sentence(arguments, says, kubelet_dir, capsys, monkeypatch):
    monkeypatch.delenv("NODE_NAME", raising=False)
    (kubelet_dir / "device-plugins").mkdir()
    with pytest.raises(SystemExit) as ended:
        options_of([f"--kubelet-dir={kubelet_dir}", *arguments])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_a_kubeconfig_that_is_not_there_ends_the_process_with_a_sentence(kubelet, monkeypatch):
    line = f"x --node-name=n --kubelet-dir={kubelet.folder} --kubeconfig=/nonexistent"
    monkeypatch.setattr("sys.argv", line.split())
    with pytest.raises(SystemExit, match="cannot reach the API server"):
        main()
