"""What the operator does about a job, told as small stories; every story ends with five looks at which nothing moves."""

from typing import Any

import pytest

from kompakt_core.contract.conditions import condition
from kompakt_core.job import actions as do
from kompakt_core.job.pods import Exit
from kompakt_core.job.status import shortened

FAILED = {"phase": "Failed", "started": True, "exits": (Exit("trainer", 1),)}
REFUSED = {"phase": "Failed", "started": False, "reason": "UnexpectedAdmissionError"}


def test_a_new_job_gets_its_attempt_before_its_pods(world: Any) -> None:
    kinds = [type(action).__name__ for action in world.history]
    assert kinds[:3] == ["WriteStatus", "TryPod", "CreateService"]
    assert world.history[0].status["attempt"] == 1
    assert sorted(world.pods) == ["j-worker-0-a1", "j-worker-1-a1"]
    assert (world.stored["phase"], world.condition("Reconciling")) == ("Pending", ("True", "WorkersNotRunning"))


def test_worker_indices_count_over_roles(world_of: Any) -> None:
    roles = [{"name": "chief", "gpusPerReplica": 1}, {"name": "worker", "replicas": 2, "gpusPerReplica": 1}]
    assert [pod.worker_index for pod in world_of(roles=roles).pods.values()] == [0, 1, 2]


def test_phases_follow_the_pods(world: Any) -> None:
    seen = [world.stored["phase"]]
    for step in (world.bound, world.running, lambda: world.change(phase="Succeeded")):
        step()
        seen.append(world.settle().stored["phase"])
    assert seen == ["Pending", "Starting", "Running", "Succeeded"]
    assert world.condition("Complete") == ("True", "WorkersSucceeded")
    assert world.condition("Reconciling")[0] == world.condition("Stalled")[0] == "False"


def test_one_failed_worker_restarts_the_whole_gang(world: Any) -> None:
    world.running().settle().change_one(1, **FAILED).settle()
    assert sorted(world.pods) == ["j-worker-0-a2", "j-worker-1-a2"]
    assert world.services == {"j-a2"}
    assert (world.stored["attempt"], world.stored["restarts"], world.stored["phase"]) == (2, 1, "Pending")


def test_the_next_attempt_waits_until_the_old_pods_are_gone(world: Any) -> None:
    world.running().settle().change_one(1, **FAILED)
    for action in world.look():
        if not isinstance(action, do.DeletePod):
            world.perform(action)
    world.pods = {name: do.replace(pod, deleting=True) for name, pod in world.pods.items()}  # type: ignore[attr-defined]
    assert world.look() == [do.Wake(1005.0)]
    assert world.stored["phase"] == "Restarting"
    world.pods = {name: do.replace(pod, node_lost=True) for name, pod in world.pods.items()}  # type: ignore[attr-defined]
    assert do.CreatePod("worker", 0, 2) in world.look()


def test_the_job_fails_when_backoff_limit_is_used_up(world_of: Any) -> None:
    world = world_of(runPolicy={"backoffLimit": 1})
    for _ in range(2):
        world.running().settle().change_one(0, **FAILED).settle()
    assert (world.stored["phase"], world.condition("Failed")) == ("Failed", ("True", "BackoffLimitExceeded"))
    assert "pod j-worker-0-a2 failed: container trainer ended with exit code 1" in world.status.conditions["Failed"].message
    assert world.condition("Stalled")[0] == "True"


@pytest.mark.parametrize("broken", [{"deleting": True}, {"disrupted": "PreemptionByScheduler", **FAILED}, REFUSED], ids=str)
def test_what_the_job_is_not_to_blame_for_is_not_counted(world: Any, broken: dict[str, Any]) -> None:
    world.running().settle().change_one(0, **broken).settle()
    assert (world.stored["attempt"], world.stored["restarts"], world.stored["disruptions"]) == (2, 0, 1)


def test_twenty_disruptions_in_a_row_stall_the_job_for_ten_minutes(world: Any) -> None:
    for _ in range(20):
        world.bound().change_one(0, **REFUSED).settle()
    assert world.condition("Stalled") == ("True", "RepeatedDisruptions")
    assert world.pods == {}
    assert world.look() == [do.Wake(1600.0)]
    world.now = 1600.0
    assert len(world.settle().pods) == 2
    assert world.condition("Stalled")[0] == "False"
    world.running().settle()
    assert world.stored["disruptions"] == 0


def test_a_gang_that_keeps_failing_waits_longer_each_time_and_a_restart_is_told(world_of: Any) -> None:
    world = world_of(runPolicy={"backoffLimit": 9})
    waits = []
    for _ in range(8):
        world.running().settle().change_one(0, **FAILED).settle()
        waits.append(world.stored["lastRestart"]["delaySeconds"])
        if waits[-1]:
            assert world.pods == {}
            assert world.look() == [do.Wake(world.now + waits[-1])]
            assert "begins at 1970" in world.status.conditions["Running"].message
        world.now += waits[-1]
        world.settle()
    assert waits == [0, 10, 20, 40, 80, 160, 300, 300]
    last = world.stored["lastRestart"]
    assert (last["attempt"], last["reason"]) == (9, "WorkerFailed")
    assert last["message"] == "pod j-worker-0-a8 failed: container trainer ended with exit code 1"


def test_a_gang_that_ran_for_ten_minutes_starts_again_at_once(world_of: Any) -> None:
    world = world_of(runPolicy={"backoffLimit": 9})
    for wait in (0, 10):
        world.running().settle().change_one(0, **FAILED).settle()
        world.now += wait
        world.settle()
    world.running().settle()
    world.now += 600
    world.change_one(0, **FAILED).settle()
    assert (world.stored["restarts"], world.stored["lastRestart"]["delaySeconds"], len(world.pods)) == (3, 0, 2)


def test_a_sick_gpu_recreates_the_gang_at_once_and_the_job_stays_degraded_until_it_runs_again(world: Any) -> None:
    world.running().settle().change_one(1, unhealthy="GPU-7 (index 3): XID 79").settle()
    assert (world.stored["attempt"], world.stored["restarts"], world.stored["disruptions"]) == (2, 0, 1)
    assert world.condition("Degraded") == ("True", "GPUUnhealthy")
    assert world.stored["lastRestart"]["message"] == "pod j-worker-1-a1 on node n1 has an unhealthy GPU: GPU-7 (index 3): XID 79"
    world.running().settle()
    assert world.condition("Degraded") == ("False", "AllWorkersRan")


def test_a_suspended_job_holds_no_sick_gpu(world: Any, job_of: Any) -> None:
    world.running().settle().change_one(1, unhealthy="GPU-7 (index 3): XID 79").settle()
    world.job = job_of(suspend=True)
    assert world.settle().condition("Degraded") == ("False", "Suspended")


def test_the_status_names_gpus_and_nodes_for_the_columns(world: Any) -> None:
    assert (world.stored["gpus"], world.stored.get("nodes")) == (4, None)
    world.bound().settle()
    assert world.stored["nodes"] == "n1"
    assert shortened(["a", "b", "c", "d", "e", "f"]) == "a,b,c,d,+2"


@pytest.mark.parametrize(
    ("action", "phase", "restarts"), [("FailJob", "Failed", 0), ("RestartGang", "Pending", 1), ("Ignore", "Pending", 0)]
)
def test_pod_failure_policy_decides_by_exit_code(world_of: Any, action: str, phase: str, restarts: int) -> None:
    rules = [{"onExitCodes": {"values": [1]}, "action": action}]
    world = world_of(runPolicy={"podFailurePolicy": {"rules": rules}}).running().settle().change_one(0, **FAILED).settle()
    assert (world.stored["phase"], world.stored["restarts"]) == (phase, restarts)


def test_the_first_pod_to_fail_is_named(world: Any) -> None:
    world.running().settle()
    world.change_one(0, **{**FAILED, "finished_at": "2026-01-01T00:00:09Z", "exits": (Exit("trainer", 134),)})
    world.change_one(1, **{**FAILED, "finished_at": "2026-01-01T00:00:01Z"})
    running = next(a for a in world.look() if isinstance(a, do.WriteStatus)).status["conditions"]
    assert "j-worker-1-a1" in next(c["message"] for c in running if c["type"] == "Running")


def test_suspending_removes_everything_and_resuming_starts_a_new_attempt(world: Any, job_of: Any) -> None:
    world.running().settle()
    world.job = job_of(suspend=True)
    world.settle()
    assert (world.pods, world.services, world.stored["phase"]) == ({}, set(), "Suspended")
    assert "startTime" not in world.stored
    world.job = job_of()
    world.settle()
    assert sorted(world.pods) == ["j-worker-0-a2", "j-worker-1-a2"]
    assert (world.stored["restarts"], world.condition("Suspended")[0]) == (0, "False")


def test_a_job_born_suspended_has_no_pods(world_of: Any) -> None:
    world = world_of(suspend=True)
    assert (world.pods, world.stored["phase"], world.stored["attempt"]) == ({}, "Suspended", 0)


def test_the_deadline_counts_from_the_binding_of_all_workers(world_of: Any) -> None:
    world = world_of(runPolicy={"activeDeadlineSeconds": 60})
    world.now = 5000.0
    world.settle()
    assert world.stored["phase"] == "Pending"  # waiting is free
    world.running().settle()
    assert do.Wake(5060.0) in world.look()
    world.now = 5060.0
    world.settle()
    assert (world.condition("Failed"), world.pods) == (("True", "DeadlineExceeded"), {})


@pytest.mark.parametrize(("policy", "left"), [("Running", 1), ("All", 0), ("None", 2)])
def test_clean_pod_policy_decides_which_pods_a_finished_job_keeps(world_of: Any, policy: str, left: int) -> None:
    world = world_of(runPolicy={"cleanPodPolicy": policy, "successPolicy": {"operator": "Any"}})
    world.running().settle().change_one(0, phase="Succeeded").settle()
    assert (world.stored["phase"], len(world.pods)) == ("Succeeded", left)
    assert world.services == ({"j-a1"} if policy == "None" else set())


def test_a_finished_job_is_deleted_after_its_time_to_live(world_of: Any) -> None:
    world = world_of(runPolicy={"ttlSecondsAfterFinished": 30}).running().settle().change(phase="Succeeded").settle()
    assert do.Wake(1030.0) in world.look()
    world.now = 1030.0
    assert world.settle().deleted


def test_success_of_the_target_roles_is_enough(world_of: Any) -> None:
    roles = [{"name": "chief", "gpusPerReplica": 1}, {"name": "helper", "gpusPerReplica": 0}]
    world = world_of(roles=roles, runPolicy={"successPolicy": {"targetRoles": ["chief"]}})
    world.running().settle().change_one(0, phase="Succeeded").settle()
    assert (world.stored["phase"], world.pods.keys()) == ("Succeeded", {"j-chief-0-a1"})


def test_a_gated_pod_that_vanished_is_made_again_and_a_released_one_restarts_the_gang(world: Any) -> None:
    del world.pods["j-worker-1-a1"]
    world.settle()
    assert (len(world.pods), world.stored["attempt"]) == (2, 1)
    world.bound().settle()
    del world.pods["j-worker-1-a1"]
    assert world.settle().stored["attempt"] == 2


def test_a_plan_withdrawn_with_a_part_bound_starts_the_next_attempt(world: Any) -> None:
    world.change_one(0, gated=False, node="n1").change_one(1, gated=False)
    world.stored["scheduling"] = {"attempt": 1, "state": "Released"}
    assert world.settle().stored["attempt"] == 1
    world.stored["scheduling"] = {"attempt": 1, "state": "Withdrawn"}
    assert world.settle().stored["attempt"] == 2


def test_a_withdrawn_plan_of_which_nothing_is_bound_is_the_planners_business(world: Any) -> None:
    world.stored["scheduling"] = {"attempt": 1, "state": "Withdrawn"}
    assert world.settle().stored["attempt"] == 1


def test_an_unchanged_job_is_not_written_again(world: Any) -> None:
    world.now += 100
    assert world.look() == []


def test_a_condition_keeps_its_moment_until_its_status_changes(world: Any) -> None:
    before = world.status.conditions["Stalled"]
    world.now += 100
    world.running().settle()
    after = world.status.conditions["Stalled"]
    assert (after.reason != before.reason, after.since) == (True, before.since)
    assert world.status.conditions["Running"].since == "1970-01-01T00:18:20Z"


def test_a_gang_of_which_quota_lets_only_a_part_exist_is_removed_again(world: Any) -> None:
    del world.pods["j-worker-1-a1"]
    told = condition("Reconciling", True, "QuotaExceeded", "exceeded quota: small")
    for action in do.rejected(world.job, world.status, list(world.pods.values()), told, world.now, final=False):
        world.perform(action)
    assert world.pods == {}
    assert world.condition("Reconciling") == ("True", "QuotaExceeded")
    world.perform(world.look()[0])
    assert world.condition("Reconciling") == ("True", "QuotaExceeded")  # the reason stays until all pods exist
    assert world.settle().condition("Reconciling") == ("True", "WorkersNotRunning")


def test_a_refused_template_fails_the_job_for_good(world: Any) -> None:
    told = condition("Failed", True, "InvalidTemplate", "spec.containers[0].image: Required value")
    for action in do.rejected(world.job, world.status, list(world.pods.values()), told, world.now, final=True):
        world.perform(action)
    world.settle()
    assert (world.stored["phase"], world.condition("Failed"), world.pods) == ("Failed", ("True", "InvalidTemplate"), {})


def test_a_spec_that_cannot_be_read_fails_a_new_job_and_stalls_a_running_one(world: Any) -> None:
    world.running().settle()
    (write,) = do.invalid(2, world.status, "spec.roles: is required", world.now)
    world.perform(write)
    assert (world.stored["phase"], world.condition("Stalled")) == ("Running", ("True", "InvalidSpec"))
    assert do.invalid(2, world.status, "spec.roles: is required", world.now) == []
    (write,) = do.invalid(1, do.JobStatus(), "spec.roles: is required", world.now)  # type: ignore[attr-defined]
    assert write.status["phase"] == "Failed"


REPORT = (
    '{"kompakt":1,"ranks":2,"active":true,"reason":"Active","mode":"ErrorBounded","target":"0.01",'
    '"plainBytes":900,"savedBytes":100,"denominator":"unique storages","steps":5,"raw":{"TooSmall":3},"violations":0}'
)


def test_figures_of_all_workers_are_summed_and_outlive_the_pods(world_of: Any) -> None:
    world = world_of(activationCompression={}, runPolicy={"cleanPodPolicy": "All"}).running().settle()
    assert world.condition("CompressionActive") == ("Unknown", "NoReportYet")
    world.change(phase="Succeeded", reports=(REPORT,)).settle()
    found = world.stored["compression"]
    assert (found["plainBytes"], found["savedBytes"], found["ratio"], found["ranks"]) == (1800, 200, "9.00", 4)
    assert found["raw"] == {"TooSmall": 6}
    assert world.condition("CompressionActive") == ("True", "Active")


def test_a_job_whose_workers_left_no_report_says_so(world_of: Any) -> None:
    world = world_of(activationCompression={}).running().settle().change(phase="Succeeded").settle()
    assert world.condition("CompressionActive") == ("False", "NoReport")
