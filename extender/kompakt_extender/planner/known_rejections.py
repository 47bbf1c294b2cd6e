"""What gangs of one cycle were told, for others that want the same: thousands wait, of a few dozen kinds.

In a cycle nobody sees more than there was when it began. What did not fit then may fit once what was taken since is free again;
that is left to the next cycle, which asks anew since the answer is marked with what was seen when it was given.
"""

from collections.abc import Hashable
from itertools import groupby
from typing import NamedTuple

from kompakt_core.placement.model import Gang, Rejection, Worker
from kompakt_core.policy.delay import no_wait
from kompakt_core.policy.place_or_wait import DelayConfig
from kompakt_core.policy.preempt import PreemptionPlan
from kompakt_extender.gang_state import CommonAnswer, GangKind, SeenVersions
from kompakt_extender.limits_in_force import tenant_of
from kompakt_extender.planner.decision import GangDecision
from kompakt_extender.planner.planning_request import PlanningRequest
from kompakt_extender.planner.validation import Reject


class KnownRejection(NamedTuple):
    """The answer, and what the gang saw that it was given to."""

    decision: GangDecision
    mark: SeenVersions


class KnownRejections:
    """Rejections by what gangs want."""

    def __init__(self) -> None:
        self._told: dict[GangKind, KnownRejection] = {}

    def of(self, kind: GangKind | None, request: PlanningRequest) -> KnownRejection | None:
        """What core would say, if that is known."""
        known = None if kind is None else self._told.get(kind)
        return known if known is not None and known.mark.machines == request.mark.machines else None

    def note(self, kind: GangKind | None, request: PlanningRequest, decision: GangDecision) -> None:
        """Core said this."""
        if kind is not None and isinstance(decision.result, Rejection) and not isinstance(decision.others, PreemptionPlan):
            self._told[kind] = KnownRejection(decision, request.mark)


def kind_of(request: PlanningRequest, *, anybody_below: bool, limited: bool) -> GangKind | None:
    """None where an answer would go for this gang alone.

    A gang may have GPUs reserved for it, or get some reserved since it was overtaken too often. Whom it may have ended depends on
    how long it waits already, once it could have been placed, and, if there are Limits (`limited`), on whose it is.
    """
    if request.beside:
        return None
    ends: Hashable = None
    if request.priority is not None and anybody_below:
        if request.since != request.asked_at:
            return None
        ends = _patience(request.patience), tenant_of(request.job) if limited else None
    if not _of_the_nodes_alone(request):
        return None
    sizes = tuple(worker.gpus for worker in request.gang.workers)
    return GangKind(wanted_by(request.gang), sizes, request.asks_with, request.priority, ends)


def common_answer(kind: GangKind | None, request: PlanningRequest, told: Reject) -> CommonAnswer | None:
    """What a gang of this kind was told, for the others; None where nodes are left out for this one for some time."""
    if kind is None or request.record.excluded:
        return None
    return CommonAnswer(kind, told.ends, told.depends, told.reason, told.message)


def _patience(patience: DelayConfig) -> Hashable:
    if patience.policy is no_wait:
        return None
    return patience.policy, patience.timers, frozenset(patience.slowdown.items()), patience.remaining_s


def _of_the_nodes_alone(request: PlanningRequest) -> bool:
    patience = request.patience
    return request.sees_as_all and (patience.policy is no_wait or request.overtaken < patience.overtaken_at_most)


def wanted_by(gang: Gang) -> Hashable:
    """Equal for gangs that differ in nothing but who they are."""
    workers = tuple((wants, len(list(those))) for wants, those in groupby(map(_wants, gang.workers)))
    return workers, gang.gpu_request, gang.required_level, gang.excluded, gang.edges


def _wants(worker: Worker) -> Hashable:
    selector = frozenset(worker.node_selector.items())
    return worker.gpus, worker.cpu_millis, worker.memory_bytes, selector, worker.affinity, worker.tolerations, worker.edges
