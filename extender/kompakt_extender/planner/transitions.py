"""How a gang gets from one phase to the next, and what that does to the GPUs it holds.

A gang's phase and its part of the ledger change together, here and nowhere else, so that a phase says what its gang holds. The
table is in docs/planner.md.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from kompakt_core.contract.plan_record import SeatRecord
from kompakt_core.contract.scheduling_record import State, Victim
from kompakt_core.ids import GpuUuid, NodeName, PodUid
from kompakt_extender.gang_state import GangPhase, GangState
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.metrics import ExtenderMetrics
from kompakt_extender.node_state import ClaimSource
from kompakt_extender.views import PodView

_LOG = logging.getLogger(__name__)
_HOLDS_NO_PLAN: Final = frozenset({GangPhase.WAITING, GangPhase.RESERVING, GangPhase.WITHDRAWN})


class Transition(StrEnum):
    """What may happen to a gang."""

    RESERVE = "reserve"
    UNRESERVE = "unreserve"
    PLAN = "plan"
    DROP_PLAN = "drop-plan"
    RELEASE = "release"
    WITHDRAW = "withdraw"
    REVOKE = "revoke"  # the withdrawal: its pods were bound after all
    WAIT = "wait"
    START = "start"  # a new attempt


ALLOWED: Final[Mapping[Transition, tuple[frozenset[GangPhase], frozenset[GangPhase]]]] = {
    Transition.RESERVE: (_HOLDS_NO_PLAN, frozenset({GangPhase.RESERVING})),
    Transition.UNRESERVE: (frozenset({GangPhase.RESERVING}), frozenset({GangPhase.WAITING, GangPhase.WITHDRAWN})),
    Transition.PLAN: (_HOLDS_NO_PLAN | {GangPhase.RELEASED}, frozenset({GangPhase.RELEASING})),
    Transition.DROP_PLAN: (frozenset({GangPhase.RELEASING}), _HOLDS_NO_PLAN | {GangPhase.RELEASED}),
    Transition.RELEASE: (frozenset({GangPhase.RELEASING}), frozenset({GangPhase.RELEASED})),
    Transition.WITHDRAW: (frozenset({GangPhase.RELEASED}), frozenset({GangPhase.WITHDRAWN})),
    Transition.REVOKE: (frozenset({GangPhase.WITHDRAWN}), frozenset({GangPhase.RELEASED})),
    Transition.WAIT: (frozenset({GangPhase.WITHDRAWN}), frozenset({GangPhase.WAITING})),
    Transition.START: (frozenset(GangPhase) - {GangPhase.RELEASING}, frozenset({GangPhase.WAITING, GangPhase.RESERVING})),
}


class Transitions:
    """Moves gangs. `impossible` is told of a transition that the table does not have.

    Such a transition is an error of ours. It is logged and counted, and the gang goes on in the phase that it was moved to: what
    it holds stands in the ledger, which no phase overrules.
    """

    def __init__(self, ledger: GpuLedger, metrics: ExtenderMetrics, impossible: Callable[[str], None] | None = None) -> None:
        self._ledger = ledger
        self._metrics = metrics
        self._impossible = impossible

    def reserve_counts(self, gang: GangState, counts: Mapping[NodeName, int], priority: int) -> None:
        """So many GPUs of these nodes are kept for it, from all but jobs above this priority; nothing changes where they are."""
        reserved = self._ledger.reserved
        if (reserved.counts_for, dict(reserved.counts)) != (gang.uid, dict(counts)):
            self._ledger.reserve_counts(gang.uid, counts, priority)
        self._move(gang, Transition.RESERVE, GangPhase.RESERVING)

    def unreserve_counts(self, gang: GangState) -> None:
        """No counts are kept for it any longer."""
        self._ledger.unreserve_counts(gang.uid)
        self._nothing_reserved(gang)

    def reserve_gpus(
        self, gang: GangState, gpus: Mapping[NodeName, tuple[GpuUuid, ...]], victims: tuple[Victim, ...], priority: int
    ) -> None:
        """Exactly these GPUs are kept for it, from all but jobs above this priority, while these victims end."""
        self._ledger.reserve_gpus(gang.uid, gpus, priority)
        gang.victims = victims
        self._move(gang, Transition.RESERVE, GangPhase.RESERVING)

    def unreserve_gpus(self, gang: GangState) -> tuple[Victim, ...]:
        """No exact GPUs are kept for it any longer; who was to end for them."""
        self._ledger.unreserve_gpus(gang.uid)
        victims, gang.victims = gang.victims, ()
        self._nothing_reserved(gang)
        return victims

    def reserve_places(self, gang: GangState, seats: Sequence[SeatRecord], pods: Mapping[PodUid, PodView]) -> None:
        """Places are kept for its pods, which do not exist yet."""
        for seat in seats:
            self._ledger.claim(ClaimSource.PLAN, pods[seat.uid], seat.node, seat.gpus)
        gang.places, gang.awaited = tuple(seat.uid for seat in seats), None
        self._ledger.unreserve_counts(gang.uid)
        self._move(gang, Transition.RESERVE, GangPhase.RESERVING)

    def unreserve_places(self, gang: GangState) -> None:
        """No places are kept for its pods any longer."""
        self._drop_places(gang)
        self._nothing_reserved(gang)

    def _drop_places(self, gang: GangState) -> None:
        for uid in gang.places:
            self._ledger.drop_claims(uid, ClaimSource.PLAN)
        gang.places = ()

    def plan(self, gang: GangState, seats: Sequence[SeatRecord], pods: Mapping[PodUid, PodView]) -> None:
        """Its pods have their GPUs from now on, though the plan is not written yet."""
        self._drop_places(gang)
        for seat in seats:
            self._ledger.claim(ClaimSource.PLAN, pods[seat.uid], seat.node, seat.gpus)
        gang.unwritten = tuple(seat.uid for seat in seats)
        self._ledger.unreserve_counts(gang.uid)
        self._move(gang, Transition.PLAN, GangPhase.RELEASING)

    def drop_plan(self, gang: GangState) -> None:
        """Its plan, if it has one that is not written, holds nothing any longer."""
        if not gang.unwritten:
            return
        for uid in gang.unwritten:
            self._ledger.drop_claims(uid, ClaimSource.PLAN)
        gang.unwritten = ()
        reserved = GangPhase.RESERVING if self._reserved(gang) else _unplanned(gang)
        self._move(gang, Transition.DROP_PLAN, reserved)

    def release(self, gang: GangState) -> tuple[PodUid, ...]:
        """Its plan is written; the pods that it counts for."""
        uids, gang.unwritten = gang.unwritten, ()
        for uid in uids:
            self._ledger.restore(uid)
        self._move(gang, Transition.RELEASE, GangPhase.RELEASED)
        return uids

    def withdraw(self, gang: GangState, unbound: Iterable[PodView]) -> None:
        """Its plan is taken back; what is written of it on these pods counts no longer."""
        for pod in unbound:
            self._ledger.withdraw(pod.uid)
        self._move(gang, Transition.WITHDRAW, GangPhase.WITHDRAWN)

    def written(self, gang: GangState) -> None:
        """What stands written now tells of a withdrawn gang that it waits, or that it was bound after all."""
        if gang.phase is not GangPhase.WITHDRAWN or gang.record.state is State.WITHDRAWN:
            return
        if gang.record.state is State.RELEASED:
            self._move(gang, Transition.REVOKE, GangPhase.RELEASED)
        else:
            self._move(gang, Transition.WAIT, GangPhase.WAITING)

    def start(self, gang: GangState) -> None:
        """A new attempt begins. What is reserved by count stays so."""
        self._move(gang, Transition.START, GangPhase.RESERVING if self._reserved(gang) else GangPhase.WAITING)

    def _reserved(self, gang: GangState) -> bool:
        return bool(gang.victims or gang.places) or self._ledger.reserved.counts_for == gang.uid

    def _nothing_reserved(self, gang: GangState) -> None:
        if gang.phase is GangPhase.RESERVING and not self._reserved(gang):
            self._move(gang, Transition.UNRESERVE, _unplanned(gang))

    def _move(self, gang: GangState, how: Transition, to: GangPhase) -> None:
        starts, ends = ALLOWED[how]
        if gang.phase not in starts or to not in ends:
            self._repair(f"gang {gang.uid}: {how.value} from phase {gang.phase.value} to {to.value}", how)
        gang.phase = to

    def _repair(self, what: str, how: Transition) -> None:
        _LOG.error("impossible: %s", what)
        self._metrics.repairs.labels(how.value).inc()
        if self._impossible is not None:
            self._impossible(what)


def _unplanned(gang: GangState) -> GangPhase:
    """A gang's phase where it holds nothing: withdrawn as long as that is what its job's status says. Released, where newcomers
    lose what was planned for them: the others have their places.
    """
    phases = {State.WITHDRAWN: GangPhase.WITHDRAWN, State.RELEASED: GangPhase.RELEASED}
    return phases.get(gang.record.state, GangPhase.WAITING)
