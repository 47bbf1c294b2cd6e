"""kill -9 of every program at random moments, while 20 jobs come and go.

KOMPAKT_KILLS says how often (50 unless it is set), KOMPAKT_SEED repeats a run's choices. With `-s` a long run says how far it is.
"""

import os
import random
import re
import secrets
import time
from collections.abc import Iterator

import pytest

from kompakt_client.transport import connect
from kompakt_core.contract import API_VERSION, JOB_PLURAL
from tests.support.cluster.storm import (
    LOOK,
    Crowd,
    Killer,
    held,
    insisting,
    kubelets_anew,
    left_sockets_collected,
    orphans,
    said_of,
)
from tests.support.turns import in_turn
from tools.kube.holding import HoldingWatch
from tools.kube.parts import Pair
from tools.kube.session import ClusterSession, eventually, stays

pytestmark = [pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning"), in_turn(0)]
KILLS = int(os.environ.get("KOMPAKT_KILLS", "50"))
SEED = int(os.environ.get("KOMPAKT_SEED", "0")) or secrets.randbelow(1 << 31)
PAUSE = (0.3, 2.5)  # seconds between two kills: a program is killed again while it still takes up its work
TOLD = 25  # kills between two lines
TURN = 3  # jobs that must be over before each program is killed once more
CALM_SECONDS = 120.0
# A killed kube-scheduler's Lease runs out after 10 s, and each of the last jobs may need several turns.
REST_SECONDS = 240.0
# Longer than that for each kill and killing ends: on a machine that is too busy the checks at the end are reached all the same.
KILL_SECONDS = 10


@pytest.fixture(autouse=True)
def left_sockets_are_collected_here() -> Iterator[None]:
    with left_sockets_collected():
        yield


@pytest.mark.timeout(KILL_SECONDS * KILLS + 3 * REST_SECONDS)
def test_jobs_come_and_go_while_everything_is_killed(kompakt: ClusterSession, namespace: str, pair: Pair) -> None:
    chance = random.Random(SEED)
    print(f"KOMPAKT_SEED={SEED}")
    crowd = Crowd(kompakt, namespace, chance)
    victims = ("operator-0", pair.scheduler, pair.extender, "simulated-plugins", "kube-apiserver", "etcd")
    killer = Killer(kompakt, chance, victims)
    killer.supervise()
    watch = HoldingWatch(str(kompakt.kubeconfig), rejoins=True)
    began = time.monotonic()
    killing = killer.begin(KILLS, PAUSE, lambda: calm(crowd, killer))
    try:
        told = 0
        while killing.is_alive():
            crowd.admit()
            crowd.step()
            if time.monotonic() > began + KILL_SECONDS * KILLS:
                killer.stop.set()
            if (count := killer.kills.total()) >= told + TOLD:
                told = count
                print(
                    f"{count} kills in {time.monotonic() - began:.0f} s; {crowd.over()} of {len(crowd.lives)} jobs over",
                    flush=True,
                )
            time.sleep(LOOK)
        print(f"{dict(killer.kills)} in {time.monotonic() - began:.0f} s; {crowd.over()} of {len(crowd.lives)} jobs over by then")
        kubelets_anew(kompakt)
        eventually(crowd.step, f"all jobs over; left: {crowd.unfinished()}", REST_SECONDS)
        print(f"all over {time.monotonic() - began:.0f} s after the first; {watch.gaps} gaps in the watch, {watch.events} events")
    except AssertionError as error:
        left = [life.job for life in crowd.lives.values() if not life.ended]
        raise AssertionError(f"{error}\n{left[0].name}: {insisting(left[0].story)}" if left else str(error)) from None
    finally:
        killer.stop.set()
        killing.join()
        watch.close()
    assert crowd.problems == []
    held_once(kompakt, watch, pair)
    await_no_orphan(kompakt, namespace)
    eventually(lambda: not held(kompakt), "no GPU held by a pod that is over")
    stays(lambda: [job["metadata"]["resourceVersion"] for job in jobs_of(kompakt, namespace)], rounds=3)
    print(f"nothing held twice, no orphan, at rest after {time.monotonic() - began:.0f} s")
    assert min(killer.kills.values()) >= KILLS // len(victims), "the machine is too busy for so many in the time"
    assert len(crowd.lives) >= crowd.size + TURN * (KILLS // len(victims) - 1), "jobs came and went all the time"


def held_once(cluster: ClusterSession, watch: HoldingWatch, pair: Pair) -> None:
    """Else what stood where, and what our parts said of these pods."""
    names = sorted(set(re.findall(r"pod='[^/]+/([^']+)'", "\n".join(watch.violations))))
    said = [said_of(cluster, name, pair.extender, pair.scheduler, "operator-0") for name in names[:4]]
    assert not watch.violations, "\n".join([*watch.violations[:10], *said])


def await_no_orphan(cluster: ClusterSession, namespace: str) -> None:
    try:
        eventually(lambda: not orphans(cluster, namespace), "no orphan")
    except AssertionError as error:
        left = orphans(cluster, namespace)
        said = [said_of(cluster, one.split()[1], "operator-0", "kwok") for one in left[:3]]
        raise AssertionError("\n".join([f"{error}: {left}", *said])) from None


def calm(crowd: Crowd, killer: Killer) -> None:
    """Until a few more jobs are over: of programs that are never all up at once nothing would be learnt but that."""
    wanted, end = crowd.over() + TURN, time.monotonic() + CALM_SECONDS
    while crowd.over() < wanted and time.monotonic() < end and not killer.stop.wait(LOOK):
        pass


def jobs_of(cluster: ClusterSession, namespace: str) -> list[dict[str, dict[str, str]]]:
    found = connect(cluster.kubeconfig).get(f"/apis/{API_VERSION}/namespaces/{namespace}/{JOB_PLURAL}")["items"]
    return list(found)
