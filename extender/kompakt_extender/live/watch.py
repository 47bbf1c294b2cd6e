"""What changed in one leader session since it was last asked: read on the loop, a few nodes at a time, and read only there."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kompakt_core.contract.scheduling_record import Record
from kompakt_core.ids import NodeName
from kompakt_core.placement.model import NodeState
from kompakt_extender.counts_history import CountsSample
from kompakt_extender.explain.nodes import GpuUsers, users_of
from kompakt_extender.explain.queries import Queries
from kompakt_extender.views import JobView, PodView

SLICE: Final = 5  # nodes between two chances for kube-scheduler's questions
GANG_SLICE: Final = 50


def gang_key(job: JobView) -> str:
    """By what the page knows a gang: one that comes again under its name takes the place of the first."""
    return f"{job.kind}/{job.namespace}/{job.name}"


@dataclass(frozen=True, slots=True)
class SeenNode:
    """A node and who has which of its GPUs; `gangs`: the keys of those that pods there belong to, by the pods' uids."""

    state: NodeState
    users: GpuUsers
    gangs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SeenGang:
    """A gang, what is decided about it, and the pods of its attempt."""

    job: JobView
    record: Record
    pods: tuple[PodView, ...]


@dataclass(slots=True)
class SeenChanges:
    """None: it is gone. Gangs by uid."""

    nodes: dict[NodeName, SeenNode | None] = field(default_factory=dict)
    gangs: dict[str, SeenGang | None] = field(default_factory=dict)
    samples: list[CountsSample] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.nodes or self.gangs or self.samples)


class LiveWatch:
    """Follows ledger, jobs and history from a moment on; the first changes are everything there is."""

    def __init__(self, queries: Queries) -> None:
        self.queries = queries
        self._ledger, self._jobs, self._history = queries.ledger, queries.jobs, queries.history
        self._nodes, self._gangs = self._ledger.subscribe(), self._jobs.subscribe()
        self._told_until = 0

    def close(self) -> None:
        self._ledger.unsubscribe(self._nodes)
        self._jobs.unsubscribe(self._gangs)

    @property
    def changed(self) -> bool:
        """Whether there is anything to read."""
        samples = self._history.samples if self._history is not None else ()
        return bool(self._nodes or self._gangs or (samples and samples[-1].at > self._told_until))

    async def changes(self) -> SeenChanges:
        """All since the last call."""
        found = SeenChanges()
        samples = list(self._history.samples) if self._history is not None else []
        found.samples = [one for one in samples if one.at > self._told_until]
        self._told_until = max((one.at for one in samples), default=self._told_until)
        for _ in range(0, len(self._nodes), SLICE):
            self._take_nodes(found)
            await asyncio.sleep(0)
        for _ in range(0, len(self._gangs), GANG_SLICE):
            self._take_gangs(found)
            await asyncio.sleep(0)
        return found

    def _take_nodes(self, found: SeenChanges) -> None:
        for name in [self._nodes.pop() for _ in range(min(SLICE, len(self._nodes)))]:
            state = self._ledger.state(name)
            found.nodes[name] = None if state is None else self._node(state)

    def _node(self, state: NodeState) -> SeenNode:
        users = users_of(self._ledger, state.name)
        pods = (*users.bound, *(claim.pod for _, claims in users.claims for claim in claims))
        jobs = ((pod.uid, self._jobs.views.get(pod.job_uid)) for pod in pods if pod.job_uid)
        return SeenNode(state, users, {uid: gang_key(job) for uid, job in jobs if job is not None})

    def _take_gangs(self, found: SeenChanges) -> None:
        for uid in [self._gangs.pop() for _ in range(min(GANG_SLICE, len(self._gangs)))]:
            job = self._jobs.views.get(uid)
            found.gangs[uid] = None if job is None else SeenGang(job, self._jobs.record(job), tuple(self._jobs.members(job)))
