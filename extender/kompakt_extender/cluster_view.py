"""All nodes at one moment, and what one job may see of them: what is reserved for others is taken."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kompakt_core.ids import NodeName
from kompakt_core.placement.model import NodeState
from kompakt_extender.reservations import Reservations, lowest_free, with_taken


@dataclass(frozen=True, slots=True)
class ClusterView:
    """All nodes at one moment, for any job to read. `version`: that of the ledger.

    `states`: what jobs without a reservation see. `bare`: nodes with reservations, with nothing hidden.
    """

    version: int
    states: Mapping[NodeName, NodeState]
    bare: Mapping[NodeName, NodeState]
    reserved: Reservations

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
