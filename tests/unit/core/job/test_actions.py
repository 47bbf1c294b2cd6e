"""What the operator does about a job, told as small stories; every story ends with five looks at which nothing moves."""

from dataclasses import replace
from typing import Any

import pytest

from kompakt_core.contract.conditions import condition
from kompakt_core.job import actions
from kompakt_core.job import to_do as do
from kompakt_core.job.pods import Exit
from kompakt_core.job.status import JobStatus, shortened
from tests.support.core.job_world import FAILED

REFUSED = {"phase": "Failed", "started": False, "reason": "UnexpectedAdmissionError"}
UNHEALTHY = {"unhealthy": "GPU-7 (index 3): XID 79"}


def test_a_new_job_gets_its_attempt_before_its_pods(world: Any) -> None:
    kinds = [type(action).__name__ for action in world.history]
    assert kinds[:3] == ["WriteStatus", "TryPod", "CreateService"]
    assert world.history[0].status["attempt"] == 1
    assert sorted(world.pods) == ["j-worker-0-a1", "j-worker-1-a1"]
    assert (world.shows("phase", "gpus", "nodes"), world.condition("Reconciling")) == (
        ("Pending", 4, None), ("True", "WorkersNotRunning"),
    )  # fmt: skip


def test_worker_indices_count_over_roles(world_of: Any) -> None:
    roles = [{"name": "chief", "gpusPerReplica": 1}, {"name": "worker", "replicas": 2, "gpusPerReplica": 1}]
    assert [pod.worker_index for pod in world_of(roles=roles).pods.values()] == [0, 1, 2]


def test_phases_and_nodes_follow_the_pods(world: Any) -> None:
    seen = [world.shows("phase", "nodes")]
    for step in (world.bound, world.running, world.succeed):
        step()
        seen.append(world.settle().shows("phase", "nodes"))
    assert seen == [("Pending", None), ("Starting", "n1"), ("Running", "n1"), ("Succeeded", "n1")]
    assert world.condition("Complete") == ("True", "WorkersSucceeded")
    assert world.condition("Reconciling")[0] == world.condition("Stalled")[0] == "False"
    assert shortened(["a", "b", "c", "d", "e", "f"]) == "a,b,c,d,+2"


def test_a_job_that_does_not_start_says_which_container_waits_for_what(world: Any) -> None:
    world.bound().settle()
    told = []
    for stuck in ("container main cannot pull nowhere:1", ""):
        found = world.change_one(1, stuck=stuck).settle().status.conditions["Reconciling"]
        told.append((found.true, found.message))
    say = "container main cannot pull nowhere:1 (kubectl describe pod j-worker-1-a1 tells more)"
    assert (told, world.shows("phase")) == ([(True, say), (True, "")], ("Starting",))


CHIEF = [{"name": "chief", "gpusPerReplica": 1}, {"name": "helper", "gpusPerReplica": 0}]


def on_exit_1(action: str) -> dict[str, Any]:
    return {"podFailurePolicy": {"rules": [{"onExitCodes": {"values": [1]}, "action": action}]}}


# The run policy; what happens to a worker of a running gang; then phase, attempt, restarts, disruptions.
ENDS: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[Any, ...]]] = {
    "a failed worker": ({}, FAILED, ("Pending", 2, 1, 0)),
    "a pod that others delete is not counted": ({}, {"deleting": True}, ("Restarting", 2, 0, 1)),
    "an eviction is not counted": ({}, {"disrupted": "PreemptionByScheduler", **FAILED}, ("Pending", 2, 0, 1)),
    "an eviction that ends with exit code 0 is no success": (
        {},
        {"disrupted": "TerminationByKubelet", "phase": "Succeeded", "started": True},
        ("Pending", 2, 0, 1),
    ),
    "a pod that kubelet refuses is not counted": ({}, REFUSED, ("Pending", 2, 0, 1)),
    "an unhealthy GPU is not counted": ({}, UNHEALTHY, ("Pending", 2, 0, 1)),
    "an exit code fails the job": (on_exit_1("FailJob"), FAILED, ("Failed", 1, 0, 0)),
    "an exit code restarts the gang": (on_exit_1("RestartGang"), FAILED, ("Pending", 2, 1, 0)),
    "an exit code is ignored": (on_exit_1("Ignore"), FAILED, ("Pending", 2, 0, 1)),
}


def test_a_gang_that_saves_its_work_and_exits_with_0_when_it_is_evicted_starts_anew(world: Any) -> None:
    world.run().succeed(disrupted="TerminationByKubelet")
    assert world.shows("phase", "attempt", "restarts", "disruptions") == ("Pending", 2, 0, 1)
    assert world.run().succeed().shows("phase", "attempt") == ("Succeeded", 2)


@pytest.mark.parametrize(("policy", "change", "shown"), ENDS.values(), ids=ENDS)
def test_what_becomes_of_a_gang_that_loses_a_worker(
    world_of: Any, policy: dict[str, Any], change: dict[str, Any], shown: tuple[Any, ...]
) -> None:
    world = world_of(runPolicy=policy).run().fail(1, **change)
    assert world.shows("phase", "attempt", "restarts", "disruptions") == shown
    if shown[0] == "Pending":
        assert (sorted(world.pods), world.services) == (["j-worker-0-a2", "j-worker-1-a2"], {"j-a2"})


def test_the_next_attempt_waits_until_the_old_pods_are_gone(world: Any) -> None:
    world.run().change_one(1, **FAILED)
    for action in world.look():
        if not isinstance(action, do.DeletePod):
            world.perform(action)
    world.pods = {name: replace(pod, deleting=True) for name, pod in world.pods.items()}
    assert (world.look(), world.stored["phase"]) == ([do.Wake(1005.0)], "Restarting")
    world.pods = {name: replace(pod, node_lost=True) for name, pod in world.pods.items()}
    assert do.CreatePod("worker", 0, 2) in world.look()


def test_the_job_fails_when_backoff_limit_is_used_up(world_of: Any) -> None:
    world = world_of(runPolicy={"backoffLimit": 1}).run().fail().run().fail()
    assert (world.stored["phase"], world.condition("Failed")) == ("Failed", ("True", "BackoffLimitExceeded"))
    assert "pod j-worker-0-a2 failed: container trainer ended with exit code 1" in world.status.conditions["Failed"].message
    assert world.condition("Stalled")[0] == "True"


def test_twenty_disruptions_in_a_row_stall_the_job_for_ten_minutes(world: Any) -> None:
    for _ in range(20):
        world.bound().fail(0, **REFUSED)
    assert world.condition("Stalled") == ("True", "RepeatedDisruptions")
    assert (world.pods, world.look()) == ({}, [do.Wake(1600.0)])
    world.now = 1600.0
    assert len(world.settle().pods) == 2
    assert world.condition("Stalled")[0] == "False"
    assert world.run().stored["disruptions"] == 0


def test_a_gang_that_keeps_failing_waits_longer_each_time_and_a_restart_is_told(world_of: Any) -> None:
    world = world_of(runPolicy={"backoffLimit": 9})
    waits = []
    for _ in range(8):
        waits.append(world.run().fail().stored["lastRestart"]["delaySeconds"])
        if waits[-1]:
            assert (world.pods, world.look()) == ({}, [do.Wake(world.now + waits[-1])])
            assert "begins at 1970" in world.status.conditions["Running"].message
        world.now += waits[-1]
        world.settle()
    assert waits == [0, 10, 20, 40, 80, 160, 300, 300]
    last = world.stored["lastRestart"]
    assert (last["attempt"], last["reason"]) == (9, "WorkerFailed")
    assert last["message"] == "pod j-worker-0-a8 failed: container trainer ended with exit code 1"


def test_a_wait_is_over_when_the_clock_was_set_back_to_before_it_began(world_of: Any) -> None:
    world = world_of(runPolicy={"backoffLimit": 9}).run().fail().run().fail()
    assert (world.stored["lastRestart"]["delaySeconds"], world.pods) == (10, {})
    world.now -= 3600
    assert len(world.settle().pods) == 2
    world = world_of()
    for _ in range(20):
        world.bound().fail(0, **REFUSED)
    assert world.pods == {}
    world.now -= 3600
    assert len(world.settle().pods) == 2


def test_a_gang_that_ran_for_ten_minutes_starts_again_at_once(world_of: Any) -> None:
    world = world_of(runPolicy={"backoffLimit": 9})
    for wait in (0, 10):
        world.run().fail().now += wait
        world.settle()
    world.run().now += 600
    world.fail()
    assert (world.stored["restarts"], world.stored["lastRestart"]["delaySeconds"], len(world.pods)) == (3, 0, 2)


def test_a_job_stays_degraded_until_it_runs_again_or_is_suspended(world: Any) -> None:
    world.run().fail(1, **UNHEALTHY)
    assert world.condition("Degraded") == ("True", "GPUUnhealthy")
    assert world.stored["lastRestart"]["message"] == "pod j-worker-1-a1 on node n1 has an unhealthy GPU: GPU-7 (index 3): XID 79"
    assert world.run().condition("Degraded") == ("False", "AllWorkersRan")
    assert world.fail(1, **UNHEALTHY).suspend().condition("Degraded") == ("False", "Suspended")


def test_the_first_pod_to_fail_is_named(world: Any) -> None:
    world.run().change_one(0, **{**FAILED, "finished_at": "2026-01-01T00:00:09Z", "exits": (Exit("trainer", 134),)})
    world.change_one(1, **{**FAILED, "finished_at": "2026-01-01T00:00:01Z"})
    running = next(a for a in world.look() if isinstance(a, do.WriteStatus)).status["conditions"]
    assert "j-worker-1-a1" in next(c["message"] for c in running if c["type"] == "Running")


def test_suspending_removes_everything_and_resuming_starts_a_new_attempt(world: Any, world_of: Any) -> None:
    world.run().suspend()
    assert (world.pods, world.services, world.shows("phase", "startTime")) == ({}, set(), ("Suspended", None))
    assert sorted(world.suspend(False).pods) == ["j-worker-0-a2", "j-worker-1-a2"]
    assert (world.stored["restarts"], world.condition("Suspended")[0]) == (0, "False")
    born = world_of(suspend=True)
    assert (born.pods, *born.shows("phase", "attempt")) == ({}, "Suspended", 0)


def test_the_deadline_counts_from_the_binding_of_all_workers(world_of: Any) -> None:
    world = world_of(runPolicy={"activeDeadlineSeconds": 60})
    world.now = 5000.0
    assert world.settle().stored["phase"] == "Pending", "waiting is free"
    assert do.Wake(5060.0) in world.run().look()
    world.now = 5060.0
    assert (world.settle().condition("Failed"), world.pods) == (("True", "DeadlineExceeded"), {})


@pytest.mark.parametrize(("policy", "left"), [("Running", 1), ("All", 0), ("None", 2)])
def test_clean_pod_policy_decides_which_pods_a_finished_job_keeps(world_of: Any, policy: str, left: int) -> None:
    world = world_of(runPolicy={"cleanPodPolicy": policy, "successPolicy": {"operator": "Any"}})
    world.run().fail(0, phase="Succeeded")
    assert (world.stored["phase"], len(world.pods)) == ("Succeeded", left)
    assert world.services == ({"j-a1"} if policy == "None" else set())


def test_a_finished_job_is_deleted_after_its_time_to_live(world_of: Any) -> None:
    world = world_of(runPolicy={"ttlSecondsAfterFinished": 30}).run().succeed()
    assert do.Wake(1030.0) in world.look()
    world.now = 1030.0
    assert world.settle().deleted


def test_success_of_the_target_roles_is_enough(world_of: Any) -> None:
    world = world_of(roles=CHIEF, runPolicy={"successPolicy": {"targetRoles": ["chief"]}}).run().fail(0, phase="Succeeded")
    assert (world.stored["phase"], world.pods.keys()) == ("Succeeded", {"j-chief-0-a1"})


def test_a_gated_pod_that_vanished_is_made_again_and_a_released_one_restarts_the_gang(world: Any) -> None:
    del world.pods["j-worker-1-a1"]
    assert (len(world.settle().pods), world.stored["attempt"]) == (2, 1)
    del world.bound().settle().pods["j-worker-1-a1"]
    assert world.settle().stored["attempt"] == 2


@pytest.mark.parametrize(("state", "bound", "attempt"), [("Released", 1, 1), ("Withdrawn", 1, 2), ("Withdrawn", 0, 1)])
def test_a_plan_withdrawn_with_a_part_bound_starts_the_next_attempt(world: Any, state: str, bound: int, attempt: int) -> None:
    if bound:
        world.change(gated=False).change_one(0, node="n1")
    world.stored["scheduling"] = {"attempt": 1, "state": state}
    assert world.settle().stored["attempt"] == attempt


def test_an_unchanged_job_is_not_written_again_and_a_condition_keeps_its_moment(world: Any) -> None:
    before = world.status.conditions["Stalled"]
    world.now += 100
    assert world.look() == []
    after = world.run().status.conditions["Stalled"]
    assert (after.reason != before.reason, after.since) == (True, before.since)
    assert world.status.conditions["Running"].since == "1970-01-01T00:18:20Z"


def reject(world: Any, told: Any, *, final: bool) -> None:
    for action in actions.rejected(world.job, world.status, list(world.pods.values()), told, world.now, final=final):
        world.perform(action)


def test_a_gang_of_which_quota_lets_only_a_part_exist_is_removed_again(world: Any) -> None:
    del world.pods["j-worker-1-a1"]
    reject(world, condition("Reconciling", True, "QuotaExceeded", "exceeded quota: small"), final=False)
    assert (world.pods, world.condition("Reconciling")) == ({}, ("True", "QuotaExceeded"))
    world.perform(world.look()[0])
    assert world.condition("Reconciling") == ("True", "QuotaExceeded"), "the reason stays until all pods exist"
    assert world.settle().condition("Reconciling") == ("True", "WorkersNotRunning")


def test_a_refused_template_fails_the_job_for_good(world: Any) -> None:
    reject(world, condition("Failed", True, "InvalidTemplate", "spec.containers[0].image: Required value"), final=True)
    assert (world.settle().stored["phase"], world.condition("Failed"), world.pods) == ("Failed", ("True", "InvalidTemplate"), {})


def test_a_spec_that_cannot_be_read_fails_a_new_job_and_stalls_a_running_one(world: Any) -> None:
    (write,) = actions.invalid(2, world.run().status, "spec.roles: is required", world.now)
    world.perform(write)
    assert (world.stored["phase"], world.condition("Stalled")) == ("Running", ("True", "InvalidSpec"))
    assert actions.invalid(2, world.status, "spec.roles: is required", world.now) == []
    (write,) = actions.invalid(1, JobStatus(), "spec.roles: is required", world.now)
    assert write.status["phase"] == "Failed"


REPORT = (
    '{"kompakt":1,"ranks":2,"active":true,"reason":"Active","mode":"ErrorBounded","target":"0.01",'
    '"plainBytes":900,"savedBytes":100,"denominator":"unique storages","steps":5,"raw":{"TooSmall":3},"violations":0}'
)


def test_figures_of_all_workers_are_summed_and_outlive_the_pods(world_of: Any) -> None:
    world = world_of(activationCompression={}, runPolicy={"cleanPodPolicy": "All"}).run()
    assert world.condition("CompressionActive") == ("Unknown", "NoReportYet")
    found = world.succeed(reports=(REPORT,)).stored["compression"]
    assert (found["plainBytes"], found["savedBytes"], found["ratio"], found["ranks"]) == (1800, 200, "9.00", 4)
    assert found["raw"] == {"TooSmall": 6}
    assert world.condition("CompressionActive") == ("True", "Active")
    silent = world_of(activationCompression={}).run().succeed()
    assert silent.condition("CompressionActive") == ("False", "NoReport")
