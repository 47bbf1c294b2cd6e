"""Pods deleted by force: their GPUs go to nobody while they run."""

import grpc
import pytest

from kompakt_device_plugin import processes


@pytest.mark.parametrize("forgets", ["before", "never listed it", "after"])
def test_gpus_of_a_pod_deleted_by_force_go_to_nobody_while_its_processes_run(running, gpus, until, deaf, forgets):
    """kubelet forgets it before or after the API server does, or has not listed it yet."""
    listed = forgets != "never listed it"
    call, _ = running.start().listened()
    deaf.add("uid-a")
    running.bind("a", gpus[:2], listed=listed)
    until(lambda: call.prefer(gpus, 2) == gpus[:2])
    call.allocate(gpus[:2])
    until(lambda: len(running.held()) == 2)
    if forgets == "before":
        running.kubelet.held.clear()
    running.delete("a")
    if forgets == "after":
        running.rounds(1)
        running.kubelet.held.clear()
    until(lambda: running.plugin.devices.orphaned == set(gpus[:2]))
    until(lambda: running.held() == {gpus[0]: "a", gpus[1]: "a"})
    assert not set(call.prefer(gpus, 4)) & set(gpus[:2])
    with pytest.raises(grpc.RpcError, match="still uses"):
        call.allocate(gpus[1:3])
    deaf.clear()
    until(lambda: not running.held())
    assert call.allocate(gpus[:2])


@pytest.mark.parametrize("second", [None, "b"], ids=["another set", "a pod on which none is written"])
def test_gpus_are_refused_before_any_round_has_seen_that_their_pod_was_deleted(running, gpus, until, deaf, second):
    """kubelet may be faster than the watch: at the moment of Allocate the pods that had these GPUs are looked for."""
    call, _ = running.start().listened()
    deaf.add("uid-a")
    running.bind("a", gpus[:2], phase="Running")
    until(running.plugin.pods.all)
    call.allocate(gpus[:2])
    if second:  # bound by somebody else's scheduler, and not taken for the one that had these GPUs
        running.bind(second, size=2)
        until(lambda: len(running.plugin.pods.all()) == 2)
    wanted = gpus[:2] if second else gpus[1:3]
    with pytest.raises(grpc.RpcError, match="processes of pods that had"):
        call.allocate(wanted)
    assert second or call.allocate(gpus[:2]), "the pod itself may ask again"
    deaf.clear()
    assert call.allocate(wanted)


def test_a_later_pod_of_the_same_name_takes_over_nothing_and_gets_its_own_set(running, gpus, until, deaf):
    """kubelet lists pods by name: what stands there may still be the predecessor's, which was deleted by force."""
    deaf.add("uid-a")
    call, _ = running.start().listened()
    running.bind("a", gpus[:2], listed=True, phase="Running")
    call.allocate(gpus[:2])
    until(lambda: len(running.held()) == 2)
    running.delete("a")
    running.bind("a", gpus[4:6], uid="uid-heir")
    until(lambda: [pod.uid for pod in running.plugin.pods.all()] == ["uid-heir"])
    running.rounds(2)
    first, heirs = dict.fromkeys(gpus[:2], "uid-a"), dict.fromkeys(gpus[4:6], "uid-heir")
    assert running.held("podUID") == first
    assert call.prefer(gpus[2:], 2) == gpus[4:6]
    running.kubelet.held["default", "a"] = gpus[4:6]
    call.allocate(gpus[4:6])
    until(lambda: running.held("podUID") == first | heirs)
    deaf.clear()
    until(lambda: running.held("podUID") == heirs)
    assert not running.api.made("apply", "/pods/"), "what stands on the later pod was right all the time"


@pytest.mark.parametrize(("seen", "seconds"), [(True, 1.0), (False, 5.0)])
def test_allocate_itself_refuses_gpus_of_a_pod_deleted_a_moment_ago(plugin_with, gpus, until, monkeypatch, seen, seconds):
    """Before any round has seen it, and although no process of it is seen: one may be about to start, or to be killed."""
    now = [100.0]
    monkeypatch.setattr(processes, "sees_others", lambda: seen)
    one = plugin_with()
    one.plugin.pods._clock = lambda: now[0]
    call, _ = one.start().listened()
    one.bind("a", gpus[:2])
    until(one.plugin.pods.all)
    call.allocate(gpus[:2])
    monkeypatch.setattr(one.plugin.agent, "step", lambda: None)
    one.delete("a")
    until(one.plugin.pods.gone)
    now[0] += seconds - 0.1
    with pytest.raises(grpc.RpcError, match="still"):
        call.allocate(gpus[1:3])
    now[0] += 0.2
    monkeypatch.undo()
    until(lambda: not one.plugin.devices.orphaned)
    assert call.allocate(gpus[1:3])
