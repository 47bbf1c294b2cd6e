"""A job in a queue of Kueue: it has pods only while its Workload is admitted."""

from dataclasses import replace

import pytest

from kompakt_core.contract.conditions import Type
from kompakt_core.job import to_do as do
from kompakt_core.job import workload
from kompakt_core.job.workload import PodSet, Queueing, WorkloadState
from tests.support.core.job_world import World, make_job

ADMITTED, PENDING = WorkloadState.ADMITTED, WorkloadState.PENDING
EVICTED, DELETED = WorkloadState.EVICTED, WorkloadState.DELETED


@pytest.fixture(params=[0.0, 30.0], ids=["pods first", "places first"])
def queued(request: pytest.FixtureRequest) -> World:
    return World(make_job(), planner_patience=request.param, queueing=Queueing("team-a")).settle()


@pytest.fixture
def admitted(queued: World) -> World:
    """With its pods, none of which runs yet."""
    placed(queued.quota(ADMITTED).settle())
    assert len(queued.pods) == 2
    return queued


def placed(world: World) -> World:
    return world.planned("Reserved", plan={"level": "Machine"}) if world.planner_patience else world


def made(world: World, kind: type) -> list[object]:
    return [action for action in world.history if isinstance(action, kind)]


def test_a_job_asks_for_quota_first_and_waits_without_pods_and_without_a_question_to_the_planner(queued: World) -> None:
    assert made(queued, workload.QueueJob) == [workload.QueueJob("team-a")]
    assert (queued.pods, queued.services, queued.stored.get("expectedPods")) == ({}, set(), None)
    assert queued.workload.pod_sets == {"worker": PodSet(2, 2)}
    assert queued.status.phase == "Pending"
    assert queued.condition(Type.RECONCILING) == ("True", "WaitingForQuota")
    assert queued.status.conditions[Type.RECONCILING].message == "queue team-a: no quota"


def test_an_admitted_job_runs_and_kueue_hears_of_its_pods_once_and_of_its_end(admitted: World) -> None:
    assert admitted.condition(Type.RECONCILING) == ("True", "WorkersNotRunning")
    admitted.run()
    assert admitted.workload.pods_ready
    admitted.succeed()
    assert admitted.workload.finished
    assert made(admitted, workload.FinishWorkload) == [
        workload.FinishWorkload(True, "all workers of every role ended with exit code 0")
    ]
    assert len(made(admitted, workload.MarkPodsReady)) == 1


def test_kueue_hears_of_a_failure_too(admitted: World) -> None:
    admitted.job = make_job(runPolicy={"backoffLimit": 0})
    admitted.run().fail()
    (told,) = made(admitted, workload.FinishWorkload)
    assert isinstance(told, workload.FinishWorkload)
    assert not told.succeeded
    assert "backoffLimit" in told.message


def test_an_evicted_job_ends_its_pods_then_gives_its_quota_back_and_waits_for_more(admitted: World) -> None:
    admitted.run().quota(EVICTED, "preempted for another").settle()
    assert admitted.workload.state is PENDING
    assert not admitted.pods
    assert admitted.shows("attempt", "restarts", "phase") == (2, 0, "Pending")
    assert admitted.stored["lastRestart"]["reason"] == "QuotaLost"
    assert "preempted for another" in admitted.stored["lastRestart"]["message"]
    placed(admitted.quota(ADMITTED).settle()).run()
    assert admitted.status.holds(Type.RUNNING)
    assert len(made(admitted, workload.QueueJob)) == 1, "its place in the queue is kept"


def test_an_evicted_job_has_the_time_for_a_checkpoint_that_a_preempted_one_has(admitted: World) -> None:
    admitted.job = make_job(runPolicy={"preemption": {"gracePeriodSeconds": 90}})
    admitted.run().quota(EVICTED)
    assert {action.grace for action in admitted.look() if isinstance(action, do.DeletePod)} == {90}


def test_quota_is_not_given_back_while_a_pod_is_on_its_way_out(admitted: World) -> None:
    admitted.run().quota(EVICTED)
    for action in admitted.look():
        if not isinstance(action, do.DeletePod):
            admitted.perform(action)
    admitted.change_all(deleting=True)
    assert not any(isinstance(action, workload.ReleaseQuota) for action in admitted.look())


def test_one_that_was_evicted_before_it_had_pods_asks_the_planner_anew() -> None:
    world = World(make_job(), planner_patience=30.0, queueing=Queueing("team-a")).settle()
    world.quota(ADMITTED).settle().planned("Waiting")
    world.quota(EVICTED).settle()
    assert (world.status.attempt, world.stored.get("expectedPods"), world.workload.state) == (2, None, PENDING)


def test_a_restart_keeps_the_quota(admitted: World) -> None:
    admitted.run().fail()
    placed(admitted)
    assert admitted.status.attempt == 2
    assert len(admitted.pods) == 2
    assert len(made(admitted, workload.QueueJob)) == 1


def test_a_suspended_job_leaves_the_queue_when_its_pods_are_gone_and_comes_back_when_it_goes_on(admitted: World) -> None:
    admitted.run().suspend()
    assert admitted.queueing == Queueing("team-a")
    assert made(admitted, workload.DeleteWorkload) == admitted.history[-1:]
    admitted.suspend(False)
    assert (admitted.workload.state, admitted.pods) == (PENDING, {})


def test_a_deleted_workload_that_somebody_keeps_ends_the_attempt_and_the_job_says_who(admitted: World) -> None:
    admitted.run().quota(DELETED, "kept by example.com/audit").settle()
    assert (admitted.status.attempt, admitted.pods) == (2, {})
    assert admitted.stored["lastRestart"]["message"] == "the job's Workload was deleted"
    assert admitted.status.conditions[Type.RECONCILING].message == "queue team-a: kept by example.com/audit"
    assert len(made(admitted, workload.QueueJob)) == 1, "its name is not free"
    admitted.queueing = Queueing("team-a")
    admitted.settle()
    assert (admitted.workload.state, len(made(admitted, workload.QueueJob))) == (PENDING, 2)


def test_a_deleted_workload_is_not_deleted_once_more(admitted: World) -> None:
    admitted.run().quota(DELETED).suspend()
    assert (admitted.pods, made(admitted, workload.DeleteWorkload)) == ({}, [])


def test_a_deleted_workload_does_not_hear_that_its_job_is_over(admitted: World) -> None:
    admitted.run().change_all(phase="Succeeded")
    admitted.quota(DELETED).settle()
    assert (admitted.status.phase, made(admitted, workload.FinishWorkload)) == ("Succeeded", [])


def test_a_workload_that_somebody_deleted_ends_the_attempt_and_is_made_anew(admitted: World) -> None:
    admitted.run().queueing = Queueing("team-a")
    admitted.settle()
    assert (admitted.status.attempt, admitted.pods, admitted.workload.state) == (2, {}, PENDING)
    assert admitted.stored["lastRestart"]["message"] == "the job's Workload was deleted"


@pytest.mark.parametrize("state", [PENDING, ADMITTED])
def test_a_workload_that_asks_for_less_than_the_job_needs_is_made_anew(queued: World, state: WorkloadState) -> None:
    queued.queueing = Queueing("team-a", replace(queued.workload, state=state, pod_sets={"worker": PodSet(1, 2)}))
    queued.settle()
    assert queued.workload.pod_sets == {"worker": PodSet(2, 2)}
    assert not queued.pods


def test_a_waiting_job_moves_to_another_queue_and_one_with_quota_does_not(queued: World) -> None:
    queued.queueing = Queueing("team-b", queued.workload)
    assert queued.settle().workload.queue == "team-b"
    queued.quota(ADMITTED)
    queued.queueing = Queueing("team-a", queued.workload)
    assert queued.settle().workload.queue == "team-b"


def test_where_nobody_works_with_kueue_a_job_says_so_and_what_runs_goes_on(admitted: World) -> None:
    fresh = World(make_job(), queueing=Queueing("team-a", unserved="kueue.enabled is not set")).settle()
    assert fresh.condition(Type.STALLED) == ("True", "QueuesNotServed")
    assert fresh.status.conditions[Type.STALLED].message == "queue team-a: kueue.enabled is not set"
    assert not fresh.pods
    admitted.run().queueing = Queueing("team-a", unserved="kueue.enabled is not set")
    assert len(admitted.settle().pods) == 2
    assert admitted.status.attempt == 1


def test_a_job_without_a_queue_has_no_workload() -> None:
    world = World(make_job()).settle().run().succeed()
    assert not any(isinstance(action, workload.Action) for action in world.history)
