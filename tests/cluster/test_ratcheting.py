"""A job that was stored under older rules lives on: what it does not change is not judged again."""

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client

from tests.support.cluster.reading import await_reason
from tests.support.crds import crd
from tools.kube.jobs import Document, JobManifest, training_job
from tools.kube.session import ClusterSession, eventually

NAME = "trainingjobs.kompakt.dev"


def definition(*, lax: bool) -> Document:
    """Ours; `lax`: as if the rule about targetGradientError had not been there yet."""
    whole: Document = crd("trainingjobs")
    spec = whole["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    if lax:
        del spec["activationCompression"]["properties"]["targetGradientError"]["x-kubernetes-validations"]
    return whole


@pytest.fixture
def lax(kompakt: ClusterSession, namespace: str) -> Iterator[Any]:
    """Puts the old rules or ours in force; afterwards ours are."""
    extensions = client.ApiextensionsV1Api(kompakt.api)

    def enforce(*, lax: bool) -> None:
        now = extensions.read_custom_resource_definition(NAME)
        body = definition(lax=lax)
        body["metadata"]["resourceVersion"] = now.metadata.resource_version
        extensions.replace_custom_resource_definition(NAME, body)
        eventually(lambda: taken() is lax, f"rules with lax={lax} in force")

    def taken() -> bool:
        try:
            create(kompakt, namespace, "probe", dry_run="All")
        except client.ApiException as refusal:
            if refusal.status != 422:
                raise
            return False
        return True

    yield enforce
    enforce(lax=False)


def create(cluster: ClusterSession, namespace: str, name: str, **options: str) -> JobManifest:
    body = training_job(name, suspend=True, activationCompression={"targetGradientError": "0.5"})
    cluster.custom.create_namespaced_custom_object("kompakt.dev", "v1alpha1", namespace, "trainingjobs", body, **options)
    return JobManifest(cluster, namespace, name)


def test_a_stored_job_may_keep_what_new_rules_refuse(kompakt: ClusterSession, namespace: str, lax: Any) -> None:
    lax(lax=True)
    job = create(kompakt, namespace, "old")
    lax(lax=False)
    job.patch({"metadata": {"labels": {"team": "a"}}, "spec": {"runPolicy": {"backoffLimit": 1}}})
    assert job.read()["spec"]["activationCompression"]["targetGradientError"] == "0.5"
    with pytest.raises(client.ApiException, match=r"at most 0\.1"):
        job.patch({"spec": {"activationCompression": {"targetGradientError": "0.6"}}})
    assert "targetGradientError" in await_reason(job, "InvalidSpec")
    assert job.pods() == []
