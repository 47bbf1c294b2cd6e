"""A node whose kubelet is older than the control plane, as in the middle of an upgrade of the cluster.

KOMPAKT_KUBELET names its minor version, such as 1.36; `make test` names each in turn. It is fetched or built first, so nothing is
tried unless that is set.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.node.jobs import Jobs, await_phase, sleeping
from tests.support.node.machines import third_machine
from tests.support.node.world import World
from tools.kube import binaries
from tools.kube.following import running_workers
from tools.kube.kubectl import await_state
from tools.kube.node import RealNode
from tools.kube.programs import ENV_KUBELET, ENV_KUBERNETES

VERSION = os.environ.get(ENV_KUBELET, "")
pytestmark = pytest.mark.skipif(not VERSION, reason="KOMPAKT_KUBELET names no older kubelet")


@pytest.fixture(scope="module")
def older(kompakt: World) -> Iterator[RealNode]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ENV_KUBERNETES, VERSION)
        kubelet = binaries.find("kubelet")

    def find(name: str) -> Path:
        return kubelet if name == "kubelet" else binaries.find(name)

    with third_machine(kompakt, find) as node:
        yield node


def test_written_seen_and_held_gpus_are_the_same_under_an_older_kubelet(kompakt: World, older: RealNode, jobs: Jobs) -> None:
    told = kompakt.kubectl.get("node", older.name)["status"]["nodeInfo"]["kubeletVersion"]
    assert told.startswith(f"v{VERSION}."), told
    place = {"nodeSelector": {"kubernetes.io/hostname": older.name}}
    jobs.apply("skewed", sleeping(1000), gpus=3, pod=place)
    await_phase(kompakt, "skewed", "Running")
    await_state(lambda: bool(running_workers(kompakt.kubectl, "skewed")), "workers in PodResources", 30)
    workers = running_workers(kompakt.kubectl, "skewed")
    assert [(worker.node, len(worker.written)) for worker in workers] == [(older.name, 3)] * 2
    for worker in workers:
        assert worker.seen == worker.written
        assert worker.held == set(worker.written)
    assert len({gpu for worker in workers for gpu in worker.written}) == 6
    jobs.delete()
    await_state(lambda: kompakt.kubectl.get("gputopology", older.name)["status"]["free"] == 8, "its GPUs back", 30)


def test_a_job_ends_well_with_a_worker_on_each_of_both_kubelets(kompakt: World, older: RealNode, jobs: Jobs) -> None:
    """With eight GPUs each."""
    both = [older.name, "node-2"]
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": both}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    jobs.apply("mixed", sleeping(2), gpus=8, pod={"affinity": affinity})
    await_phase(kompakt, "mixed", "Succeeded")
