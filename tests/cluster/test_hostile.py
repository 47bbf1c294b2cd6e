"""A tenant who may create pods and jobs in one namespace, and makes them large: nobody else notices."""

from collections.abc import Iterator
from typing import Any

import pytest

from kompakt_core import contract as c
from tests.support.cluster.memory import forget_peak, memory_limit, peak, resident
from tests.support.cluster.waits import LONG
from tools.kube.jobs import apply, training_job
from tools.kube.parts import Pair
from tools.kube.session import ClusterSession, eventually

pytestmark = pytest.mark.usefixtures("watched")
MEGABYTE = 1 << 20
SHARE = 0.8  # of its memory limit that the operator may take for a moment
GROWTH = 100 * MEGABYTE  # of a part; its memory limit in the chart is 512 MB


@pytest.fixture
def unmoved(kompakt: ClusterSession, pair: Pair, namespace: str) -> Iterator[None]:
    """At the end, with all objects still there, no part has restarted or grown much."""
    parts = (pair.extender, "operator-0")
    before = {part: resident(kompakt, part) for part in parts}
    yield
    for part in parts:
        after = resident(kompakt, part)
        assert after.keys() == before[part].keys(), f"{part} restarted"
        ((pid, now),) = after.items()
        assert now - before[part][pid] < GROWTH, f"{part} grew from {before[part][pid]} to {now} bytes"


def wide(name: str, values: int) -> dict[str, Any]:
    """A gated pod without GPUs and of another scheduler, with that many values in its affinity."""
    expressions = [{"key": "a", "operator": "In", "values": [str(n) for n in range(values)]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
    return {
        "metadata": {"name": name},
        "spec": {
            "schedulingGates": [{"name": "example.com/never"}],
            "affinity": {"nodeAffinity": required},
            "containers": [{"name": "c", "image": "i"}],
        },
    }


@pytest.mark.usefixtures("unmoved")
def test_pods_with_a_megabyte_of_affinity_each_cost_nobody_anything(kompakt: ClusterSession, namespace: str) -> None:
    for number in range(45):
        kompakt.core.create_namespaced_pod(namespace, wide(f"wide-{number}", 120_000))
    apply(kompakt, namespace, training_job("honest", replicas=2, gpus=2)).await_phase("Succeeded")


@pytest.mark.usefixtures("unmoved")
def test_a_job_of_a_megabyte_times_sixty_is_refused_with_a_sentence(kompakt: ClusterSession, namespace: str) -> None:
    hostile = training_job("hostile", replicas=60, gpus=1)
    tolerations = [{"key": f"k{number}", "operator": "Exists"} for number in range(25_000)]
    hostile["spec"]["roles"][0]["template"]["spec"]["tolerations"] = tolerations
    job = apply(kompakt, namespace, hostile)
    job.await_phase("Failed")
    (failed,) = (one for one in job.read()["status"]["conditions"] if one["type"] == "Failed")
    assert failed["reason"] == "InvalidTemplate"
    assert "pods are made of at most 131072" in failed["message"]
    apply(kompakt, namespace, training_job("honest", replicas=2, gpus=2)).await_phase("Succeeded")


def heavy(name: str) -> dict[str, Any]:
    """A suspended job of a megabyte, in ten thousand tolerations."""
    made = training_job(name, suspend=True)
    tolerations = [{"key": f"{'k' * 50}.{number}", "operator": "Exists"} for number in range(10_000)]
    made["spec"]["roles"][0]["template"]["spec"]["tolerations"] = tolerations
    return made


@LONG
@pytest.mark.timeout(600)
def test_fifty_large_jobs_that_come_and_go_leave_the_operator_within_its_limit(kompakt: ClusterSession, namespace: str) -> None:
    """All are deleted at once."""
    ((pid, before),) = resident(kompakt, "operator-0").items()
    forget_peak(kompakt, "operator-0")
    for number in range(50):
        apply(kompakt, namespace, heavy(f"heavy-{number}"))
    jobs = (c.GROUP, c.VERSION, namespace, c.JOB_PLURAL)
    kompakt.custom.delete_collection_namespaced_custom_object(*jobs)
    eventually(lambda: not kompakt.custom.list_namespaced_custom_object(*jobs)["items"], "all are gone")
    apply(kompakt, namespace, training_job("honest", replicas=2, gpus=2)).await_phase("Succeeded")
    ((still, most),) = peak(kompakt, "operator-0").items()
    print(f"operator: {before / MEGABYTE:.0f} MiB before, {most / MEGABYTE:.0f} MiB at most")
    assert still == pid, "it restarted"
    assert most < SHARE * memory_limit(kompakt, "operator")
