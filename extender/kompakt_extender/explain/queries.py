"""Where questions meet the caches. Methods run on the loop and only gather; the work they return may run on another thread."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from kompakt_core import contract
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuUuid, NodeName
from kompakt_core.placement.model import Gang
from kompakt_extender.counts_history import CountsHistory
from kompakt_extender.custom_patterns import WeighedHere, Weights
from kompakt_extender.explain import jobs, nodes, pods, what_if
from kompakt_extender.explain.models import (
    MAX_NODES_HELD,
    JobAnswer,
    JobLife,
    NodeAnswer,
    NodePage,
    PodAnswer,
    WhatIf,
    WhatIfAnswer,
)
from kompakt_extender.gangs import gang_of
from kompakt_extender.jobs import Jobs
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.node_state import ClaimSource
from kompakt_extender.placement_history import PlacementHistory
from kompakt_extender.views import JobKind, JobView, PodView, gang_uid

StatusReader = Callable[[str, str], Mapping[str, Any]]  # of a job by namespace and name; waits for the API server


class UnknownObject(Exception):
    """There is no such object; the text says which."""


class Queries:
    """Answers about one active time. A snapshot holds frozen values, so that it may be read while the ledger goes on."""

    def __init__(
        self,
        ledger: GpuLedger,
        jobs: Jobs,
        decisions: PlacementHistory,
        now: Callable[[], datetime],
        weights: Weights | None = None,
        resource: str = contract.RESOURCE,
        history: CountsHistory | None = None,
        status_of: StatusReader | None = None,
    ) -> None:
        """`resource`: by which name pods ask for GPUs. `history`: None: nobody keeps one. `status_of` reads a job's status."""
        self._weights, self._resource = weights or WeighedHere(), resource
        self.ledger, self.jobs, self.history = ledger, jobs, history
        self._status_of = status_of
        self._decisions = decisions
        self._now = now

    def nodes(self, after: str, limit: int, *, holders: bool = False) -> Callable[[], NodePage]:
        """A page of nodes by name; with `holders` a shorter one with the pods that have their GPUs."""
        states = self.ledger.snapshot().nodes
        if not holders:
            return lambda: nodes.page(states, after, limit)
        most = min(limit, MAX_NODES_HELD)
        held = {name: nodes.held_by(self.ledger, name) for name in nodes.names_after(states, after)[:most]}
        return lambda: nodes.page(states, after, most, held)

    def node(self, name: str) -> Callable[[], NodeAnswer]:
        """One node; raises Unknown."""
        state = self.ledger.state(NodeName(name))
        if state is None:
            raise UnknownObject(f"no node {name!r} is known; GET /v1alpha1/nodes lists them")
        answer = nodes.detail(self.ledger, state)
        return lambda: answer

    def what_if(self, body: WhatIf) -> Callable[[], WhatIfAnswer]:
        """Which nodes could take a request; raises InvalidInput."""
        worker, gpu_request = what_if.read(body, self._resource)
        snapshot = self.ledger.snapshot()
        return lambda: what_if.answer(snapshot, worker, gpu_request, body.limit)

    def pod(self, namespace: str, name: str) -> Callable[[], PodAnswer]:
        """One pod; raises Unknown. Of several generations of that name the one that is not finished; where there is none, one
        that the operator will create.
        """
        found = [pod for pod in self.ledger.pods.values() if (pod.namespace, pod.name) == (namespace, name)]
        found = found or [pod for pod in self._expected(namespace, name) if pod.name == name]
        if not found:
            raise UnknownObject(f"no pod {namespace}/{name} is known")
        case = self._case(min(found, key=lambda pod: pod.finished))
        return lambda: pods.explain(case)

    def _expected(self, namespace: str, name: str) -> Iterator[PodView]:
        """Of the few jobs that can have a pod of this name: looking through those of all that wait would hold up the verbs."""
        for job in self.jobs.views.values():
            if job.namespace == namespace and job.expected and name.startswith(f"{job.name}-"):
                yield from (pod for pod in self.jobs.members(job) if not pod.exists)

    def job(self, namespace: str, name: str) -> Callable[[], JobAnswer]:
        """One TrainingJob; raises Unknown."""
        named = (one for one in self.jobs.views.values() if (one.namespace, one.name) == (namespace, name))
        job = next((one for one in named if one.kind is JobKind.TRAINING_JOB), None)
        if job is None:
            raise UnknownObject(f"no TrainingJob {namespace}/{name} is known")
        return self._explained(job)

    def life(self, namespace: str, name: str) -> Callable[[], JobLife]:
        """What the operator tells of one TrainingJob; raises Unknown."""
        sought = JobKind.TRAINING_JOB, namespace, name
        known = any((one.kind, one.namespace, one.name) == sought for one in self.jobs.views.values())
        if not known or self._status_of is None:
            raise UnknownObject(f"no TrainingJob {namespace}/{name} is known")
        read = self._status_of
        return lambda: jobs.life(read(namespace, name))

    def gang(self, namespace: str, name: str) -> Callable[[], JobAnswer]:
        """One gang of pods that others made; raises Unknown."""
        found = self.jobs.views.get(gang_uid(namespace, name))
        if found is None:
            raise UnknownObject(f"no pods of a gang {namespace}/{name} are known; kubectl get gangs lists those that are")
        return self._explained(found)

    def _explained(self, job: JobView) -> Callable[[], JobAnswer]:
        gang, trouble = self._gang(job)
        mine = tuple(pod for pod in self.jobs.members(job) if pod.exists)
        case = jobs.JobExplanation(job, self.jobs.record(job), mine, gang, trouble, self.ledger.snapshot())
        return lambda: jobs.explain(case)

    def _case(self, pod: PodView) -> pods.PodExplanation:
        job = self.jobs.views.get(pod.job_uid)
        return pods.PodExplanation(
            pod=pod,
            job=job,
            record=self.jobs.record(job) if job else None,
            gang=self._gang(job)[0] if job else None,
            decision=self._decisions.of(pod.uid),
            snapshot=self.ledger.snapshot(),
            planned=any(self.ledger.claims_of(pod.uid, source) for source in ClaimSource),
            weights=self._weights,
            beyond=self.jobs.limits.beyond_pod(pod),
            reported=self._reported(pod),
        )

    def _reported(self, pod: PodView) -> tuple[GpuUuid, ...]:
        topology = self.ledger.topologies.get(pod.node) if pod.node else None
        return tuple(uuid for uuid, uid in topology.held if uid == pod.uid) if topology else ()

    def _gang(self, job: JobView) -> tuple[Gang | None, str]:
        """The gang as the planner would plan it, or what is wrong with it."""
        mine = self.jobs.members(job)
        if not mine:
            return None, ""
        try:
            return gang_of(job, mine, self.jobs.record(job), self._now()), ""
        except InvalidInput as error:
            return None, str(error)
