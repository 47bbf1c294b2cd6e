"""TrainingJobs whose GPUs a driver hands out by ResourceClaims: kompakt writes the claims, the cluster's own scheduler allocates
them. Simulated nodes: what is allocated is real, nothing is prepared.
"""

import signal
from collections.abc import Iterator

import pytest

from kompakt_client.requests import ApiRequest
from kompakt_core import contract as c
from tests.support.cluster import resource_slices, waits
from tests.support.cluster.machines import MACHINES
from tests.support.cluster.own_cluster import own_cluster
from tests.support.cluster.reading import topologies, written
from tests.support.cluster.resource_slices import API, allocate, allocated, claims, device_of, taint, untaint
from tools.kube.jobs import Document, JobManifest, apply, training_job
from tools.kube.session import ClusterSession, eventually

AT_ONCE = {"preemption": {"minRuntimeSeconds": 0, "gracePeriodSeconds": 1}}
VALUES = {"allocation": "ResourceClaims", **waits.FACTOR_SETTINGS}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSession]:
    """One without a scheduler of ours."""
    with own_cluster(tmp_path_factory.mktemp("claims"), MACHINES) as cluster:
        cluster.parts.install(VALUES)
        cluster.start(cluster.parts.simulated_plugins())
        resource_slices.publish(cluster)
        cluster.start(cluster.parts.planner())
        cluster.start(cluster.parts.operator("operator-0", "--claims-scheduler=default-scheduler"))
        yield cluster


def test_a_gang_gets_exactly_the_gpus_of_its_plan(cluster: ClusterSession, namespace: str) -> None:
    job = apply(cluster, namespace, training_job("ring", replicas=2, gpus=4, seconds=None))
    job.await_phase("Running")
    eventually(lambda: all(written(pod) for pod in job.pods()), "their GPUs are written on all pods")
    for pod in job.pods():
        claim = claims(cluster, namespace)[pod.metadata.name]
        assert claim["metadata"]["ownerReferences"][0]["uid"] == pod.metadata.uid
        assert allocated(cluster, claim) == set(written(pod, c.ANN_PLANNED_GPUS)) == set(written(pod))
        assert pod.spec.scheduler_name == "default-scheduler"
        assert int(pod.metadata.annotations[c.ANN_VALUE]) > 0
    job.delete()
    eventually(lambda: not claims(cluster, namespace), "claims go with their pods")


def chosen(job: JobManifest) -> set[str]:
    """The GPUs that the plan gives to its pods."""
    return {uuid for pod in job.pods() for uuid in written(pod, c.ANN_PLANNED_GPUS)}


def on_dgx_0(job: Document) -> Document:
    job["spec"]["roles"][0]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "dgx-0"}
    return job


def test_gpus_that_somebody_elses_claim_has_are_not_planned(cluster: ClusterSession, namespace: str) -> None:
    """Nothing runs with that claim: no kubelet could tell of it."""
    allocate(cluster, namespace, "theirs", "dgx-0", ["gpu-0", "gpu-5"])
    given = allocated(cluster, claims(cluster, namespace)["theirs"])
    job = apply(cluster, namespace, on_dgx_0(training_job("beside", gpus=6, seconds=None)))
    job.await_phase("Running")
    assert chosen(job).isdisjoint(given)
    more = apply(cluster, namespace, on_dgx_0(training_job("waits", gpus=2, seconds=None)))
    eventually(lambda: more.condition("Placed").get("status") == "False", "two more have no room there")
    cluster.parts.api.send(ApiRequest("DELETE", f"{API}/namespaces/{namespace}/resourceclaims/theirs"))
    more.await_phase("Running")
    assert chosen(more) == given


def test_a_plan_whose_gpus_another_claim_was_given_first_is_made_anew(cluster: ClusterSession, namespace: str) -> None:
    """As when another pod's claim comes between the plan and the scheduler's turn."""
    scheduler = cluster.plane.processes["kube-scheduler"]
    scheduler.signal(signal.SIGSTOP)
    job = apply(cluster, namespace, training_job("late", gpus=4, seconds=None))
    eventually(lambda: len(chosen(job)) == 4, "the pod is released, and nobody binds it")
    (pod,) = job.pods()
    node = pod.metadata.annotations[c.ANN_PLANNED_NODE]
    before, uid = chosen(job), claims(cluster, namespace)[pod.metadata.name]["metadata"]["uid"]
    allocate(cluster, namespace, "first", node, [device_of(cluster, min(before))])
    eventually(lambda: chosen(job) and min(before) not in chosen(job), "other GPUs are planned")
    scheduler.signal(signal.SIGCONT)
    job.await_phase("Running")
    claim = claims(cluster, namespace)[pod.metadata.name]
    assert claim["metadata"]["uid"] != uid, "the name was used again"
    # A scheduler that has yet to see the new claim may write to it what it chose for the old one: what it gave is what counts.
    eventually(
        lambda: {gpu for pod in job.pods() for gpu in written(pod)} == allocated(cluster, claim), "the pod says what it has"
    )


def test_a_device_with_a_taint_is_not_planned_and_its_gang_moves_when_it_is_evicted(
    cluster: ClusterSession, namespace: str
) -> None:
    taint(cluster, "in-service", "dgx-0", "gpu-0", "NoSchedule")
    tainted = _uuid(cluster, "dgx-0", 0)
    waits = apply(cluster, namespace, on_dgx_0(training_job("whole", gpus=8, seconds=None)))
    eventually(lambda: waits.condition("Placed").get("status") == "False", "seven GPUs are left there")
    untaint(cluster, "in-service")
    waits.await_phase("Running")
    assert tainted in chosen(waits)
    waits.delete()
    job = apply(cluster, namespace, training_job("moves", replicas=2, gpus=8, seconds=None))
    job.await_phase("Running")
    pod = job.pods()[0]
    taint(cluster, "broken", pod.metadata.annotations[c.ANN_PLANNED_NODE], "gpu-3", "NoExecute")
    broken = _uuid(cluster, pod.metadata.annotations[c.ANN_PLANNED_NODE], 3)
    eventually(lambda: len(chosen(job)) == 16 and broken not in chosen(job), "the gang is placed without that GPU")
    job.await_phase("Running")
    untaint(cluster, "broken")


def _uuid(cluster: ClusterSession, node: str, index: int) -> str:
    return str(topologies(cluster)[node]["spec"]["gpus"][index]["uuid"])


def test_gpus_of_a_job_that_ends_for_another_one_are_claimed_anew(cluster: ClusterSession, namespace: str) -> None:
    cluster.kubectl("create", "priorityclass", "urgent-claims", "--value=1000")
    low = apply(cluster, namespace, training_job("low", replicas=3, gpus=8, seconds=None, runPolicy=AT_ONCE))
    low.await_phase("Running")
    urgent = apply(cluster, namespace, training_job("urgent", gpus=8, seconds=None, priorityClassName="urgent-claims"))
    urgent.await_phase("Running")
    (pod,) = urgent.pods()
    assert allocated(cluster, claims(cluster, namespace)[pod.metadata.name]) == chosen(urgent)


def test_another_planner_goes_on_where_one_was_killed(cluster: ClusterSession, namespace: str) -> None:
    job = apply(cluster, namespace, training_job("before", gpus=8, seconds=None))
    job.await_phase("Running")
    cluster.crash("planner-0")
    after = apply(cluster, namespace, training_job("after", replicas=2, gpus=8, seconds=None))
    after.await_phase("Running")
    assert chosen(after).isdisjoint(chosen(job))
    given = [allocated(cluster, one) for one in claims(cluster, namespace).values()]
    assert sum(map(len, given)) == len(set().union(*given)) == 24
