"""GPUs that are set apart for one job, which nobody else gets. Values, which nothing changes later."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from kompakt_core.ids import GpuMask, GpuUuid, NodeName, indices_of, mask_of
from kompakt_core.placement.model import NodeState

Uuids = Mapping[NodeName, tuple[GpuUuid, ...]]


def hiding(state: NodeState, gpus: GpuMask) -> NodeState:
    """The node with these GPUs taken as well."""
    return replace(state, taken=GpuMask(state.taken | gpus)) if gpus else state


def kept_gpus(state: NodeState, number: int) -> GpuMask:
    """The GPUs of a node that are kept when so many are to be: the lowest of its free ones."""
    return mask_of(list(indices_of(state.free)[:number])) if number else GpuMask(0)


@dataclass(frozen=True, slots=True)
class Reservation:
    """Exactly these GPUs, free or not; hidden from all other jobs but those above priority `against`."""

    gpus: Uuids
    against: int


@dataclass(frozen=True, slots=True)
class Reservations:
    """What is set apart. `held`: by job uid.

    `kept`: so many GPUs of these nodes for the job `kept_for`, as they are free or become so. One job at a time has any, so that
    no two can block each other. They are hidden from all but jobs above priority `kept_against`.
    """

    kept_for: str = ""
    kept: Mapping[NodeName, int] = field(default_factory=dict)
    kept_against: int = 0
    held: Mapping[str, Reservation] = field(default_factory=dict)

    def keeping(self, job_uid: str, gpus: Mapping[NodeName, int], priority: int) -> "Reservations":
        """The same with this kept instead of what was; nothing where `gpus` is empty."""
        return replace(self, kept_for=job_uid if gpus else "", kept=dict(gpus), kept_against=priority)

    def holding(self, job_uid: str, gpus: Uuids, priority: int) -> "Reservations":
        """The same with these held for the job instead of what was held for it."""
        return replace(self, held={**self.held, job_uid: Reservation(dict(gpus), priority)})

    def letting_go(self, job_uid: str) -> "Reservations":
        """The same with nothing held for the job."""
        return replace(self, held={uid: held for uid, held in self.held.items() if uid != job_uid})

    def held_below(self, priority: int) -> Iterator[tuple[str, Uuids]]:
        """The jobs that GPUs are held for and that a job of this priority comes before, each with its GPUs."""
        return ((uid, held.gpus) for uid, held in self.held.items() if held.against < priority)

    def nodes_of(self, job_uid: str) -> Collection[NodeName]:
        """Where GPUs are held for the job."""
        return self.held[job_uid].gpus.keys() if job_uid in self.held else ()

    @property
    def nodes(self) -> set[NodeName]:
        """Where anything is set apart."""
        return {*self.kept, *(name for held in self.held.values() for name in held.gpus)}

    def without_held(self, state: NodeState, sees: Collection[str] = ()) -> NodeState:
        """A node but for what is held; `sees`: uids of jobs, what is held for these is not hidden."""
        uuids = {uuid for uid, held in self.held.items() if uid not in sees for uuid in held.gpus.get(state.name, ())}
        if not uuids or state.graph is None:
            return state
        return hiding(state, mask_of([gpu.index for gpu in state.graph.gpus if gpu.uuid in uuids]))

    def without_all(self, state: NodeState) -> NodeState:
        """A node as those see it for whom nothing is set apart."""
        state = self.without_held(state)
        return hiding(state, kept_gpus(state, self.kept.get(state.name, 0)))
