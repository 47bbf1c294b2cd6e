"""GPUs that are reserved for one job: so many of a node, or exactly these. Values, which nothing changes later."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from kompakt_core.ids import GpuMask, GpuUuid, NodeName, indices_of, mask_of
from kompakt_core.placement.model import NodeState

Uuids = Mapping[NodeName, tuple[GpuUuid, ...]]


def with_taken(state: NodeState, gpus: GpuMask) -> NodeState:
    """The node with these GPUs taken as well, because they are reserved for others."""
    if not gpus:
        return state
    reserved = GpuMask(state.reserved | (gpus & state.free))
    return replace(state, taken=GpuMask(state.taken | gpus), reserved=reserved)


def lowest_free(state: NodeState, number: int) -> GpuMask:
    """So many of a node's free GPUs, the lowest: which ones a reservation by count means."""
    return mask_of(list(indices_of(state.free)[:number])) if number else GpuMask(0)


@dataclass(frozen=True, slots=True)
class Reservation:
    """Exactly these GPUs, free or not; hidden from all other jobs but those above this priority."""

    gpus: Uuids
    priority: int


@dataclass(frozen=True, slots=True)
class Reservations:
    """All reservations. `exact`: those that name their GPUs, by job uid.

    `counts`: so many GPUs of these nodes for the job `counts_for`, as they are free or become so. One job at a time has any, so
    that no two can block each other. They are hidden from all but jobs above priority `counts_priority`.
    """

    counts_for: str = ""
    counts: Mapping[NodeName, int] = field(default_factory=dict)
    counts_priority: int = 0
    exact: Mapping[str, Reservation] = field(default_factory=dict)

    def with_counts(self, job_uid: str, gpus: Mapping[NodeName, int], priority: int) -> "Reservations":
        """The same with these counts instead of those before; none where `gpus` is empty."""
        return replace(self, counts_for=job_uid if gpus else "", counts=dict(gpus), counts_priority=priority)

    def with_gpus(self, job_uid: str, gpus: Uuids, priority: int) -> "Reservations":
        """The same with exactly these GPUs reserved for the job instead of those before."""
        return replace(self, exact={**self.exact, job_uid: Reservation(dict(gpus), priority)})

    def without_gpus(self, job_uid: str) -> "Reservations":
        """The same with no exact GPUs reserved for the job."""
        return replace(self, exact={uid: mine for uid, mine in self.exact.items() if uid != job_uid})

    def exact_below(self, priority: int) -> Iterator[tuple[str, Uuids]]:
        """The jobs with exact reservations that a job of this priority comes before, each with its GPUs."""
        return ((uid, mine.gpus) for uid, mine in self.exact.items() if mine.priority < priority)

    def nodes_of(self, job_uid: str) -> Collection[NodeName]:
        """Where exact GPUs are reserved for the job."""
        return self.exact[job_uid].gpus.keys() if job_uid in self.exact else ()

    @property
    def nodes(self) -> set[NodeName]:
        """Where anything is reserved."""
        return {*self.counts, *(name for mine in self.exact.values() for name in mine.gpus)}

    def hide_gpus(self, state: NodeState, sees: Collection[str] = ()) -> NodeState:
        """A node with exactly reserved GPUs taken; `sees`: uids of jobs whose reservations stay visible."""
        uuids = {uuid for uid, mine in self.exact.items() if uid not in sees for uuid in mine.gpus.get(state.name, ())}
        if not uuids or state.graph is None:
            return state
        return with_taken(state, mask_of([gpu.index for gpu in state.graph.gpus if gpu.uuid in uuids]))

    def hide_all(self, state: NodeState) -> NodeState:
        """A node as jobs without a reservation see it."""
        state = self.hide_gpus(state)
        return with_taken(state, lowest_free(state, self.counts.get(state.name, 0)))
