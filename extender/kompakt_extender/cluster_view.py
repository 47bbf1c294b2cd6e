"""All nodes at one moment, and what one job may see of them: what is reserved for others is taken."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from kompakt_core.ids import NodeName
from kompakt_core.placement.model import NodeState
from kompakt_extender.reservations import Reservations, lowest_free, with_taken


@dataclass(frozen=True, slots=True)
class ClusterView:
    """All nodes at one moment, for any job to read. `version`, `freed`: the ledger's `version` and `freed_version`.

    `states`: what jobs without a reservation see. `bare`: nodes with reservations, with nothing hidden. `free`: on how many nodes
    so many GPUs are free, with nothing hidden.
    """

    version: int
    freed: int
    states: Mapping[NodeName, NodeState]
    bare: Mapping[NodeName, NodeState]
    reserved: Reservations
    free: Mapping[int, int]

    def seen_by(self, job_uid: str = "", priority: int | None = None) -> Mapping[NodeName, NodeState]:
        """The nodes as this job may see them; priority None: it sees nothing of what is reserved for others."""
        reserved = self.reserved
        above = priority is not None and reserved.counts_priority < priority
        counts = reserved.counts if job_uid and (job_uid == reserved.counts_for or above) else {}
        mine = {job_uid} if priority is None else {job_uid, *(uid for uid, _ in reserved.exact_below(priority))}
        names = {*counts, *(name for uid in mine for name in reserved.nodes_of(uid))}
        if not names:
            return self.states
        return {**self.states, **{name: self._seen(name, mine, name in counts) for name in names & self.bare.keys()}}

    def _seen(self, name: NodeName, mine: Collection[str], counted: bool) -> NodeState:
        state = self.reserved.hide_gpus(self.bare[name], mine)
        return state if counted else with_taken(state, lowest_free(state, self.reserved.counts.get(name, 0)))


def may_hold(free: Mapping[int, int], wanted: Collection[int]) -> bool:
    """False where pods of so many GPUs each surely have no room: each needs its GPUs on one node. `free`: as in ClusterView."""
    for size in {one for one in wanted if one}:
        seats = sum(gpus // size * nodes for gpus, nodes in free.items())
        if seats < sum(one >= size for one in wanted):
            return False
    return True


def gives_more(then: NodeState | None, now: NodeState | None) -> bool:
    """Whether the node has something to give that it had not then: what did not fit might do so now."""
    if now is None or then is now:
        return False
    if then is None or not comparable(then, now):
        return True
    more_gpus = bool(then.taken & ~now.taken)
    more_cpu, more_memory = now.free_cpu_millis > then.free_cpu_millis, now.free_memory_bytes > then.free_memory_bytes
    return more_gpus or more_cpu or more_memory or now.free_pods > then.free_pods


def comparable(then: NodeState, now: NodeState) -> bool:
    """Whether the node differs in nothing but what is free on it."""
    return now == replace(
        then,
        taken=now.taken,
        free_cpu_millis=now.free_cpu_millis,
        free_memory_bytes=now.free_memory_bytes,
        free_pods=now.free_pods,
    )
