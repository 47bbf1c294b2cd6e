"""A tenant who may create pods and jobs in one namespace, and makes them large: nobody else notices."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.cluster.memory import resident
from tools.kube.jobs import apply, training_job
from tools.kube.parts import Pair
from tools.kube.session import ClusterSession

pytestmark = pytest.mark.usefixtures("watched")
MEGABYTE = 1 << 20
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
