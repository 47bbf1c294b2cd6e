"""Faults as drills: after each all jobs end as they should, no GPU was held twice, and nobody had to help our parts.

Each prints how long it took until all was well. The longer ones run with KOMPAKT_DRILLS=all only. KOMPAKT_FLAPS says how
often both Leases are taken away (3 unless it is set), KOMPAKT_REFUSALS for how many seconds at least the API server answers 500
and 503 (0 unless it is set: until both Leases are lost), KOMPAKT_SEED repeats a run's choices.
"""

import os
import random
import secrets
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kompakt_client.transport import connect
from tests.support.cluster.drills import LEASES, Drilled, drilled
from tests.support.cluster.machines import MACHINES
from tests.support.cluster.memory import resident
from tests.support.cluster.reading import gpus_of, held, nodes_of, scheduling
from tests.support.cluster.replacing import OPERATOR
from tests.support.cluster.stepped_clock import SteppedClock
from tests.support.cluster.storm import COURSES, Crowd, insisting, left_sockets_collected, orphans
from tests.support.cluster.waits import LONG
from tests.support.turns import in_turn
from tools.kube import kwok
from tools.kube.holding import HoldingWatch
from tools.kube.jobs import JobManifest, apply, training_job
from tools.kube.kwok import NEVER_STARTS_ANNOTATION
from tools.kube.session import eventually

pytestmark = [pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning"), in_turn(1)]
REFUSALS = float(os.environ.get("KOMPAKT_REFUSALS", "0"))
FLAPS = int(os.environ.get("KOMPAKT_FLAPS", "3"))
SEED = int(os.environ.get("KOMPAKT_SEED", "0")) or secrets.randbelow(1 << 31)
HOUR = 3600
NO_WAIT = {"consolidation": {"mode": "NoWait"}}
MEGABYTE = 1 << 20
BY_THE_CLOCK = {"activeDeadlineSeconds", "ttlSecondsAfterFinished"}


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drilled]:
    with drilled(tmp_path_factory.mktemp("drills")) as found:
        yield found


@pytest.fixture
def namespace(drill: Drilled) -> str:
    """One for each drill, and its jobs are over when it ends."""
    name = f"d-{uuid.uuid4().hex[:8]}"
    drill.cluster.core.create_namespace({"metadata": {"name": name}})
    accounts = drill.cluster.core.list_namespaced_service_account
    eventually(lambda: accounts(name).items, f"ServiceAccount in {name}")
    return name


@pytest.fixture(autouse=True)
def once_each(drill: Drilled) -> Iterator[None]:
    """No GPU is held twice, also where the API server was away meanwhile."""
    with left_sockets_collected():
        watch = HoldingWatch(str(drill.cluster.kubeconfig), rejoins=True)
        yield
        watch.close()
    assert watch.violations == []
    assert watch.events > 0


@pytest.fixture
def crowd(drill: Drilled, namespace: str) -> Crowd:
    """Jobs of every course; none is lost, whatever comes."""
    print(f"KOMPAKT_SEED={SEED}")
    return Crowd(drill.cluster, namespace, random.Random(SEED), size=9)


@pytest.fixture
def clock(drill: Drilled) -> SteppedClock:
    """That of operator, extender and simulated device plugins."""
    if drill.clock is None:
        pytest.skip("clocks are stepped by a small library, and there is no C compiler (cc)")
    return drill.clock


def settle(crowd: Crowd) -> None:
    """Until all that came are over, as they should be, and have left nothing."""
    eventually(crowd.step, f"all jobs over; left: {crowd.unfinished()}", 240)
    assert crowd.problems == []
    eventually(lambda: not orphans(crowd.cluster, crowd.namespace), "no orphan")
    eventually(lambda: not held(crowd.cluster), "no GPU held")


def through(crowd: Crowd, jobs: int) -> None:
    """Until so many more jobs are over while others come."""
    wanted = crowd.over() + jobs

    def over() -> bool:
        crowd.admit()
        crowd.step()
        return crowd.over() >= wanted

    eventually(over, f"{jobs} more jobs over; unfinished: {crowd.unfinished()}", 240)


def await_state(job: JobManifest, state: str) -> None:
    """Until the planner has decided that about it."""
    eventually(lambda: scheduling(job).get("state") == state, f"{job.name} {state}")


def gang(drill: Drilled, namespace: str, name: str, **job: Any) -> JobManifest:
    """One that runs until it is told to end, on two machines."""
    return apply(drill.cluster, namespace, training_job(name, replicas=2, gpus=4, seconds=None, placement=NO_WAIT, **job))


@LONG
@pytest.mark.parametrize(("rate", "way", "delay"), [(0.5, "429", 0.0), (0.0, "", 1.0)], ids=["throttles", "is-slow"])
def test_jobs_come_and_go_while_the_api_server(drill: Drilled, crowd: Crowd, rate: float, way: str, delay: float) -> None:
    crowd.admit()
    before = drill.counts()
    drill.trouble(rate, *([way] if way else []), delay=delay)
    try:
        through(crowd, 9)
    finally:
        drill.trouble(0)
    after = drill.counts()
    print({name: count - before.get(name, 0) for name, count in after.items()})
    assert not way or after[way] - before.get(way, 0) > 20
    with drill.well_after("API server"):
        settle(crowd)


@LONG
@pytest.mark.timeout(300 + REFUSALS)
def test_jobs_outlive_an_api_server_that_answers_5xx_until_both_leases_are_lost(drill: Drilled, crowd: Crowd) -> None:
    crowd.admit()
    eventually(lambda: crowd.step() or any(life.job.bound() for life in crowd.lives.values()), "something is bound")
    logs = (OPERATOR, drill.pair.scheduler)
    before = {name: len(drill.cluster.log_of(name)) for name in logs}

    def given_up() -> bool:
        said = {name: drill.cluster.log_of(name)[before[name] :].lower() for name in logs}
        return "lost lease" in said[OPERATOR] and "leaderelection lost" in said[drill.pair.scheduler]

    began = time.monotonic()
    drill.trouble(1, "500", "503")
    try:
        eventually(given_up, "both Leases lost")
        time.sleep(max(0.0, began + REFUSALS - time.monotonic()))
    finally:
        drill.trouble(0)
    with drill.well_after("5xx"):
        settle(crowd)


@LONG
def test_a_gang_runs_on_and_jobs_come_and_go_while_clocks_step_an_hour(
    drill: Drilled, clock: SteppedClock, crowd: Crowd, namespace: str
) -> None:
    """Forward, back to two hours less, and to the right time again. Deadlines go by the clock, as those of Kubernetes' Jobs."""
    running = gang(drill, namespace, "running")
    running.await_phase("Running")
    gpus = gpus_of(running)
    crowd.size, crowd.courses = 4, [one for one in COURSES if not BY_THE_CLOCK & one.policy.keys()]
    for offset in (HOUR, -HOUR, 0):
        crowd.admit()
        clock.step(offset)
        with drill.well_after(f"clocks {offset:+d} s"):
            through(crowd, 3)
    assert (running.status["attempt"], gpus_of(running)) == (1, gpus)
    running.finish()
    assert running.await_phase("Succeeded")["restarts"] == 0
    settle(crowd)


def test_a_plan_that_cannot_be_carried_out_yet_outlives_a_step_of_the_clock(
    drill: Drilled, clock: SteppedClock, namespace: str
) -> None:
    """All GPUs of all machines: were the plan withdrawn, and its nodes left out, there would be no other place."""
    log = len(drill.cluster.log_of(drill.pair.extender))
    drill.trouble(1, "503", only="/binding")
    try:
        document = training_job("whole", replicas=3, gpus=8, seconds="0.5", placement=NO_WAIT)
        whole = apply(drill.cluster, namespace, document)
        await_state(whole, "Released")
        for offset in (HOUR, 0):
            clock.step(offset)
            late = apply(drill.cluster, namespace, training_job(f"late-{offset}", gpus=8, placement=NO_WAIT))
            await_state(late, "Waiting")  # so the planner has looked since
            late.delete()
    finally:
        drill.trouble(0)
        clock.step(0)
    with drill.well_after("clock step before a binding"):
        assert whole.await_phase("Succeeded")["attempt"] == 1
    assert "plan withdrawn" not in drill.cluster.log_of(drill.pair.extender)[log:]


def test_a_gang_keeps_its_gpus_while_its_node_is_made_anew(drill: Drilled, crowd: Crowd, namespace: str) -> None:
    """The same name with another uid, before Kubernetes takes the pods of a lost node away."""
    running = gang(drill, namespace, "running")
    running.await_phase("Running")
    gpus, (name, *_) = gpus_of(running), sorted(nodes_of(running))
    (machine,) = (one for one in MACHINES if one.name == name)
    crowd.size = 4
    crowd.admit()
    uid = drill.cluster.core.read_node(name).metadata.uid
    drill.cluster.core.delete_node(name)
    with drill.well_after("node made anew"):
        kwok.add_nodes(connect(drill.cluster.kubeconfig), [kwok.node(name, machine.gpus, machine.machine, dict(machine.labels))])
        through(crowd, 4)

        def offered() -> bool:
            node = drill.cluster.core.read_node(name)
            return node.metadata.uid != uid and node.status.allocatable.get("kompakt.dev/gpu") == str(machine.gpus)

        eventually(offered, "the new node offers its GPUs")
        pods = {pod.metadata.name for pod in running.pods()}
        eventually(lambda: pods <= held(drill.cluster).keys(), "the new node reports what the gang holds")
    assert (running.status["attempt"], gpus_of(running)) == (1, gpus)
    running.finish()
    running.await_phase("Succeeded")
    settle(crowd)


def test_an_image_that_cannot_be_pulled_holds_up_nobody_else_and_is_mended_while_suspended(
    drill: Drilled, namespace: str
) -> None:
    """Its pods are bound, and their containers never start."""
    broken = gang(drill, namespace, "broken", annotations={NEVER_STARTS_ANNOTATION: "yes"})
    broken.await_phase("Starting")
    apply(drill.cluster, namespace, training_job("other", gpus=8, placement=NO_WAIT)).await_phase("Succeeded")
    assert (broken.phase, len(held(drill.cluster))) == ("Starting", 2), "it keeps its GPUs, and its status says that it starts"
    broken.patch({"spec": {"suspend": True}})
    broken.await_phase("Suspended")
    eventually(lambda: not held(drill.cluster), "no GPU held")
    roles = broken.read()["spec"]["roles"]
    roles[0]["template"]["metadata"]["annotations"] = {kwok.SECONDS_ANNOTATION: "0.5"}
    broken.patch({"spec": {"roles": roles, "suspend": False}})
    assert broken.await_phase("Succeeded")["restarts"] == 0


@LONG
@pytest.mark.timeout(300 + 20 * FLAPS)
def test_jobs_come_and_go_while_both_leases_flap(drill: Drilled, crowd: Crowd) -> None:
    """Each time operator and scheduler give up, end where they do so on purpose, and take the Lease again."""
    extender = drill.pair.extender
    before = resident(drill.cluster, extender)
    for _ in range(FLAPS):
        crowd.admit()
        for lease in LEASES:
            drill.take_away(lease)

        def held_again() -> bool:
            crowd.step()
            return all(drill.holder(lease) not in ("", "somebody") for lease in LEASES)

        eventually(held_again, "both Leases are held again")
    with drill.well_after(f"{FLAPS} flaps"):
        settle(crowd)
    after = resident(drill.cluster, extender)
    print(f"{crowd.over()} jobs over; extender {before} -> {after} bytes")
    assert after.keys() == before.keys(), "the extender restarted"
    assert sum(after.values()) - sum(before.values()) < 60 * MEGABYTE, "each flap leaves something"


def test_etcd_restored_to_an_hour_ago(drill: Drilled, namespace: str, tmp_path: Path) -> None:
    """What was made since is gone and can be made again; what ran then runs on; what ended since runs again."""
    cluster = drill.cluster
    kept = gang(drill, namespace, "kept")
    ended = apply(cluster, namespace, training_job("ended", gpus=4, seconds=None, placement=NO_WAIT))
    for job in (kept, ended):
        job.await_phase("Running")
    eventually(lambda: len(held(cluster)) == 3, "reported as held")
    gpus = gpus_of(kept)
    drill.back_up(tmp_path / "backup")
    ended.finish()
    ended.await_phase("Succeeded")
    since = gang(drill, namespace, "since")
    since.await_phase("Running")
    assert not gpus & gpus_of(since)
    for number in range(150):  # versions that no watch will see again for a while
        cluster.core.patch_namespace(namespace, {"metadata": {"labels": {"written": str(number)}}})
    drill.restore(tmp_path / "backup")
    with drill.well_after("etcd restored"):
        names = {job["metadata"]["name"] for job in jobs_in(drill, namespace)}
        assert names == {"kept", "ended"}
        again = insisting(lambda: gang(drill, namespace, "again"))
        assert again is not None
        again.await_phase("Running")
        assert not gpus_of(again) & gpus
    for part in (OPERATOR, drill.pair.extender, "simulated-plugins"):
        print(f"{part}: {cluster.log_of(part).count('was etcd restored?')} watches saw that versions went back")
    assert (kept.phase, kept.status["attempt"], gpus_of(kept)) == ("Running", 1, gpus)
    for job in (kept, ended, again):
        job.finish()
    for job in (kept, ended, again):
        assert job.await_phase("Succeeded")["restarts"] == 0
    eventually(lambda: not orphans(cluster, namespace), "no orphan")
    eventually(lambda: not held(cluster), "no GPU held")


def jobs_in(drill: Drilled, namespace: str) -> list[dict[str, Any]]:
    found = insisting(
        lambda: drill.cluster.custom.list_namespaced_custom_object("kompakt.dev", "v1alpha1", namespace, "trainingjobs")
    )
    return list((found or {})["items"])
