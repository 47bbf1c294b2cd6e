"""All nodes at one moment, and what one job may see of them: what is set apart for others is taken."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kompakt_core.ids import NodeName
from kompakt_core.placement.model import NodeState
from kompakt_extender.reservations import Reservations, hiding, kept_gpus


@dataclass(frozen=True, slots=True)
class ClusterView:
    """All nodes at one moment, for any job to read. `version`: that of the ledger.

    `states`: what those see for whom nothing is set apart. `bare`: nodes where something is, with nothing of it hidden.
    """

    version: int
    states: Mapping[NodeName, NodeState]
    bare: Mapping[NodeName, NodeState]
    reserved: Reservations

    def seen_by(self, job_uid: str = "", priority: int | None = None) -> Mapping[NodeName, NodeState]:
        """The nodes as this job may see them; priority None: it sees nothing of what is set apart for others."""
        reserved = self.reserved
        above = priority is not None and reserved.kept_against < priority
        kept = reserved.kept if job_uid and (job_uid == reserved.kept_for or above) else {}
        mine = {job_uid} if priority is None else {job_uid, *(uid for uid, _ in reserved.held_below(priority))}
        names = {*kept, *(name for uid in mine for name in reserved.nodes_of(uid))}
        if not names:
            return self.states
        return {**self.states, **{name: self._seen(name, mine, name in kept) for name in names & self.bare.keys()}}

    def _seen(self, name: NodeName, mine: Collection[str], kept: bool) -> NodeState:
        state = self.reserved.without_held(self.bare[name], mine)
        return state if kept else hiding(state, kept_gpus(state, self.reserved.kept.get(name, 0)))
