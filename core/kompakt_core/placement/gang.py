"""Places for a whole gang, or a refusal: all or nothing."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from types import MappingProxyType
from typing import Final

from kompakt_core import contract
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuMask, MegabytesPerSecond, NodeName
from kompakt_core.patterns.names import SUPPORTED
from kompakt_core.patterns.table import SharedGraph
from kompakt_core.placement.choose import choose
from kompakt_core.placement.model import (
    Choice,
    Gang,
    Level,
    NodeState,
    Plan,
    Policy,
    Reason,
    Refusal,
    Seat,
    Snapshot,
    Wish,
    Worker,
)
from kompakt_core.placement.spread import Placed, offer, spread, with_pods

# The node label that names the rack and the block of a node.
LEVEL_LABELS: Final[Mapping[Level, str]] = MappingProxyType({Level.RACK: contract.LABEL_RACK, Level.BLOCK: contract.LABEL_BLOCK})
_WIDENING: Final = (Level.MACHINE, Level.RACK, Level.BLOCK, Level.CLUSTER)


def plan_gang(snapshot: Snapshot, gang: Gang, labels: Mapping[Level, str] = LEVEL_LABELS) -> Plan | Refusal:
    """Places for all workers of the gang, at the narrowest level that holds it and never beyond `required_level`.

    Within a level: fewest nodes, then the highest smallest value of the pods' sets (if the policy puts value first),
    then the tightest fit; ties end on names, so same inputs give the same plan. Exact for gangs of equal workers;
    workers of several kinds are placed kind by kind, most GPUs first, and a cramped cluster may refuse such a gang
    although some arrangement exists. Refusals: NEVER_FITS when the emptied cluster could not hold it either, else
    DOES_NOT_FIT_NOW with the number of workers (have) of all (need) that would find a place.
    """
    if gang.wish.pattern not in SUPPORTED:
        return Refusal(Reason.UNSUPPORTED_PATTERN, detail=gang.wish.pattern)
    if not gang.workers:
        raise InvalidInput("a gang without workers has no places to plan")
    found = _search(snapshot, gang, labels)
    if found is not None:
        level, placed = found
        return _plan(snapshot, gang, level, placed)
    if _search(_emptied(snapshot), replace(gang, excluded=frozenset()), labels) is None:
        return _never(snapshot, gang)
    return Refusal(Reason.DOES_NOT_FIT_NOW, have=_placeable(snapshot, gang), need=len(gang.workers))


def ideal_value(snapshot: Snapshot, worker_gpus: int, wish: Wish) -> MegabytesPerSecond:
    """The best value of a set of that size on an empty node of the cluster; 0 when no node could hold one."""
    graphs = {SharedGraph(state.graph): state.graph for state in snapshot.nodes.values() if state.graph is not None}
    best = replace(wish, policy=Policy.BEST)
    choices = (choose(graph, graph.all_gpus, worker_gpus, best) for graph in graphs.values())
    return max((choice.value for choice in choices if isinstance(choice, Choice)), default=MegabytesPerSecond(0))


Seating = list[tuple[Worker, NodeName, Choice]]


def _search(snapshot: Snapshot, gang: Gang, labels: Mapping[Level, str]) -> tuple[Level, Seating] | None:
    """The narrowest level with a domain that holds the gang, and the seats in its best domain."""
    widest = _WIDENING.index(gang.required_level)
    for level in _WIDENING[: widest + 1]:
        seatings = [seating for nodes in _domains(snapshot, level, labels) if (seating := _seat(nodes, gang)) is not None]
        if seatings:
            return level, min(seatings, key=lambda seating: _cost(seating, snapshot, gang))
    return None


def _domains(snapshot: Snapshot, level: Level, labels: Mapping[Level, str]) -> Iterator[list[NodeState]]:
    """The groups of nodes a gang may use at a level. A node without the level's label is in none of its groups."""
    nodes = sorted(snapshot.nodes.values(), key=lambda state: state.name)
    if level is Level.MACHINE:
        yield from ([state] for state in nodes)
    elif level is Level.CLUSTER:
        yield nodes
    elif level in labels:
        # A rack's name need not be unique among blocks: the wider labels belong to the key.
        wider = [labels[one] for one in reversed(_WIDENING[_WIDENING.index(level) :]) if one in labels]

        def place(state: NodeState) -> tuple[str, ...]:
            return tuple(state.labels.get(label, "") for label in wider)

        inside = sorted((state for state in nodes if labels[level] in state.labels), key=lambda state: (place(state), state.name))
        yield from (list(group) for _, group in groupby(inside, key=place))


def _cost(seating: Seating, snapshot: Snapshot, gang: Gang) -> tuple[int, int, int, tuple[str, ...]]:
    """Between domains of one level: fewest nodes, best value, fewest GPUs left free on the nodes used, names."""
    names = sorted({node for _, node, _ in seating})
    value = min((choice.value for worker, _, choice in seating if worker.gpus), default=0)
    free = sum(snapshot.nodes[name].free.bit_count() for name in names)
    return (len(names), -value, free, tuple(names))


def _seat(nodes: Sequence[NodeState], gang: Gang) -> Seating | None:
    """All workers on these nodes, kind by kind, or None."""
    states = {state.name: state for state in nodes}
    opened: frozenset[NodeName] = frozenset()
    seating: Seating = []
    for workers in _kinds(gang.workers):
        offers = [one for state in states.values() if (one := offer(state, workers[0], gang, len(workers)))]
        placed = spread(offers, len(workers), workers[0].gpus, gang.wish, opened)
        if placed is None:
            return None
        seating += _assign(workers, placed)
        states |= {one.node: with_pods(states[one.node], one, workers[0]) for one in placed}
        opened |= {one.node for one in placed}
    return seating


def _kinds(workers: Sequence[Worker]) -> list[list[Worker]]:
    """Workers with equal demands together; the most GPUs first, each kind by index."""
    kinds: dict[Hashable, list[Worker]] = {}
    for worker in sorted(workers, key=lambda worker: (-worker.gpus, worker.index)):
        demand = (
            worker.gpus,
            worker.cpu_millis,
            worker.memory_bytes,
            tuple(sorted(worker.node_selector.items())),
            worker.affinity,
            worker.tolerations,
        )
        kinds.setdefault(demand, []).append(worker)
    return list(kinds.values())


def _assign(workers: Sequence[Worker], placed: Sequence[Placed]) -> Seating:
    """Neighbouring indices sit on the same node."""
    places = [(one.node, choice) for one in placed for choice in one.choices]
    return [(worker, node, choice) for worker, (node, choice) in zip(workers, places, strict=True)]


def _plan(snapshot: Snapshot, gang: Gang, level: Level, seating: Seating) -> Plan:
    ranked = _in_rank_order(seating)
    seats = tuple(Seat(worker, node, choice.order, choice.value, rank) for rank, (worker, node, choice) in enumerate(ranked))
    with_gpus = [seat for seat in seats if seat.worker.gpus]
    none = MegabytesPerSecond(0)
    ideal = min((ideal_value(snapshot, gpus, gang.wish) for gpus in {seat.worker.gpus for seat in with_gpus}), default=none)
    return Plan(level, min((seat.value for seat in with_gpus), default=none), ideal, seats)


def _in_rank_order(seating: Seating) -> Seating:
    """Rank 0 is the first worker that has GPUs; its node's workers follow, then node by node, so that neighbours in
    rank are neighbours in the cluster; workers without GPUs come last. All by index.
    """
    first: dict[NodeName, int] = {}
    for _worker, node, _ in sorted(seating, key=lambda seat: (seat[0].gpus == 0, seat[0].index)):
        first.setdefault(node, len(first))
    return sorted(seating, key=lambda seat: (seat[0].gpus == 0, first[seat[1]], seat[0].index))


def _emptied(snapshot: Snapshot) -> Snapshot:
    """The same nodes with nothing running and nothing wrong that may pass: what the cluster could hold at best."""

    def emptied(state: NodeState) -> NodeState:
        # Kubernetes sets its own taints for passing troubles (not ready, memory pressure, cordon).
        lasting = tuple(taint for taint in state.taints if not taint.key.startswith("node.kubernetes.io/"))
        return NodeState(state.name, state.graph, GpuMask(0), state.labels, lasting)

    return Snapshot({name: emptied(state) for name, state in snapshot.nodes.items()})


def _never(snapshot: Snapshot, gang: Gang) -> Refusal:
    """NEVER_FITS, with the largest node and the largest worker where that alone explains it."""
    largest = max((state.graph.size for state in snapshot.nodes.values() if state.graph is not None), default=0)
    need = max((worker.gpus for worker in gang.workers), default=0)
    if need > largest:
        return Refusal(Reason.NEVER_FITS, have=largest, need=need, detail="worker")
    total = sum(state.graph.size for state in snapshot.nodes.values() if state.graph is not None)
    wanted = sum(worker.gpus for worker in gang.workers)
    if wanted > total:
        return Refusal(Reason.NEVER_FITS, have=total, need=wanted, detail="gang")
    return Refusal(Reason.NEVER_FITS, have=total, need=wanted, detail="demands")


def _placeable(snapshot: Snapshot, gang: Gang) -> int:
    """How many workers of the largest kind would find a place now if the gang could be split, plus all others."""
    workers = _kinds(gang.workers)[0]
    offers = (offer(state, workers[0], gang, len(workers)) for state in snapshot.nodes.values())
    fitting = min(len(workers), sum(one.capacity(0) for one in offers if one))
    return len(gang.workers) - len(workers) + fitting
