"""Our processes are killed in the middle of work; the work ends as if nothing had happened."""

import random
from collections.abc import Iterator

import pytest

from tools.kube.holding import HoldingWatch
from tools.kube.jobs import JobManifest, apply, training_job
from tools.kube.parts import Pair
from tools.kube.session import ClusterSession, eventually, stays


@pytest.fixture(autouse=True)
def no_gpu_is_held_twice(kompakt: ClusterSession) -> Iterator[HoldingWatch]:
    watching = HoldingWatch(str(kompakt.kubeconfig))
    yield watching
    watching.close()
    assert watching.violations == []
    assert watching.events > 0


def burst(cluster: ClusterSession, namespace: str, name: str, count: int) -> list[JobManifest]:
    return [apply(cluster, namespace, training_job(f"{name}-{i}", replicas=2, gpus=2, seconds="1")) for i in range(count)]


def all_succeed(jobs: list[JobManifest], seconds: float = 90) -> None:
    for job in jobs:
        job.await_phase("Succeeded", seconds)
        assert job.status["attempt"] == 1, job.story()


def test_jobs_outlive_the_operator(kompakt: ClusterSession, namespace: str) -> None:
    jobs = burst(kompakt, namespace, "survivor", 8)
    eventually(lambda: any(job.bound() for job in jobs), "something runs")
    kompakt.kill("operator-0")
    late = apply(kompakt, namespace, training_job("late", gpus=1))
    eventually(lambda: all(p.status.phase == "Succeeded" for j in jobs for p in j.bound()), "bound pods run on and end")
    assert late.pods() == []
    kompakt.restart("operator-0")
    all_succeed([*jobs, late])
    pods = [pod.metadata.name for job in jobs for pod in job.pods()]
    assert len(pods) == 16, "no pod was made twice"
    stays(lambda: [(j.name, j.read()["metadata"]["resourceVersion"]) for j in jobs], rounds=5)


def test_a_standby_pair_takes_over(kompakt: ClusterSession, namespace: str, pair: Pair, standby: Pair) -> None:
    jobs = burst(kompakt, namespace, "handed", 12)
    eventually(lambda: sum(len(job.bound()) for job in jobs) >= 4, "the first pair has begun")
    kompakt.kill_pair(pair)
    try:
        late = apply(kompakt, namespace, training_job("late", replicas=2, gpus=3))
        all_succeed([*jobs, late], seconds=120)
        holder = kompakt.kubectl(
            "get", "lease", "kompakt-scheduler", "-n", "kompakt-system", "-o", "jsonpath={.spec.holderIdentity}"
        )
        assert holder.startswith("scheduler-1_")
    finally:
        kompakt.restart(pair.extender)
        kompakt.restart(pair.scheduler)


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


def test_jobs_outlive_crashes_of_everything_in_any_order(kompakt: ClusterSession, namespace: str, pair: Pair) -> None:
    chance = random.Random(11)
    victims = [pair.extender, pair.scheduler, "operator-0", "simulated-plugins"]
    jobs = []
    for number in range(32):
        document = training_job(f"crash-{number}", replicas=chance.randint(1, 3), gpus=chance.choice([1, 2, 2, 4]), seconds="1")
        jobs.append(apply(kompakt, namespace, document))
        if number % 4 == 3:
            kompakt.crash(chance.choice(victims))
            eventually(lambda: any(job.bound() for job in jobs), "something is placed")
    all_succeed(jobs, seconds=200)
