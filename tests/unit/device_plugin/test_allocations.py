"""Who holds which GPU, as the whole plugin reports and corrects it."""

from kompakt_device_plugin import allocations
from kompakt_device_plugin.api import pod_path
from tests.support.device_plugin.whole import NODE, TOPOLOGY


def test_what_kubelet_lists_a_moment_after_allocate_is_reported_within_a_second(running, gpus, until):
    call, _ = running.start().listened()
    until(lambda: running.topology()["status"])
    call.allocate(gpus[:1])
    until(lambda: len(running.kubelet.asked) > 2)
    running.kubelet.held["default", "slow"] = gpus[:1]
    until(lambda: running.held() == {gpus[0]: "slow"}, 1.5)


def test_a_broken_report_of_the_process_before_is_logged_once_and_replaced(running, gpus, until, deaf, caplog):
    """What can be read of it counts: a pod deleted by force may still have its GPU."""
    deaf.add("uid-a")
    held = [{"uuid": gpus[1], "pod": ["a"], "podUID": "uid-a"}, {"uuid": ""}, {"uuid": gpus[2], "podUID": 7}]
    running.api.put(TOPOLOGY, {"metadata": {"name": NODE}, "status": {"held": held}})
    running.start()
    until(lambda: running.held() == {gpus[1]: ""})
    assert running.plugin.devices.orphaned == {gpus[1]}
    assert all(caplog.text.count(f"the last report of this node: status.held[{n}]") == 1 for n in range(3))
    deaf.clear()
    until(lambda: not running.held())


def test_gpus_stay_held_while_a_kubelet_that_just_started_lists_no_pods(running, gpus, until, monkeypatch):
    # Wherever the tests run: in a container it is longer.
    monkeypatch.setattr(allocations, "UNSEEN_SECONDS", allocations.STARTING_SECONDS)
    call, _ = running.start().listened()
    running.bind("a", gpus[:2], listed=True)
    call.allocate(gpus[:2])
    until(lambda: len(running.held()) == 2)
    running.kubelet.held.clear()
    call.allocate(gpus[4:5])
    running.rounds(1)
    assert len(running.held()) == 2
    running.delete("a")
    until(lambda: not running.held())


def test_a_pod_gets_its_set_is_reported_and_gets_it_again_from_a_restarted_kubelet(running, gpus, until):
    """kubelet ended after Allocate and before it had noted that down: to the next one the pod has nothing."""
    call, _ = running.start().listened()
    running.bind("a", (gpus[5], gpus[2]))
    until(lambda: call.prefer(gpus, 2) == (gpus[5], gpus[2]))
    assert call.allocate((gpus[2], gpus[5]))["CUDA_VISIBLE_DEVICES"] == f"{gpus[5]},{gpus[2]}"
    until(lambda: running.held() == {gpus[5]: "a", gpus[2]: "a"}, 1.0)
    running.kubelet.stop()
    running.kubelet.requests.clear()
    running.kubelet.start()
    call, _ = running.listened()
    for _ in range(2):  # and again, as long as it is not handed over
        assert call.prefer(gpus, 2) == (gpus[5], gpus[2])
    rounds = len(running.kubelet.asked)
    running.plugin.agent.allocated()
    until(lambda: len(running.kubelet.asked) > rounds + 1)
    until(lambda: not running.held())  # kubelet offers them: nobody has them
    running.kubelet.held["default", "a"] = (gpus[2], gpus[5])
    call.allocate((gpus[2], gpus[5]))
    until(lambda: running.held() == {gpus[5]: "a", gpus[2]: "a"})
    assert not running.api.made("apply", "/pods/")


def test_swapped_sets_are_corrected_after_held_is_written_and_told(running, gpus, until):
    call, _ = running.start().listened()
    running.bind("a", gpus[:2])
    running.bind("b", gpus[2:4])
    running.kubelet.held.update({("default", "a"): gpus[2:4], ("default", "b"): gpus[:2]})
    call.allocate(gpus[:2])
    until(lambda: running.written_on("a") == set(gpus[2:4]))
    until(lambda: running.written_on("b") == set(gpus[:2]))
    until(lambda: len(running.events()) == 2)
    paths = [path for _, path, _ in running.api.calls]
    corrected = paths.index(pod_path("default", "a"))
    bodies = [body for _, path, body in running.api.calls[:corrected] if path == f"{TOPOLOGY}/status"]
    held = {entry["uuid"]: entry["pod"] for entry in bodies[-1]["status"]["held"]}
    assert held == {gpus[0]: "b", gpus[1]: "b", gpus[2]: "a", gpus[3]: "a"}
    assert corrected < next(number for number, path in enumerate(paths) if path.endswith("/events"))
    assert running.plugin.metrics.value("corrected_pods_total") == 2


def test_the_gpus_are_counted_by_state(running, gpus, until):
    call, _ = running.start().listened()
    running.bind("a", gpus[:2], listed=True)
    call.allocate(gpus[:2])
    metrics = running.plugin.metrics
    until(lambda: metrics.value("gpus", state="allocated") == 2)
    assert (metrics.value("gpus", state="free"), metrics.value("gpus", state="unhealthy")) == (6, 0)
    call.prefer(gpus[2:], 1)
    assert metrics.value("preferred_allocation_seconds_count") == 1
