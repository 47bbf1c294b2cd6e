"""The whole plugin: a kubelet with real sockets on one side, an API server of dictionaries on the other."""

import queue
import threading
from dataclasses import replace

import grpc
import pytest

from kompakt_core import contract
from kompakt_core.patterns import table
from kompakt_core.placement import choose
from kompakt_device_plugin import agent
from kompakt_device_plugin.api import NODES, PODS, SLICES, TOPOLOGIES, ApiException, pod_path
from kompakt_device_plugin.journal import Entry, Journal
from kompakt_device_plugin.main import Plugin, main, options_of
from kompakt_device_plugin.source import Change, ChangeKind, Quiet, TextSource

NODE = "node-1"
TOPOLOGY = f"{TOPOLOGIES}/{NODE}"


class Running:
    """A plugin in a thread, and the kubelet that found it."""

    def __init__(self, api, kubelet, machines, client, until, source=None):
        self.api, self.kubelet, self.machines, self.client, self.until = api, kubelet, machines, client, until
        self.plugin = Plugin(api, NODE, source or TextSource(machines), kubelet.folder)
        self.thread = threading.Thread(target=self.plugin.run, daemon=True)  # a test that fails does not stop all of them

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


class Ailing(Quiet):
    """A source whose GPUs turn sick and well as the test says."""

    name, driver_version = "nvml", "615.71"

    def __init__(self, graph):
        super().__init__()
        self.graph, self.news = graph, queue.Queue()

    def read(self, node):
        return self.graph

    def change(self, gpu):
        self.graph = replace(self.graph, gpus=tuple(gpu if gpu.uuid == one.uuid else one for one in self.graph.gpus))
        self.news.put(Change(ChangeKind.XID if gpu.xid else ChangeKind.WELL, gpu.uuid, "something happened", gpu.xid))

    def wait(self, timeout):
        try:
            return tuple(filter(None, [self.news.get(timeout=timeout)]))
        except queue.Empty:
            return ()

    def close(self):
        self.news.put(None)


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
    assert lists.get(timeout=60) == [(uuid, "Healthy") for uuid in gpus]
    assert stood == [True]


def test_what_answers_need_is_worked_out_before_kubelet_hears_of_the_devices(running, make_pod, gpus, until):
    for known in (table._table, choose._decide):
        known.cache_clear()
    call, _ = running.start().listened()
    built = table._table.cache_info().misses
    assert built > 0
    bind(running.api, make_pod("a", 3, pattern="Ring"))
    until(lambda: running.plugin.pods.all())
    assert len(call.prefer(gpus, 3)) == 3
    assert table._table.cache_info().misses == built


def test_kubelet_hears_of_nothing_while_the_topology_cannot_be_written(running, gpus, until):
    running.api.fail = lambda verb, path: ApiException(status=500) if verb == "apply" else None
    running.start()
    until(lambda: running.api.made("apply", TOPOLOGY))
    assert running.plugin.devices.offered.version == 0
    running.api.fail = lambda verb, path: None
    running.api.put(f"{NODES}/{NODE}", {"metadata": {"name": NODE, "labels": {contract.LABEL_MACHINE: "big", "a": "change"}}})
    assert len(running.listened()[1].get(timeout=60)) == 8


def test_what_kubelet_lists_a_moment_after_allocate_is_reported_within_a_second(running, gpus, until):
    call, _ = running.start().listened()
    until(lambda: running.topology()["status"])
    call.allocate(gpus[:1])
    until(lambda: len(running.kubelet.asked) > 2)
    running.kubelet.held["default", "slow"] = gpus[:1]
    until(lambda: running.held() == {gpus[0]: "slow"}, 1.5)


def test_gpus_stay_held_while_a_kubelet_that_just_started_lists_no_pods(running, make_pod, gpus, until, monkeypatch):
    monkeypatch.setattr(agent, "UNSEEN_SECONDS", agent.STARTING_SECONDS)  # wherever the tests run: in a container it is longer
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
    assert running.plugin.metrics.value("corrected_pods_total") == 2


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


def test_an_api_server_without_resource_slices_has_none(running):
    running.api.fail = lambda verb, path: ApiException(status=404) if path == SLICES else None
    assert len(running.start().listened()[1].get(timeout=60)) == 8


def test_a_second_process_waits_un_ready_and_takes_over(running, api, kubelet, machines, client, until):
    running.start().listened()
    until(lambda: running.plugin.waits_for() == "")
    second = Running(api, kubelet, machines, client, until).start()
    until(lambda: second.plugin.alive())
    assert second.plugin.waits_for() == "another process that serves this node"
    assert len(kubelet.requests) == 1
    running.plugin.stop.set()
    until(lambda: second.plugin.waits_for() == "")
    until(lambda: len(kubelet.requests) == 2)
    second.stop()


def test_what_was_handed_over_before_a_crash_is_held_until_kubelet_says_who_has_it(running, make_pod, gpus, until):
    """The plugin died after Allocate of a set that stood on no pod, and kubelet starts anew: it lists no pods yet."""
    (running.kubelet.folder / "device-plugins" / "kompakt").mkdir(exist_ok=True)
    Journal(running.kubelet.folder / "device-plugins").begin(Entry(gpus[3:5]))
    bind(running.api, make_pod("a", 2, gpus[:2]))
    running.start().listened()
    until(lambda: running.held() == {gpus[3]: "", gpus[4]: ""})
    running.kubelet.held["default", "a"] = gpus[3:5]
    bind(running.api, make_pod("a", 2, gpus[:2], phase="Running"))  # an event, so that the next round comes at once
    until(lambda: running.held() == {gpus[3]: "a", gpus[4]: "a"}, 5)

    def left():
        journal = Journal(running.kubelet.folder / "device-plugins")
        journal.load()
        return journal.entries

    until(lambda: left() == ())


def test_gpus_of_a_pod_deleted_by_force_go_to_nobody_while_its_processes_run(running, make_pod, gpus, until, deaf):
    deaf.add("uid-a")
    call, _ = running.start().listened()
    bind(running.api, make_pod("a", 2, gpus[:2], phase="Running"))
    running.kubelet.held["default", "a"] = gpus[:2]
    call.allocate(gpus[:2])
    until(lambda: len(running.held()) == 2)
    running.kubelet.held.clear()
    running.api.remove(pod_path("default", "a"))
    until(lambda: running.plugin.devices.lingering == set(gpus[:2]))
    assert running.held() == {gpus[0]: "a", gpus[1]: "a"}
    assert not set(call.prefer(gpus, 4)) & set(gpus[:2])
    with pytest.raises(grpc.RpcError, match="still uses"):
        call.allocate(gpus[1:3])
    deaf.clear()
    until(lambda: not running.held())
    assert call.allocate(gpus[:2])


@pytest.fixture
def deaf(running, monkeypatch):
    """Pods that have processes whatever anybody says of them; all that is deleted at once counts by that alone."""
    monkeypatch.setattr(agent, "STARTING_SECONDS", 0.0)
    living = set()
    running.plugin.agent._unseen_for = 0.0
    running.plugin.agent._alive = running.plugin._servicer._alive = lambda uids: living & set(uids)
    return living


def test_a_pod_deleted_by_force_before_kubelet_listed_it_keeps_its_gpus(running, make_pod, gpus, until, deaf):
    call, _ = running.start().listened()
    deaf.add("uid-a")
    bind(running.api, make_pod("a", 2, gpus[:2]))
    until(lambda: call.prefer(gpus, 2) == gpus[:2])
    call.allocate(gpus[:2])
    running.api.remove(pod_path("default", "a"))
    until(lambda: running.plugin.devices.lingering == set(gpus[:2]))
    until(lambda: running.held() == {gpus[0]: "a", gpus[1]: "a"})
    deaf.clear()
    until(lambda: not running.held())
    assert call.allocate(gpus[:2])


def test_a_pod_that_kubelet_lists_longer_than_the_api_server_knows_it_keeps_its_gpus(running, make_pod, gpus, until, deaf):
    call, _ = running.start().listened()
    deaf.add("uid-a")
    bind(running.api, make_pod("a", 1, gpus[:1], phase="Running"))
    running.kubelet.held["default", "a"] = gpus[:1]
    call.allocate(gpus[:1])
    until(lambda: running.held())
    running.api.remove(pod_path("default", "a"))
    rounds = len(running.kubelet.asked)
    until(lambda: len(running.kubelet.asked) > rounds + 1)
    running.kubelet.held.clear()
    until(lambda: running.plugin.devices.lingering == {gpus[0]})


def test_gpus_are_refused_before_any_round_has_seen_that_their_pod_was_deleted(running, make_pod, gpus, until, deaf):
    """kubelet may be faster than the watch: at the moment of Allocate the pods that had these GPUs are looked for."""
    call, _ = running.start().listened()
    deaf.add("uid-a")
    bind(running.api, make_pod("a", 2, gpus[:2]))
    until(lambda: running.plugin.pods.all())
    call.allocate(gpus[:2])
    with pytest.raises(grpc.RpcError, match="processes of pods that had"):
        call.allocate(gpus[1:3])
    assert call.allocate(gpus[:2]), "the pod itself may ask again"
    deaf.clear()
    assert call.allocate(gpus[1:3])


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
    assert one.plugin.metrics.value("gpus", state="unhealthy") == 1
    source.change(dgx1.gpus[3])
    assert [health for _, health in lists.get(timeout=60)].count("Unhealthy") == 0
    until(lambda: one.topology()["status"]["health"] == "Healthy")
    assert len(kubelet.asked) > asked
    one.stop()


def test_the_gpus_are_counted_by_state(running, make_pod, gpus, until):
    call, _ = running.start().listened()
    bind(running.api, make_pod("a", 2, gpus[:2]))
    running.kubelet.held["default", "a"] = gpus[:2]
    call.allocate(gpus[:2])
    metrics = running.plugin.metrics
    until(lambda: metrics.value("gpus", state="allocated") == 2)
    assert (metrics.value("gpus", state="free"), metrics.value("gpus", state="unhealthy")) == (6, 0)
    call.prefer(gpus[2:], 1)
    assert metrics.value("preferred_allocation_seconds_count") == 1


def test_a_restarted_kubelet_gets_its_plugin_back(running, until):
    running.start().listened()
    running.kubelet.stop()
    running.kubelet.requests.clear()
    running.kubelet.start()
    _, lists = running.listened()
    assert len(lists.get(timeout=60)) == 8


def test_without_the_api_server_the_process_is_alive_and_offers_nothing(running, until):
    running.api.fail = lambda verb, path: ConnectionRefusedError("no API server")
    running.start()
    until(lambda: ("list", PODS) in [(verb, path) for verb, path, _ in running.api.calls])
    assert running.plugin.alive()
    assert running.kubelet.requests == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--node-name=n", "--own-gpus=gpu-0"], "is no UUID of a GPU"),
        (["--node-name=n", "--own-gpus=GPU-1,MIG-2"], "hands out whole GPUs only"),
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
