"""The API server is there and yet is not: it hangs, spoils one request in ten, or says nothing any more on watches.

KOMPAKT_OUTAGE says for how many seconds it hangs (25 unless it is set: longer than both Leases hold), KOMPAKT_SEED repeats a run.
"""

import os
import random
import secrets
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.cluster.detour import asked
from tests.support.cluster.replacing import end_pair, operator_instead
from tests.support.cluster.storm import LOOK, Crowd, held, left_sockets_collected, orphans
from tools.kube.holding import HoldingWatch
from tools.kube.jobs import JobManifest, apply, training_job
from tools.kube.parts import Pair, can_set_hostname
from tools.kube.session import ClusterSession, eventually

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")
OUTAGE = float(os.environ.get("KOMPAKT_OUTAGE", "25"))
SEED = int(os.environ.get("KOMPAKT_SEED", "0")) or secrets.randbelow(1 << 31)
JOBS = 24
NO_WAIT = {"consolidation": {"mode": "NoWait"}}


@pytest.fixture(autouse=True)
def left_sockets_are_collected_here() -> Iterator[None]:
    with left_sockets_collected():
        yield


@pytest.fixture
def watched(kompakt: ClusterSession) -> Iterator[HoldingWatch]:
    """As in other tests, but it goes on where the API server was away."""
    watch = HoldingWatch(str(kompakt.kubeconfig), rejoins=True)
    yield watch
    watch.close()
    assert watch.violations == []


@pytest.mark.timeout(600 + OUTAGE)
def test_jobs_outlive_an_api_server_that_hangs(kompakt: ClusterSession, namespace: str, watched: HoldingWatch) -> None:
    jobs = [
        apply(kompakt, namespace, training_job(f"hung-{i}", replicas=2, gpus=2, seconds="1", placement=NO_WAIT))
        for i in range(12)
    ]
    eventually(lambda: any(job.bound() for job in jobs), "something is bound")
    server = kompakt.plane.processes["kube-apiserver"]
    server.signal(signal.SIGSTOP)
    try:
        time.sleep(OUTAGE)
    finally:
        server.signal(signal.SIGCONT)
    for job in jobs:
        assert job.await_phase("Succeeded")["restarts"] == 0
    eventually(lambda: not orphans(kompakt, namespace), "no orphan")


@pytest.fixture
def detour(kompakt: ClusterSession, pair: Pair) -> Iterator[str]:
    """Operator and scheduler pair reach the API server through a proxy that spoils one request in ten."""
    if not can_set_hostname():
        pytest.skip("two pairs on one host need hostnames of their own, and this machine allows no user namespaces")
    print(f"KOMPAKT_SEED={SEED}")
    end_pair(kompakt, pair)
    address, proxy = kompakt.parts.faulty_server(SEED)
    kompakt.start(proxy)
    kompakt.parts.server = address
    with operator_instead(kompakt, kompakt.parts.operator("operator-2")):
        second = kompakt.start_pair("scheduler-2")
        yield address
        end_pair(kompakt, second)
    kompakt.kill("faulty")
    kompakt.parts.server = ""
    kompakt.restart(pair.extender)
    kompakt.restart(pair.scheduler)


@pytest.mark.timeout(600)
def test_jobs_come_and_go_while_one_request_in_ten_is_spoilt(
    kompakt: ClusterSession, namespace: str, detour: str, watched: HoldingWatch
) -> None:
    crowd = Crowd(kompakt, namespace, random.Random(SEED), size=12)
    while len(crowd.lives) < JOBS:
        crowd.admit()
        crowd.step()
        time.sleep(LOOK)
    eventually(crowd.step, f"all jobs over; left: {crowd.unfinished()}", 240)
    assert crowd.problems == []
    eventually(lambda: not orphans(kompakt, namespace), "no orphan")
    eventually(lambda: not held(kompakt), "no GPU held")
    counts = spoilt(kompakt, detour)
    print(counts)
    assert min(counts[way] for way in ("500", "503", "cut before", "cut after")) > 10


def spoilt(cluster: ClusterSession, address: str) -> dict[str, int]:
    return dict(asked(cluster, f"{address}/faulty"))


@dataclass(frozen=True, slots=True)
class Silenced:
    """An operator whose watches a proxy can silence."""

    cluster: ClusterSession
    proxy: str
    liveness: str

    def silence(self, *plurals: str) -> None:
        asked(self.cluster, f"{self.proxy}/faulty/silent", ["none", *plurals])

    def health(self) -> str:
        """What the liveness probe reads; "" while the endpoint does not answer."""
        try:
            with urllib.request.urlopen(self.liveness, timeout=5) as answer:
                return f"{answer.status} {answer.read().decode()}"
        except urllib.error.HTTPError as refusal:
            with refusal:
                return f"{refusal.code} {refusal.read().decode()}"
        except OSError:
            return ""


@pytest.fixture(scope="module")
def silenced(kompakt: ClusterSession) -> Iterator[Silenced]:
    address, proxy = kompakt.parts.faulty_server(SEED, rate=0)
    kompakt.start(proxy)
    kompakt.parts.server = address
    operator = kompakt.parts.operator("operator-3", "--watch-patience=10")
    kompakt.parts.server = ""
    port = next(flag.partition("=")[2] for flag in operator.argv if flag.startswith("--health-port="))
    with operator_instead(kompakt, operator):
        yield Silenced(kompakt, address, f"http://127.0.0.1:{port}/healthz")
    kompakt.kill("faulty")


@pytest.fixture
def long(kompakt: ClusterSession, namespace: str, silenced: Silenced) -> JobManifest:
    """A job that runs on: the operator is active, and its watches show what there is."""
    job = apply(kompakt, namespace, training_job("long", seconds=None, placement=NO_WAIT))
    job.await_phase("Running")
    assert silenced.health() == "200 ok\n"
    return job


# What falls silent; what the operator then tells the probe, and whom its log names: the first object that it hears of. It may
# list all at any moment.
WATCHES = {"pods": ("Pods", "{}/late-worker-0-a1"), "trainingjobs": ("TrainingJobs", "{}/long")}


@pytest.mark.parametrize("plural", WATCHES)
def test_a_watch_that_says_nothing_any_more_ends_the_operators_liveness(
    kompakt: ClusterSession, namespace: str, silenced: Silenced, long: JobManifest, plural: str
) -> None:
    silenced.silence(plural)
    late = apply(kompakt, namespace, training_job("late", placement=NO_WAIT))
    if plural == "trainingjobs":
        long.patch({"metadata": {"labels": {"changed": "yes"}}})
        news = {"metadata": {"annotations": {"changed": "yes"}}}  # of the pod, so that its job is looked at
        kompakt.core.patch_namespaced_pod("long-worker-0-a1", namespace, news)
    kind, name = WATCHES[plural]
    await_told(silenced, f"{kind} has not shown uid ")
    assert f": {name.format(namespace)}" in kompakt.log_of("operator-3")
    assert namespace not in silenced.health()
    silenced.silence()
    eventually(lambda: silenced.health() == "200 ok\n", "the next connection speaks")
    late.await_phase("Succeeded")


def await_told(silenced: Silenced, words: str) -> None:
    """Until the liveness probe reads that of a watch."""
    try:
        eventually(lambda: silenced.health().startswith(f"503 the watch of {words}"), "it is seen", 60)
    except AssertionError as error:
        raise AssertionError(f"the operator says {silenced.health()!r}, not {words!r}") from error
