"""A gang of higher priority has running ones of lower priority ended, on the real scheduler: by all our parts together."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client

from kompakt_core import contract as c
from kompakt_core.contract.scheduling_record import Record, State, Victim, encode
from kompakt_core.ids import GpuUuid, NodeName
from tests.support.cluster.pods import gpu_pod
from tests.support.cluster.reading import gpus_of, moment, scheduling
from tests.support.cluster.replacing import end_operator, killed_pair, second_pair
from tools.kube.jobs import JobManifest, apply, training_job
from tools.kube.kwok import LEAVING_ANNOTATION, NEVER_STARTS_ANNOTATION
from tools.kube.parts import Pair
from tools.kube.session import ClusterSession, eventually, stays

HOST = "dgx-0"
GRACE = 45
LEAVING = "2"  # seconds that a worker needs for its checkpoint
pytestmark = pytest.mark.usefixtures("watched")


@pytest.fixture
def classes(kompakt: ClusterSession, namespace: str) -> Iterator[dict[str, str]]:
    """Names of priority classes: 1000, 1000 that never preempts, 2000."""
    priorities = client.SchedulingV1Api(kompakt.api)
    wanted = {"urgent": {"value": 1000}, "polite": {"value": 1000, "preemptionPolicy": "Never"}, "most": {"value": 2000}}
    names = {kind: f"{kind}-{namespace}" for kind in wanted}
    for kind, body in wanted.items():
        priorities.create_priority_class({"metadata": {"name": names[kind]}, **body})
    yield names
    for name in names.values():
        priorities.delete_priority_class(name)


def gang(
    name: str, *, priority: str = "", replicas: int = 2, host: str = HOST, minimum: int = 0, leaving: str = LEAVING
) -> dict[str, Any]:
    """Workers of four GPUs, two of them all of the host. They run until they end or are ended."""
    policy = {"preemption": {"gracePeriodSeconds": GRACE, "minRuntimeSeconds": minimum}}
    document = training_job(
        name, replicas=replicas, gpus=4, seconds=None, annotations={LEAVING_ANNOTATION: leaving}, runPolicy=policy
    )
    document["spec"]["roles"][0]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": host}
    if priority:
        document["spec"]["priorityClassName"] = priority
    return document


def events(job: JobManifest, reason: str) -> list[Any]:
    found = job.cluster.core.list_namespaced_event(job.namespace).items
    return [one for one in found if one.reason == reason and one.involved_object.name == job.name]


def await_next_attempt(job: JobManifest) -> None:
    """It waits, without pods."""
    eventually(lambda: scheduling(job).get("attempt") == 2 and not job.pods(), f"the next attempt of {job.name}")
    assert scheduling(job)["state"] == "Waiting"


def graces(job: JobManifest) -> dict[str, int]:
    """Grace periods of the job's pods on their way out, by pod."""
    return {
        pod.metadata.name: pod.metadata.deletion_grace_period_seconds for pod in job.pods() if pod.metadata.deletion_timestamp
    }


def test_a_gang_of_higher_priority_gets_the_gpus_and_the_other_comes_back(
    kompakt: ClusterSession, namespace: str, classes: dict[str, str]
) -> None:
    low = apply(kompakt, namespace, gang("low"))
    low.await_phase("Running")
    held = gpus_of(low)
    urgent = apply(kompakt, namespace, gang("urgent", priority=classes["urgent"]))
    whole = {"low-worker-0-a1": GRACE, "low-worker-1-a1": GRACE}
    eventually(lambda: graces(low) == whole, "the whole gang is asked to stop, with its grace period")
    assert not urgent.bound(), "as long as it stops"
    eventually(lambda: len(urgent.bound()) == 2, "the urgent gang is bound")
    urgent.await_phase("Running")
    assert gpus_of(urgent) == held
    await_next_attempt(low)
    eventually(lambda: "preempt" not in scheduling(low), "nobody asks the next attempt")
    status = low.status
    assert (status["attempt"], status["restarts"], status["lastRestart"]["reason"]) == (2, 0, "Preempted")
    assert status["lastRestart"]["message"] == f"for {namespace}/urgent, priority 1000; this job has priority 0"
    assert low.condition("PreemptionRequested") == {}
    assert [one.message for one in events(low, "Preempted")] == [
        f"attempt 1 ends for {namespace}/urgent, priority 1000; this job has priority 0"
    ]
    assert [one.message for one in events(urgent, "PreemptedOther")] == [f"{namespace}/low of priority 0 ends for this job"]
    stays(lambda: (urgent.status["attempt"], low.status["attempt"], len(low.bound())), rounds=4)
    urgent.finish()
    eventually(lambda: low.phase == "Running" and len(low.bound()) == 2, "it comes back")
    assert low.status["attempt"] == 2
    assert gpus_of(low) == held


def test_priorities_that_never_preempt_and_equal_ones_wait(
    kompakt: ClusterSession, namespace: str, classes: dict[str, str]
) -> None:
    low = apply(kompakt, namespace, gang("low"))
    low.await_phase("Running")
    polite = apply(kompakt, namespace, gang("polite", priority=classes["polite"]))
    equal = apply(kompakt, namespace, gang("equal"))
    for job in (polite, equal):
        eventually(lambda job=job: scheduling(job).get("state") == "Waiting", f"{job.name} waits")  # type: ignore[misc]
    stays(lambda: (low.status["attempt"], low.phase, scheduling(low).get("preempt"), polite.bound(), equal.bound()), rounds=6)
    low.finish()
    eventually(lambda: len(polite.bound()) == 2, "who has the higher priority is next")
    assert equal.bound() == []


@pytest.mark.parametrize("starts", [True, False], ids=["a gang that runs", "one whose image cannot be pulled"])
def test_nobody_is_ended_before_its_minimum_run_time(
    kompakt: ClusterSession, namespace: str, classes: dict[str, str], starts: bool
) -> None:
    """It counts from the start, or from the release where nothing starts."""
    minimum = 15  # enough for a busy machine to make the urgent job's pods and say that it waits
    document = gang("low", minimum=minimum)
    if not starts:
        document["spec"]["roles"][0]["template"]["metadata"]["annotations"][NEVER_STARTS_ANNOTATION] = "yes"
    low = apply(kompakt, namespace, document)
    low.await_phase("Running" if starts else "Starting")
    held = gpus_of(low)
    urgent = apply(kompakt, namespace, gang("urgent", priority=classes["urgent"]))
    eventually(lambda: "may be ended for it from" in scheduling(urgent).get("message", ""), "it says when")
    assert (low.status["attempt"], low.phase) == (1, "Running" if starts else "Starting")
    since = low.condition("Running")["lastTransitionTime"] if starts else scheduling(low)["plan"]["releasedAt"]
    asked = eventually(lambda: scheduling(low).get("preempt"), "it is asked to end")
    late = moment(asked["requestedAt"]) - moment(since) - minimum
    assert 0 <= late <= 1, f"{late:.0f} s after the minimum run time"
    urgent.await_phase("Running")
    assert gpus_of(urgent) == held
    await_next_attempt(low)
    assert (low.status["attempt"], low.status["lastRestart"]["reason"]) == (2, "Preempted")
    stays(lambda: (urgent.status["attempt"], low.status["attempt"], len(low.bound())), rounds=4)


def plain_pods(cluster: ClusterSession, namespace: str, count: int, gpus: int) -> None:
    """On HOST, with a controller, and there for longer than the minimum run time."""
    made = cluster.core.create_namespaced_config_map(namespace, {"metadata": {"name": "owner"}})
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": made.metadata.uid, "controller": True}
    for number in range(count):
        body = gpu_pod(f"plain-{number}", gpus, nodeSelector={"kubernetes.io/hostname": HOST})
        body["metadata"]["ownerReferences"] = [owner]
        cluster.core.create_namespaced_pod(namespace, body)
    eventually(lambda: all(pod.status.start_time for pod in pods_in(cluster, namespace)), "plain pods at work")
    for pod in pods_in(cluster, namespace):
        long_ago = {"status": {"startTime": "2026-01-31T12:00:00Z"}}
        cluster.core.patch_namespaced_pod_status(pod.metadata.name, namespace, long_ago)


def pods_in(cluster: ClusterSession, namespace: str) -> list[Any]:
    return list(cluster.core.list_namespaced_pod(namespace).items)


def test_plain_pods_are_evicted_as_far_as_their_budget_lets(
    kompakt: ClusterSession, pair: Pair, namespace: str, classes: dict[str, str]
) -> None:
    """A budget that no controller has looked at yet lets none go."""
    plain_pods(kompakt, namespace, 2, 4)
    budget = {"metadata": {"name": "all"}, "spec": {"minAvailable": "100%", "selector": {}}}
    client.PolicyV1Api(kompakt.api).create_namespaced_pod_disruption_budget(namespace, budget)
    urgent = apply(kompakt, namespace, gang("urgent", priority=classes["urgent"]))
    eventually(lambda: "a PodDisruptionBudget does not let it" in kompakt.log_of(pair.extender), "the budget's no")
    eventually(lambda: scheduling(urgent).get("state") == "Waiting", "the gang waits again")
    assert [pod.metadata.name for pod in pods_in(kompakt, namespace) if pod.spec.node_name] == ["plain-0", "plain-1"]


def test_plain_pods_are_evicted_for_a_gang_without_a_place(
    kompakt: ClusterSession, namespace: str, classes: dict[str, str]
) -> None:
    plain_pods(kompakt, namespace, 2, 4)
    urgent = apply(kompakt, namespace, gang("urgent", priority=classes["urgent"]))
    urgent.await_phase("Running")
    assert {pod.metadata.name for pod in pods_in(kompakt, namespace)} == {"urgent-worker-0-a1", "urgent-worker-1-a1"}
    assert (urgent.status["attempt"], len(gpus_of(urgent))) == (1, 8)

    def told() -> list[tuple[str, str]]:
        found = kompakt.core.list_namespaced_event(namespace, field_selector="reason=Preempted").items
        return sorted((one.involved_object.name, one.message) for one in found)

    words = f"evicted for {namespace}/urgent, priority 1000; this pod has priority 0"
    eventually(lambda: told() == [("plain-0", words), ("plain-1", words)], "their owner is told why")


def test_three_priorities_end_each_other_once_and_never_in_turns(
    kompakt: ClusterSession, namespace: str, classes: dict[str, str]
) -> None:
    low = apply(kompakt, namespace, gang("low"))
    low.await_phase("Running")
    urgent = apply(kompakt, namespace, gang("urgent", priority=classes["urgent"]))
    urgent.await_phase("Running")
    most = apply(kompakt, namespace, gang("most", priority=classes["most"]))
    most.await_phase("Running")
    for job in (low, urgent):
        await_next_attempt(job)
    assert [job.status["attempt"] for job in (low, urgent, most)] == [2, 2, 1]
    stays(lambda: [job.status["attempt"] for job in (low, urgent, most)], rounds=8)
    most.finish()
    urgent.await_phase("Running")
    urgent.finish()
    low.await_phase("Running")
    assert [job.status["attempt"] for job in (low, urgent, most)] == [2, 2, 1]


def test_what_is_held_for_one_goes_to_one_of_still_higher_priority(
    kompakt: ClusterSession, namespace: str, classes: dict[str, str]
) -> None:
    """It comes while the victim stops; the first one would have to end again had it begun."""
    low = apply(kompakt, namespace, gang("low", leaving="30"))
    low.await_phase("Running")
    held = gpus_of(low)
    urgent = apply(kompakt, namespace, gang("urgent", priority=classes["urgent"]))
    eventually(lambda: len(graces(low)) == 2, "the victim stops")
    assert scheduling(urgent)["reason"] == "Preempting"
    most = apply(kompakt, namespace, gang("most", priority=classes["most"]))
    eventually(lambda: len(most.bound()) == 2, "the most urgent gang is bound")
    assert gpus_of(most) == held
    eventually(lambda: scheduling(urgent)["state"] == "Waiting", "nothing is held for the other any more")
    stays(lambda: [(job.status["attempt"], len(job.bound())) for job in (most, urgent, low)], rounds=6)
    assert [(job.status["attempt"], len(job.bound())) for job in (most, urgent, low)] == [(1, 2), (1, 0), (2, 0)]
    most.finish()
    eventually(lambda: len(urgent.bound()) == 2, "it is its turn")


def test_a_request_is_taken_back_when_the_urgent_job_is_deleted_before_anybody_ended(
    kompakt: ClusterSession, namespace: str, classes: dict[str, str]
) -> None:
    """The operator is away, so that nobody acts on the request."""
    low = apply(kompakt, namespace, gang("low", minimum=10))
    low.await_phase("Running")
    urgent = apply(kompakt, namespace, gang("urgent", priority=classes["urgent"]))
    eventually(lambda: "expectedPods" in urgent.status, "it waits")
    end_operator(kompakt)
    try:
        eventually(lambda: low.condition("PreemptionRequested").get("status") == "True", "low is asked to end")
        urgent.delete()
        eventually(lambda: "preempt" not in scheduling(low), "nothing is asked of it any more")
        assert low.condition("PreemptionRequested") == {}
    finally:
        kompakt.restart("operator-0")
    stays(lambda: (low.status["attempt"], low.phase, len(low.bound())), rounds=6)
    assert (low.status["attempt"], low.phase) == (1, "Running")


def test_another_planner_goes_on_where_the_first_one_was_killed(
    kompakt: ClusterSession, namespace: str, classes: dict[str, str], pair: Pair
) -> None:
    """The reservation is written, the request is not. It names the dearer of two victims: who decides anew ends the other."""
    cheap = apply(kompakt, namespace, gang("cheap", replicas=1))
    dear = apply(kompakt, namespace, gang("dear", replicas=1, priority=classes["polite"]))  # or its next attempt ends the other
    for job in (cheap, dear):
        job.await_phase("Running")
    held = gpus_of(dear)
    with killed_pair(kompakt, pair):
        most = apply(kompakt, namespace, gang("most", replicas=1, priority=classes["most"]))
        eventually(lambda: "expectedPods" in most.status, "it waits")
        reserve(most, dear, held)
        with second_pair(kompakt):
            eventually(lambda: len(most.bound()) == 1, "the other planner has asked, and given it the GPUs")
            assert gpus_of(most) == held
            eventually(lambda: dear.status["attempt"] == 2, "its next attempt")
            assert dear.status["lastRestart"]["reason"] == "Preempted"
            stays(lambda: (cheap.status["attempt"], cheap.phase), rounds=4)
            assert (cheap.status["attempt"], cheap.phase) == (1, "Running")


def reserve(job: JobManifest, victim: JobManifest, gpus: set[str]) -> None:
    """What a planner writes before it asks."""
    found = job.read()
    now = found["metadata"]["creationTimestamp"]
    ended = Victim(victim.namespace, victim.name, victim.read()["metadata"]["uid"], attempt=1, priority=1000)
    reserved = ((NodeName(HOST), tuple(map(GpuUuid, sorted(gpus)))),)
    record = Record(1, State.RESERVED, "Preempting", "", now, victims=(ended,), reserved_gpus=reserved, decided_at=now)
    placed = {"type": "Placed", "status": "False", "reason": "Preempting", "message": "", "lastTransitionTime": now}
    document = {
        "apiVersion": c.API_VERSION,
        "kind": c.JOB_KIND,
        "metadata": {key: found["metadata"][key] for key in ("name", "namespace", "uid")},
        "status": {"scheduling": encode(record), "conditions": [placed]},
    }
    options = ["--server-side", "--subresource=status", f"--field-manager={c.PLANNER_MANAGER}", "--force-conflicts"]
    job.cluster.kubectl("apply", *options, "-f", "-", stdin=json.dumps(document))
