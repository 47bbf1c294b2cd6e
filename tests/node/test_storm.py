"""kill -9 of kubelets, container runtimes and whole machines, three of them, while jobs come and go.

KOMPAKT_NODE_KILLS says how often (9 unless it is set: each of the three on each machine), KOMPAKT_SEED repeats a run's choices.
"""

import json
import os
import random
import secrets
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import product

import pytest

from kompakt_core.contract import LABEL_JOB_NAME
from tests.support.node.jobs import job, sleeping
from tests.support.node.machines import third_machine
from tests.support.turns import in_turn
from tools.kube import cgroups, node
from tools.kube.command import CommandFailed
from tools.kube.kubectl import await_state, condition

KILLS = int(os.environ.get("KOMPAKT_NODE_KILLS", "9"))
SEED = int(os.environ.get("KOMPAKT_SEED", "0")) or secrets.randbelow(1 << 31)
JOBS = 20  # that come at least
SIZE = 6  # at a time
PAUSE = (2.0, 5.0)  # seconds between two kills
DOWN = (2.0, 12.0)  # seconds until a killed machine is started again: some before it counts as lost, some after
REST = 420.0
NAMESPACE = "storm"
ON_42 = {"rules": [{"onExitCodes": {"values": [42]}, "action": "FailJob"}]}


@dataclass(frozen=True)
class Course:
    """One kind of job: how long its workers run, what they end with, what is done to it, and as what it ends."""

    name: str
    seconds: int
    code: int = 0
    deed: str = ""
    ends: tuple[str, str] = ("Succeeded", "WorkersSucceeded")
    restarts: int = 0  # those that it is to blame for
    policy: dict = field(default_factory=dict)


COURSES = (
    Course("good", 2),
    Course("long", 12),
    Course("bad", 1, 3, ends=("Failed", "BackoffLimitExceeded"), restarts=1, policy={"backoffLimit": 1}),
    Course("ruled", 1, 42, ends=("Failed", "PodFailurePolicy"), policy={"podFailurePolicy": ON_42}),
    Course("robbed", 6, deed="rob"),
    Course("deleted", 60, deed="delete", ends=("", "")),
)


def document(name, course, image, chance):
    return job(
        name,
        image,
        sleeping(course.seconds, course.code),
        replicas=chance.randint(1, 2),
        gpus=chance.choice([1, 1, 2]),
        placement={"consolidation": {"mode": "NoWait"}},
        runPolicy=course.policy,
    )


class Crowd:
    """The jobs; for each that is over another comes."""

    def __init__(self, kubectl, image, chance):
        self.kubectl, self.image, self.chance = kubectl, image, chance
        self.living, self.done, self.problems = {}, set(), []
        self.came = 0

    def admit(self):
        while len(self.living) < SIZE:
            course = COURSES[self.came % len(COURSES)]
            name = f"{course.name}-{self.came}"
            self.kubectl(
                "create",
                f"--namespace={NAMESPACE}",
                "--filename=-",
                stdin=json.dumps(document(name, course, self.image, self.chance)),
            )
            self.living[name] = course
            self.came += 1

    def step(self):
        """Look at all jobs once; whether none is left."""
        jobs = {job["metadata"]["name"]: job for job in self.kubectl.items("trainingjobs", f"--namespace={NAMESPACE}")}
        for name, course in list(self.living.items()):
            if self._over(name, course, jobs.get(name)):
                del self.living[name]
        return not self.living

    def _over(self, name, course, job):
        if job is None:
            if course.ends[0]:
                self.problems.append(f"{name} vanished")
            return True
        status = job.get("status", {})
        if status.get("phase") in ("Succeeded", "Failed"):
            self._judge(name, course, status)
            return True
        if status.get("phase") == "Running" and course.deed and name not in self.done:
            self._do(name, course)
        return False

    def _do(self, name, course):
        if course.deed == "delete":
            self.kubectl("delete", "trainingjob", name, f"--namespace={NAMESPACE}", "--wait=false")
        else:
            where = (f"--namespace={NAMESPACE}", f"--selector={LABEL_JOB_NAME}={name}", "--wait=false")
            self.kubectl("delete", "pods", *where)
        self.done.add(name)

    def _judge(self, name, course, status):
        kind = "Complete" if status["phase"] == "Succeeded" else "Failed"
        reason = next((c["reason"] for c in status["conditions"] if c["type"] == kind), "")
        got = (status["phase"], reason), status["restarts"]
        if got != (course.ends, course.restarts):
            self.problems.append(f"{name}: {got}, not {course.ends, course.restarts}: {status.get('lastRestart')}")


class Killer:
    """Kills a program of a machine or the machine, each as often as the others; killed machines come back."""

    def __init__(self, cluster, nodes, chance):
        self.cluster, self.nodes, self.chance = cluster, nodes, chance
        self.deck, self.kills, self.down = [], Counter(), None
        self.next = time.monotonic()

    def step(self):
        now = time.monotonic()
        if self.down and now >= self.down[1]:
            node.start(self.down[0], self.cluster.spaces)
            self.down = None
        if now < self.next or self.kills.total() >= KILLS:
            return
        self.deck = self.deck or self.chance.sample(
            whole := list(product(self.nodes, ("kubelet", "containerd", "machine"))), len(whole)
        )
        struck = next((card for card in self.deck if self._strike(*card)), None)
        if struck:
            self.deck.remove(struck)
            self.kills[struck[1]] += 1
            self.next = now + self.chance.uniform(*PAUSE)

    def _strike(self, one, what):
        """Whether there was something to be killed."""
        if what == "machine":
            if self.down or not node.first_process(one, self.cluster.spaces):
                return False
            node.kill(one, self.cluster.spaces)
            self.down = one, time.monotonic() + self.chance.uniform(*DOWN)
            return True
        inside = cgroups.processes(one.cgroup(self.cluster.name))
        found = [pid for pid in inside if node.command_line(pid).split(b"\0")[0].rpartition(b"/")[2] == what.encode()]
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        return bool(found)

    def revive(self):
        if self.down:
            node.start(self.down[0], self.cluster.spaces)
            self.down = None


@pytest.fixture
def machines(kompakt):
    """Three real nodes."""
    with third_machine(kompakt) as third:
        yield *kompakt.cluster.nodes, third


@pytest.fixture
def crowd(kompakt, machines):
    kompakt.kubectl("create", "namespace", NAMESPACE)
    await_state(lambda: kompakt.kubectl.items("serviceaccounts", f"--namespace={NAMESPACE}"), "a ServiceAccount", 60)
    yield Crowd(kompakt.kubectl, kompakt.images.names["pause"], random.Random(SEED))
    kompakt.kubectl("delete", "namespace", NAMESPACE, "--timeout=120s")


def held(kubectl, nodes):
    """The GPUs that the machines' plugins report as held, one entry for each holder."""
    topologies = [kubectl.get("gputopology", one.name) for one in nodes]
    return [one["uuid"] for topology in topologies for one in topology.get("status", {}).get("held", ())]


def orphans(crowd):
    """Services of jobs that are over, and pods but those of the last attempt that have ended."""
    where = f"--namespace={NAMESPACE}"
    jobs = {job["metadata"]["name"]: job["status"]["attempt"] for job in crowd.kubectl.items("trainingjobs", where)}
    found = [f"Service {service['metadata']['name']}" for service in crowd.kubectl.items("services", where)]
    for pod in crowd.kubectl.items("pods", where):
        meta = pod["metadata"]
        last = str(jobs.get(meta["labels"][LABEL_JOB_NAME])) == meta["labels"]["kompakt.dev/attempt"]
        if not last or pod["status"]["phase"] not in ("Succeeded", "Failed"):
            found.append(f"Pod {meta['name']} ({pod['status']['phase']})")
    return found


@pytest.fixture
def story(kompakt, request):
    """What those who corrected something say, where the test failed: with the cluster it would be gone."""
    before = request.session.testsfailed
    yield
    if request.session.testsfailed == before:
        return
    for pod in kompakt.kubectl.items(
        "pods", "--namespace=kompakt-system", "--selector=app.kubernetes.io/component=device-plugin"
    ):
        try:
            print(kompakt.kubectl("logs", pod["metadata"]["name"], "--namespace=kompakt-system", "--prefix", "--tail=400"))
        except CommandFailed as error:  # its machine may have been killed a moment ago
            print(error)
    print(kompakt.kubectl("get", "events", f"--namespace={NAMESPACE}", "--sort-by=.metadata.creationTimestamp"))


@in_turn(0)
def test_jobs_come_and_go_while_kubelets_runtimes_and_machines_are_killed(kompakt, machines, crossing, crowd, holding, story):
    print(f"KOMPAKT_SEED={SEED}")
    killer, began = Killer(kompakt.cluster, machines, random.Random(SEED)), time.monotonic()
    try:
        while killer.kills.total() < KILLS or crowd.came < JOBS:
            assert time.monotonic() < began + 60 * KILLS, f"only {dict(killer.kills)}"
            killer.step()
            crowd.admit()
            crowd.step()
            doubled = [gpu for gpu, count in Counter(held(kompakt.kubectl, machines)).items() if count > 1]
            assert (doubled, holding.violations) == ([], [])
    finally:
        killer.revive()
    over = crowd.came - len(crowd.living)
    print(f"{dict(killer.kills)} in {time.monotonic() - began:.0f} s; {over} of {crowd.came} jobs over by then")
    try:
        await_state(crowd.step, "all jobs over", REST)
    except TimeoutError:
        pytest.fail(
            f"{sorted(crowd.living)} left\n" + kompakt.kubectl("get", "tj,pods", f"--namespace={NAMESPACE}", "-o", "wide")
        )
    print(f"all over after {time.monotonic() - began:.0f} s")
    assert (crowd.problems, holding.violations) == ([], [])
    await_state(lambda: not orphans(crowd), f"no orphan: {orphans(crowd)}", 60)
    await_state(lambda: not held(kompakt.kubectl, machines), "no GPU held", 60)
    await_state(lambda: all(condition(kompakt.kubectl.get("node", one.name), "Ready") for one in machines), "all Ready", 60)
