"""The operator's side of a TrainingJob on a real API server: restarts, suspension, rejections, and who is active."""

import json
import signal
import time
from dataclasses import replace
from typing import Any

import pytest
from kubernetes import client

from kompakt_client.elector import DURATION
from kompakt_core.contract import GATE
from tests.support.cluster.reading import await_reason
from tests.support.cluster.replacing import end_operator, lease_holder
from tools.kube.jobs import JobManifest, training_job
from tools.kube.session import ClusterSession, eventually, names, stays

REPORT = {"kompakt": 1, "ranks": 2, "active": True, "reason": "Active", "mode": "ErrorBounded", "target": "0.01", "steps": 9}
FIGURES = {"plainBytes": 1000, "savedBytes": 300, "denominator": "unique storages", "raw": {"TooSmall": 2}, "violations": 0}
TRAINER = {"name": "trainer", "image": "simulated"}
UNREADABLE = {"name": "second", "image": "simulated", "resources": {"limits": {"memory": "x"}}}


@pytest.fixture
def operated(kompakt: ClusterSession, namespace: str) -> Any:
    """Applies a job and gives it as `JobManifest`."""

    def apply(body: dict[str, Any]) -> JobManifest:
        kompakt.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(body))
        return JobManifest(kompakt, namespace, body["metadata"]["name"])

    return apply


def attempts(job: JobManifest) -> set[str]:
    return {pod.metadata.name.rsplit("-", 1)[1] for pod in job.pods()}


def test_a_job_runs_to_its_end_and_keeps_its_figures(operated: Any) -> None:
    message = {"simulate.kompakt.dev/message": json.dumps({**REPORT, **FIGURES})}
    job = operated(training_job("good", replicas=2, gpus=2, seconds="1", annotations=message, activationCompression={}))
    status = job.await_phase("Succeeded")
    assert (status["compression"]["plainBytes"], status["compression"]["ratio"]) == (2000, "3.33")
    assert job.condition("CompressionActive")["status"] == "True"
    assert [len(pod["gpuIndices"].split(",")) for pod in status["roles"][0]["pods"]] == [2, 2]
    stays(lambda: job.read()["metadata"]["resourceVersion"], 5)


def test_a_failing_worker_restarts_the_gang_until_the_limit(operated: Any) -> None:
    body = training_job("bad", replicas=2, seconds="0.5", runPolicy={"backoffLimit": 1})
    body["spec"]["roles"][0]["template"]["metadata"]["annotations"]["simulate.kompakt.dev/exit-code"] = "3"
    job = operated(body)
    status = job.await_phase("Failed")
    assert (status["attempt"], status["restarts"]) == (2, 1)
    failed = job.condition("Failed")
    assert failed["reason"] == "BackoffLimitExceeded"
    assert "ended with exit code 3; backoffLimit 1 is used up" in failed["message"]
    assert attempts(job) == {"a2"}
    told = ("get", "events", "-n", job.namespace)
    eventually(
        lambda: "BackoffLimitExceeded" in job.cluster.kubectl(*told), "the event, which is made after the status is written"
    )


def test_a_deleted_worker_is_a_disruption_that_costs_no_restart(operated: Any) -> None:
    job = operated(training_job("disrupted", replicas=2, seconds=None))
    job.await_phase("Running")
    job.cluster.core.delete_namespaced_pod("disrupted-worker-1-a1", job.namespace)
    eventually(lambda: job.status.get("attempt") == 2 and job.phase == "Running", "attempt 2 running")
    assert (job.status["restarts"], attempts(job)) == (0, {"a2"})
    services = job.cluster.core.list_namespaced_service(job.namespace).items
    assert names(services) == ["disrupted-a2"]


def test_a_suspended_job_keeps_its_status_and_resumes_with_the_template_as_it_is_then(operated: Any) -> None:
    job = operated(training_job("paused", replicas=2, seconds=None, runPolicy={"evictions": "Refuse"}))
    job.await_phase("Running")
    budgets = client.PolicyV1Api(job.cluster.api)
    with pytest.raises(client.ApiException, match="disruption budget"):
        job.cluster.core.create_namespaced_pod_eviction(
            "paused-worker-0-a1", job.namespace, {"metadata": {"name": "paused-worker-0-a1"}}
        )
    job.patch({"spec": {"suspend": True}})
    job.await_phase("Suspended")
    eventually(lambda: not job.pods(), "no pods")
    eventually(lambda: not budgets.list_namespaced_pod_disruption_budget(job.namespace).items, "no budget")
    assert job.status["attempt"] == 1
    (role,) = job.read()["spec"]["roles"]
    role["template"]["spec"]["containers"][0]["image"] = "simulated-anew"
    job.patch({"spec": {"roles": [{**role, "replicas": 1}]}})
    job.patch({"spec": {"suspend": False}})
    job.await_phase("Running")
    assert [(pod.metadata.name, pod.spec.containers[0].image) for pod in job.pods()] == [("paused-worker-0-a2", "simulated-anew")]


def test_a_job_created_suspended_has_no_pods_until_it_is_resumed(operated: Any) -> None:
    job = operated(training_job("parked", suspend=True))
    job.await_phase("Suspended")
    job.cluster.kubectl("wait", "--for=condition=Suspended", "tj/parked", "-n", job.namespace, "--timeout=5s")
    assert (job.pods(), job.status["attempt"]) == ([], 0)
    job.patch({"spec": {"suspend": False}})
    job.await_phase("Succeeded")
    job.cluster.kubectl("wait", "--for=condition=Complete", "tj/parked", "-n", job.namespace, "--timeout=5s")


def test_deleting_a_job_removes_its_pods_without_the_operators_help(operated: Any) -> None:
    job = operated(training_job("gone", seconds=None))
    job.await_phase("Running")
    assert not job.read()["metadata"].get("finalizers")
    job.cluster.kubectl("delete", "tj", "gone", "-n", job.namespace, "--wait=false")
    eventually(lambda: not job.pods(), "no pods")


@pytest.mark.parametrize(
    ("pod", "kind", "words"),
    [
        ({"schedulerName": "default-scheduler"}, "Failed", "workers are placed by kompakt-scheduler"),
        ({"containers": [{"name": "trainer"}]}, "Failed", "spec.containers[0].image: Required value"),
        ({"containers": [TRAINER, UNREADABLE]}, "Failed", "quantities must match the regular expression"),
        ({"priorityClassName": "no-such-class"}, "Stalled", "no PriorityClass with name no-such-class"),
    ],
    ids=["told by the operator", "told by the API server", "not read by the API server", "told by admission"],
)
def test_a_template_that_cannot_work_is_told_and_other_jobs_go_on(
    operated: Any, pod: dict[str, Any], kind: str, words: str
) -> None:
    body = training_job("impossible")
    body["spec"]["roles"][0]["template"]["spec"] |= pod
    job = operated(body)
    eventually(lambda: job.condition(kind).get("status") == "True", f"{kind} of {job.name}")
    assert words in job.condition(kind)["message"]
    assert job.pods() == []
    operated(training_job("fine")).await_phase("Succeeded")


def test_a_strangers_service_is_never_adopted(operated: Any, kompakt: ClusterSession, namespace: str) -> None:
    service = {"metadata": {"name": "mine-a1"}, "spec": {"clusterIP": "None", "selector": {"app": "stranger"}}}
    kompakt.core.create_namespaced_service(namespace, service)
    job = operated(training_job("mine"))
    assert "Service mine-a1 exists and does not belong to this TrainingJob" in await_reason(job, "NameTaken")
    kompakt.core.delete_namespaced_service("mine-a1", namespace)
    job.await_phase("Succeeded")


def test_quota_never_leaves_a_half_gang(operated: Any, kompakt: ClusterSession, namespace: str) -> None:
    kompakt.core.create_namespaced_resource_quota(namespace, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}})
    job = operated(training_job("big", replicas=2))
    assert "exceeded quota: q" in await_reason(job, "QuotaExceeded", "Reconciling")
    eventually(lambda: not job.pods(), "no pods")
    kompakt.core.delete_namespaced_resource_quota("q", namespace)
    job.await_phase("Succeeded")


def test_two_gangs_short_of_quota_take_turns(operated: Any, kompakt: ClusterSession, namespace: str) -> None:
    kompakt.core.create_namespaced_resource_quota(namespace, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "3"}}})
    jobs = [
        operated(training_job(name, replicas=3, seconds="0.5", runPolicy={"cleanPodPolicy": "All"})) for name in ("one", "two")
    ]
    for job in jobs:
        job.await_phase("Succeeded")


def test_a_job_of_somebody_else_is_left_alone(operated: Any) -> None:
    job = operated(training_job("foreign", managedBy="example.com/other"))
    fine = operated(training_job("near"))
    fine.await_phase("Succeeded")
    assert (job.status, job.pods()) == ({"observedGeneration": -1}, [])


def test_a_finished_job_is_deleted_after_its_time_to_live(operated: Any) -> None:
    job = operated(training_job("brief", runPolicy={"ttlSecondsAfterFinished": 2}))
    job.await_phase("Succeeded")
    eventually(lambda: not job.cluster.kubectl("get", "tj", "-n", job.namespace, "-o", "name").strip(), "the job deleted")


def test_only_kompakts_gate_is_added_and_no_output_annotation_of_the_user_survives(operated: Any) -> None:
    body = training_job("gated", seconds=None, annotations={"kompakt.dev/gpus": "GPU-stolen"})
    body["spec"]["roles"][0]["template"]["spec"]["schedulingGates"] = [{"name": "example.com/mine"}]
    job = operated(body)
    pod = eventually(lambda: next(iter(job.pods()), None), "a pod")
    assert [gate.name for gate in pod.spec.scheduling_gates] == ["example.com/mine", GATE]
    assert "kompakt.dev/gpus" not in pod.metadata.annotations


def test_a_standby_takes_over_from_a_killed_operator(operated: Any, kompakt: ClusterSession) -> None:
    running = operated(training_job("before", seconds=None))
    running.await_phase("Running")
    kompakt.start(kompakt.parts.operator("operator-1"))
    kompakt.kill("operator-0")
    try:
        job = operated(training_job("after"))
        job.await_phase("Succeeded")
        assert lease_holder(kompakt) == "operator-1"
        assert (running.phase, running.status["attempt"]) == ("Running", 1)
    finally:
        end_operator(kompakt, "operator-1")
        kompakt.restart("operator-0")


def test_a_standby_takes_over_at_once_from_an_operator_that_ends_in_order(operated: Any, kompakt: ClusterSession) -> None:
    end_operator(kompakt)
    ending = kompakt.parts.operator("operator-2")
    kompakt.start(replace(ending, argv=ending.argv[3:]))  # the program itself: nothing starts it again
    try:
        job = operated(training_job("long", seconds=None))
        job.await_phase("Running")
        kompakt.start(kompakt.parts.operator("operator-3"))
        kompakt.plane.processes["operator-2"].signal(signal.SIGTERM)
        began = time.monotonic()
        eventually(lambda: lease_holder(kompakt) == "operator-3", "operator-3 active")
        took = time.monotonic() - began
        print(f"taken over after {took:.1f} s")
        assert took < DURATION / 2
        eventually(lambda: not kompakt.plane.processes["operator-2"].alive(), "operator-2 ended")
        assert "Traceback" not in kompakt.log_of("operator-2")
        job.finish()
        job.await_phase("Succeeded")
    finally:
        kompakt.kill("operator-2")
        end_operator(kompakt, "operator-3")
        kompakt.restart("operator-0")
