"""kubelet's calls over a real socket."""

import contextlib
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kompakt_core.contract.gpu_holders import GpuHolder
from kompakt_core.errors import InvalidInput
from kompakt_device_plugin import servicer as module
from kompakt_device_plugin.deadline_executor import CallDeadline
from kompakt_device_plugin.handover import environment_only
from kompakt_device_plugin.prefer import OfferedDevices, best_free
from kompakt_device_plugin.proto import deviceplugin_pb2 as pb
from kompakt_device_plugin.proto import deviceplugin_pb2_grpc as pb_grpc
from tests.support.device_plugin.api import pod_object


class Serving:
    """A servicer behind a socket that offers all GPUs of a graph; `ask` may be replaced by the test."""

    def __init__(self, folder, parts, graph, **more):
        self.parts, self.devices, self.pods, self.journal = parts, parts.devices, parts.pods, parts.journal
        self.gpus = [gpu.uuid for gpu in graph.gpus]
        self.asked, self.ask = 0, lambda: None
        self.release = threading.Event()  # what hangs goes on
        self.waited_for = threading.Event()  # whether a call waits for the pods by now
        wait = self.pods.wait
        self.pods.wait = lambda found, *limits: wait(lambda pods: self.waited_for.set() or found(pods), *limits)
        self.servicer = parts.servicer(self._ask, **more)
        self.devices.publish(graph)
        self.socket = folder / "plugin.sock"
        self.server = grpc.server(ThreadPoolExecutor(4))
        pb_grpc.add_DevicePluginServicer_to_server(self.servicer, self.server)
        self.server.add_insecure_port(f"unix://{self.socket}")
        self.server.start()

    def _ask(self):
        self.asked += 1
        self.ask()

    def hang(self, *_):
        self.release.wait(10)

    def add(self, name, *indices, **more):
        """The watch delivers a pod on which these GPUs are written."""
        self.pods.event("ADDED", pod_object(name, len(indices), tuple(self.gpus[index] for index in indices), **more))

    def preferred(self):
        """How often GPUs were chosen as written after a wait, and by the plugin itself."""
        return tuple(self.parts.metrics.value("preferred_total", outcome=outcome) for outcome in ("late", "miss"))

    def stop(self):
        self.release.set()
        self.server.stop(None).wait()
        self.devices.wake()


@pytest.fixture
def serve(kubelet_dir, make_parts, dgx1, client):
    """Makes a servicer with more of its arguments, and kubelet's calls to it."""
    made = []

    def make(**more):
        folder = kubelet_dir / str(len(made))
        folder.mkdir()
        made.append(Serving(folder, make_parts(folder), dgx1, **more))
        return made[-1], client(made[-1].socket)

    yield make
    for one in made:
        one.stop()


@pytest.fixture
def served(serve):
    return serve()


@pytest.fixture
def serving(served):
    return served[0]


@pytest.fixture
def call(served):
    return served[1]


def test_kubelet_is_told_to_ask_for_preferences(call):
    assert call.stub.GetDevicePluginOptions(pb.Empty()).get_preferred_allocation_available
    assert call.stub.PreStartContainer(pb.PreStartContainerRequest()) == pb.PreStartContainerResponse()


def test_every_change_of_the_devices_is_sent_as_a_whole_list_until_kubelet_leaves(serving, call, dgx1, gpus, until):
    lists = call.lists()
    assert lists.get(timeout=60) == [(uuid, "Healthy") for uuid in gpus]
    serving.devices.publish(dgx1)
    assert (serving.devices.offered.version, serving.servicer.streams) == (1, 1)
    serving.devices.publish(None)
    assert lists.get(timeout=60) == []
    serving.devices.publish(dgx1)
    assert len(lists.get(timeout=60)) == 8
    assert lists.empty()
    call.channel.close()
    until(lambda: serving.servicer.streams == 0)


def test_the_written_set_is_answered_without_asking_the_api_server(serving, call, gpus):
    serving.add("a", 5, 2)
    assert call.prefer(gpus, 2) == (gpus[5], gpus[2])
    assert serving.asked == 0


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda serving, pod: serving.pods.add([pod]), id="in its list"),
        pytest.param(lambda serving, pod: serving.pods.event("ADDED", pod) or serving.hang(), id="by the watch before its list"),
        pytest.param(lambda serving, pod: serving.waited_for.wait(10) and serving.pods.add([pod]), id="after a moment"),
    ],
)
def test_a_pod_that_the_watch_has_not_delivered_yet_is_asked_for_and_the_api_server_brings_it(serving, call, gpus, ask):
    assert module.MISS_SECONDS <= 0.2
    serving.ask = lambda: ask(serving, pod_object("a", 2, (gpus[5], gpus[2])))
    assert call.prefer(gpus, 2) == (gpus[5], gpus[2])
    assert (serving.asked, *serving.preferred()) == (1, 1, 0)


def test_a_list_without_the_pod_ends_the_wait_at_once(serving, call, gpus, monkeypatch):
    monkeypatch.setattr(module, "MISS_SECONDS", 3600)
    monkeypatch.setattr(module, "CALL_SECONDS", 3600)
    serving.ask = lambda: serving.waited_for.wait(10)
    assert len(call.prefer(gpus, 2)) == 2


def test_an_api_server_that_hangs_takes_neither_search_nor_processes_away(serving, call, dgx1, gpus, monkeypatch):
    monkeypatch.setattr(module, "MISS_SECONDS", 0)
    serving.add("before", 0, phase="Running")
    call.allocate(gpus[:1])
    serving.ask = serving.hang
    best = best_free(serving.pods.all(), OfferedDevices(gpus, (), 3), ["uid-before"], dgx1)
    assert [call.prefer(gpus, 3) for _ in range(6)] == [best] * 6 != [gpus[:3]] * 6
    assert serving.preferred() == (0, 6)
    assert call.allocate(gpus[:2]), "the pod that had the first GPU has no process"


@pytest.mark.parametrize(
    ("broken", "error"),
    [("ask", OSError("connection refused")), ("best_free", ValueError("a bug")), ("admitted", ValueError("a bug"))],
    ids=["the API server", "the search", "what comes before the search"],
)
def test_whatever_fails_there_is_an_answer(serving, call, gpus, monkeypatch, broken, error):
    def breaks(*arguments):
        raise error

    monkeypatch.setattr(serving if broken == "ask" else module, broken, breaks)
    assert len(set(call.prefer(gpus, 8))) == 8
    answer = call.prefer(gpus, 2, must=(gpus[7],))
    assert gpus[7] in answer
    assert len(set(answer)) == 2
    assert broken == "ask" or (answer, call.prefer(gpus, 2)) == ((gpus[7], gpus[0]), gpus[:2])


@pytest.mark.parametrize(
    ("written", "reported", "given", "seen"),
    [
        pytest.param((6, 1, 3), False, (1, 3, 6), (6, 1, 3), id="as written on the pod"),
        pytest.param((5, 2), True, (2, 5), (5, 2), id="as written although the pod is reported already"),
        pytest.param((0, 1), False, (7, 3), (3, 7), id="by index where another set is written"),
    ],
)
def test_the_order_in_which_the_container_sees_its_gpus(serving, call, gpus, written, reported, given, seen):
    serving.add("a", *written)
    if reported:
        serving.devices.hold(["uid-a"], ["uid-a"])
    order = ",".join(gpus[i] for i in seen)
    assert call.allocate([gpus[i] for i in given]) == {"CUDA_VISIBLE_DEVICES": order, "NVIDIA_VISIBLE_DEVICES": order}
    assert serving.parts.allocated == serving.parts.metrics.value("allocations_total") == 1


@pytest.mark.parametrize("reported", [False, True], ids=["nobody has heard of it", "it is reported"])
def test_a_pod_that_was_given_its_gpus_is_not_taken_for_the_next_one_even_when_they_come_back(serving, call, gpus, reported):
    """It may have failed or ended before anybody heard of it: the same kubelet admits no pod twice."""
    serving.add("a", 0, 1)
    call.allocate(gpus[:2])
    if reported:
        serving.devices.hold(["uid-a"], ["uid-a"])
    serving.add("b", 2, 3)
    assert call.prefer(gpus, 2) == gpus[2:4]
    assert serving.journal.in_vain


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_kubelet_always_gets_as_many_of_the_offered_gpus_as_it_asked_for(serving, call, make_pod, gpus, data):
    ids = [*gpus, "GPU-strange"]
    offered = data.draw(st.lists(st.sampled_from(ids), unique=True, min_size=1))
    size = data.draw(st.integers(1, len(offered)))
    must = data.draw(st.lists(st.sampled_from(offered), unique=True, max_size=size))
    serving.pods.replace([make_pod(f"p{i}", 2, tuple(data.draw(st.lists(st.sampled_from(ids), max_size=3)))) for i in range(2)])
    answer = call.prefer(tuple(offered), size, tuple(must))
    assert len(set(answer)) == len(answer) == size
    assert set(must) <= set(answer) <= set(offered)


def test_what_is_handed_over_stands_in_the_file_before_kubelet_has_it(serving, call, gpus):
    serving.add("a", 5, 2)
    call.allocate((gpus[2], gpus[5]))
    call.allocate((gpus[7],))
    known, unknown = serving.journal.entries
    assert (set(known.gpus), known.pod_uid, known.pod) == ({gpus[2], gpus[5]}, "uid-a", "a")
    assert (unknown.gpus, unknown.pod_uid) == ((gpus[7],), "")
    call.prefer(gpus[6:], 1)
    assert serving.journal.in_vain == {unknown}, "kubelet offers 7 again: it went to nobody, or to one that it forgot"


def test_a_busy_disk_keeps_no_pod_from_its_gpus_and_is_counted(serving, call, gpus, monkeypatch, caplog):
    monkeypatch.setattr(serving.journal, "begin", lambda entry: False)
    assert call.allocate(gpus[:1])
    assert serving.parts.metrics.value("late_writes_total") == 1
    assert f"the disk is busy: {gpus[0]} handed over before it stands in the write-ahead file" in caplog.text


@pytest.mark.parametrize("numa", [False, True])
def test_numa_nodes_are_told_only_when_asked_for(serve, dgx1, numa):
    _, call = serve(numa=numa)
    message = next(iter(call.stub.ListAndWatch(pb.Empty())))
    told = [[node.ID for node in device.topology.nodes] for device in message.devices]
    assert told == [[gpu.numa_node] if numa else [] for gpu in dgx1.gpus]


class Slow:
    """Time in which nothing happens but that calls wait for work, and work that takes as long as the test says."""

    def __init__(self, takes):
        self.now, self.takes = 0.0, takes

    def executor(self, name):
        return SimpleNamespace(begin=lambda work, *args: SlowTask(self, self.now + self.takes.get(name, 0.0), work, args))

    def deadline(self, seconds):
        return CallDeadline(seconds, lambda: self.now)

    def wait(self, found, seconds, over):
        self.now += seconds

    def seconds_of(self, call, *arguments):
        began = self.now
        with contextlib.suppress(Refused):
            call(*arguments)
        return self.now - began


class SlowTask:
    def __init__(self, time, ends, work, args):
        self.time, self._ends, self.result = time, ends, lambda: work(*args)

    def ended(self, seconds):
        self.time.now = min(self.time.now + max(0.0, seconds), max(self.time.now, self._ends))
        return self.done()

    def done(self):
        return self.time.now >= self._ends

    def then(self, call):
        pass


class Refused(Exception):
    """Ends an Allocate as gRPC does."""


class Context:
    def abort(self, code, reason):
        raise Refused(reason)


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


def test_a_gpu_that_a_process_still_uses_is_not_handed_over_and_that_fails_the_placement(serve, gpus):
    here, call = serve(busy=lambda gpu: gpu == gpus[3])
    call.allocate(gpus[:2])
    with pytest.raises(grpc.RpcError) as refused:
        call.allocate(gpus[2:4])
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert refused.value.details() == f"a process of no pod here still uses {gpus[3]}"
    assert [entry.gpus for entry in here.journal.entries] == [gpus[:2]]
    assert here.parts.metrics.value("rejected_allocations_total") == 1


@pytest.mark.parametrize("hangs", [True, False], ids=["it hangs", "it fails"])
def test_a_driver_that_does_not_say_how_a_container_gets_its_gpus_fails_that_pod_only(serve, gpus, monkeypatch, hangs):
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0 if hangs else 60)

    def answer(some):
        if some == gpus[:1] and not hangs:
            raise OSError("no such device")
        if some == gpus[:1]:
            here.hang()
        return environment_only(some)

    here, call = serve(answer=answer)
    with pytest.raises(grpc.RpcError, match="cannot be told in time"):
        call.allocate(gpus[:1])
    monkeypatch.setattr(module, "ANSWER_SECONDS", 60)
    assert call.allocate(gpus[1:2])


def test_why_a_container_cannot_get_its_gpus_is_told_to_kubelet_and_keeps_later_pods_from_nothing(serve, gpus):
    def answer(some):
        if some == gpus[:1]:
            raise InvalidInput("no specification names it: write one")
        return environment_only(some)

    here, call = serve(answer=answer)
    with pytest.raises(grpc.RpcError) as refused:
        call.allocate(gpus[:1])
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert refused.value.details() == "no specification names it: write one"
    assert here.parts.metrics.value("rejected_allocations_total") == 1
    assert call.allocate(gpus[1:2])


def test_a_driver_that_does_not_say_whether_a_gpu_is_used_keeps_no_pod_waiting(serve, gpus, monkeypatch):
    monkeypatch.setattr(module, "SEARCH_SECONDS", 0)
    release = threading.Event()
    _, call = serve(busy=lambda gpu: release.wait(10))
    assert [bool(call.allocate(gpus[n : n + 1])) for n in range(4)] == [True] * 4
    release.set()
