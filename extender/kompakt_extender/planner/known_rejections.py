"""What gangs of one cycle were told, for others that want the same: thousands wait, of a few dozen kinds.

In a cycle nobody sees more than there was when it began. What did not fit then may fit once what was taken since is free again;
that is left to the next cycle, which asks anew since the answer is marked with what was seen when it was given.
"""

from collections.abc import Hashable
from itertools import groupby
from typing import NamedTuple

from kompakt_core.placement.model import Gang, Rejection, Worker
from kompakt_core.policy.delay import no_wait
from kompakt_extender.gang_state import CommonAnswer, Depends, SeenVersions
from kompakt_extender.planner.decision import PlanningResult
from kompakt_extender.planner.planning_request import PlanningRequest
from kompakt_extender.planner.validation import Reject


class KnownRejection(NamedTuple):
    """The answer, and what the gang saw that it was given to."""

    rejection: Rejection
    mark: SeenVersions

    def marked(self, mine: SeenVersions) -> SeenVersions:
        """The mark of another gang that is given the same answer."""
        return mine._replace(ledger=self.mark.ledger, freed=self.mark.freed)


class KnownRejections:
    """Rejections by what gangs want."""

    def __init__(self) -> None:
        self._told: dict[Hashable, KnownRejection] = {}

    def of(self, request: PlanningRequest) -> KnownRejection | None:
        """What core would say, if that is known."""
        known = self._told.get(wanted_by(request.gang)) if _of_the_nodes_alone(request) else None
        return known if known is not None and known.mark.machines == request.mark.machines else None

    def note(self, request: PlanningRequest, result: PlanningResult) -> None:
        """Core said this."""
        if isinstance(result, Rejection) and _of_the_nodes_alone(request):
            self._told[wanted_by(request.gang)] = KnownRejection(result, request.mark)


def common_answer(request: PlanningRequest, told: Reject) -> CommonAnswer | None:
    """What a gang was told, for others as well; None where it goes for this one alone, or for some time."""
    lasts = told.ends is None and not request.record.excluded and told.depends is not Depends.ALL
    if not (lasts and _of_the_nodes_alone(request)):
        return None
    sizes = tuple(worker.gpus for worker in request.gang.workers)
    wanted = wanted_by(request.gang)
    return CommonAnswer(wanted, sizes, request.asks_with, request.priority, told.depends, told.reason, told.message)


def _of_the_nodes_alone(request: PlanningRequest) -> bool:
    """Whether a rejection depends on what is wanted and on what all may see: a gang may have GPUs reserved for it, or get some
    reserved since it was overtaken too often.
    """
    patience = request.patience
    return request.sees_as_all and (patience.policy is no_wait or request.overtaken < patience.overtaken_at_most)


def wanted_by(gang: Gang) -> Hashable:
    """Equal for gangs that differ in nothing but who they are."""
    workers = tuple((wants, len(list(those))) for wants, those in groupby(map(_wants, gang.workers)))
    return workers, gang.gpu_request, gang.required_level, gang.excluded, gang.edges


def _wants(worker: Worker) -> Hashable:
    selector = frozenset(worker.node_selector.items())
    return worker.gpus, worker.cpu_millis, worker.memory_bytes, selector, worker.affinity, worker.tolerations, worker.edges
