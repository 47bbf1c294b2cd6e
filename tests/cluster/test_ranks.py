"""Pods of a gang on machines whose names alternate between racks, placed by the real kube-scheduler with our extender."""

from collections.abc import Iterator

import pytest

from kompakt_core import contract as c
from tests.support.cluster.more_machines import more_machines
from tools.kube.jobs import apply, training_job
from tools.kube.session import ClusterSession
from tools.kube.simulated import SimulatedMachine

pytestmark = pytest.mark.usefixtures("watched")
POOL = "test.kompakt.dev/pool"


@pytest.fixture(scope="module")
def in_turn(kompakt: ClusterSession) -> Iterator[ClusterSession]:
    """The cluster with all our parts and four machines of eight GPUs in two racks."""
    labels = [(("kompakt.dev/rack", f"turn-{'ab'[host % 2]}"), (POOL, "in-turn")) for host in range(4)]
    with more_machines(kompakt, [SimulatedMachine(f"turn-{host}", "dgx1-v100", 8, labels[host]) for host in range(4)]):
        yield kompakt


def test_pods_are_bound_rack_by_rack_in_the_order_of_their_ranks(in_turn: ClusterSession, namespace: str) -> None:
    document = training_job("ring", replicas=4, gpus=8, seconds=None, placement={"consolidation": {"mode": "NoWait"}})
    document["spec"]["roles"][0]["template"]["spec"]["nodeSelector"] = {POOL: "in-turn"}
    job = apply(in_turn, namespace, document)
    job.await_phase("Running")
    pods = sorted(job.bound(), key=lambda pod: int(pod.metadata.annotations[c.ANN_RANK]))
    assert [pod.spec.node_name for pod in pods] == ["turn-0", "turn-2", "turn-1", "turn-3"]
    assert [pod.metadata.name for pod in pods] == [f"ring-worker-{index}-a1" for index in range(4)]
