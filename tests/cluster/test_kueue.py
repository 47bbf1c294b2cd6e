"""TrainingJobs in queues of a real Kueue: it decides when they run, kompakt where."""

import json
import socket
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from kubernetes import client, config

from kompakt_core import contract as c
from tests.support.cluster import autoscaler, controllers, kueue, waits
from tests.support.cluster.machines import MACHINES
from tests.support.cluster.more_machines import more_machines
from tests.support.cluster.own_cluster import own_cluster
from tests.support.cluster.reading import await_reason
from tests.support.examples import EXAMPLES
from tools.kube.jobs import JobManifest, apply, training_job
from tools.kube.parts import Pair, asking_headers, can_set_hostname
from tools.kube.session import ClusterSession, eventually, stays
from tools.kube.simulated import SimulatedMachine

pytestmark = pytest.mark.usefixtures("watched")
RECLAIM = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
KWOK = {"nodeLabels": {"type": "kwok"}, "tolerations": [{"key": "gpus", "operator": "Exists", "effect": "NoSchedule"}]}
ALL_GPUS = 24


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSession]:
    """One with Kueue; our parts work with it."""
    with own_cluster(tmp_path_factory.mktemp("kueue"), MACHINES) as cluster:
        autoscaler.define(cluster)  # Kueue looks for its kind when it starts
        kueue.install(cluster, "batch/job")
        cluster.parts.install({**waits.LEASE, **waits.FACTOR_SETTINGS, "kueue.enabled": "true"})
        cluster.start(cluster.parts.simulated_plugins())
        cluster.start(cluster.parts.operator("operator-0", "--kueue=true"))
        yield cluster


@pytest.fixture(scope="module", autouse=True)
def pair(cluster: ClusterSession) -> Pair:
    return cluster.start_pair("scheduler-0" if can_set_hostname() else socket.gethostname())


@pytest.fixture(scope="module")
def kompakt(cluster: ClusterSession) -> ClusterSession:
    return cluster


@pytest.fixture(autouse=True)
def cleared(cluster: ClusterSession, namespace: str) -> Iterator[None]:
    """Queues go after the test."""
    yield
    kueue.remove(cluster, namespace)


@pytest.fixture
def queue(cluster: ClusterSession, namespace: str) -> str:
    """A queue of sixteen GPUs in that namespace."""
    kueue.queue(cluster, namespace, 16, KWOK, preemption={"withinClusterQueue": "LowerPriority"})
    return namespace


@pytest.fixture
def other(cluster: ClusterSession) -> Iterator[str]:
    """A second namespace."""
    cluster.core.create_namespace({"metadata": {"name": "lender"}})
    eventually(lambda: cluster.core.list_namespaced_service_account("lender").items, "its account")
    yield "lender"
    cluster.kubectl("delete", "namespace", "lender", "--timeout=60s")
    kueue.remove(cluster, "lender")


def submit(cluster: ClusterSession, namespace: str, name: str, *, pods: int = 2, gpus: int = 8, **more: Any) -> JobManifest:
    """A job of that namespace's queue that runs until it is deleted, unless it says otherwise."""
    document = training_job(name, replicas=pods, gpus=gpus, **{"seconds": None, **more})
    document["metadata"]["labels"] = {kueue.QUEUE_LABEL: kueue.QUEUE}
    return apply(cluster, namespace, document)


def workload(job: JobManifest) -> dict[str, Any]:
    """The job's; {} where it has none."""
    found = job.cluster.custom.list_namespaced_custom_object(kueue.GROUP, kueue.VERSION, job.namespace, "workloads")["items"]
    return next((one for one in found if one["metadata"]["labels"][c.LABEL_JOB_NAME] == job.name), {})


def told(job: JobManifest) -> dict[str, str]:
    """What the conditions of its Workload say."""
    return {one["type"]: one["status"] for one in workload(job).get("status", {}).get("conditions", ())}


def kueue_hears(job: JobManifest, type_: str) -> None:
    eventually(lambda: told(job).get(type_) == "True", f"{type_} of the Workload of {job.name}")


def patch(job: JobManifest, body: str) -> None:
    name = workload(job)["metadata"]["name"]
    job.cluster.kubectl("patch", "workload", name, f"--namespace={job.namespace}", "--type=merge", f"--patch={body}")


def waits_for_quota(job: JobManifest, words: str = "") -> None:
    """Until it has no pods and no quota, and says why in these words of Kueue's: it may say before that nobody answered yet."""
    eventually(lambda: not job.pods() and told(job).get("QuotaReserved") == "False", f"{job.name} waits for quota")
    eventually(lambda: words in await_reason(job, "WaitingForQuota", "Reconciling").lower(), f"{job.name} says {words!r}")


def rests(job: JobManifest) -> None:
    """Nobody writes it any more: what has come to rest stays so."""

    def written() -> tuple[list[Any], str]:
        return job.pods(), job.read()["metadata"]["resourceVersion"]

    def unchanged() -> bool:
        before = written()
        time.sleep(1)
        return written() == before

    eventually(unchanged, f"{job.name} comes to rest")
    stays(written, rounds=6)


def runs_again(job: JobManifest, attempt: int) -> None:
    eventually(lambda: job.phase == "Running" and job.status["attempt"] == attempt, f"{job.name} runs again")


def explained(job: JobManifest, pair: Pair) -> dict[str, Any]:
    url = f"http://127.0.0.1:{pair.health_port}/v1alpha1/jobs/{job.namespace}/{job.name}"
    with urllib.request.urlopen(urllib.request.Request(url, headers=asking_headers(job.cluster.parts.api)), timeout=10) as answer:
        return dict(json.load(answer))


def test_a_job_without_quota_has_no_pods_and_one_with_quota_runs_where_its_flavor_says(
    cluster: ClusterSession, queue: str, pair: Pair
) -> None:
    first = submit(cluster, queue, "first")
    first.await_phase("Running")
    (spec, _) = [pod.spec for pod in first.pods()]
    assert spec.node_selector["type"] == "kwok"
    assert "gpus" in {toleration.key for toleration in spec.tolerations}
    kueue_hears(first, "PodsReady")
    second = submit(cluster, queue, "second")
    waits_for_quota(second, "insufficient unused quota")
    rests(second)
    answer = explained(second, pair)
    assert (answer["state"], "insufficient unused quota" in answer["message"]) == ("WaitingForQuota", True)
    first.delete()
    second.await_phase("Running")


def test_a_job_that_is_over_gives_its_quota_to_the_next(cluster: ClusterSession, queue: str) -> None:
    first, second = submit(cluster, queue, "first", seconds="0.5"), submit(cluster, queue, "second", seconds="0.5")
    for job in (first, second):
        job.await_phase("Succeeded")
        kueue_hears(job, "Finished")


def test_borrowed_quota_is_taken_back_and_the_borrower_goes_on_later_in_its_old_place(
    cluster: ClusterSession, namespace: str, other: str
) -> None:
    for where in (namespace, other):
        kueue.queue(cluster, where, 8, cohort="training", preemption=RECLAIM)
    borrower = submit(cluster, namespace, "borrower")
    borrower.await_phase("Running")
    made = workload(borrower)["metadata"]["uid"]
    lender = submit(cluster, other, "lender", pods=1)
    lender.await_phase("Running")
    waits_for_quota(borrower, "preempt")
    assert borrower.status["lastRestart"]["reason"] == "QuotaLost"
    later = submit(cluster, namespace, "later", pods=2)
    waits_for_quota(later)
    lender.delete()
    runs_again(borrower, 2)
    assert workload(borrower)["metadata"]["uid"] == made
    assert (later.pods(), borrower.status["restarts"]) == ([], 0)


def test_two_queues_share_what_both_want_fairly(cluster: ClusterSession, namespace: str, other: str) -> None:
    """Neither has quota of its own: they borrow from a third queue of the cohort, one job each, whoever came first."""
    shared = {"cohort": "fair", "preemption": {"reclaimWithinCohort": "Any"}}
    for where, gpus in ((namespace, 0), (other, 0), ("kube-public", ALL_GPUS)):
        kueue.queue(cluster, where, gpus, **shared)
    greedy = [submit(cluster, namespace, f"greedy-{i}", pods=1) for i in range(3)]
    for job in greedy:
        job.await_phase("Running")
    late = submit(cluster, other, "late", pods=1)
    late.await_phase("Running")
    eventually(lambda: sum(bool(job.pods()) for job in greedy) == 2, "one of three gave way")
    late.delete()
    for job in greedy:
        job.await_phase("Running")
    kueue.remove(cluster, "kube-public")


def test_a_job_of_higher_priority_has_a_lower_one_of_its_queue_evicted(cluster: ClusterSession, queue: str) -> None:
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": queue}, "value": 1000}
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(urgent))
    try:
        usual = submit(cluster, queue, "usual")
        usual.await_phase("Running")
        first = submit(cluster, queue, "urgent", priorityClassName=queue)
        first.await_phase("Running")
        assert workload(first)["spec"]["priority"] == 1000
        waits_for_quota(usual)
        first.delete()
        runs_again(usual, 2)
    finally:
        cluster.kubectl("delete", "priorityclass", queue)


def test_a_class_of_kueues_own_orders_the_queue_and_leaves_pods_as_they_are(cluster: ClusterSession, queue: str) -> None:
    first = {
        "apiVersion": f"{kueue.GROUP}/{kueue.VERSION}",
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": queue},
        "value": 7,
    }
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(first))
    document = training_job("first", seconds=None)
    document["metadata"]["labels"] = {kueue.QUEUE_LABEL: kueue.QUEUE, "kueue.x-k8s.io/priority-class": queue}
    job = apply(cluster, queue, document)
    job.await_phase("Running")
    assert workload(job)["spec"]["priority"] == 7
    assert job.pods()[0].spec.priority == 0
    cluster.kubectl("delete", "workloadpriorityclass", queue)


def test_a_class_of_kueues_own_that_is_not_there_is_told(cluster: ClusterSession, queue: str) -> None:
    document = training_job("first", seconds=None)
    document["metadata"]["labels"] = {kueue.QUEUE_LABEL: kueue.QUEUE, "kueue.x-k8s.io/priority-class": "none"}
    job = apply(cluster, queue, document)
    assert 'workloadpriorityclasses.kueue.x-k8s.io "none" not found' in await_reason(job, "WorkloadsForbidden")
    job.patch({"metadata": {"labels": {"kueue.x-k8s.io/priority-class": None}}})
    job.await_phase("Running")


def test_a_workload_that_somebody_deletes_is_made_anew(cluster: ClusterSession, queue: str) -> None:
    job = submit(cluster, queue, "job")
    job.await_phase("Running")
    cluster.kubectl("delete", "workload", workload(job)["metadata"]["name"], f"--namespace={queue}")
    runs_again(job, 2)
    assert job.status["lastRestart"]["message"] == "the job's Workload was deleted"


def test_a_deleted_workload_that_somebody_keeps_is_told_and_made_anew_when_it_is_gone(
    cluster: ClusterSession, queue: str
) -> None:
    job = submit(cluster, queue, "job")
    job.await_phase("Running")
    patch(job, '{"metadata": {"finalizers": ["example.com/audit"]}}')
    cluster.kubectl("delete", "workload", workload(job)["metadata"]["name"], f"--namespace={queue}", "--wait=false")
    eventually(lambda: not job.pods(), "its pods are gone")
    eventually(lambda: "kept by its finalizers example.com/audit" in await_reason(job, "WaitingForQuota", "Reconciling"), "told")
    rests(job)
    patch(job, '{"metadata": {"finalizers": null}}')
    runs_again(job, 2)


def test_an_inactive_workload_stops_its_job_until_it_is_active_again(cluster: ClusterSession, queue: str) -> None:
    job = submit(cluster, queue, "job")
    job.await_phase("Running")
    patch(job, '{"spec": {"active": false}}')
    waits_for_quota(job, "spec.active is false")
    patch(job, '{"spec": {"active": true}}')
    runs_again(job, 2)


def test_a_suspended_job_leaves_the_queue_and_comes_back(cluster: ClusterSession, queue: str) -> None:
    job = submit(cluster, queue, "job")
    job.await_phase("Running")
    job.patch({"spec": {"suspend": True}})
    eventually(lambda: not job.pods() and not workload(job), "no pods, no Workload")
    job.patch({"spec": {"suspend": False}})
    runs_again(job, 2)


def test_a_job_moves_to_the_queue_that_it_names_and_cannot_leave_its_quota(cluster: ClusterSession, queue: str) -> None:
    job = submit(cluster, queue, "job")
    job.await_phase("Running")
    waiting = submit(cluster, queue, "waiting")
    waits_for_quota(waiting)
    waiting.patch({"metadata": {"labels": {kueue.QUEUE_LABEL: "nowhere"}}})
    waits_for_quota(waiting, "localqueue nowhere doesn't exist")
    waiting.patch({"metadata": {"labels": {kueue.QUEUE_LABEL: kueue.QUEUE}}})
    eventually(lambda: workload(waiting)["spec"]["queueName"] == kueue.QUEUE, "back in its queue")
    waiting.patch({"metadata": {"labels": {kueue.QUEUE_LABEL: None}}})
    stays(lambda: (waiting.pods(), waiting.phase), rounds=6)
    job.delete()
    waiting.await_phase("Running")


def test_a_workload_that_somebody_makes_smaller_is_made_anew(cluster: ClusterSession, queue: str) -> None:
    job = submit(cluster, queue, "job")
    job.await_phase("Running")
    waiting = submit(cluster, queue, "waiting")
    waits_for_quota(waiting)
    before = workload(waiting)
    smaller = [{**before["spec"]["podSets"][0], "count": 1}]
    patch(waiting, yaml.safe_dump({"spec": {"podSets": smaller}}))
    eventually(lambda: workload(waiting).get("metadata", {}).get("uid") not in (None, before["metadata"]["uid"]), "made anew")
    assert workload(waiting)["spec"]["podSets"][0]["count"] == 2


def test_a_restart_for_another_reason_keeps_the_quota(cluster: ClusterSession, queue: str) -> None:
    job = submit(cluster, queue, "job")
    job.await_phase("Running")
    waiting = submit(cluster, queue, "waiting")
    waits_for_quota(waiting)
    cluster.core.delete_namespaced_pod("job-worker-1-a1", queue)
    runs_again(job, 2)
    assert waiting.pods() == []


def test_the_operator_may_give_no_quota(cluster: ClusterSession, queue: str) -> None:
    """Nor write Workloads of others: its account is held by a policy."""
    job = submit(cluster, queue, "job")
    job.await_phase("Running")
    waiting = submit(cluster, queue, "waiting")
    waits_for_quota(waiting)
    admission = workload(job)["status"]["admission"]
    name = workload(waiting)["metadata"]["name"]
    with config.new_client_from_config(str(cluster.parts.account_kubeconfig("operator"))) as account:
        workloads = kueue.GROUP, kueue.VERSION, queue, "workloads", name
        give = client.CustomObjectsApi(account).patch_namespaced_custom_object_status
        with pytest.raises(client.ApiException, match=r"status\.admission is taken away at most"):
            give(*workloads, {"status": {"admission": admission}})


def test_the_example_is_taken_and_runs_a_job(cluster: ClusterSession) -> None:
    for team in ("team-a", "team-b"):
        cluster.core.create_namespace({"metadata": {"name": team}})
        controllers.judge(cluster, team)
    example = ("-f", str(EXAMPLES / "kueue" / "queue.yaml"))
    eventually(lambda: cluster.core.list_namespaced_service_account("team-a").items, "its account")
    cluster.kubectl("apply", "--server-side", *example)
    try:
        submit(cluster, "team-a", "first", seconds="0.5").await_phase("Succeeded")
    finally:
        cluster.kubectl("delete", "--wait=false", *example)
        for team in ("team-a", "team-b"):
            cluster.kubectl("delete", "namespace", team, "--timeout=60s")


SCALING = "autoscaling.x-k8s.io"
CHECK = [
    {
        "kind": "ProvisioningRequestConfig",
        "metadata": {"name": "atomic"},
        "spec": {"provisioningClassName": f"best-effort-atomic-scale-up.{SCALING}", "managedResources": [c.RESOURCE]},
    },
    {
        "kind": "AdmissionCheck",
        "metadata": {"name": "nodes"},
        "spec": {
            "controllerName": "kueue.x-k8s.io/provisioning-request",
            "parameters": {"apiGroup": kueue.GROUP, "kind": "ProvisioningRequestConfig", "name": "atomic"},
        },
    },
]


@pytest.fixture
def provisioned(cluster: ClusterSession, namespace: str) -> Iterator[str]:
    """A queue that asks for nodes before it admits a job."""
    made = yaml.safe_dump_all({"apiVersion": f"{kueue.GROUP}/{kueue.VERSION}", **one} for one in CHECK)
    cluster.kubectl("apply", "-f", "-", stdin=made)
    kueue.queue(cluster, namespace, 64, admissionChecks=["nodes"])
    yield namespace
    kueue.remove(cluster, namespace)
    cluster.kubectl("delete", "--wait=false", "-f", "-", stdin=made)


def test_a_job_for_which_nodes_are_missing_waits_until_they_are_provisioned(cluster: ClusterSession, provisioned: str) -> None:
    """The test plays cluster-autoscaler: it adds a node and says so."""
    job = submit(cluster, provisioned, "job", pods=4)
    requests = SCALING, "v1", provisioned, "provisioningrequests"
    found = eventually(lambda: cluster.custom.list_namespaced_custom_object(*requests)["items"], "Kueue asks for nodes")
    ((request,), (pod_set,)) = found, found[0]["spec"]["podSets"]
    template = cluster.core.read_namespaced_pod_template(pod_set["podTemplateRef"]["name"], provisioned).template
    assert (pod_set["count"], template.spec.containers[0].resources.limits[c.RESOURCE]) == (4, "8")
    eventually(
        lambda: "admission check nodes is Pending" in await_reason(job, "WaitingForQuota", "Reconciling"), "the job says so"
    )
    assert job.pods() == []
    with more_machines(cluster, [SimulatedMachine("new-0", "dgx1-v100", 8)]):
        told = {"type": "Provisioned", "status": "True", "reason": "Provisioned", "message": "one node more"}
        status = {"conditions": [{**told, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
        cluster.custom.patch_namespaced_custom_object_status(*requests, request["metadata"]["name"], {"status": status})
        job.await_phase("Running")
        notes = [pod.metadata.annotations for pod in job.pods()]
        assert {note[f"{SCALING}/consume-provisioning-request"] for note in notes} == {request["metadata"]["name"]}
        job.delete()
        eventually(lambda: not job.pods(), "its pods are gone")
