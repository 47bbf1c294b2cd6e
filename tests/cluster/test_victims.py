"""Nothing is evicted for a pod that would still not fit; kube-scheduler, which counts GPUs and knows no links, would do so."""

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client

from kompakt_core import contract as c
from kompakt_core.placement.model import Reason
from kompakt_extender import rejections
from tests.support.cluster.more_machines import more_machines
from tests.support.cluster.pods import gpu_pod
from tools.kube.session import ClusterSession, eventually
from tools.kube.simulated import SimulatedMachine

POOL = "test.kompakt.dev/victims"
# Their NVLinks join no eight GPUs each with each, however many are free.
MACHINES = [SimulatedMachine(f"victim-{number}", "dgx1-v100", 8, ((POOL, "yes"),)) for number in range(4)]
CLIQUE = {c.ANN_PATTERN: "Clique", c.ANN_REQUIRED_LINK: "NVLink"}


@pytest.fixture
def machines(kompakt: ClusterSession) -> Iterator[list[str]]:
    """Names of four machines."""
    with more_machines(kompakt, MACHINES):
        yield [machine.name for machine in MACHINES]


@pytest.fixture
def urgent(kompakt: ClusterSession, namespace: str) -> Iterator[str]:
    """The name of a priority above that of other pods."""
    priorities, name = client.SchedulingV1Api(kompakt.api), f"urgent-{namespace}"
    priorities.create_priority_class({"metadata": {"name": name}, "value": 1000})
    yield name
    priorities.delete_priority_class(name)


def test_no_pod_is_evicted_for_one_that_would_still_not_fit(
    kompakt: ClusterSession, namespace: str, machines: list[str], urgent: str
) -> None:
    core = kompakt.core
    for name in machines:
        core.create_namespaced_pod(namespace, gpu_pod(f"on-{name}", 1, nodeSelector={"kubernetes.io/hostname": name}))

    def small() -> dict[str, Any]:
        found = [one for one in core.list_namespaced_pod(namespace).items if one.metadata.name != "large"]
        return {one.metadata.uid: one.metadata.deletion_timestamp for one in found if one.spec.node_name}

    eventually(lambda: len(small()) == len(machines), "a pod is bound to each machine")
    before = small()
    core.create_namespaced_pod(namespace, gpu_pod("large", 8, CLIQUE, nodeSelector={POOL: "yes"}, priorityClassName=urgent))

    def why() -> str:
        status = core.read_namespaced_pod("large", namespace).status
        assert status.nominated_node_name is None
        return " ".join(one.message or "" for one in status.conditions or () if one.type == "PodScheduled")

    eventually(lambda: f"4 Insufficient {c.RESOURCE}" in why(), "the large pod finds too few GPUs")
    assert small() == before
    core.delete_collection_namespaced_pod(namespace, field_selector="metadata.name!=large")
    eventually(lambda: not small(), "the small pods are gone")
    eventually(lambda: rejections.TEXTS[Reason.LINK_TOO_WEAK] in why(), "with all GPUs free it still fits nowhere")
