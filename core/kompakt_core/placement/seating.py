"""Seats for all workers of a gang at the narrowest level that holds them."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import groupby, islice, permutations
from types import MappingProxyType
from typing import Final

from kompakt_core import contract
from kompakt_core.ids import NodeName
from kompakt_core.placement.choose import values_first
from kompakt_core.placement.model import Gang, GpuRequest, Level, NodeState, PlacementPolicy, Snapshot, Worker
from kompakt_core.placement.rank_mapping import Seating, crossing, worst, woven
from kompakt_core.placement.spread import NodeOffer, fabric_lost, offer, spread, with_pods

# The node label that names the rack and the block of a node.
LEVEL_LABELS: Final[Mapping[Level, str]] = MappingProxyType({Level.RACK: contract.LABEL_RACK, Level.BLOCK: contract.LABEL_BLOCK})
WIDENING: Final = (Level.MACHINE, Level.RACK, Level.BLOCK, Level.CLUSTER)
MAX_ORDERS: Final = 24  # of kinds of workers: all orders of four


class SeatSearch:
    """A snapshot seen by one gang: what each node offers for each kind of its workers, asked once."""

    def __init__(self, snapshot: Snapshot, gang: Gang, labels: Mapping[Level, str] = LEVEL_LABELS) -> None:
        self.snapshot = snapshot
        self.gang = gang
        self.kinds = kinds_of(gang.workers)
        self._labels = labels
        self._nodes = sorted(snapshot.nodes.values(), key=lambda state: state.name)
        self._offers: list[dict[NodeName, NodeOffer | None]] = [{} for _ in self.kinds]

    def _offer(self, kind: int, name: NodeName) -> NodeOffer | None:
        """Asked when it is needed first: to know that something holds the gang few nodes need be asked."""
        offers = self._offers[kind]
        if name not in offers:
            workers = self.kinds[kind]
            offers[name] = offer(self.snapshot.nodes[name], workers[0], self.gang, len(workers))
        return offers[name]

    def seat(self, widest: Level | None = None) -> tuple[Level, Seating] | None:
        """The narrowest level with a domain that holds the gang, and the seats in its best domain.

        No level beyond `widest` is looked at (default: the gang's required level).
        """
        if not self._room_on([state.name for state in self._nodes]):
            return None  # said first: most gangs of a backlog end here
        for level in WIDENING[: WIDENING.index(widest or self.gang.required_level) + 1]:
            if seatings := list(self.seatings(level)):
                return level, min(seatings, key=self._cost)
        return None

    def holds(self) -> bool:
        """Whether `seat` would find anything."""
        levels = WIDENING[: WIDENING.index(self.gang.required_level) + 1]
        return any(next(self.seatings(level), None) is not None for level in levels)

    def seatings(self, level: Level) -> Iterator[Seating]:
        """The seats in each group of nodes of that level that holds the gang."""
        return (seats for names in self.domains(level) if (seats := self.seat_on(names)) is not None)

    def placeable(self) -> int:
        """How many workers would find a place now if the gang could be split and spread at will."""
        changed: dict[NodeName, NodeState] = {}
        count = 0
        for kind, workers in enumerate(self.kinds):
            offers = self._current(kind, [state.name for state in self._nodes], changed)
            fitting = min(len(workers), sum(one.capacity(0) for one in offers))
            self._place(workers[:fitting], offers, changed)
            count += fitting
        return count

    def domains(self, level: Level) -> Iterator[Sequence[NodeName]]:
        """The groups of nodes a gang may use at a level. A node without the level's label is in none of its groups."""
        if level is Level.MACHINE:
            yield from ([state.name] for state in self._nodes)
        elif level is Level.CLUSTER:
            yield [state.name for state in self._nodes]
        elif level in self._labels:
            # A rack's name need not be unique among blocks: the wider labels belong to its name.
            own = self._labels[level]
            wider = [self._labels[one] for one in WIDENING[WIDENING.index(level) + 1 :] if one in self._labels]
            inside = [
                (state.labels[own], *(state.labels.get(one, "") for one in wider), state.name)
                for state in self._nodes
                if state.labels.get(own)
            ]
            yield from ([NodeName(one[-1]) for one in group] for _, group in groupby(sorted(inside), key=lambda one: one[:-1]))

    def seat_on(self, names: Sequence[NodeName]) -> Seating | None:
        """All workers on these nodes, kind by kind, or None. Kinds that get into each other's way try other orders."""
        if not self._room_on(names):
            return None
        orders = islice(permutations(range(len(self.kinds))), MAX_ORDERS)
        found = next((seating for order in orders if (seating := self._seat_in(order, names)) is not None), None)
        return found if found is None or not self.gang.edges else woven(found, self.gang, self.snapshot, self._labels)

    def _room_on(self, names: Sequence[NodeName]) -> bool:
        """Whether these nodes have room for each kind of workers alone."""
        counts = (sum(one.capacity(0) for one in self._current(kind, names, {})) for kind in range(len(self.kinds)))
        return all(count >= len(workers) for count, workers in zip(counts, self.kinds, strict=True))

    def _seat_in(self, order: Sequence[int], names: Sequence[NodeName]) -> Seating | None:
        changed: dict[NodeName, NodeState] = {}
        seating: Seating = []
        for kind in order:
            placed = self._place(self.kinds[kind], self._current(kind, names, changed), changed)
            if placed is None:
                return None
            seating += placed
        return seating

    def _current(self, kind: int, names: Sequence[NodeName], changed: Mapping[NodeName, NodeState]) -> list[NodeOffer]:
        """The offers of these nodes now that earlier kinds of workers have taken their share."""
        workers = self.kinds[kind]
        now = (
            offer(changed[name], workers[0], self.gang, len(workers)) if name in changed else self._offer(kind, name)
            for name in names
        )
        return [one for one in now if one is not None]

    def _place(
        self, workers: Sequence[Worker], offers: Sequence[NodeOffer], changed: dict[NodeName, NodeState]
    ) -> Seating | None:
        """Seats for workers of one kind; `changed` gets the nodes as they are afterwards."""
        placed = (
            spread(offers, len(workers), workers[0].gpus, self.gang.gpu_request_of(workers[0]), frozenset(changed))
            if workers
            else []
        )
        if placed is None:
            return None
        for one in placed:
            before = changed.get(one.node, self.snapshot.nodes[one.node])
            changed[one.node] = with_pods(before, one, workers[0])
        # Neighbouring indices sit on the same node.
        places = [(one.node, choice) for one in placed for choice in one.choices]
        return [(worker, node, choice) for worker, (node, choice) in zip(workers, places, strict=True)]

    def _cost(self, seating: Seating) -> tuple[int, tuple[int, ...], tuple[int, ...], tuple[NodeName, ...]]:
        """Between domains of one level: fewest nodes, edges across, what the policy puts first, the tightest fit, names."""
        names = tuple(sorted({node for _, node, _ in seating}))
        across = crossing(seating, self.gang, self.snapshot, self._labels) if self.gang.edges else ()
        free = sum(self.snapshot.nodes[name].free.bit_count() for name in names)
        value = worst(seating, self.gang)
        return (len(names), across, _preference(self.gang.gpu_request, value, free, self._fabric_lost(seating)), names)

    def _fabric_lost(self, seating: Seating) -> int:
        used: dict[NodeName, int] = {}
        for _, node, choice in seating:
            used[node] = used.get(node, 0) | choice.mask
        return sum(fabric_lost(self.snapshot.nodes[node], mask, self.gang.gpu_request) for node, mask in used.items())


def _preference(gpu_request: GpuRequest, value: int, free: int, lost: int) -> tuple[int, ...]:
    """What a policy compares places by, smaller first: value, GPUs free there, NVLink lost (all MB/s or counts)."""
    if values_first(gpu_request):
        return (-value, free, lost)
    return {PlacementPolicy.PRESERVE: (lost, free, -value), PlacementPolicy.PACKED: (free, -value, lost)}.get(
        gpu_request.policy, ()
    )


def kinds_of(workers: Sequence[Worker]) -> list[list[Worker]]:
    """Workers with equal demands together; the most GPUs first, each kind by index."""
    kinds: dict[Hashable, list[Worker]] = {}
    for worker in sorted(workers, key=lambda worker: (-worker.gpus, worker.index)):
        selector = tuple(sorted(worker.node_selector.items()))
        demand = (
            worker.gpus,
            worker.cpu_millis,
            worker.memory_bytes,
            selector,
            worker.affinity,
            worker.tolerations,
            worker.edges,
        )
        kinds.setdefault(demand, []).append(worker)
    return list(kinds.values())
