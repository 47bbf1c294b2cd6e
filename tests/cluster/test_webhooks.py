"""Webhooks and policies change or refuse a gang's pods: what counts is the pods as stored, and a gang is whole or not there."""

import itertools
from collections.abc import Iterator

import pytest

from kompakt_core.contract import GROUP, JOB_PLURAL, VERSION
from tests.support.cluster.reading import await_reason
from tests.support.cluster.webhooks import ALLOWED, Object, Verdict, Webhook, adding, hooked, patched
from tools.kube.jobs import JobManifest, apply, training_job
from tools.kube.parts import Pair
from tools.kube.session import ClusterSession, eventually, stays

WRITES = ("CREATE", "UPDATE")


def with_sidecar(cpu: str) -> Verdict:
    """What injects a helper into every pod, as service meshes do."""
    return adding("/spec/containers/-", {"name": "sidecar", "image": "simulated", "resources": {"requests": {"cpu": cpu}}})


def removing(path: str) -> Verdict:
    """What takes something away from every object that has it."""

    def verdict(found: Object) -> Object:
        where, _, field = path.strip("/").partition("/")
        return patched([{"op": "remove", "path": path}]) if field in found[where] else ALLOWED

    return verdict


def refusing(index: str, code: int) -> Verdict:
    """What refuses the worker of that index, and no dry run of another one tells so."""

    def verdict(pod: Object) -> Object:
        refused = pod["metadata"]["labels"].get("kompakt.dev/worker-index") == index
        return {"allowed": False, "status": {"code": code, "message": f"no worker {index} here"}} if refused else ALLOWED

    return verdict


@pytest.fixture
def webhook(kompakt: ClusterSession, namespace: str) -> Iterator[Webhook]:
    """Asked about every pod of the namespace that is made; until told otherwise it lets all pass as they are."""
    with hooked(kompakt, namespace, "pods", lambda: a_pod(kompakt, namespace)) as found:
        yield found


@pytest.fixture
def pod_webhook(kompakt: ClusterSession, namespace: str) -> Iterator[Webhook]:
    """Asked whenever a pod of the namespace, or its status, is written."""
    with hooked(kompakt, namespace, "pods", lambda: a_pod(kompakt, namespace), operations=WRITES) as found:
        yield found


def a_pod(cluster: ClusterSession, namespace: str) -> None:
    pod = {"metadata": {"name": "probe"}, "spec": {"containers": [{"name": "c", "image": "simulated"}]}}
    cluster.core.create_namespaced_pod(namespace, pod, dry_run="All")


@pytest.fixture
def job_webhook(kompakt: ClusterSession, namespace: str) -> Iterator[Webhook]:
    """Asked whenever a TrainingJob of the namespace, or its status, is written."""

    def probe() -> None:
        kompakt.custom.create_namespaced_custom_object(
            GROUP, VERSION, namespace, JOB_PLURAL, training_job("probe"), dry_run="All"
        )

    with hooked(kompakt, namespace, JOB_PLURAL, probe, operations=WRITES, version=(GROUP, VERSION)) as found:
        yield found


@pytest.fixture
def service_webhook(kompakt: ClusterSession, namespace: str) -> Iterator[Webhook]:
    """The same about every Service."""
    body = {"metadata": {"name": "probe"}, "spec": {"clusterIP": "None"}}
    with hooked(
        kompakt, namespace, "services", lambda: kompakt.core.create_namespaced_service(namespace, body, dry_run="All")
    ) as found:
        yield found


def quota(cluster: ClusterSession, namespace: str, cpu: str) -> None:
    body = {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": cpu}}}
    cluster.core.create_namespaced_resource_quota(namespace, body)


def gang(name: str, replicas: int) -> Object:
    made = training_job(name, replicas=replicas, gpus=2, seconds=None)
    made["spec"]["roles"][0]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m"}}
    return made


def containers(job: JobManifest) -> list[list[str]]:
    return [[container.name for container in pod.spec.containers] for pod in job.pods()]


def stamping() -> Verdict:
    """What changes every object at every write, each time in another way."""
    numbers = itertools.count()

    def verdict(found: Object) -> Object:
        notes = {**(found["metadata"].get("annotations") or {}), "example.com/stamp": str(next(numbers))}
        return adding("/metadata/annotations", notes)(found)

    return verdict


def test_a_quota_counts_what_a_webhook_injects_and_the_gang_is_whole_or_not_there(
    kompakt: ClusterSession, namespace: str, webhook: Webhook
) -> None:
    webhook.verdict = with_sidecar("900m")
    quota(kompakt, namespace, "3")  # enough for three of the four as they are stored, and for all as the template says
    job = apply(kompakt, namespace, gang("meshed", 4))
    await_reason(job, "QuotaExceeded", "Reconciling")
    eventually(lambda: not job.pods(), "what was made is removed again")
    kompakt.core.patch_namespaced_resource_quota("q", namespace, {"spec": {"hard": {"requests.cpu": "4"}}})
    job.await_phase("Running")
    assert containers(job) == [["trainer", "sidecar"]] * 4


def test_the_planner_counts_processors_of_what_a_webhook_injects(
    kompakt: ClusterSession, namespace: str, webhook: Webhook
) -> None:
    """Both pods fit on one machine by their GPUs and by their template; 40 of its 64 processors are one sidecar's."""
    webhook.verdict = with_sidecar("40")
    job = apply(kompakt, namespace, gang("wide", 2))
    job.await_phase("Running")
    assert len({pod.spec.node_name for pod in job.pods()}) == 2
    webhook.verdict = lambda _: ALLOWED
    plain = apply(kompakt, namespace, gang("narrow", 2))
    plain.await_phase("Running")
    assert len({pod.spec.node_name for pod in plain.pods()}) == 1


# 422 is what an admission policy answers by default.
@pytest.mark.parametrize("code", [403, 400, 422])
def test_a_gang_of_which_a_webhook_refuses_one_worker_is_removed_again_until_it_may_be_whole(
    kompakt: ClusterSession, namespace: str, webhook: Webhook, code: int
) -> None:
    webhook.verdict = refusing("2", code)
    job = apply(kompakt, namespace, gang("maimed", 3))
    assert "no worker 2 here" in await_reason(job, "PodsForbidden")
    eventually(lambda: not job.pods(), "what was made is removed again")
    assert {"maimed-worker-0-a1", "maimed-worker-1-a1", "maimed-worker-2-a1"} <= set(webhook.asked)
    assert not job.bound()
    webhook.verdict = lambda _: ALLOWED
    job.await_phase("Running")
    assert job.condition("Stalled")["status"] == "False"


def test_a_service_that_a_webhook_spoils_is_not_blamed_on_the_template(
    kompakt: ClusterSession, namespace: str, service_webhook: Webhook
) -> None:
    service_webhook.verdict = adding("/spec/ports", [{"port": 0}])
    job = apply(kompakt, namespace, gang("unserved", 2))
    message = await_reason(job, "ServicesForbidden")
    assert message.startswith("Service unserved-a1: ")
    assert "spec.ports[0].port" in message
    assert (job.phase, job.pods()) == ("Pending", [])
    service_webhook.verdict = lambda _: ALLOWED
    job.await_phase("Running")
    assert job.condition("Stalled")["status"] == "False"


def test_a_gang_ends_well_and_rests_although_webhooks_change_each_pod_and_the_job_at_every_write(
    kompakt: ClusterSession, namespace: str, webhook: Webhook, job_webhook: Webhook
) -> None:
    webhook.verdict, job_webhook.verdict = stamping(), stamping()
    job = apply(kompakt, namespace, gang("stamped", 2))
    job.await_phase("Running")
    assert all("example.com/stamp" in pod.metadata.annotations for pod in job.pods())
    stays(lambda: (job.read()["metadata"]["resourceVersion"], len(job_webhook.asked)), rounds=5)
    job.finish()
    assert (job.await_phase("Succeeded")["attempt"], job.status["restarts"]) == (1, 0)


def test_a_gang_waits_for_a_webhook_that_changes_pods_whenever_they_are_written(
    kompakt: ClusterSession, namespace: str, pod_webhook: Webhook, pair: Pair
) -> None:
    """The policy of the scheduler's account cannot tell the webhook's changes from those of a stolen token."""
    pod_webhook.verdict = stamping()
    job = apply(kompakt, namespace, gang("rewritten", 2))
    refused = f"release of {namespace}/rewritten-worker-0-a1 refused"
    eventually(lambda: refused in kompakt.log_of(pair.extender), "the planner is refused")
    assert job.bound() == []
    pod_webhook.verdict = lambda _: ALLOWED
    job.await_phase("Running")
    assert job.status["attempt"] == 1


@pytest.mark.parametrize("taken", ["/spec/schedulingGates", "/metadata/labels", "/metadata/ownerReferences"])
def test_a_webhook_that_takes_away_what_makes_a_pod_a_worker_is_told_and_gets_no_gpu(
    kompakt: ClusterSession, namespace: str, webhook: Webhook, taken: str
) -> None:
    """Without its gate a worker would be placed before its gang, without labels or owner it would be nobody's."""
    webhook.verdict = removing(taken)
    job = apply(kompakt, namespace, gang("stripped", 2))
    await_reason(job, "PodsForbidden")
    assert job.pods() == []
    webhook.verdict = lambda _: ALLOWED
    job.await_phase("Running")


def test_a_gang_waits_for_a_webhook_that_is_broken_and_bears_one_that_is_slow(
    kompakt: ClusterSession, namespace: str, webhook: Webhook
) -> None:
    webhook.broken = True
    job = apply(kompakt, namespace, gang("waiting", 3))
    eventually(lambda: "waiting-worker-0-a1" in webhook.asked, "the webhook is asked about a worker")
    stays(lambda: job.bound(), rounds=3)
    webhook.broken, webhook.delay = False, 0.5
    job.await_phase("Running")
    assert job.status["attempt"] == 1
    assert len(job.pods()) == 3
