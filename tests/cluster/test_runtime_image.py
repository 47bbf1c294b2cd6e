"""What a worker's node pulls of kompakt, on a real API server: the first attempt's image, and Secrets beside the account's."""

from collections.abc import Iterator
from typing import Any

import pytest

from kompakt_core.contract import INJECT_INIT_CONTAINER
from tests.support.cluster.replacing import operator_instead
from tools.kube.jobs import JobManifest, apply, training_job
from tools.kube.parts import RUNTIME_IMAGE
from tools.kube.session import ClusterSession, eventually

NEWER = "registry.example/kompakt-runtime:2"


@pytest.fixture
def begun(kompakt: ClusterSession, namespace: str) -> JobManifest:
    """A job that runs under the usual operator."""
    job = apply(kompakt, namespace, training_job("begun", replicas=2, seconds=None, activationCompression={}))
    job.await_phase("Running")
    return job


@pytest.fixture
def newer(kompakt: ClusterSession, begun: JobManifest) -> Iterator[ClusterSession]:
    """The operator of a later release took over."""
    flags = (f"--runtime-image={NEWER}", "--runtime-pull-secrets=kompakt,team")
    with operator_instead(kompakt, kompakt.parts.operator("newer-0", *flags)):
        yield kompakt


def images(job: JobManifest) -> set[Any]:
    """Of the init containers of all its pods."""
    return {one.image for pod in job.pods() for one in pod.spec.init_containers or () if one.name == INJECT_INIT_CONTAINER}


def test_a_job_that_has_begun_keeps_its_runtime_under_a_later_operator(newer: ClusterSession, begun: JobManifest) -> None:
    assert begun.status["runtimeImage"] == RUNTIME_IMAGE
    first = begun.pods()[0].metadata
    newer.core.delete_namespaced_pod(first.name, first.namespace)
    eventually(lambda: begun.status["attempt"] == 2 and len(begun.pods()) == 2, "the next attempt")
    begun.await_phase("Running")
    assert (images(begun), begun.status["runtimeImage"]) == ({RUNTIME_IMAGE}, RUNTIME_IMAGE)
    later = apply(newer, begun.namespace, training_job("later", activationCompression={}))
    later.await_phase("Succeeded")
    assert (images(later), later.status["runtimeImage"]) == ({NEWER}, NEWER)


def secrets(job: JobManifest) -> list[list[str]]:
    return [[one.name for one in pod.spec.image_pull_secrets or ()] for pod in job.pods()]


def test_workers_name_the_secrets_of_their_account_and_then_ours(newer: ClusterSession, namespace: str) -> None:
    """Without compression the API server adds those of the account, and nothing is ours."""
    account = {"imagePullSecrets": [{"name": "team"}, {"name": "registry"}]}
    newer.core.patch_namespaced_service_account("default", namespace, account)
    packed = apply(newer, namespace, training_job("packed", activationCompression={}))
    plain = apply(newer, namespace, training_job("plain"))
    for job in (packed, plain):
        job.await_phase("Succeeded")
    assert secrets(packed) == [["team", "registry", "kompakt"]]
    assert (secrets(plain), images(plain)) == ([["team", "registry"]], set())
