"""A pod that was rejected for GPUs that were reported free later is bound soon after the report, in a quiet cluster as well."""

from collections.abc import Iterator

import pytest

from tests.support.cluster.more_machines import more_machines
from tests.support.cluster.pods import gpu_pod
from tests.support.cluster.reading import held
from tools.kube.parts import Pair
from tools.kube.session import ClusterSession, eventually
from tools.kube.simulated import SimulatedMachine

NAME = "late-report"


@pytest.fixture
def node(kompakt: ClusterSession) -> Iterator[dict[str, str]]:
    """A selector for one machine."""
    with more_machines(kompakt, [SimulatedMachine(NAME, "dgx1-v100", 8)]):
        yield {"kubernetes.io/hostname": NAME}


@pytest.fixture
def second(kompakt: ClusterSession, namespace: str, node: dict[str, str]) -> str:
    """A pod that was rejected for GPUs that are free, while no device plugin reports that."""
    core = kompakt.core

    def rejected(name: str) -> bool:
        conditions = core.read_namespaced_pod(name, namespace).status.conditions or ()
        return any("node(s) had too few free GPUs" in (one.message or "") for one in conditions)

    core.create_namespaced_pod(namespace, gpu_pod("first", 8, nodeSelector=node))
    eventually(lambda: bound(kompakt, namespace, "first"), "the first pod is bound")
    eventually(lambda: "first" in held(kompakt), "its plugin reports what it holds")
    kompakt.kill("simulated-plugins")
    core.delete_namespaced_pod("first", namespace)
    core.create_namespaced_pod(namespace, gpu_pod("second", 8, nodeSelector=node))
    eventually(lambda: rejected("second"), "its GPUs are reported as held by the first")
    return "second"


def bound(kompakt: ClusterSession, namespace: str, name: str) -> bool:
    return bool(kompakt.core.read_namespaced_pod(name, namespace).spec.node_name)


def test_a_pod_is_tried_again_once_the_device_plugin_reports_its_gpus_free(
    kompakt: ClusterSession, namespace: str, second: str
) -> None:
    kompakt.restart("simulated-plugins")
    eventually(lambda: bound(kompakt, namespace, second), "it is bound although nothing changed that kube-scheduler watches")


def test_a_pod_is_tried_again_that_was_rejected_before_the_extender_restarted(
    kompakt: ClusterSession, namespace: str, pair: Pair, second: str
) -> None:
    kompakt.kill(pair.extender)
    kompakt.restart("simulated-plugins")
    kompakt.restart(pair.extender)
    eventually(lambda: bound(kompakt, namespace, second), "it is bound although this extender never rejected it")
