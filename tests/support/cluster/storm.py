"""Jobs that come and go while programs of the cluster are killed: what each is to end as, and who sees to it."""

import contextlib
import gc
import logging
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from kubernetes import client
from urllib3.exceptions import HTTPError

from kompakt_client.transport import connect
from kompakt_core.contract import API_VERSION, GROUP, JOB_PLURAL, LABEL_JOB_NAME, TOPOLOGY_PLURAL, VERSION
from tools.kube import kwok
from tools.kube.components import control_plane
from tools.kube.jobs import Document, JobManifest, training_job
from tools.kube.kwok import EXIT_CODE_ANNOTATION
from tools.kube.parts import restarted
from tools.kube.ports import free_ports
from tools.kube.session import ClusterSession

Answer = TypeVar("Answer")
STORAGE = ("etcd", "kube-apiserver")
LOOK = 0.3  # seconds between two looks at all jobs
# How long the API server may be away: it and etcd are killed again and again; where others use all cores a start takes 20 s.
AWAY_SECONDS = 300.0
AWAY = (HTTPError, client.ApiException)
# What an API server says of a new job before it has read the kind of a policy's parameters, and then the parameters.
PARAMETERS_UNREAD = ("failed to find resource referenced by paramKind", "not yet synced to use for admission")


@dataclass(frozen=True, slots=True)
class Course:
    """One kind of job: how it is written, what is done to it once all its workers run, and how it ends.

    `deed`: "" nothing, "delete" the job, "suspend" and resume it, "rob" it of a pod. Its simulated pods run `seconds`;
    None: until they are told to end, which is done once the job runs in its last attempt.
    """

    name: str
    seconds: str | None = None
    exit_code: str = ""
    deed: str = ""
    ends: str = "Succeeded"
    reason: str = "WorkersSucceeded"
    attempts: int = 1
    restarts: int = 0
    policy: Mapping[str, Any] = field(default_factory=dict)


ON_42 = {"rules": [{"onExitCodes": {"values": [42]}, "action": "FailJob"}]}
COURSES = (
    Course("good", "2"),
    Course("long"),
    Course("bad", "1", "3", "", "Failed", "BackoffLimitExceeded", 2, 1, {"backoffLimit": 1}),
    Course("ruled", "1", "42", "", "Failed", "PodFailurePolicy", policy={"podFailurePolicy": ON_42}),
    Course("late", ends="Failed", reason="DeadlineExceeded", policy={"activeDeadlineSeconds": 4}),
    Course("paused", deed="suspend", attempts=2),
    Course("robbed", deed="rob", attempts=2),
    Course("deleted", deed="delete", ends="", policy={"evictions": "Refuse"}),
    Course("brief", "1", ends="", policy={"ttlSecondsAfterFinished": 1}),
)


@contextlib.contextmanager
def left_sockets_collected() -> Iterator[None]:
    """Where the server dies in the middle of a handshake urllib3 leaves the socket to the garbage collector.

    Its log records hold the error, and the error the socket, for as long as pytest holds the records: none are made.
    """
    logger = logging.getLogger("urllib3.connectionpool")
    level = logger.level
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(level)
    gc.collect()


def insisting(call: Callable[[], Answer], *done: int, seconds: float = AWAY_SECONDS) -> Answer | None:
    """Call until the API server answers; a refusal with one of the codes `done` says that an earlier call worked.

    Raises what the API server says of the request itself, and the last error when the time is up.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            return call()
        except AWAY as error:
            code = getattr(error, "status", None) or 0
            if code in done:
                return None
            # 403 is what an API server says before it has read its roles.
            early = code in (403, 429) or any(words in str(error) for words in PARAMETERS_UNREAD)
            if (400 <= code < 500 and not early) or time.monotonic() > end:
                raise
        time.sleep(LOOK)


@dataclass
class Life:
    """One job from its creation to its end; `step` is called with the object as it stands now."""

    job: JobManifest
    course: Course
    problems: list[str] = field(default_factory=list)
    deeds: int = 0
    ended: bool = False

    def step(self, obj: Document | None) -> None:
        """Do what the course says; find out whether the job is over. Raises one of AWAY: look again later."""
        if obj is None:
            self._vanished()
            return
        status = obj.get("status") or {}
        phase, attempt = status.get("phase", ""), status.get("attempt", 0)
        if phase in ("Succeeded", "Failed") and self.course.ends:
            self._judge(status)
        elif self.course.deed == "suspend" and phase == "Suspended" and not self.job.pods():
            self.job.patch({"spec": {"suspend": False}})
        elif phase == "Running" and attempt < self.course.attempts and self.course.deed:
            self._do()
        elif phase == "Running" and self.course.deed == "delete":
            self.job.delete()
            self.deeds += 1
        elif phase == "Running" and self.course.seconds is None and self.course.ends == "Succeeded":
            self.job.finish()

    def _do(self) -> None:
        self.deeds += 1
        if self.course.deed == "suspend":
            self.job.patch({"spec": {"suspend": True}})
        else:
            self.job.cluster.core.delete_namespaced_pod(f"{self.job.name}-worker-0-a1", self.job.namespace)

    def _vanished(self) -> None:
        self.ended = True
        if self.course.ends:
            self.problems.append(f"{self.job.name} vanished, though nobody deleted it")

    def _judge(self, status: Document) -> None:
        self.ended = True
        kind = "Complete" if status["phase"] == "Succeeded" else "Failed"
        reason = next((c["reason"] for c in status["conditions"] if c["type"] == kind), "")
        got = (status["phase"], reason, status["attempt"], status["restarts"])
        wanted = (self.course.ends, self.course.reason, self.course.attempts, self.course.restarts)
        if got != wanted:
            self.problems.append(f"{self.job.name} ended as {got}, not as {wanted}: {status.get('lastRestart')}")


@dataclass
class Crowd:
    """So many jobs at a time: for each that is over another comes."""

    cluster: ClusterSession
    namespace: str
    chance: random.Random
    size: int = 20
    courses: Sequence[Course] = COURSES
    lives: dict[str, Life] = field(default_factory=dict)

    def admit(self) -> None:
        """Fill up."""
        while sum(not life.ended for life in self.lives.values()) < self.size:
            self._let_in(self.courses[len(self.lives) % len(self.courses)])

    def _let_in(self, course: Course) -> None:
        name = f"{course.name}-{len(self.lives)}"
        document = self._document(name, course)
        create = self.cluster.custom.create_namespaced_custom_object
        insisting(lambda: create(GROUP, VERSION, self.namespace, JOB_PLURAL, document), 409)
        self.lives[name] = Life(JobManifest(self.cluster, self.namespace, name), course)

    def _document(self, name: str, course: Course) -> Document:
        notes = {EXIT_CODE_ANNOTATION: course.exit_code} if course.exit_code else {}
        return training_job(
            name,
            replicas=self.chance.randint(1, 3),
            gpus=self.chance.choice([1, 1, 2]),
            seconds=course.seconds,
            annotations=notes,
            placement={"consolidation": {"mode": "NoWait"}},
            runPolicy=dict(course.policy),
        )

    def step(self) -> bool:
        """Look at all jobs once; whether all that came are over."""
        living = [life for life in self.lives.values() if not life.ended]
        try:
            found = self.cluster.custom.list_namespaced_custom_object(GROUP, VERSION, self.namespace, JOB_PLURAL)["items"]
        except AWAY:
            return False
        objects = {obj["metadata"]["name"]: obj for obj in found}
        for life in living:
            try:
                life.step(objects.get(life.job.name))
            except AWAY:
                continue  # gone meanwhile, or the API server is: the next look tells
        return all(life.ended for life in self.lives.values())

    @property
    def problems(self) -> list[str]:
        return [problem for life in self.lives.values() for problem in life.problems]

    def over(self) -> int:
        """How many jobs are."""
        return sum(life.ended for life in self.lives.values())

    def unfinished(self) -> list[str]:
        return [name for name, life in self.lives.items() if not life.ended]


@dataclass
class Killer:
    """Kills programs without a warning, each as often as the others, in an order of chance."""

    cluster: ClusterSession
    chance: random.Random
    victims: tuple[str, ...]
    kills: Counter[str] = field(default_factory=Counter)
    stop: threading.Event = field(default_factory=threading.Event)
    _deck: list[str] = field(default_factory=list)

    def supervise(self) -> None:
        """Let the programs of the control plane be started again as ours are, and as a kubelet does with static pods."""
        plane = self.cluster.plane
        for component in control_plane(self.cluster.find, plane.addresses, plane.keys, plane.folder):
            if component.name in STORAGE:
                self.cluster.kill(component.name)
                self.cluster.start(replace(component, argv=restarted(*component.argv)))

    def begin(self, kills: int, pause: tuple[float, float], rest: Callable[[], object]) -> threading.Thread:
        """So many kills in a thread of their own, a pause of so many seconds before each, a rest when each had its turn."""
        thread = threading.Thread(target=self._run, args=(kills, pause, rest), name="killer")
        thread.start()
        return thread

    def _run(self, kills: int, pause: tuple[float, float], rest: Callable[[], object]) -> None:
        while self.kills.total() < kills and not self.stop.wait(self.chance.uniform(*pause)):
            if not self._deck:
                rest()
                self._deck = self.chance.sample(self.victims, len(self.victims))
            struck = next((name for name in self._deck if self._kill(name)), None)
            if struck is not None:
                self._deck.remove(struck)
                self.kills[struck] += 1

    def _kill(self, name: str) -> bool:
        """Whether it was there to be killed; a control plane that never comes up would show nothing."""
        if name in STORAGE and not self.cluster.components[name].ready():
            return False
        found = list(programs(self.cluster.plane.processes[name].pid))
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        return bool(found)


def programs(loop: int) -> Iterator[int]:
    """The program that a loop of `parts.restarted` runs now; none while it sleeps before it starts it again."""
    for child in Path(f"/proc/{loop}/task/{loop}/children").read_text().split():
        with contextlib.suppress(FileNotFoundError):  # it ended meanwhile
            if Path(f"/proc/{child}/comm").read_text().strip() not in ("sleep", "sh", "setpriv"):
                yield int(child)


def orphans(cluster: ClusterSession, namespace: str) -> list[str]:
    """Objects of jobs that are over or gone: Services, budgets, and pods but those that a finished job keeps to be read."""
    jobs = cluster.custom.list_namespaced_custom_object(GROUP, VERSION, namespace, JOB_PLURAL)["items"]
    attempts = {job["metadata"]["name"]: f"-a{job['status']['attempt']}" for job in jobs}
    found = [f"Service {s.metadata.name}" for s in cluster.core.list_namespaced_service(namespace).items]
    budgets = client.PolicyV1Api(cluster.api).list_namespaced_pod_disruption_budget(namespace).items
    found += [f"PodDisruptionBudget {b.metadata.name}" for b in budgets]
    for pod in cluster.core.list_namespaced_pod(namespace).items:
        ending = attempts.get(pod.metadata.labels[LABEL_JOB_NAME])
        kept = ending is not None and pod.metadata.name.endswith(ending) and pod.status.phase in ("Succeeded", "Failed")
        if not kept:
            since = f", deleted {pod.metadata.deletion_timestamp}" if pod.metadata.deletion_timestamp else ""
            found.append(f"Pod {pod.metadata.name} ({pod.status.phase}{since} on {pod.spec.node_name})")
    return found


def kubelets_anew(cluster: ClusterSession) -> None:
    """Start kwok once more. It gives up a write whose connection broke (its `shouldRetry` knows refused ones and time-outs)
    and looks at that pod no more until the pod changes; a kubelet would try again. Its leases go, or it would wait for their
    end.
    """
    leases = client.CoordinationV1Api(cluster.api)
    cluster.kill("kwok")
    insisting(lambda: leases.delete_collection_namespaced_lease("kube-node-lease"))
    cluster.start(kwok.component(cluster.find, cluster.kubeconfig, cluster.plane.folder, free_ports(1)[0]))


def said_of(cluster: ClusterSession, name: str, *parts: str) -> str:
    """The last lines of these parts' logs that name something: why it stands as it stands."""
    lines = [f"{part}: {line[:600]}" for part in parts for line in cluster.log_of(part).splitlines() if name in line]
    return "\n".join(lines[-60:])


def held(cluster: ClusterSession) -> list[str]:
    """Nodes whose device plugin still reports a GPU as held."""
    topologies = connect(cluster.kubeconfig).get(f"/apis/{API_VERSION}/{TOPOLOGY_PLURAL}")["items"]
    return [t["metadata"]["name"] for t in topologies if t["status"].get("held")]
