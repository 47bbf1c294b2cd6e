"""Which Pod Security level each pod of ours needs, by the API server's own judgement."""

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client

from kompakt_core.job.spec import parse_job
from kompakt_operator import render
from tests.support.chart import WORKLOADS, objects, template
from tests.support.cluster.reading import await_reason
from tools.kube.jobs import apply, training_job
from tools.kube.session import ClusterSession, eventually

TRAINER = {
    "name": "trainer",
    "image": "i",
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}
WORKER = {"securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}, "containers": [TRAINER]}


def of_chart(part: str) -> dict[str, Any]:
    spec: dict[str, Any] = template(objects('devicePlugin.source="nvml"'), part)["spec"]
    return {name: value for name, value in spec.items() if name not in ("serviceAccountName", "priorityClassName")}


def a_worker() -> dict[str, Any]:
    """With the start-up hook."""
    document = training_job("job", activationCompression={})
    document["metadata"] |= {"namespace": "ml", "uid": "u"}
    document["spec"]["roles"][0]["template"]["spec"] = WORKER
    job = parse_job(document)
    found: dict[str, Any] = render.pod(job, job.roles[0], 0, 1, image="runtime")["spec"]
    return found


@pytest.fixture(params=["restricted", "baseline", "privileged"])
def level(request: pytest.FixtureRequest, cluster: ClusterSession) -> Iterator[str]:
    """A namespace that enforces this level, and is called so."""
    name = str(request.param)
    labels = {"pod-security.kubernetes.io/enforce": name}
    cluster.core.create_namespace({"metadata": {"name": name, "labels": labels}})
    eventually(lambda: cluster.core.list_namespaced_service_account(name).items, "its account")
    yield name
    cluster.core.delete_namespace(name)


def problem(cluster: ClusterSession, namespace: str, spec: dict[str, Any]) -> str:
    """Why the API server would not take such a pod; "" if it would."""
    body = {"metadata": {"name": "tried"}, "spec": spec}
    try:
        cluster.core.create_namespaced_pod(namespace, body, dry_run="All")
    except client.ApiException as refused:
        return str(refused.body)
    return ""


def test_all_but_the_device_plugin_run_where_restricted_is_enforced(cluster: ClusterSession, level: str) -> None:
    for part in WORKLOADS:
        told = problem(cluster, level, of_chart(part))
        if part == "devicePlugin" and level != "privileged":
            assert "violates PodSecurity" in told
            assert "hostPath" in told
        else:
            assert told == "", part
    worker = a_worker() | {"schedulerName": "default-scheduler"}  # gates and labels are another policy's
    assert problem(cluster, level, worker) == ""


def test_a_job_gets_no_pods_that_its_namespace_would_refuse_to_its_owner(kompakt: ClusterSession, namespace: str) -> None:
    kompakt.core.patch_namespace(namespace, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}})
    document = training_job("mighty")
    document["spec"]["roles"][0]["template"]["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    job = apply(kompakt, namespace, document)
    assert "violates PodSecurity" in await_reason(job, "PodsForbidden")
    assert job.pods() == []
