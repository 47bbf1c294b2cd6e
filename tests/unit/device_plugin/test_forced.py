"""Pods deleted by force: their GPUs go to nobody while they run."""

import grpc
import pytest

from kompakt_core import contract
from kompakt_device_plugin import processes
from kompakt_device_plugin.api import NODES, pod_path
from tests.support.device_plugin.whole import NODE, Running, bind


def test_gpus_of_a_pod_deleted_by_force_go_to_nobody_while_its_processes_run(running, make_pod, gpus, until, deaf):
    deaf.add("uid-a")
    call, _ = running.start().listened()
    bind(running.api, make_pod("a", 2, gpus[:2], phase="Running"))
    running.kubelet.held["default", "a"] = gpus[:2]
    call.allocate(gpus[:2])
    until(lambda: len(running.held()) == 2)
    running.kubelet.held.clear()
    running.api.remove(pod_path("default", "a"))
    until(lambda: running.plugin.devices.orphaned == set(gpus[:2]))
    assert running.held() == {gpus[0]: "a", gpus[1]: "a"}
    assert not set(call.prefer(gpus, 4)) & set(gpus[:2])
    with pytest.raises(grpc.RpcError, match="still uses"):
        call.allocate(gpus[1:3])
    deaf.clear()
    until(lambda: not running.held())
    assert call.allocate(gpus[:2])


def test_a_pod_deleted_by_force_before_kubelet_listed_it_keeps_its_gpus(running, make_pod, gpus, until, deaf):
    call, _ = running.start().listened()
    deaf.add("uid-a")
    bind(running.api, make_pod("a", 2, gpus[:2]))
    until(lambda: call.prefer(gpus, 2) == gpus[:2])
    call.allocate(gpus[:2])
    running.api.remove(pod_path("default", "a"))
    until(lambda: running.plugin.devices.orphaned == set(gpus[:2]))
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
    until(lambda: running.plugin.devices.orphaned == {gpus[0]})


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


def test_a_later_pod_of_the_same_name_takes_over_nothing_and_gets_its_own_set(running, make_pod, gpus, until, deaf):
    """kubelet lists pods by name: what stands there may still be the predecessor's, which was deleted by force."""
    deaf.add("uid-a")
    call, _ = running.start().listened()
    bind(running.api, make_pod("a", 2, gpus[:2], phase="Running"))
    running.kubelet.held["default", "a"] = gpus[:2]
    call.allocate(gpus[:2])
    until(lambda: len(running.held()) == 2)
    running.api.remove(pod_path("default", "a"))
    heir = make_pod("a", 2, gpus[4:6])
    heir["metadata"]["uid"] = "uid-heir"
    bind(running.api, heir)
    until(lambda: [pod.uid for pod in running.plugin.pods.all()] == ["uid-heir"])
    rounds = len(running.kubelet.asked)
    until(lambda: len(running.kubelet.asked) > rounds + 2)
    uids = lambda: {one["uuid"]: one["podUID"] for one in running.topology()["status"]["held"]}  # noqa: E731
    assert uids() == dict.fromkeys(gpus[:2], "uid-a")
    assert call.prefer(gpus[2:], 2) == gpus[4:6]
    running.kubelet.held["default", "a"] = gpus[4:6]
    call.allocate(gpus[4:6])
    until(lambda: uids() == {**dict.fromkeys(gpus[:2], "uid-a"), **dict.fromkeys(gpus[4:6], "uid-heir")})
    deaf.clear()
    until(lambda: uids() == dict.fromkeys(gpus[4:6], "uid-heir"))
    assert not running.api.made("apply", "/pods/"), "what stands on the later pod was right all the time"


def test_a_pod_without_a_set_is_not_taken_for_the_one_that_had_these_gpus(running, make_pod, gpus, until, deaf):
    """Nobody has heard yet that the first pod was deleted by force; the second was bound by somebody else's scheduler."""
    call, _ = running.start().listened()
    deaf.add("uid-a")
    bind(running.api, make_pod("a", 2, gpus[:2], phase="Running"))
    until(lambda: running.plugin.pods.all())
    call.allocate(gpus[:2])
    bind(running.api, make_pod("b", 2))
    until(lambda: len(running.plugin.pods.all()) == 2)
    with pytest.raises(grpc.RpcError, match="processes of pods that had"):
        call.allocate(gpus[:2])
    deaf.clear()
    assert call.allocate(gpus[:2])


@pytest.mark.parametrize(("seen", "seconds"), [(True, 1.0), (False, 5.0)])
def test_allocate_itself_refuses_gpus_of_a_pod_deleted_a_moment_ago(
    api, kubelet, machines, client, until, make_pod, gpus, monkeypatch, seen, seconds
):
    """Before any round has seen it, and although no process of it is seen: one may be about to start, or to be killed."""
    now = [100.0]
    monkeypatch.setattr(processes, "sees_others", lambda: seen)
    api.put(f"{NODES}/{NODE}", {"metadata": {"name": NODE, "labels": {contract.LABEL_MACHINE: "big"}}})
    one = Running(api, kubelet, machines, client, until)
    one.plugin.pods._clock = lambda: now[0]
    call, _ = one.start().listened()
    bind(api, make_pod("a", 2, gpus[:2]))
    until(lambda: one.plugin.pods.all())
    call.allocate(gpus[:2])
    monkeypatch.setattr(one.plugin.agent, "step", lambda: None)
    api.remove(pod_path("default", "a"))
    until(lambda: one.plugin.pods.gone())
    now[0] += seconds - 0.1
    with pytest.raises(grpc.RpcError, match="still"):
        call.allocate(gpus[1:3])
    now[0] += 0.2
    monkeypatch.undo()
    until(lambda: not one.plugin.devices.orphaned)
    assert call.allocate(gpus[1:3])
    one.stop()
