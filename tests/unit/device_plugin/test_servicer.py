"""kubelet's calls over a real socket."""

import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kompakt_device_plugin import servicer as module
from kompakt_device_plugin.devices import Devices
from kompakt_device_plugin.pods import NodePods
from kompakt_device_plugin.proto import deviceplugin_pb2 as pb
from kompakt_device_plugin.proto import deviceplugin_pb2_grpc as pb_grpc
from kompakt_device_plugin.servicer import PluginServicer


class Serving:
    """A servicer behind a socket; `ask` may be replaced by the test."""

    def __init__(self, folder):
        self.devices, self.pods = Devices(), NodePods()
        self.asked, self.allocated = 0, 0
        self.ask = lambda: None
        self.servicer = PluginServicer(self.devices, self.pods, self._ask, allocated=self._allocated)
        self.socket = folder / "plugin.sock"
        self.server = grpc.server(ThreadPoolExecutor(4))
        pb_grpc.add_DevicePluginServicer_to_server(self.servicer, self.server)
        self.server.add_insecure_port(f"unix://{self.socket}")
        self.server.start()

    def _ask(self):
        self.asked += 1
        self.ask()

    def _allocated(self):
        self.allocated += 1


@pytest.fixture
def serving(kubelet_dir):
    one = Serving(kubelet_dir)
    yield one
    one.server.stop(None).wait()
    one.devices.wake()


@pytest.fixture
def call(serving, client):
    return client(serving.socket)


@pytest.fixture
def gpus(dgx1):
    return tuple(gpu.uuid for gpu in dgx1.gpus)


def test_kubelet_is_told_to_ask_for_preferences(call):
    assert call.stub.GetDevicePluginOptions(pb.Empty()).get_preferred_allocation_available
    assert call.stub.PreStartContainer(pb.PreStartContainerRequest()) == pb.PreStartContainerResponse()


def test_every_change_of_the_devices_is_sent_as_a_whole_list(serving, call, dgx1, gpus):
    serving.devices.publish(dgx1)
    lists = call.lists()
    assert lists.get(timeout=5) == [(uuid, "Healthy") for uuid in gpus]
    serving.devices.publish(dgx1)
    assert serving.devices.offered.version == 1
    serving.devices.publish(None)
    assert lists.get(timeout=5) == []
    serving.devices.publish(dgx1)
    assert len(lists.get(timeout=5)) == 8
    assert lists.empty()


def test_a_kubelet_that_leaves_ends_its_stream(serving, call, dgx1, until):
    serving.devices.publish(dgx1)
    call.lists().get(timeout=5)
    assert serving.servicer.streams == 1
    call.channel.close()
    until(lambda: serving.servicer.streams == 0)


def test_the_written_set_is_answered_without_asking_the_api_server(serving, call, make_pod, dgx1, gpus):
    serving.devices.publish(dgx1)
    serving.pods.event("ADDED", make_pod("a", 2, (gpus[5], gpus[2])))
    assert call.prefer(gpus, 2) == (gpus[5], gpus[2])
    assert serving.asked == 0


def test_a_pod_that_the_watch_has_not_delivered_yet_is_asked_for(serving, call, make_pod, dgx1, gpus):
    serving.devices.publish(dgx1)
    serving.ask = lambda: serving.pods.add([make_pod("a", 2, (gpus[5], gpus[2]))])
    assert call.prefer(gpus, 2) == (gpus[5], gpus[2])
    assert (serving.asked, serving.servicer.counts.late_hits, serving.servicer.counts.misses) == (1, 1, 0)


def test_what_the_watch_delivers_meanwhile_is_taken_without_waiting_for_the_list(serving, call, make_pod, dgx1, gpus):
    serving.devices.publish(dgx1)
    release = threading.Event()

    def slow():
        serving.pods.event("ADDED", make_pod("a", 2, (gpus[5], gpus[2])))
        release.wait(10)

    serving.ask = slow
    try:
        assert call.prefer(gpus, 2) == (gpus[5], gpus[2])
    finally:
        release.set()
    assert serving.servicer.counts.late_hits == 1


def test_a_list_without_the_pod_ends_the_wait_at_once(serving, call, dgx1, gpus, monkeypatch):
    monkeypatch.setattr(module, "MISS_SECONDS", 60)
    serving.devices.publish(dgx1)
    serving.ask = lambda: threading.Event().wait(0.05)
    assert len(call.prefer(gpus, 2)) == 2


def test_an_api_server_that_hangs_costs_only_its_time(serving, call, dgx1, gpus, monkeypatch):
    monkeypatch.setattr(module, "MISS_SECONDS", 0.05)
    serving.devices.publish(dgx1)
    release = threading.Event()
    serving.ask = lambda: release.wait(10)
    try:
        assert len(set(call.prefer(gpus, 3))) == 3
    finally:
        release.set()
    assert serving.servicer.counts.misses == 1


def test_an_api_server_that_fails_still_gives_an_answer(serving, call, dgx1, gpus):
    def refuse():
        raise OSError("connection refused")

    serving.devices.publish(dgx1)
    serving.ask = refuse
    assert len(set(call.prefer(gpus, 8))) == 8


def test_a_search_that_breaks_still_gives_an_answer(serving, call, gpus, dgx1, monkeypatch):
    def broken(*arguments):
        raise ValueError("a bug")

    monkeypatch.setattr(module, "best_free", broken)
    serving.devices.publish(dgx1)
    assert call.prefer(gpus, 2, must=(gpus[7],)) == (gpus[7], gpus[0])


def test_a_bug_before_the_search_still_gives_an_answer(serving, call, gpus, monkeypatch):
    def broken(*arguments):
        raise ValueError("a bug")

    monkeypatch.setattr(module, "admitted", broken)
    assert call.prefer(gpus, 2) == gpus[:2]


def test_the_container_sees_its_gpus_in_the_order_written_on_the_pod(serving, call, make_pod, dgx1, gpus):
    serving.devices.publish(dgx1)
    written = (gpus[6], gpus[1], gpus[3])
    serving.pods.event("ADDED", make_pod("a", 3, written))
    env = call.allocate((gpus[1], gpus[3], gpus[6]))
    assert env == {"CUDA_VISIBLE_DEVICES": ",".join(written), "NVIDIA_VISIBLE_DEVICES": ",".join(written)}
    assert serving.allocated == 1


def test_a_pod_that_is_reported_already_is_still_handed_its_order(serving, call, make_pod, dgx1, gpus):
    serving.devices.publish(dgx1)
    serving.pods.event("ADDED", make_pod("a", 2, (gpus[5], gpus[2])))
    serving.devices.hold(["uid-a"], ["uid-a"])
    assert call.allocate((gpus[2], gpus[5]))["CUDA_VISIBLE_DEVICES"] == f"{gpus[5]},{gpus[2]}"


def test_another_set_than_written_is_handed_over_by_index(serving, call, make_pod, dgx1, gpus):
    serving.devices.publish(dgx1)
    serving.pods.event("ADDED", make_pod("a", 2, gpus[:2]))
    assert call.allocate((gpus[7], gpus[3]))["CUDA_VISIBLE_DEVICES"] == f"{gpus[3]},{gpus[7]}"


def test_a_pod_that_was_given_its_gpus_is_not_taken_for_the_next_one(serving, call, make_pod, dgx1, gpus):
    serving.devices.publish(dgx1)
    serving.pods.event("ADDED", make_pod("a", 2, gpus[:2]))
    call.allocate(gpus[:2])
    serving.pods.event("ADDED", make_pod("b", 2, gpus[2:4]))
    assert call.prefer(gpus, 2) == gpus[2:4]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_kubelet_always_gets_as_many_of_the_offered_gpus_as_it_asked_for(serving, call, make_pod, dgx1, gpus, data):
    serving.devices.publish(dgx1)
    ids = [*gpus, "GPU-strange"]
    offered = data.draw(st.lists(st.sampled_from(ids), unique=True, min_size=1))
    size = data.draw(st.integers(1, len(offered)))
    must = data.draw(st.lists(st.sampled_from(offered), unique=True, max_size=size))
    serving.pods.replace([make_pod(f"p{i}", 2, tuple(data.draw(st.lists(st.sampled_from(ids), max_size=3)))) for i in range(2)])
    answer = call.prefer(tuple(offered), size, tuple(must))
    assert len(set(answer)) == len(answer) == size
    assert set(must) <= set(answer) <= set(offered)
