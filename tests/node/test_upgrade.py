"""Upgrade, rollback and upgrade again on real nodes, while jobs run and others come and go: no job restarts, no GPU is lost.

The older release is the commit in tests/upgrade_from, or that which KOMPAKT_UPGRADE_FROM names: its chart, and images made from
its sources as its own Dockerfile says.
"""

import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from kompakt_core.contract import RESOURCE
from tests.support.node.jobs import all_free, await_phase, job, phase, pods_of, sleeping
from tests.support.node.older import Older, release
from tests.support.node.world import World
from tests.support.older import NoHistory, cannot, checked_out, commit
from tests.support.turns import in_turn
from tools.kube import binaries, install, stack
from tools.kube.command import output
from tools.kube.holding import HoldingWatch
from tools.kube.kubectl import await_state
from tools.kube.parts import NAMESPACE, RELEASE

STEPS = ("upgrade", "rollback", "upgrade")
SECONDS = 300  # for one upgrade: three workloads, pods replaced one by one, on a machine that others use
PAUSE = 3.0  # between two jobs that come


@dataclass
class Load:
    """Small gangs that come all the time; each is to succeed in its first attempt."""

    world: World
    stop: threading.Event = field(default_factory=threading.Event)
    names: list[str] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)

    def run(self) -> None:
        while not self.stop.wait(PAUSE):
            name = f"passing-{len(self.names)}"
            try:
                body = job(name, self.world.images.names["pause"], sleeping(2), gpus=1)
                self.world.kubectl.apply(json.dumps(body))
            except Exception as error:  # a refusal while the definitions change is a finding
                self.trouble.append(f"{name}: {error}")
            else:
                self.names.append(name)


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Older:
    """What is upgraded from; its images lie on every node."""
    try:
        return release(checked_out(tmp_path_factory.mktemp("older")), commit())
    except NoHistory as error:
        cannot(error)


def helm(world: World, *arguments: str) -> str:
    where = (f"--kubeconfig={world.cluster.kubeconfig}", f"--namespace={NAMESPACE}")
    return output([binaries.find("helm"), *arguments, *where])


def revision(world: World) -> str:
    (found,) = json.loads(helm(world, "list", "--output=json"))
    return str(found["revision"])


@pytest.fixture
def at_work(older: Older, kompakt: World, holding: HoldingWatch) -> Iterator[str]:
    """The older release with a long gang at work on both nodes; answers the release's revision. Today's is back afterwards."""
    was = programs(kompakt)
    install.helm_install(kompakt.cluster, kompakt.images, older.values, older.chart, SECONDS)
    await_replaced(kompakt, was)
    install.await_gpus(kompakt.kubectl, dict.fromkeys(stack.REAL_NODES, 8))
    kompakt.kubectl.apply(json.dumps(job("long", kompakt.images.names["pause"], sleeping(100_000), replicas=4, gpus=3)))
    await_phase(kompakt, "long", "Running")
    yield revision(kompakt)
    install.helm_install(kompakt.cluster, kompakt.images, seconds=SECONDS)
    kompakt.kubectl("delete", "trainingjobs", "--all", "--timeout=120s")
    await_state(lambda: all_free(kompakt), "all GPUs free again", 120)
    print("plans that kubelet crossed:", *holding.holders.crossed, sep="\n")


@pytest.fixture
def load(kompakt: World, at_work: str) -> Iterator[Load]:
    found = Load(kompakt)
    thread = threading.Thread(target=found.run)
    thread.start()
    yield found
    found.stop.set()
    thread.join()


def workers(world: World) -> list[tuple[Any, ...]]:
    """What must not change of the long gang's pods: which they are, where, that no container restarted, and their GPUs."""
    held: defaultdict[str, list[str]] = defaultdict(list)
    for name in stack.REAL_NODES:
        for one in world.kubectl.get("gputopology", name)["status"].get("held") or ():
            held[one["podUID"]].append(one["uuid"])
    return sorted(
        (
            *(pod["metadata"]["uid"], pod["spec"]["nodeName"], pod["status"]["containerStatuses"][0]["restartCount"]),
            pod["metadata"]["annotations"]["kompakt.dev/gpus"],
            tuple(sorted(held[pod["metadata"]["uid"]])),
        )
        for pod in pods_of(world, "long")
    )


def offered(world: World) -> list[str]:
    return [world.kubectl.get("node", name)["status"]["allocatable"].get(RESOURCE, "0") for name in stack.REAL_NODES]


def programs(world: World) -> set[str]:
    """Which pods of kompakt there are, by uid."""
    return {pod["metadata"]["uid"] for pod in world.kubectl.items("pods", f"--namespace={NAMESPACE}")}


def await_replaced(world: World, before: set[str]) -> None:
    """Waits for the end of the pods replaced: Helm returns once the new ones are ready, while old ones still stop."""
    await_state(lambda: not before & programs(world), "every pod of kompakt is a new one", 60)


def releases(world: World) -> set[str]:
    """The tags of our images that kompakt's pods run."""
    pods = world.kubectl.items("pods", f"--namespace={NAMESPACE}")
    found = [container["image"].rpartition(":") for pod in pods for container in pod["spec"]["containers"]]
    return {tag for name, _, tag in found if "/kompakt-" in name}


@in_turn(1)
def test_jobs_run_on_and_come_and_go_through_upgrades_and_rollbacks(
    kompakt: World, older: Older, at_work: str, load: Load
) -> None:
    before, from_release = workers(kompakt), releases(kompakt)
    assert from_release == {older.tag}
    assert [len(gpus.split(",")) for *_, gpus, held in before] == [3] * 4
    assert [len(held) for *_, held in before] == [3] * 4
    for step in STEPS:
        was, jobs = programs(kompakt), len(load.names)
        if step == "upgrade":
            install.helm_install(kompakt.cluster, kompakt.images, seconds=SECONDS)
        else:
            helm(kompakt, "rollback", RELEASE, at_work, "--wait", f"--timeout={SECONDS}s")
        await_replaced(kompakt, was)
        assert (releases(kompakt) == from_release) == (step == "rollback")
        await_state(lambda: offered(kompakt) == ["8", "8"], "all GPUs offered", 60)
        assert workers(kompakt) == before
        assert (phase(kompakt, "long"), kompakt.kubectl.get("trainingjob", "long")["status"]["attempt"]) == ("Running", 1)
        print(f"{step}: {len(load.names) - jobs} jobs came meanwhile")
    load.stop.set()
    assert load.trouble == []
    assert len(load.names) >= len(STEPS)
    for name in load.names:
        await_phase(kompakt, name, "Succeeded", "Failed", seconds=180)
        status = kompakt.kubectl.get("trainingjob", name)["status"]
        assert (status["phase"], status.get("restarts", 0)) == ("Succeeded", 0), name
    assert workers(kompakt) == before
