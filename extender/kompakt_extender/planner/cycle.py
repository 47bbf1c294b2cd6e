"""What the gangs of one planning cycle may see: the cluster as it was when the cycle began, or less.

What is placed in a cycle counts at once. What becomes free meanwhile counts in the next cycle, for all gangs in their order:
else a gang would get what one above it was asked too early to see, and have to end for it again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from kompakt_core.ids import GpuMask, NodeName
from kompakt_core.placement.model import NodeState, Snapshot
from kompakt_extender.cluster_view import ClusterView, comparable
from kompakt_extender.gang_state import ClusterViews
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.planner.known_rejections import KnownRejections


class SeenNodes(NamedTuple):
    """What a job sees of the nodes, and of which versions of the ledger that is: GpuLedger's `version` and `freed_version`.

    as_all: jobs for which nothing is reserved see the same.
    """

    snapshot: Snapshot
    version: int
    freed: int
    as_all: bool


class PlanningCycle:
    """One cycle. `began`: when. `limits`: nobody who is asked from now on sees more than these.

    Who was shown less than there is must be asked again: whatever frees something wakes the planner, events and ends of writes.
    """

    def __init__(self, ledger: GpuLedger, began: datetime) -> None:
        self._ledger = ledger
        self.began = began
        self.limits: ClusterViews = (ledger.cluster_view(),)
        self.rejections = KnownRejections()
        self._seen: tuple[list[Mapping[NodeName, NodeState]], SeenNodes] | None = None  # from which nodes, what follows

    def limit(self, limits: Iterable[ClusterView]) -> None:
        """A gang is passed over that was shown this and whose turn comes again: the others see no more than it did."""
        self.limits += tuple(one for one in limits if all(one is not other for other in self.limits))

    def snapshot_for(self, job_uid: str, priority: int) -> SeenNodes:
        """The nodes as this job may see them; the same object for all jobs that may see the same."""
        now = self._ledger.cluster_view()
        views = (now, *self.limits)
        nodes = [view.seen_by(job_uid, priority) for view in views]
        if self._seen is None or not _same(self._seen[0], nodes):
            self._seen = nodes, _limited(now, self.limits, nodes, _same(nodes, [view.states for view in views]))
        return self._seen[1]


def _same(before: Sequence[object], after: Sequence[object]) -> bool:
    return len(before) == len(after) and all(one is other for one, other in zip(before, after, strict=True))


def _limited(now: ClusterView, limits: ClusterViews, nodes: Sequence[Mapping[NodeName, NodeState]], as_all: bool) -> SeenNodes:
    """nodes: what the job may see of `now`, and of each of the limits."""
    states, version, freed = nodes[0], now.version, now.freed
    for limit, then in zip(limits, nodes[1:], strict=True):
        fewer = states if limit is now else no_better(then, states)
        if fewer is not states:
            states, version, freed = fewer, min(version, limit.version), min(freed, limit.freed)
    return SeenNodes(Snapshot(states), version, freed, as_all)


def no_better(then: Mapping[NodeName, NodeState], now: Mapping[NodeName, NodeState]) -> Mapping[NodeName, NodeState]:
    """The nodes as they are now, but none with more to give than it had then; `now` itself where none has."""
    changed = {name: _no_better(then.get(name), state) for name, state in now.items() if then.get(name) is not state}
    fewer = {name: state for name, state in changed.items() if state != now[name]}
    return {**now, **fewer} if fewer else now


def _no_better(then: NodeState | None, now: NodeState) -> NodeState:
    if then is None or not comparable(then, now):
        return replace(now, taken=now.taken if now.graph is None else now.graph.all_gpus, free_pods=0)
    return replace(
        now,
        taken=GpuMask(then.taken | now.taken),
        free_cpu_millis=min(then.free_cpu_millis, now.free_cpu_millis),
        free_memory_bytes=min(then.free_memory_bytes, now.free_memory_bytes),
        free_pods=min(then.free_pods, now.free_pods),
    )
