"""What gangs of one cycle were told, for others that want the same and see the same: thousands wait, of a few dozen kinds."""

from collections.abc import Hashable, Mapping

from kompakt_core.ids import NodeName
from kompakt_core.placement.model import Gang, NodeState, Rejection, Worker
from kompakt_core.policy.delay import no_wait
from kompakt_extender.planner.decision import PlanningResult
from kompakt_extender.planner.planning_request import PlanningRequest


class KnownRejections:
    """Rejections by what gangs want, each with the nodes as they were shown then."""

    def __init__(self) -> None:
        self._told: dict[Hashable, tuple[Mapping[NodeName, NodeState], Rejection]] = {}

    def of(self, request: PlanningRequest) -> Rejection | None:
        """What core would say, if that is known."""
        if not _of_the_nodes_alone(request):
            return None
        nodes, rejection = self._told.get(wanted_by(request.gang), (None, None))
        return rejection if nodes is request.snapshot.nodes else None

    def note(self, request: PlanningRequest, result: PlanningResult) -> None:
        """Core said this."""
        if isinstance(result, Rejection) and _of_the_nodes_alone(request):
            self._told[wanted_by(request.gang)] = request.snapshot.nodes, result


def _of_the_nodes_alone(request: PlanningRequest) -> bool:
    """Whether a rejection depends on the nodes and on what is wanted: a gang that was overtaken too often is reserved GPUs."""
    patience = request.patience
    return patience.policy is no_wait or request.overtaken < patience.overtaken_at_most


def wanted_by(gang: Gang) -> Hashable:
    """Equal for gangs that differ in nothing but who they are."""
    return tuple(map(_wants, gang.workers)), gang.gpu_request, gang.required_level, gang.excluded, gang.edges


def _wants(worker: Worker) -> Hashable:
    selector = frozenset(worker.node_selector.items())
    return worker.gpus, worker.cpu_millis, worker.memory_bytes, selector, worker.affinity, worker.tolerations, worker.edges
