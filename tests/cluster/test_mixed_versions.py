"""Parts of two releases at work together, as in the middle of an upgrade: definitions and rights are new, some programs old.

The older ones run from the files of the commit in tests/upgrade_from. KOMPAKT_MIXED_JOBS says how many jobs come in each mixture,
KOMPAKT_SEED repeats a run's choices.
"""

import os
import random
import secrets
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import waits
from tests.support.cluster.machines import MACHINES
from tests.support.cluster.older_parts import OlderParts
from tests.support.cluster.own_cluster import own_cluster
from tests.support.cluster.storm import LOOK, Crowd, held, orphans
from tests.support.older import NoHistory, cannot, checked_out
from tests.support.turns import in_turn
from tools.kube.holding import HoldingWatch
from tools.kube.parts import can_set_hostname
from tools.kube.session import ClusterSession, eventually, stays

pytestmark = in_turn(1)

JOBS = int(os.environ.get("KOMPAKT_MIXED_JOBS", "27"))  # three of each kind
SEED = int(os.environ.get("KOMPAKT_SEED", "0")) or secrets.randbelow(1 << 31)
REST_SECONDS = 600.0  # only something that hangs takes so long
SETTINGS = waits.LEASE | waits.FACTOR_SETTINGS
# The older extender, when it takes over (from itself too, where an API server is slow), gives away GPUs of unbound pods whose
# attempt has ended. With a Lease of a minute it does not; tests of restarted extenders hold today's to it.
OLD_PAIR = {"scheduler.lease.duration": "60s", "scheduler.lease.renewDeadline": "50s", "scheduler.lease.retryPeriod": "2s"}
NAMESPACE = "mixed"
OLD = {"only the operator is new": frozenset({"plugins", "pair"}), "only the operator is old": frozenset({"operator"})}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return checked_out(tmp_path_factory.mktemp("older"))
    except NoHistory as error:
        cannot(error)


@pytest.fixture
def mixed(request: pytest.FixtureRequest, tree: Path, tmp_path: Path) -> Iterator[ClusterSession]:
    """A cluster in which those parts are old."""
    old = request.param
    settings = SETTINGS | (OLD_PAIR if "pair" in old else {})
    with own_cluster(tmp_path, MACHINES) as cluster:
        cluster.parts.install(settings)
        older = OlderParts(cluster, tree, settings)
        assert str(tree) in older.version("kompakt_core")
        cluster.start(older.plugins() if "plugins" in old else cluster.parts.simulated_plugins())
        identity = "scheduler-0" if can_set_hostname() else socket.gethostname()
        cluster.start(*(older if "pair" in old else cluster.parts).pair(identity)[1:])
        cluster.start(older.operator() if "operator" in old else cluster.parts.operator())
        cluster.core.create_namespace({"metadata": {"name": NAMESPACE}})
        eventually(lambda: cluster.core.list_namespaced_service_account(NAMESPACE).items, "a ServiceAccount")
        yield cluster


@pytest.fixture
def watched(mixed: ClusterSession) -> Iterator[HoldingWatch]:
    watch = HoldingWatch(str(mixed.kubeconfig))
    yield watch
    watch.close()
    for name in mixed.components if watch.violations else ():
        print(f"--- {name}\n" + "\n".join(mixed.log_of(name).splitlines()[-200:]))
    assert watch.violations == []
    assert watch.events > 0


@pytest.mark.timeout(2 * REST_SECONDS + 5 * JOBS)
@pytest.mark.parametrize("mixed", OLD.values(), ids=OLD, indirect=True)
def test_jobs_come_and_go_under_parts_of_two_releases(mixed: ClusterSession, watched: HoldingWatch) -> None:
    print(f"KOMPAKT_SEED={SEED}")
    crowd, began = Crowd(mixed, NAMESPACE, random.Random(SEED)), time.monotonic()
    while len(crowd.lives) < JOBS:
        crowd.admit()
        crowd.step()
        time.sleep(LOOK)
    eventually(crowd.step, f"all jobs over; left: {crowd.unfinished()}", REST_SECONDS)
    print(f"{len(crowd.lives)} jobs in {time.monotonic() - began:.0f} s, {watched.events} events of pods")
    assert crowd.problems == []
    eventually(lambda: not orphans(mixed, NAMESPACE), "no orphan")
    eventually(lambda: not held(mixed), "no GPU held by a pod that is over")
    stays(lambda: [life.job.read()["metadata"]["resourceVersion"] for life in crowd.lives.values() if life.course.ends], rounds=3)
