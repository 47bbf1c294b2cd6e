"""Pods that others made are placed as one gang: a plain Job, and what becomes of its pods."""

import shlex
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from kubernetes import client

from kompakt_core import contract as c
from tests.support.cluster import jobset, kueue
from tests.support.cluster.gangs import GANG, adds_a_gate, plain_pod
from tests.support.cluster.replacing import killed_pair
from tests.support.examples import EXAMPLES
from tools.kube.admission import await_policies
from tools.kube.jobs import story
from tools.kube.parts import ROOT, Pair
from tools.kube.session import ClusterSession, eventually, stays

pytestmark = pytest.mark.usefixtures("watched", "cleared")


@pytest.fixture
def cleared(kompakt: ClusterSession, namespace: str) -> Iterator[None]:
    """Controllers make pods anew as long as their objects are there."""
    yield
    jobset.delete_all(kompakt, namespace)
    client.BatchV1Api(kompakt.api).delete_collection_namespaced_job(namespace, propagation_policy="Background")


def indexed_job(size: int, gpus: int, *, told: int | None = None, gang: str = GANG, **spec: Any) -> dict[str, Any]:
    """A Job of so many pods that work at the same time; `told`: the size that they say, if it is another one."""
    container = {"name": "main", "image": "simulated", "resources": {"limits": {c.RESOURCE: str(gpus)} if gpus else {}}}
    template = {
        "metadata": {
            "labels": {c.LABEL_GANG: gang},
            "annotations": {c.ANN_GANG_SIZE: str(told or size), c.ANN_PATTERN: "Ring"},
        },
        "spec": {"restartPolicy": "Never", "containers": [container], **spec},
    }
    counts = {"completions": size, "parallelism": size, "completionMode": "Indexed"}
    return {"metadata": {"name": gang}, "spec": {**counts, "template": template}}


def pods_of(cluster: ClusterSession, namespace: str, gang: str = GANG) -> list[Any]:
    """Its pods that live, by name."""
    found = cluster.core.list_namespaced_pod(namespace, label_selector=f"{c.LABEL_GANG}={gang}").items
    living = [pod for pod in found if pod.status.phase in ("Pending", "Running") and pod.metadata.deletion_timestamp is None]
    return sorted(living, key=lambda pod: pod.metadata.name)


def gang_of(cluster: ClusterSession, namespace: str, gang: str = GANG) -> dict[str, Any]:
    """The object; {} where there is none."""
    found = cluster.custom.list_namespaced_custom_object(c.GROUP, c.VERSION, namespace, c.GANG_PLURAL)["items"]
    return next((one for one in found if one["metadata"]["name"] == gang), {})


def scheduling(cluster: ClusterSession, namespace: str, gang: str = GANG) -> dict[str, Any]:
    return dict(gang_of(cluster, namespace, gang).get("status", {}).get("scheduling", {}))


def all_run(cluster: ClusterSession, namespace: str, size: int, gang: str = GANG) -> list[Any]:
    def running() -> list[Any]:
        pods = pods_of(cluster, namespace, gang)
        return pods if len(pods) == size and all(pod.status.phase == "Running" for pod in pods) else []

    try:
        return eventually(running, f"all {size} pods of {gang} run")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{scheduling(cluster, namespace, gang)}\n{story(cluster, namespace)}") from None


def create(cluster: ClusterSession, namespace: str, job: dict[str, Any]) -> None:
    client.BatchV1Api(cluster.api).create_namespaced_job(namespace, job)


def delete(cluster: ClusterSession, namespace: str, gang: str = GANG) -> None:
    client.BatchV1Api(cluster.api).delete_namespaced_job(gang, namespace, propagation_policy="Background")


def test_a_job_is_placed_whole_and_its_object_goes_with_its_last_pod(kompakt: ClusterSession, namespace: str) -> None:
    create(kompakt, namespace, indexed_job(2, 4))
    pods = all_run(kompakt, namespace, 2)
    assert {pod.spec.scheduler_name for pod in pods} == {c.SCHEDULER_NAME}
    given = [pod.metadata.annotations[c.ANN_GPUS] for pod in pods]
    assert given == [pod.metadata.annotations[c.ANN_PLANNED_GPUS] for pod in pods]
    assert len({pod.spec.node_name for pod in pods}) == 1, "both fit on one machine"
    assert scheduling(kompakt, namespace)["plan"]["level"] == "Machine"
    assert "ownerReferences" not in gang_of(kompakt, namespace)["metadata"]
    delete(kompakt, namespace)
    eventually(lambda: not gang_of(kompakt, namespace), "the object goes")


@pytest.fixture
def jobsets(kompakt: ClusterSession) -> ClusterSession:
    """The cluster with the JobSet controller."""
    jobset.install(kompakt)
    return kompakt


def test_a_jobset_is_placed_whole_and_so_again_when_its_controller_restarts_it(jobsets: ClusterSession, namespace: str) -> None:
    jobset.create(jobsets, namespace, jobset.jobset(GANG, 2, 2, 4, failurePolicy={"maxRestarts": 3}))
    first = all_run(jobsets, namespace, 4)
    assert len({pod.spec.node_name for pod in first}) == 2
    ranks = [int(pod.metadata.annotations[c.ANN_RANK]) for pod in first]
    assert ranks == [0, 1, 2, 3], "as JobSet numbers them"
    jobsets.core.patch_namespaced_pod_status(
        first[0].metadata.name, namespace, {"status": {"phase": "Failed", "containerStatuses": []}}
    )
    eventually(lambda: jobset.restarts(jobsets, namespace, GANG) == 1, "the controller restarts it")
    second = all_run(jobsets, namespace, 4)
    assert {pod.metadata.uid for pod in second}.isdisjoint(pod.metadata.uid for pod in first)
    placed_at_once(jobsets, namespace, second)
    jobset.delete_all(jobsets, namespace)
    eventually(lambda: not gang_of(jobsets, namespace), "the object goes")


def placed_at_once(cluster: ClusterSession, namespace: str, pods: list[Any], gang: str = GANG) -> None:
    """All of them by one plan, with exactly the GPUs of that plan."""
    plan = scheduling(cluster, namespace, gang)["plan"]
    seats = {seat["uid"]: (node["name"], seat["gpus"]) for node in plan["nodes"] for seat in node["pods"]}
    given = {pod.metadata.uid: (pod.spec.node_name, pod.metadata.annotations[c.ANN_GPU_INDICES]) for pod in pods}
    assert given == seats


def test_a_pod_that_its_job_replaces_is_placed_alone_while_the_others_run(kompakt: ClusterSession, namespace: str) -> None:
    create(kompakt, namespace, indexed_job(2, 4))
    first = all_run(kompakt, namespace, 2)
    kompakt.core.delete_namespaced_pod(first[1].metadata.name, namespace)

    def replaced() -> list[Any]:
        pods = pods_of(kompakt, namespace)
        fresh = first[1].metadata.uid not in {pod.metadata.uid for pod in pods}
        return pods if len(pods) == 2 and fresh and all(pod.status.phase == "Running" for pod in pods) else []

    second = eventually(replaced, "the Job's new pod runs")
    assert first[0].metadata.uid in {pod.metadata.uid for pod in second}
    placed_at_once(kompakt, namespace, second)


def test_a_gang_waits_whole_and_says_why(kompakt: ClusterSession, namespace: str) -> None:
    create(kompakt, namespace, indexed_job(2, 8, gang="large"))
    all_run(kompakt, namespace, 2, "large")
    create(kompakt, namespace, indexed_job(3, 8))
    eventually(lambda: scheduling(kompakt, namespace).get("state") == "Waiting", "it waits")
    assert "no room for all workers" in scheduling(kompakt, namespace)["message"]
    assert {pod.status.conditions[0].reason for pod in pods_of(kompakt, namespace)} == {"SchedulingGated"}
    delete(kompakt, namespace, "large")
    placed_at_once(kompakt, namespace, all_run(kompakt, namespace, 3))


def test_plain_pods_that_say_too_large_a_size_wait_for_the_others(kompakt: ClusterSession, namespace: str) -> None:
    for index in range(2):
        kompakt.core.create_namespaced_pod(namespace, plain_pod(f"p-{index}", size=3))
    eventually(lambda: scheduling(kompakt, namespace).get("reason") == "GangIncomplete", "it says so")
    assert scheduling(kompakt, namespace)["message"].startswith("not all of its 3 pods exist yet")
    kompakt.core.create_namespaced_pod(namespace, plain_pod("p-2", size=3))
    all_run(kompakt, namespace, 3)


def test_a_new_leader_finds_gangs_in_every_state(kompakt: ClusterSession, namespace: str, pair: Pair, standby: Pair) -> None:
    create(kompakt, namespace, indexed_job(2, 4, gang="runs"))
    runs = all_run(kompakt, namespace, 2, "runs")
    create(kompakt, namespace, indexed_job(3, 8, gang="waits"))
    eventually(lambda: scheduling(kompakt, namespace, "waits").get("state") == "Waiting", "it waits")
    kompakt.core.create_namespaced_pod(namespace, plain_pod("p-0", size=2))
    eventually(lambda: scheduling(kompakt, namespace).get("reason") == "GangIncomplete", "one pod is missing")
    before = scheduling(kompakt, namespace, "waits")["waitingSince"]
    with killed_pair(kompakt, pair):
        kompakt.core.create_namespaced_pod(namespace, plain_pod("p-1", size=2))
        all_run(kompakt, namespace, 2)
        assert scheduling(kompakt, namespace, "waits")["waitingSince"] == before
        assert [pod.metadata.uid for pod in pods_of(kompakt, namespace, "runs")] == [pod.metadata.uid for pod in runs]
        placed_at_once(kompakt, namespace, runs, "runs")


@pytest.fixture
def queued(jobsets: ClusterSession, namespace: str) -> Iterator[ClusterSession]:
    """The cluster with Kueue, and a queue of sixteen GPUs in that namespace."""
    kueue.install(jobsets, "batch/job", "jobset.x-k8s.io/jobset")
    kueue.queue(jobsets, namespace, 16)
    yield jobsets
    kueue.remove(jobsets, namespace)


def test_kueue_decides_who_may_run_and_kompakt_where(queued: ClusterSession, namespace: str) -> None:
    """A Job and a JobSet of sixteen GPUs each, of which the queue has room for one; the machines would have room for more."""
    first, second = indexed_job(2, 8), jobset.jobset("second", 2, 1, 8)
    for made in (first, second):
        made["metadata"]["labels"] = {kueue.QUEUE_LABEL: kueue.QUEUE}
    create(queued, namespace, first)
    placed_at_once(queued, namespace, all_run(queued, namespace, 2))
    jobset.create(queued, namespace, second)
    stays(lambda: (pods_of(queued, namespace, "second"), gang_of(queued, namespace, "second")), rounds=6)
    assert gang_of(queued, namespace, "second") == {}, "it has no pods before it is admitted"
    delete(queued, namespace)
    placed_at_once(queued, namespace, all_run(queued, namespace, 2, "second"), "second")


def test_a_job_of_higher_priority_has_a_gang_evicted_whole_which_then_waits(kompakt: ClusterSession, namespace: str) -> None:
    """Limits shorten how long it keeps its GPUs. As docs/gangs.md has it, its Job counts no failure."""
    here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    limits = {"metadata": {"name": namespace}, "spec": {"maxMinRuntimeSeconds": 1, "namespaceSelector": here}}
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": namespace}, "value": 1000}
    more = [{"apiVersion": c.API_VERSION, "kind": c.LIMITS_KIND, **limits}, urgent]
    kompakt.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(more))
    try:
        job = indexed_job(8, 2)
        job["spec"]["podFailurePolicy"] = documented_policy()
        create(kompakt, namespace, job)
        first = all_run(kompakt, namespace, 8)
        create(kompakt, namespace, indexed_job(2, 8, gang="urgent", priorityClassName=namespace))
        all_run(kompakt, namespace, 2, "urgent")
        eventually(lambda: scheduling(kompakt, namespace).get("state") == "Waiting", "the gang waits as a whole")
        assert {pod.metadata.uid for pod in first}.isdisjoint(pod.metadata.uid for pod in pods_of(kompakt, namespace))
        delete(kompakt, namespace, "urgent")
        placed_at_once(kompakt, namespace, all_run(kompakt, namespace, 8))
        assert client.BatchV1Api(kompakt.api).read_namespaced_job(GANG, namespace).status.failed is None
    finally:
        kompakt.kubectl("delete", "-f", "-", stdin=yaml.safe_dump_all(more))


def documented_policy() -> dict[str, Any]:
    """The block of docs/gangs.md."""
    page = (ROOT / "docs" / "gangs.md").read_text()
    (block,) = [block for block in page.split("```") if "podFailurePolicy:" in block]
    return dict(yaml.safe_load(block.removeprefix("yaml"))["spec"]["podFailurePolicy"])


EXAMPLE_SIZE = 4


@pytest.mark.parametrize("name", ["indexed", "jobset"])
def test_examples_run_as_they_are(jobsets: ClusterSession, namespace: str, name: str) -> None:
    jobset.judge(jobsets, namespace)
    jobsets.kubectl("apply", f"--namespace={namespace}", "-f", str(EXAMPLES / "gangs" / f"{name}.yaml"))
    gang = {"indexed": GANG, "jobset": "fine-tuning"}[name]
    pods = all_run(jobsets, namespace, EXAMPLE_SIZE, gang)
    placed_at_once(jobsets, namespace, pods, gang)


def waiting_job(cluster: ClusterSession, namespace: str) -> str:
    create(cluster, namespace, indexed_job(8, 0, told=9))
    return "job"


def waiting_jobset(cluster: ClusterSession, namespace: str) -> str:
    made = jobset.jobset(GANG, 2, 4, 0)
    made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"]["annotations"][c.ANN_GANG_SIZE] = "9"
    jobset.create(cluster, namespace, made)
    return "jobset"


@pytest.mark.parametrize("waiting", [waiting_job, waiting_jobset])
def test_once_kompakt_is_gone_pods_that_waited_are_made_anew_without_it(
    jobsets: ClusterSession, namespace: str, waiting: Callable[[ClusterSession, str], str]
) -> None:
    """As docs/operations.md has it; pods without GPUs, since nobody else offers any here. No failure is counted."""
    kind = waiting(jobsets, namespace)
    eventually(lambda: len(pods_of(jobsets, namespace)) == 8, "they wait for a ninth")
    policies = [one for one in jobsets.parts.chart if one["kind"].startswith("MutatingAdmissionPolicy")]
    jobsets.kubectl("delete", "-f", "-", stdin=yaml.safe_dump_all(policies))
    try:
        eventually(lambda: not adds_a_gate(jobsets), "pods get no gate any more")
        for command in suspending_and_resuming(kind, namespace):
            jobsets.kubectl(*command)
        pods = all_run(jobsets, namespace, 8)
        assert {pod.spec.scheduler_name for pod in pods} == {"default-scheduler"}
        made = client.BatchV1Api(jobsets.api).list_namespaced_job(namespace).items
        assert [job.status.failed for job in made] == [None] * len(made) != []
    finally:
        jobsets.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(policies))
        await_policies(jobsets.parts.api, policies, "default")


def suspending_and_resuming(kind: str, namespace: str) -> list[list[str]]:
    """The commands of docs/operations.md."""
    lines = (ROOT / "docs" / "operations.md").read_text().splitlines()
    commands = [shlex.split(line) for line in lines if line.startswith("kubectl patch job NAME")]
    assert ["true" in words[-1] for words in commands] == [True, False]
    named = {"job": kind, "NAME": GANG, "NAMESPACE": namespace}
    return [[named.get(word, word) for word in words[1:]] for words in commands]
