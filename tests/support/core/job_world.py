"""Small jobs, pods and a world that performs actions on plain values, for tests of the operator's decisions."""

from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

from kompakt_core.contract import expected_pods, timestamps
from kompakt_core.contract.expected_pods import ExpectedPods
from kompakt_core.job import actions, object_names, workload
from kompakt_core.job import to_do as do
from kompakt_core.job.model import TrainingJob
from kompakt_core.job.pods import Exit, WorkerPod
from kompakt_core.job.provisioning import DeleteNodeRequest, NodeRequest, Provisioning, RequestNodes, request_name
from kompakt_core.job.reports import ReceivedReport
from kompakt_core.job.spec import parse_job
from kompakt_core.job.status import JobStatus, read_status
from kompakt_core.job.workload import PodSet, Queueing, Workload, WorkloadState

FAILED = {"phase": "Failed", "started": True, "exits": (Exit("trainer", 1),)}
TEMPLATE = {"spec": {"containers": [{"name": "trainer", "image": "i"}]}}


def make_job(*, roles: list[dict[str, Any]] | None = None, **spec: Any) -> TrainingJob:
    """Two workers of two GPUs each unless told otherwise."""
    found = roles or [{"name": "worker", "replicas": 2, "gpusPerReplica": 2}]
    whole = [{"template": TEMPLATE, **role} for role in found]
    meta = {"name": "j", "namespace": "ml", "uid": "u", "generation": 1}
    return parse_job({"metadata": meta, "spec": {"roles": whole, **spec}})


@dataclass
class World:
    """One job, its status as stored, its pods and Services; `settle` looks until nothing is left to do."""

    job: TrainingJob
    now: float = 1000.0
    stored: dict[str, Any] = field(default_factory=dict)
    pods: dict[str, WorkerPod] = field(default_factory=dict)
    services: set[str] = field(default_factory=set)
    deleted: bool = False
    heard: ReceivedReport | None = None
    runtime: str = ""
    planner_patience: float = 0.0
    queueing: Queueing | None = None
    provisioning: Provisioning | None = None
    history: list[do.Action] = field(default_factory=list)

    @property
    def status(self) -> JobStatus:
        return replace(read_status({"status": self.stored}), heard=self.heard)

    def look(self) -> list[do.Action]:
        pods = list(self.pods.values())
        return actions.next_actions(
            self.job,
            self.status,
            pods,
            self.services,
            self.now,
            runtime=self.runtime,
            planner_patience=self.planner_patience,
            queueing=self.queueing,
            provisioning=self.provisioning,
        )

    def perform(self, action: do.Action) -> None:
        """As the API server would; a deleted pod is gone at once."""
        self.history.append(action)
        match action:
            case do.WriteStatus(status):
                scheduling = {k: v for k, v in self.stored.items() if k == "scheduling"}
                self.stored = {**status, **scheduling}
            case do.AskForPlaces(attempt):
                expected = ExpectedPods(attempt, timestamps.encode(self.now), {role.name: {} for role in self.job.roles})
                self.stored["expectedPods"] = expected_pods.encode(expected)
            case do.CreateService(attempt):
                self.services.add(object_names.service_name(self.job.name, attempt))
            case do.CreatePod(role, index, attempt):
                name = object_names.pod_name(self.job.name, role, index, attempt)
                assert name not in self.pods, "created twice"
                index += self.job.first_index(role)
                self.pods[name] = WorkerPod(name, f"uid-{name}", attempt, role, index, gated=True)
            case do.DeletePod(name, _):
                self.pods.pop(name, None)
            case do.DeleteService(name):
                self.services.discard(name)
            case do.DeleteJob():
                self.deleted = True
            case workload.QueueJob(queue):
                asked = {role.name: PodSet(role.replicas, role.gpus_per_replica) for role in self.job.roles}
                self._queued(Workload(queue, WorkloadState.PENDING, asked, "no quota"))
            case workload.ReleaseQuota():
                assert not self.pods, "quota is given back when no pod is left"
                self.quota(WorkloadState.PENDING, "preempted")
            case workload.MarkPodsReady():
                self._queued(replace(self.workload, pods_ready=True))
            case workload.FinishWorkload():
                self._queued(replace(self.workload, finished=True))
            case workload.DeleteWorkload():
                self._queued(None)
            case RequestNodes(attempt):
                assert self.provisioning is not None
                assert self.provisioning.request is None, "asked twice"
                self.requested(NodeRequest(request_name(self.job.name, attempt), self.provisioning.class_name))
            case DeleteNodeRequest():
                self.requested(None)

    def requested(self, found: NodeRequest | None) -> "World":
        """This is what there is of a ProvisioningRequest; nobody has looked yet."""
        assert self.provisioning is not None
        self.provisioning = replace(self.provisioning, request=found)
        return self

    @property
    def workload(self) -> Workload:
        assert self.queueing is not None
        assert self.queueing.workload is not None
        return self.queueing.workload

    def _queued(self, found: Workload | None) -> None:
        assert self.queueing is not None
        self.queueing = replace(self.queueing, workload=found)

    def quota(self, state: WorkloadState, message: str = "") -> "World":
        """Kueue says something of the Workload; nobody has looked yet."""
        self._queued(replace(self.workload, state=state, message=message))
        return self

    def settle(self) -> "World":
        """Look and perform until only Wakes are left, then five times more: nothing may move."""
        for _ in range(20):
            todo = [action for action in self.look() if not isinstance(action, do.Wake)]
            if not todo or self.deleted:
                break
            for action in todo:
                self.perform(action)
        else:
            raise AssertionError(f"never comes to rest: {todo}")
        for _ in range(5):
            assert self.deleted or all(isinstance(action, do.Wake) for action in self.look())
        return self

    def change(self, **fields: Any) -> "World":
        """Every pod of the current attempt becomes like this."""
        for name, pod in self.pods.items():
            if pod.attempt == self.status.attempt:
                self.pods[name] = replace(pod, **fields)
        return self

    def change_all(self, **fields: Any) -> "World":
        """Every pod of every attempt becomes like this."""
        self.pods = {name: replace(pod, **fields) for name, pod in self.pods.items()}
        return self

    def change_one(self, index: int, **fields: Any) -> "World":
        pod = next(p for p in self.pods.values() if p.worker_index == index and p.attempt == self.status.attempt)
        self.pods[pod.name] = replace(pod, **fields)
        return self

    def planned(self, state: str, **more: Any) -> "World":
        """The planner says something of the current attempt."""
        self.stored["scheduling"] = {"attempt": self.status.attempt, "state": state, **more}
        return self.settle()

    def bound(self) -> "World":
        return self.change(gated=False, node="n1")

    def running(self) -> "World":
        return self.bound().change(phase="Running", started=True)

    def run(self) -> "World":
        """All workers of the current attempt run."""
        return self.running().settle()

    def fail(self, index: int = 0, **fields: Any) -> "World":
        """One worker ends badly, by exit code 1 unless told otherwise."""
        return self.change_one(index, **(fields or FAILED)).settle()

    def succeed(self, **fields: Any) -> "World":
        return self.change(phase="Succeeded", **fields).settle()

    def suspend(self, suspended: bool = True) -> "World":
        self.job = structs.replace(self.job, suspend=suspended, generation=self.job.generation + 1)
        return self.settle()

    def shows(self, *names: str) -> tuple[Any, ...]:
        """Fields of the stored status."""
        return tuple(self.stored.get(name) for name in names)

    def condition(self, type_: str) -> tuple[str, str]:
        found = self.status.conditions[type_]
        return found.status, found.reason
