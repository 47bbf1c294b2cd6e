"""Edges between the pods of a gang: who shares a machine, and which GPUs they get together.

Seats are found first, as for any gang. Then workers with equal demands change seats while that takes weight off wider
boundaries (block before rack before machine), and workers that share a machine get the sets that suit all edges among them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from kompakt_core.ids import NO_BANDWIDTH, MegabytesPerSecond, NodeName, mask_of
from kompakt_core.patterns.edges import MAX_RANKS, Edges, inner_edges
from kompakt_core.patterns.names import Pattern
from kompakt_core.placement.choose import choose
from kompakt_core.placement.model import Choice, Gang, GpuRequest, Level, Rejection, Snapshot, Worker

Seating = list[tuple[Worker, NodeName, Choice]]
Crossing = tuple[int, int, int]  # weight of the edges between blocks, between racks, between machines


def with_edges(workers: Iterable[Worker], edges: Edges) -> tuple[Worker, ...]:
    """The workers of a gang with these edges, by index, each with the edges inside it."""
    ordered = sorted(workers, key=lambda worker: worker.index)
    first = first_ranks(ordered)
    return tuple(replace(worker, edges=inner_edges(edges, first[worker.index], worker.gpus)) for worker in ordered)


def first_ranks(workers: Iterable[Worker]) -> dict[int, int]:
    """Of each worker (by index) the rank of its first GPU: ranks count the gang's GPUs, worker by worker."""
    ranks: dict[int, int] = {}
    total = 0
    for worker in sorted(workers, key=lambda worker: worker.index):
        ranks[worker.index] = total
        total += worker.gpus
    return ranks


def woven(seating: Seating, gang: Gang, snapshot: Snapshot, labels: Mapping[Level, str]) -> Seating:
    """The same seats given out, and cut, with the gang's edges in mind. No exchange of two workers would improve it further."""
    seats = _exchanged(seating, gang, _apart(snapshot, labels))
    for node in dict.fromkeys(node for _, node, _ in seats):
        seats = _joined(seats, node, gang, snapshot)
    return seats


def crossing(seating: Seating, gang: Gang, snapshot: Snapshot, labels: Mapping[Level, str]) -> Crossing:
    """How much weight of the gang's edges crosses which boundaries."""
    apart = _apart(snapshot, labels)
    places = {worker.index: node for worker, node, _ in seating}
    return _sum(apart(places[a], places[b], weight) for a, b, weight in _between(gang))


def worst(seating: Seating, gang: Gang) -> MegabytesPerSecond:
    """The smallest value of the sets; of a gang with edges, of those sets that edges lie on. 0 where there is none."""
    values = (choice.value for worker, _, choice in seating if worker.gpus and (choice.value or not gang.edges))
    return min(values, default=NO_BANDWIDTH)


def joint_requests(seating: Seating, gang: Gang) -> list[tuple[int, GpuRequest]]:
    """Of each machine on which edges lie: how many GPUs the gang has there, and the request for all of them as one set."""
    groups = [_on(seating, node) for node in dict.fromkeys(node for _, node, _ in seating)]
    return [
        (sum(worker.gpus for worker in group), gpu_request)
        for group in groups
        if (gpu_request := _joint(group, gang)) is not None
    ]


def _exchanged(seating: Seating, gang: Gang, apart: "Apart") -> Seating:
    if len({node for _, node, _ in seating}) == 1:
        return seating
    between = _between(gang)
    touched: dict[int, list[tuple[int, int, int]]] = {}
    for edge in between:
        for end in edge[:2]:
            touched.setdefault(end, []).append(edge)
    places = {worker.index: node for worker, node, _ in seating}
    pairs = [
        (one.index, two.index)
        for one, two in combinations([worker for worker, _, _ in seating], 2)
        if (one.index in touched or two.index in touched) and _alike(one, two)
    ]
    while any(_swap(a, b, places, touched, apart) for a, b in pairs):
        pass
    return _seated(seating, places)


def _swap(
    a: int, b: int, places: dict[int, NodeName], touched: Mapping[int, Sequence[tuple[int, int, int]]], apart: "Apart"
) -> bool:
    """Lets two workers change machines if less weight then crosses the widest boundary that changes; whether it did."""
    if places[a] == places[b]:
        return False
    mine = {*touched.get(a, ()), *touched.get(b, ())}
    before = _sum(apart(places[x], places[y], weight) for x, y, weight in mine)
    places[a], places[b] = places[b], places[a]
    after = _sum(apart(places[x], places[y], weight) for x, y, weight in mine)
    if after < before:
        return True
    places[a], places[b] = places[b], places[a]
    return False


def _seated(seating: Seating, places: Mapping[int, NodeName]) -> Seating:
    """Every worker on its machine, with one of the sets that its like had there."""
    left = list(seating)
    seats: Seating = []
    for worker, _, _ in seating:
        seat = next(one for one in left if one[1] == places[worker.index] and _alike(one[0], worker))
        left.remove(seat)
        seats.append((worker, seat[1], seat[2]))
    return seats


def _alike(one: Worker, two: Worker) -> bool:
    """Whether two workers may change seats: nothing but who they are tells them apart."""
    return replace(one, index=0, pod="", uid=two.uid) == replace(two, index=0, pod="")


def _joined(seats: Seating, node: NodeName, gang: Gang, snapshot: Snapshot) -> Seating:
    """The workers of one machine as one set, cut by rank; as they are where that is not possible."""
    group = _on(seats, node)
    state = snapshot.nodes[node]
    gpu_request = _joint(group, gang)
    # A part of a fabric's partition is no partition.
    if gpu_request is None or len(group) == 1 or state.graph is None or state.graph.partitions:
        return seats
    found = choose(state.graph, state.free, sum(worker.gpus for worker in group), gpu_request)
    if isinstance(found, Rejection):
        return seats
    cut = {}
    for worker, first in zip(group, first_ranks(group).values(), strict=True):
        order = found.order[first : first + worker.gpus]
        cut[worker.index] = Choice(mask_of(order), order, found.value, found.second, found.bound)
    return [(worker, where, cut[worker.index] if where == node and worker.gpus else choice) for worker, where, choice in seats]


def _on(seating: Seating, node: NodeName) -> list[Worker]:
    return sorted((worker for worker, where, _ in seating if where == node), key=lambda worker: worker.index)


def _joint(group: Sequence[Worker], gang: Gang) -> GpuRequest | None:
    """The request for all GPUs of these workers as one set; None where no edge lies among them, or too many ranks."""
    old, new = first_ranks(gang.workers), first_ranks(group)
    if sum(worker.gpus for worker in group) > MAX_RANKS:
        return None
    ranks = {old[worker.index] + i: new[worker.index] + i for worker in group for i in range(worker.gpus)}
    edges = tuple(replace(e, a=ranks[e.a], b=ranks[e.b]) for e in gang.edges if e.a in ranks and e.b in ranks)
    return replace(gang.gpu_request, pattern=Pattern.CUSTOM, edges=edges) if edges else None


def _between(gang: Gang) -> list[tuple[int, int, int]]:
    """(worker, worker, weight) of the edges that join two workers."""
    owner = [worker.index for worker in sorted(gang.workers, key=lambda worker: worker.index) for _ in range(worker.gpus)]
    ends = ((owner[edge.a], owner[edge.b], edge.weight) for edge in gang.edges)
    return [(a, b, weight) for a, b, weight in ends if a != b]


Apart = Callable[[NodeName, NodeName, int], Crossing]


def _apart(snapshot: Snapshot, labels: Mapping[Level, str]) -> Apart:
    """What a weight between two machines crosses. Without a label a machine shares no rack and no block with another."""
    racks, blocks = labels.get(Level.RACK, ""), labels.get(Level.BLOCK, "")

    def place(node: NodeName) -> tuple[str, str]:
        own = snapshot.nodes[node].labels
        return own.get(blocks, node), own.get(racks, node)

    def apart(one: NodeName, two: NodeName, weight: int) -> Crossing:
        if one == two:
            return (0, 0, 0)
        here, there = place(one), place(two)
        return (weight if here[0] != there[0] else 0, weight if here != there else 0, weight)

    return apart


def _sum(parts: Iterable[Crossing]) -> Crossing:
    block = rack = machine = 0
    for one, two, three in parts:
        block, rack, machine = block + one, rack + two, machine + three
    return block, rack, machine
