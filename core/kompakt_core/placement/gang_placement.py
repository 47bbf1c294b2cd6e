"""Places for a whole gang, or a rejection: all or nothing."""

from collections.abc import Mapping
from dataclasses import replace

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import NO_BANDWIDTH, NO_GPUS, MegabytesPerSecond
from kompakt_core.placement.choose import choose, edges_rejection
from kompakt_core.placement.level_order import in_rank_order
from kompakt_core.placement.model import (
    Choice,
    Gang,
    GpuRequest,
    Level,
    NodeState,
    PlacementPolicy,
    Plan,
    Reason,
    Rejection,
    Seat,
    Snapshot,
)
from kompakt_core.placement.rank_mapping import Seating, joint_requests, worst
from kompakt_core.placement.seating import LEVEL_LABELS, SeatSearch

__all__ = ["LEVEL_LABELS", "ideal_value", "plan_gang"]


def plan_gang(snapshot: Snapshot, gang: Gang, labels: Mapping[Level, str] = LEVEL_LABELS) -> Plan | Rejection:
    """Places for all workers of the gang, at the narrowest level that holds it and never beyond `required_level`.

    Within a level: fewest nodes, then the highest smallest value of the pods' sets (if the policy puts value first),
    then the tightest fit; ties end on names, so same inputs give the same plan. Exact for gangs of equal workers, as
    far as share.EXACT_WAYS goes; workers of several kinds are placed kind by kind, most GPUs first, else in another
    order, and a cramped cluster may refuse such a gang although some arrangement exists.
    Refusals: NEVER_FITS when the emptied cluster could not hold it either; else DOES_NOT_FIT_NOW with how many of all
    workers (have, need) would find a place, detail = the required level if only that stands in the way.
    Raises InvalidInput for a gang without workers.
    """
    if not gang.workers:
        raise InvalidInput("a gang without workers has no places to plan")
    smallest = min((worker.gpus for worker in gang.workers if worker.gpus), default=0)
    if smallest and (rejection := edges_rejection(gang.gpu_request, smallest)):
        return rejection
    if rejection := _too_large(snapshot, gang):
        return rejection
    search = SeatSearch(snapshot, gang, labels)
    found = search.seat()
    if found is not None:
        return _plan(snapshot, gang, *found, labels)
    if not SeatSearch(_emptied(snapshot), replace(gang, excluded=frozenset()), labels).holds():
        return Rejection(Reason.NEVER_FITS, detail="demands")
    return _not_now(search)


def ideal_value(snapshot: Snapshot, worker_gpus: int, gpu_request: GpuRequest) -> MegabytesPerSecond:
    """The best value of a set of that size on an empty node of the cluster; 0 when no node could hold one."""
    graphs = {state.graph.digest: state.graph for state in snapshot.nodes.values() if state.graph is not None}
    best = replace(gpu_request, policy=PlacementPolicy.BEST)
    choices = (choose(graph, graph.all_gpus, worker_gpus, best) for graph in graphs.values())
    return max((choice.value for choice in choices if isinstance(choice, Choice)), default=MegabytesPerSecond(0))


def _too_large(snapshot: Snapshot, gang: Gang) -> Rejection | None:
    """NEVER_FITS told by counting GPUs: one worker against the largest node, all workers against all nodes."""
    sizes = [state.graph.size for state in snapshot.nodes.values() if state.graph is not None]
    largest, need = max(sizes, default=0), max(worker.gpus for worker in gang.workers)
    if need > largest:
        return Rejection(Reason.NEVER_FITS, have=largest, need=need, detail="worker")
    wanted = sum(worker.gpus for worker in gang.workers)
    return Rejection(Reason.NEVER_FITS, have=sum(sizes), need=wanted, detail="gang") if wanted > sum(sizes) else None


def _emptied(snapshot: Snapshot) -> Snapshot:
    """The same nodes with nothing running and nothing wrong that may pass: what the cluster could hold at best."""

    def emptied(state: NodeState) -> NodeState:
        # Kubernetes sets its own taints for passing troubles (not ready, memory pressure, cordon).
        lasting = tuple(taint for taint in state.taints if not taint.key.startswith("node.kubernetes.io/"))
        return NodeState(state.name, state.graph, NO_GPUS, state.labels, lasting)

    return Snapshot({name: emptied(state) for name, state in snapshot.nodes.items()})


def _not_now(search: SeatSearch) -> Rejection:
    gang = search.gang
    need = len(gang.workers)
    if gang.required_level is not Level.CLUSTER and search.seat(Level.CLUSTER) is not None:
        return Rejection(Reason.DOES_NOT_FIT_NOW, have=need, need=need, detail=gang.required_level)
    return Rejection(Reason.DOES_NOT_FIT_NOW, have=search.placeable(), need=need)


def _plan(snapshot: Snapshot, gang: Gang, level: Level, seating: Seating, labels: Mapping[Level, str]) -> Plan:
    """Where the gang's edges name ranks, these go by index alone."""
    by_index = sorted(seating, key=lambda seat: (seat[0].gpus == 0, seat[0].index))
    ranked = by_index if gang.edges else in_rank_order(seating, gang, snapshot, labels)
    seats = tuple(Seat(worker, node, choice.order, choice.value, rank) for rank, (worker, node, choice) in enumerate(ranked))
    return Plan(level, worst(seating, gang), _ideal(snapshot, gang, seating), seats)


def _ideal(snapshot: Snapshot, gang: Gang, seating: Seating) -> MegabytesPerSecond:
    """The plan's value on empty nodes; of a gang with edges, with as many workers together as it has."""
    sizes = {worker.gpus for worker in gang.workers if worker.gpus}
    requests = joint_requests(seating, gang) if gang.edges else [(gpus, gang.gpu_request) for gpus in sizes]
    return min((ideal_value(snapshot, gpus, gpu_request) for gpus, gpu_request in requests), default=NO_BANDWIDTH)
