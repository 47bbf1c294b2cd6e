"""Another device plugin under our resource's name: what gives it away, and what does not."""

import socket
import tempfile
from pathlib import Path

import pytest

from kompakt_core.contract.conditions import ConditionReason, TopologyType
from kompakt_core.topology.describe import read_description
from kompakt_device_plugin.advertisement import NodeReading, advertise
from kompakt_device_plugin.gpu_resource import GpuResource
from kompakt_device_plugin.journal import JournalEntry
from kompakt_device_plugin.podresources import gpus_of
from kompakt_device_plugin.pods import NodePods, read_pod
from kompakt_device_plugin.proto import podresources_pb2 as pr
from kompakt_device_plugin.report import conditions_of
from kompakt_device_plugin.rivals import RivalSockets, unserved
from tests.support.device_plugin.api import pod_object
from tests.support.device_plugin.pods import holding, node_pod, takes

THEIRS = "nvidia.com/gpu"
A, GPUS = node_pod("a", size=2), ("GPU-0", "GPU-1")


class Source:
    name, driver_version = "text", ""


def reading(**capacity):
    node = {"metadata": {"name": "n", "uid": "u"}, "status": {"capacity": capacity}}
    return NodeReading(node)


def test_a_pod_with_gpus_that_nobody_here_handed_over_is_another_plugins():
    taken = takes(a=GPUS)
    assert unserved(taken, (), (), (A,)) == (("ns", "a"),)
    assert unserved(taken, holding(a=GPUS[:1]), (), (A,)) == (("ns", "a"),)
    assert unserved(taken, holding(a=GPUS), (), (A,)) == ()
    assert unserved(taken, (), (JournalEntry(GPUS, "uid-a", "ns", "a"),), (A,)) == ()


def test_gpus_of_a_pod_that_ended_between_two_looks_are_no_others():
    taken = takes(a=GPUS)
    assert unserved(taken, holding(b=GPUS), (), (A,)) == (("ns", "a"),)
    handed = JournalEntry(GPUS)
    assert unserved(taken, handed.held, (), (A,)) == (), "handed over to a pod that was not known then"


def test_a_pod_that_ended_or_is_forgotten_tells_nothing():
    taken = takes(a=GPUS)
    assert unserved(taken, (), (), ()) == ()
    assert unserved(taken, (), (), (node_pod("a", size=2, finished=True),)) == ()


@pytest.fixture
def kubelet_dir():
    """Of a short name: a socket's path may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="kp-") as folder:
        (Path(folder) / "device-plugins").mkdir()
        yield Path(folder)


@pytest.mark.parametrize("name", ["nvidia-gpu.sock", "nvidia-gpu-3f9a1c07.sock"])
def test_a_living_socket_of_nvidias_plugin_shows_and_a_dead_one_does_not(kubelet_dir, name):
    look = RivalSockets(kubelet_dir, THEIRS)
    assert look() == ""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(kubelet_dir / "device-plugins" / name))
        server.listen()
        assert look() == f"{THEIRS} too (it listens on {name} in kubelet's folder)"
        assert RivalSockets(kubelet_dir, "kompakt.dev/gpu")() == ""
    assert look() == ""


def test_sockets_of_other_resources_are_no_rivals(kubelet_dir):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(kubelet_dir / "device-plugins" / "rdma.sock"))
        server.listen()
        assert RivalSockets(kubelet_dir, THEIRS)() == ""


def test_a_node_offers_under_nvidias_name_what_it_offers_itself():
    graph = read_description("dgx1-v100", "n")
    theirs = {THEIRS: "8"}
    assert advertise(reading(**theirs), graph, Source()).problem.reason == ConditionReason.CONFLICT
    assert advertise(reading(**theirs), graph, Source(), resource=GpuResource(THEIRS)).problem is None
    shared = advertise(reading(**theirs, **{"nvidia.com/gpu.shared": "8"}), graph, Source(), resource=GpuResource(THEIRS))
    assert shared.problem.reason == ConditionReason.CONFLICT
    rival = advertise(reading(**theirs), graph, Source(), resource=GpuResource(THEIRS), rival=f"{THEIRS} too (why)")
    assert (rival.offered, rival.problem.reason) == (None, ConditionReason.CONFLICT)
    conflict = next(one for one in conditions_of(rival.report) if one.type == TopologyType.CONFLICT)
    assert (conflict.status, conflict.message) == (True, f"another driver offers GPUs of this node as {THEIRS} too (why)")


def test_pods_that_ask_by_the_chosen_name_count():
    ours, theirs = pod_object("a", 2), pod_object("b", 2)
    theirs["spec"]["containers"][0]["resources"]["limits"] = {THEIRS: "2"}
    assert (read_pod(theirs).size, read_pod(theirs, THEIRS).size) == (0, 2)
    pods = NodePods(resource=THEIRS)
    pods.replace([ours, theirs])
    assert [pod.name for pod in pods.all()] == ["b"]


def test_a_share_of_a_gpu_is_that_gpu():
    """NVIDIA's plugin names shares GPU-...::0, GPU-...::1."""
    devices = [pr.ContainerDevices(resource_name=THEIRS, device_ids=["GPU-1::0", "GPU-1::3", "GPU-2"])]
    assert set(gpus_of([pr.ContainerResources(name="c", devices=devices)], THEIRS)) == {"GPU-1", "GPU-2"}
