"""Objects of others with every combination of a job's labels and names, beside live jobs on a real API server.

Pods with a worker's labels are made by an administrator who is among admission.writers: the policies refuse them to others.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from kompakt_client.errors import ApiError
from kompakt_client.requests import JSON, MERGE_PATCH, ApiRequest
from kompakt_client.transport import connect
from kompakt_core import contract as c
from kompakt_core.contract import job_owner
from kompakt_core.contract.job_owner import JobOwner
from kompakt_operator.garbage_collector import COLLECTOR_SECONDS
from tests.support.cluster.reading import await_reason
from tools.kube.jobs import JobManifest, apply, training_job
from tools.kube.session import ClusterSession, eventually, stays

Object = dict[str, Any]
CORE = "/api/v1/namespaces/{}/{}"
PATHS = {
    "Service": CORE.format("{}", "services"),
    "Secret": CORE.format("{}", "secrets"),
    "PersistentVolumeClaim": CORE.format("{}", "persistentvolumeclaims"),
    "Pod": CORE.format("{}", "pods"),
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
}
SPECS: dict[str, Object] = {
    "Service": {"spec": {"clusterIP": "None", "selector": {"app": "foreign"}}},
    "Secret": {"stringData": {"key": "value"}},
    "PersistentVolumeClaim": {
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "none", "resources": {"requests": {"storage": "1Gi"}}}
    },
    "Pod": {
        "spec": {
            "schedulerName": c.SCHEDULER_NAME,
            "schedulingGates": [{"name": c.GATE}],
            "containers": [{"name": "trainer", "image": "simulated"}],
        }
    },
    "PodDisruptionBudget": {"spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "foreign"}}}},
}


class Strangers:
    """What others have in two namespaces, as it was when it was made."""

    def __init__(self, kubeconfig: Path) -> None:
        self._api = connect(kubeconfig, "stranger")
        self.made: dict[str, Object] = {}

    def ask(self, method: str, path: str, body: Object | None = None, kind: str = JSON) -> Object:
        return self._api.json(ApiRequest(method, path, {"fieldManager": "stranger"} if body else {}, body, kind))

    def make(self, kind: str, namespace: str, name: str, labels: dict[str, str], owners: list[Object]) -> None:
        version = "policy/v1" if kind == "PodDisruptionBudget" else "v1"
        meta = {"name": name, "labels": labels, "ownerReferences": owners}
        folder = PATHS[kind].format(namespace)
        self.made[f"{folder}/{name}"] = self.ask(
            "POST", folder, {"apiVersion": version, "kind": kind, "metadata": meta, **SPECS[kind]}
        )

    def fail(self, path: str) -> None:
        """A pod of theirs ends badly."""
        status = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}
        self.ask("PATCH", f"{path}/status", {"status": status}, MERGE_PATCH)

    def spoilt(self) -> list[str]:
        """What is gone, going, another one, or was written by a part of kompakt."""
        with ThreadPoolExecutor(8) as pool:
            return [why for why in pool.map(self._why, self.made) if why]

    def _why(self, path: str) -> str:
        before = self.made[path]
        try:
            now = self.ask("GET", path)
        except ApiError as error:
            return f"{path}: {error.status}"
        meta, first = now["metadata"], before["metadata"]
        same = all(
            meta.get(part) == first.get(part) for part in ("uid", "labels", "ownerReferences", "annotations", "deletionTimestamp")
        )
        ours = [one["manager"] for one in meta["managedFields"] if one["manager"].startswith("kompakt")]
        return "" if same and now.get("spec") == before.get("spec") and not ours else f"{path}: {meta}"


@pytest.fixture
def elsewhere(cluster: ClusterSession, namespace: str) -> Iterator[str]:
    """A second namespace."""
    name = f"{namespace}-b"
    cluster.core.create_namespace({"metadata": {"name": name}})
    eventually(lambda: cluster.core.list_namespaced_service_account(name).items, f"ServiceAccount default in {name}")
    yield name
    cluster.core.delete_namespace(name)


def running(cluster: ClusterSession, namespace: str, name: str) -> JobManifest:
    job = apply(cluster, namespace, training_job(name, replicas=2, gpus=2, seconds=None, runPolicy={"evictions": "Refuse"}))
    job.await_phase("Running")
    return job


def combinations(job: JobManifest) -> list[dict[str, str]]:
    """Each label of a worker right, wrong or absent; role and index go together."""
    uid = job.read()["metadata"]["uid"]
    known = {c.LABEL_JOB_UID: (uid, "before"), c.LABEL_JOB_NAME: (job.name, "false"), c.LABEL_ATTEMPT: ("1", "2")}
    choices = [[*({key: value} for value in values), {}] for key, values in known.items()]
    part = [{c.LABEL_ROLE: "worker", c.LABEL_WORKER_INDEX: "0"}, {}]
    return [{key: value for one in all_of for key, value in one.items()} for all_of in product(*choices, part)]


def owners(cluster: ClusterSession, job: JobManifest) -> list[list[Object]]:
    """Nobody; the job beside others; something else that controls it, and the job beside that."""
    owner = job_owner.encode(JobOwner(job.namespace, job.name, job.read()["metadata"]["uid"]))
    beside = {**owner, "controller": False, "blockOwnerDeletion": False}
    held = cluster.core.create_namespaced_config_map(job.namespace, {"metadata": {"name": f"holds-{job.name}"}})
    holder = {"apiVersion": "v1", "kind": "ConfigMap", "name": held.metadata.name, "uid": held.metadata.uid, "controller": True}
    return [[], [beside], [holder, beside]]


def own(job: JobManifest) -> list[tuple[str, str]]:
    """Names and uids of what belongs to the job."""
    selector = {"label_selector": f"{c.LABEL_JOB_UID}={job.read()['metadata']['uid']}"}
    budgets = client.PolicyV1Api(job.cluster.api).list_namespaced_pod_disruption_budget(job.namespace, **selector).items
    found = [*job.pods(), *job.cluster.core.list_namespaced_service(job.namespace, **selector).items, *budgets]
    owned = [
        one.metadata for one in found if any(o.controller and o.kind == c.JOB_KIND for o in one.metadata.owner_references or ())
    ]
    return sorted((meta.name, meta.uid) for meta in owned)


def beside(cluster: ClusterSession, job: JobManifest, elsewhere: str) -> list[Strangers]:
    """All kinds of objects with all labels, owners and a free name; in another namespace without owners."""
    others, workers = Strangers(cluster.kubeconfig), Strangers(cluster.kubeconfig)
    wanted = [
        (kind, place, labels, owner)
        for kind, (number, owner), labels in product(PATHS, enumerate(owners(cluster, job)), combinations(job))
        for place in ([job.namespace] if number else [job.namespace, elsewhere])
    ]

    def make(index: int) -> None:
        kind, place, labels, owner = wanted[index]
        (workers if kind == "Pod" else others).make(kind, place, f"{job.name}-foreign-{index}", labels, owner)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make, range(len(wanted))))
    failing = Strangers(cluster.kubeconfig)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(failing.fail, list(workers.made)[::2]))
    return [others, workers]


def unspoilt(strangers: list[Strangers]) -> None:
    assert [why for one in strangers for why in one.spoilt()] == []


@pytest.mark.timeout(600)
def test_nothing_foreign_is_touched_and_no_job_is_harmed(kompakt: ClusterSession, namespace: str, elsewhere: str) -> None:
    first, second = running(kompakt, namespace, "first"), running(kompakt, namespace, "second")
    before = own(first), own(second)
    strangers = [one for job in (first, second) for one in beside(kompakt, job, elsewhere)]
    print(f"{sum(len(one.made) for one in strangers)} objects of others")
    stays(lambda: (own(first), own(second)), rounds=6, seconds=COLLECTOR_SECONDS / 4)
    assert (own(first), own(second)) == before
    unspoilt(strangers)
    kompakt.core.delete_namespaced_pod("first-worker-0-a1", namespace)
    second.patch({"spec": {"suspend": True}})
    eventually(lambda: (first.status["attempt"], first.phase) == (2, "Running"), "the gang starts anew beside them")
    eventually(lambda: own(second) == [], "all that belongs to the suspended job is gone")
    assert [name for name, _ in own(first)] == ["first-a2", "first-a2", "first-worker-0-a2", "first-worker-1-a2"]
    assert first.status["restarts"] == 0
    unspoilt(strangers)
    second.patch({"spec": {"suspend": False}})
    second.await_phase("Running")
    unspoilt(strangers)


@pytest.mark.parametrize("kind", ["Service", "PodDisruptionBudget", "Pod"])
def test_a_name_that_the_next_attempt_needs_is_told_and_never_taken_over(
    kompakt: ClusterSession, namespace: str, kind: str
) -> None:
    job = running(kompakt, namespace, "named")
    others = Strangers(kompakt.kubeconfig)
    labels = {c.LABEL_JOB_UID: job.read()["metadata"]["uid"], c.LABEL_JOB_NAME: "named", c.LABEL_ATTEMPT: "2"}
    worker = {c.LABEL_ROLE: "worker", c.LABEL_WORKER_INDEX: "0"} if kind == "Pod" else {}
    name = "named-worker-0-a2" if kind == "Pod" else "named-a2"
    others.make(kind, namespace, name, labels | worker, [])
    kompakt.core.delete_namespaced_pod("named-worker-0-a1", namespace)
    assert f"{kind} {name} exists and does not belong to this TrainingJob" in await_reason(job, "NameTaken")
    unspoilt([others])
    Strangers(kompakt.kubeconfig).ask("DELETE", f"{PATHS[kind].format(namespace)}/{name}")
    job.await_phase("Running")
