"""A gang that waits has no pods: they are created when it has places, and planned as they come out."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kubernetes import watch

from kompakt_core.contract import GROUP, JOB_PLURAL, VERSION
from kompakt_extender.planner.reserved_places import PODS_DIFFER
from tests.support.cluster.reading import await_reason, held, scheduling
from tests.support.cluster.replacing import killed_pair, operator_instead
from tools.kube.jobs import JobManifest, apply, training_job
from tools.kube.parts import Pair
from tools.kube.session import ClusterSession, eventually, stays

pytestmark = pytest.mark.usefixtures("watched")
NODES = 2  # of eight GPUs each that a large job takes
CPU = {"limits": [{"type": "Container", "defaultRequest": {"cpu": "300m"}}]}


@pytest.fixture
def blocker(kompakt: ClusterSession, namespace: str) -> JobManifest:
    job = apply(kompakt, namespace, training_job("blocker", replicas=NODES, gpus=8, seconds=None))
    job.await_phase("Running")
    return job


def waiting(kompakt: ClusterSession, namespace: str, **spec: Any) -> JobManifest:
    gang = apply(kompakt, namespace, training_job("gang", replicas=NODES, gpus=8, seconds=None, **spec))
    eventually(lambda: scheduling(gang).get("state") == "Waiting", "the gang waits")
    return gang


@contextmanager
def reasons(job: JobManifest) -> Iterator[list[str]]:
    """The reasons that stand in status.scheduling from here on, each once in a row; complete at the end."""
    version, found = job.read()["metadata"]["resourceVersion"], list[str]()
    yield found
    where = GROUP, VERSION, job.namespace, JOB_PLURAL
    listing = job.cluster.custom.list_namespaced_custom_object
    for event in watch.Watch().stream(listing, *where, resource_version=version, timeout_seconds=2):
        reason = (event["object"].get("status") or {}).get("scheduling", {}).get("reason", "")
        if event["object"]["metadata"]["name"] == job.name and found[-1:] != [reason]:
            found.append(reason)


def test_what_waits_has_no_pods_and_says_why(kompakt: ClusterSession, namespace: str, blocker: JobManifest) -> None:
    before = held(kompakt)
    gang = waiting(kompakt, namespace)
    stays(lambda: (gang.read()["metadata"]["resourceVersion"], held(kompakt)), rounds=5)
    assert gang.pods() == []
    assert held(kompakt) == before
    assert "no room" in gang.condition("Placed")["message"]
    spec = gang.status["expectedPods"]["roles"][0]["pod"]["spec"]
    assert spec["priority"] == 0, "an admission plugin sets it"
    assert {one["key"] for one in spec["tolerations"]} >= {"node.kubernetes.io/not-ready"}
    with reasons(gang) as told:
        blocker.delete()
        gang.await_phase("Running")
    assert told[-2:] == ["CreatingPods", "Released"]
    assert "expectedPods" not in gang.status


def test_pods_that_come_out_otherwise_than_expected_are_planned_as_they_are(
    kompakt: ClusterSession, namespace: str, blocker: JobManifest
) -> None:
    """A LimitRange that came meanwhile gives them a request for CPU."""
    gang = waiting(kompakt, namespace)
    kompakt.core.create_namespaced_limit_range(namespace, {"metadata": {"name": "later"}, "spec": CPU})
    with reasons(gang) as told:
        blocker.delete()
        gang.await_phase("Running")
    assert told[-3:] == ["CreatingPods", PODS_DIFFER, "Released"]
    assert {pod.spec.containers[0].resources.requests["cpu"] for pod in gang.pods()} == {"300m"}


def test_no_gpus_are_kept_for_a_gang_that_no_quota_lets_have_pods(
    kompakt: ClusterSession, namespace: str, blocker: JobManifest
) -> None:
    gang = waiting(kompakt, namespace)
    kompakt.core.create_namespaced_resource_quota(namespace, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}})
    blocker.delete()
    await_reason(gang, "QuotaExceeded", "Reconciling")
    eventually(lambda: "cannot be created" in scheduling(gang)["message"], "its places are given back")
    assert scheduling(gang)["state"] == "Waiting"
    kompakt.core.delete_namespaced_resource_quota("q", namespace)
    gang.await_phase("Running")
    assert gang.condition("Reconciling")["reason"] == "AllWorkersRan"


def test_pods_come_first_where_the_planner_says_nothing(kompakt: ClusterSession, namespace: str, pair: Pair) -> None:
    hasty = kompakt.parts.operator("operator-4", "--planner-patience=2")
    with operator_instead(kompakt, hasty):
        with killed_pair(kompakt, pair):
            job = apply(kompakt, namespace, training_job("first", replicas=2, gpus=2))
            eventually(lambda: len(job.pods()) == 2, "pods without places")
            assert all(pod.spec.scheduling_gates for pod in job.pods())
        job.await_phase("Succeeded")
