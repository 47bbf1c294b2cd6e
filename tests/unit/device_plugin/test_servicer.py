"""kubelet's calls over a real socket."""

import contextlib
import math
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kompakt_core.contract.gpu_holders import GpuHolder
from kompakt_device_plugin import servicer as module
from kompakt_device_plugin.deadline_executor import CallDeadline
from kompakt_device_plugin.handover import environment_only
from kompakt_device_plugin.prefer import OfferedDevices, best_free
from kompakt_device_plugin.proto import deviceplugin_pb2 as pb
from kompakt_device_plugin.proto import deviceplugin_pb2_grpc as pb_grpc


class Serving:
    """A servicer behind a socket; `ask` may be replaced by the test."""

    def __init__(self, folder, parts, **more):
        self.parts, self.devices, self.pods, self.journal = parts, parts.devices, parts.pods, parts.journal
        self.asked = 0
        self.ask = lambda: None
        self.waited_for = threading.Event()  # whether a call waits for the pods by now
        wait = self.pods.wait
        self.pods.wait = lambda found, *limits: wait(lambda pods: self.waited_for.set() or found(pods), *limits)
        self.servicer = parts.servicer(self._ask, **more)
        self.socket = folder / "plugin.sock"
        self.server = grpc.server(ThreadPoolExecutor(4))
        pb_grpc.add_DevicePluginServicer_to_server(self.servicer, self.server)
        self.server.add_insecure_port(f"unix://{self.socket}")
        self.server.start()

    def _ask(self):
        self.asked += 1
        self.ask()

    def preferred(self, outcome):
        return self.parts.metrics.value("preferred_total", outcome=outcome)

    def stop(self):
        self.server.stop(None).wait()
        self.devices.wake()


@pytest.fixture
def serving(kubelet_dir, make_parts):
    one = Serving(kubelet_dir, make_parts(kubelet_dir))
    yield one
    one.stop()


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
    assert lists.get(timeout=60) == [(uuid, "Healthy") for uuid in gpus]
    serving.devices.publish(dgx1)
    assert serving.devices.offered.version == 1
    serving.devices.publish(None)
    assert lists.get(timeout=60) == []
    serving.devices.publish(dgx1)
    assert len(lists.get(timeout=60)) == 8
    assert lists.empty()


def test_a_kubelet_that_leaves_ends_its_stream(serving, call, dgx1, until):
    serving.devices.publish(dgx1)
    call.lists().get(timeout=60)
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
    assert (serving.asked, serving.preferred("late"), serving.preferred("miss")) == (1, 1, 0)


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
    assert serving.preferred("late") == 1


def test_an_answer_of_the_api_server_is_waited_for_a_fifth_of_a_second_at_most(serving, call, make_pod, dgx1, gpus):
    assert module.MISS_SECONDS <= 0.2
    serving.devices.publish(dgx1)

    def unhurried():
        assert serving.waited_for.wait(10)
        serving.pods.add([make_pod("a", 2, (gpus[5], gpus[2]))])

    serving.ask = unhurried
    assert call.prefer(gpus, 2) == (gpus[5], gpus[2])
    assert (serving.preferred("late"), serving.preferred("miss")) == (1, 0)


def test_a_list_without_the_pod_ends_the_wait_at_once(serving, call, dgx1, gpus, monkeypatch):
    monkeypatch.setattr(module, "MISS_SECONDS", 3600)
    monkeypatch.setattr(module, "CALL_SECONDS", 3600)
    serving.devices.publish(dgx1)
    serving.ask = lambda: serving.waited_for.wait(10)
    assert len(call.prefer(gpus, 2)) == 2


def test_an_api_server_that_hangs_costs_only_its_time(serving, call, dgx1, gpus, monkeypatch):
    monkeypatch.setattr(module, "MISS_SECONDS", 0)
    serving.devices.publish(dgx1)
    release = threading.Event()
    serving.ask = lambda: release.wait(10)
    try:
        assert len(set(call.prefer(gpus, 3))) == 3
    finally:
        release.set()
    assert serving.preferred("miss") == 1


def test_an_api_server_that_hangs_takes_neither_search_nor_processes_away(serving, call, make_pod, dgx1, gpus, monkeypatch):
    monkeypatch.setattr(module, "MISS_SECONDS", 0)
    serving.devices.publish(dgx1)
    serving.pods.event("ADDED", make_pod("before", 1, gpus[:1], phase="Running"))
    call.allocate(gpus[:1])
    release = threading.Event()
    serving.ask = lambda: release.wait(10)
    best = best_free(serving.pods.all(), OfferedDevices(gpus, (), 3), ["uid-before"], dgx1)
    try:
        assert [call.prefer(gpus, 3) for _ in range(6)] == [best] * 6 != [gpus[:3]] * 6
        assert call.allocate(gpus[:2]), "the pod that had the first GPU has no process"
    finally:
        release.set()


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
    assert serving.parts.allocated == 1


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


def test_a_pod_whose_gpus_come_back_is_not_taken_for_the_next_one_by_the_same_kubelet(serving, call, make_pod, dgx1, gpus):
    """It failed or ended before anybody heard of it: kubelet admits no pod twice."""
    serving.devices.publish(dgx1)
    serving.pods.event("ADDED", make_pod("a", 2, gpus[:2]))
    call.allocate(gpus[:2])
    serving.devices.hold(["uid-a"], ["uid-a"])
    serving.pods.event("ADDED", make_pod("b", 2, gpus[2:4]))
    assert call.prefer(gpus, 2) == gpus[2:4]
    assert serving.journal.in_vain


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


def test_what_is_handed_over_stands_in_the_file_before_kubelet_has_it(serving, call, make_pod, dgx1, gpus):
    serving.devices.publish(dgx1)
    serving.pods.event("ADDED", make_pod("a", 2, (gpus[5], gpus[2])))
    call.allocate((gpus[2], gpus[5]))
    call.allocate((gpus[7],))
    known, unknown = serving.journal.entries
    assert (set(known.gpus), known.pod_uid, known.pod) == ({gpus[2], gpus[5]}, "uid-a", "a")
    assert (unknown.gpus, unknown.pod_uid) == ((gpus[7],), "")
    call.prefer(gpus[6:], 1)
    assert serving.journal.in_vain == {unknown}, "kubelet offers 7 again: it went to nobody, or to one that it forgot"


def test_numa_nodes_are_told_only_when_asked_for(kubelet_dir, make_parts, dgx1, client):
    for number, numa in enumerate((False, True)):
        folder = kubelet_dir / str(number)
        folder.mkdir()
        serving = Serving(folder, make_parts(folder), numa=numa)
        serving.devices.publish(dgx1)
        message = next(iter(client(serving.socket).stub.ListAndWatch(pb.Empty())))
        told = [[node.ID for node in device.topology.nodes] for device in message.devices]
        assert told == [[gpu.numa_node] if numa else [] for gpu in dgx1.gpus]
        serving.stop()


class Slow:
    """Time in which nothing happens but that calls wait for work, and work that takes as long as the test says."""

    def __init__(self, takes):
        self.now, self.takes = 0.0, takes

    def executor(self, name):
        return SlowExecutor(self, self.takes.get(name, 0.0))

    def deadline(self, seconds):
        return CallDeadline(seconds, lambda: self.now)

    def wait(self, found, seconds, over):
        self.now += seconds

    def seconds_of(self, call, *arguments):
        began = self.now
        with contextlib.suppress(Refused):
            call(*arguments)
        return self.now - began


class SlowExecutor:
    def __init__(self, time, takes):
        self.time, self.takes = time, takes

    def begin(self, work, *arguments):
        return SlowTask(self.time, self.time.now + self.takes, lambda: work(*arguments))


class SlowTask:
    def __init__(self, time, ends, result):
        self.time, self._ends, self.result = time, ends, result

    def ended(self, seconds):
        self.time.now = min(self.time.now + max(0.0, seconds), max(self.time.now, self._ends))
        return self.done()

    def done(self):
        return self.time.now >= self._ends

    def then(self, call):
        pass


@pytest.fixture
def stuck(kubelet_dir, make_parts, dgx1, monkeypatch):
    """A servicer for which API server, search and driver hang; /proc is read almost for as long as that may take."""
    slow = Slow({"ask": math.inf, "search": math.inf, "driver check": math.inf, "processes": 0.25})
    monkeypatch.setattr(module, "DeadlineExecutor", slow.executor)
    monkeypatch.setattr(module, "CallDeadline", slow.deadline)
    parts = make_parts(kubelet_dir)
    parts.devices.publish(dgx1)
    servicer = parts.servicer(alive=lambda uids: frozenset())
    monkeypatch.setattr(parts.pods, "wait", slow.wait)
    return parts, servicer, slow


class Refused(Exception):
    """Ends an Allocate as gRPC does."""


class Context:
    def abort(self, code, reason):
        raise Refused(reason)


def test_a_miss_costs_at_most_half_a_second_in_all(stuck, gpus):
    parts, servicer, slow = stuck
    asked = pb.ContainerPreferredAllocationRequest(available_deviceIDs=gpus, allocation_size=2)
    request = pb.PreferredAllocationRequest(container_requests=[asked] * 3)
    assert slow.seconds_of(servicer.GetPreferredAllocation, request, Context()) == 0.5
    assert parts.metrics.value("preferred_total", outcome="miss") == 3


def test_looks_at_driver_and_processes_cost_an_allocate_at_most_half_a_second_in_all(stuck, gpus, make_pod):
    parts, servicer, slow = stuck
    parts.pods.event("ADDED", make_pod("before", 1, gpus[:1], phase="Running"))
    parts.devices.keep((GpuHolder(gpus[0], "default", "before", "uid-before"),))
    request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=gpus[:2])])
    assert 0.25 < slow.seconds_of(servicer.Allocate, request, Context()) <= 0.5


def test_a_gpu_that_a_process_still_uses_is_not_handed_over_and_that_fails_the_placement(kubelet_dir, make_parts, client, gpus):
    serving = Serving(kubelet_dir, make_parts(kubelet_dir), busy=lambda gpu: gpu == gpus[3])
    call = client(serving.socket)
    call.allocate(gpus[:2])
    with pytest.raises(grpc.RpcError) as refused:
        call.allocate(gpus[2:4])
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert refused.value.details() == f"a process of no pod here still uses {gpus[3]}"
    assert [entry.gpus for entry in serving.journal.entries] == [gpus[:2]]
    assert serving.parts.metrics.value("rejected_allocations_total") == 1
    serving.stop()


@pytest.mark.parametrize("hangs", [True, False], ids=["it hangs", "it fails"])
def test_a_driver_that_does_not_say_how_a_container_gets_its_gpus_fails_that_pod_only(
    kubelet_dir, make_parts, client, gpus, monkeypatch, hangs
):
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0 if hangs else 60)
    release, asked = threading.Event(), []

    def answer(some):
        asked.append(some)
        if len(asked) == 1 and not hangs:
            raise OSError("no such device")
        if len(asked) == 1:
            release.wait(10)
        return environment_only(some)

    serving = Serving(kubelet_dir, make_parts(kubelet_dir), answer=answer)
    try:
        with pytest.raises(grpc.RpcError, match="cannot be told in time"):
            client(serving.socket).allocate(gpus[:1])
        monkeypatch.setattr(module, "ANSWER_SECONDS", 60)
        assert client(serving.socket).allocate(gpus[1:2])
    finally:
        release.set()
    serving.stop()


def test_a_driver_that_does_not_say_whether_a_gpu_is_used_keeps_no_pod_waiting(
    kubelet_dir, make_parts, client, gpus, monkeypatch
):
    monkeypatch.setattr(module, "SEARCH_SECONDS", 0)
    release = threading.Event()
    serving = Serving(kubelet_dir, make_parts(kubelet_dir), busy=lambda gpu: release.wait(10))
    try:
        assert [bool(client(serving.socket).allocate(gpus[n : n + 1])) for n in range(4)] == [True] * 4
    finally:
        release.set()
    serving.stop()
