"""One of our programs is away while jobs run (all are killed in test_storm.py, the scheduler pair in test_consolidation.py)."""

from collections.abc import Iterator

import pytest

from tests.support.cluster.probing import probed
from tests.support.cluster.replacing import SCHEDULER_LEASE, end_operator, lease_holder
from tools.kube.jobs import apply, training_job
from tools.kube.parts import Pair
from tools.kube.session import ClusterSession, eventually, stays

pytestmark = pytest.mark.usefixtures("watched")


def test_jobs_outlive_the_operator(kompakt: ClusterSession, namespace: str) -> None:
    jobs = [apply(kompakt, namespace, training_job(f"survivor-{i}", replicas=2, gpus=2, seconds="1")) for i in range(8)]
    eventually(lambda: any(job.bound() for job in jobs), "something runs")
    end_operator(kompakt)
    late = apply(kompakt, namespace, training_job("late", gpus=1))
    eventually(lambda: all(p.status.phase == "Succeeded" for j in jobs for p in j.bound()), "bound pods run on and end")
    assert late.pods() == []
    kompakt.restart("operator-0")
    for job in (*jobs, late):
        assert job.await_phase("Succeeded")["attempt"] == 1
    pods = [pod.metadata.name for job in jobs for pod in job.pods()]
    assert len(pods) == 16, "no pod was made twice"
    stays(lambda: [(j.name, j.read()["metadata"]["resourceVersion"]) for j in jobs], rounds=5)


def test_the_extender_alone_comes_back(kompakt: ClusterSession, namespace: str, pair: Pair) -> None:
    running = apply(kompakt, namespace, training_job("running", replicas=2, gpus=4, seconds=None))
    running.await_phase("Running")
    kompakt.kill(pair.extender)
    waiting = apply(kompakt, namespace, training_job("waiting", replicas=2, gpus=2))
    running.finish()
    running.await_phase("Succeeded")
    assert not waiting.bound()
    kompakt.restart(pair.extender)
    waiting.await_phase("Succeeded")


@pytest.fixture
def lone(kompakt: ClusterSession, pair: Pair, standby: Pair) -> Iterator[Pair]:
    """The first pair, which holds the Lease, without its extender, and under the chart's probe; a standby is there."""
    assert lease_holder(kompakt, SCHEDULER_LEASE).startswith(pair.identity)
    kompakt.kill(pair.extender)
    yield pair
    kompakt.restart(pair.extender)


def test_kube_scheduler_gives_its_lease_up_when_its_extender_is_gone(
    kompakt: ClusterSession, namespace: str, lone: Pair, standby: Pair
) -> None:
    with probed(kompakt, lone):
        eventually(lambda: lease_holder(kompakt, SCHEDULER_LEASE).startswith(standby.identity), "the standby has the Lease")
        apply(kompakt, namespace, training_job("after", replicas=2, gpus=2)).await_phase("Succeeded")


def test_gpus_stay_known_while_the_plugins_are_away(kompakt: ClusterSession, namespace: str) -> None:
    first = apply(kompakt, namespace, training_job("first", replicas=2, gpus=8, seconds=None))
    first.await_phase("Running")
    kompakt.kill("simulated-plugins")
    second = apply(kompakt, namespace, training_job("second", replicas=1, gpus=8, seconds=None))
    eventually(lambda: bool(second.pods()), "the second job has its pod")
    kompakt.restart("simulated-plugins")
    second.await_phase("Running")
    nodes = {pod.spec.node_name for job in (first, second) for pod in job.pods()}
    assert nodes == {"dgx-0", "dgx-1", "pcie-0"}
