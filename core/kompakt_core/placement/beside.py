"""Places for pods that join others of their gang, which have theirs already: as near to those as there is room."""

from bisect import bisect
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

from kompakt_core.ids import NodeName
from kompakt_core.placement.model import Gang, Level, NodeState, Plan, Seat, Snapshot
from kompakt_core.placement.seating import WIDENING, kinds_of


def nearest_first(
    gang: Gang, snapshot: Snapshot, beside: Collection[NodeName], labels: Mapping[Level, str]
) -> Iterator[tuple[Level, Gang]]:
    """The gang with other nodes left out, level by level from the narrowest that it has with these nodes, up to the one it needs.

    A level without a label is none. Nodes that are gone count no more.
    """
    there = [snapshot.nodes[name] for name in beside if name in snapshot.nodes]
    for level in WIDENING[: WIDENING.index(gang.required_level) + 1]:
        if level is Level.MACHINE or level is Level.CLUSTER or level in labels:
            domains = {_domain(state, level, labels) for state in there}
            if len(domains) <= 1 and "" not in domains:
                out = {name for name, state in snapshot.nodes.items() if domains and _domain(state, level, labels) not in domains}
                yield level, replace(gang, excluded=gang.excluded | out)


def free_ranks(taken: Collection[int]) -> Iterator[int]:
    """The ranks that newcomers take, the lowest first."""
    return (rank for rank in count() if rank not in taken)


def near_neighbours(plan: Plan, stay: Mapping[int, NodeName], snapshot: Snapshot, labels: Mapping[Level, str]) -> Plan:
    """The plan of newcomers with seats exchanged among those of equal demands. `stay`: by rank, the nodes of those they join.

    Each gets a seat by the next below and above it in rank that stay, as far as there is one: on the machine, else in the rack,
    else in the block of both, of the one below, of the one above, in this order.
    """
    there = {rank: snapshot.nodes[name] for rank, name in stay.items() if name in snapshot.nodes}
    if not there:
        return plan
    rank_of = dict(zip((seat.worker.uid for seat in plan.seats), free_ranks(stay), strict=False))
    seat_of = {seat.worker.uid: seat for seat in plan.seats}
    ranks = sorted(there)
    for workers in kinds_of([seat.worker for seat in plan.seats]):
        seats = sorted((seat_of[worker.uid] for worker in workers), key=lambda seat: seat.rank)
        wanted = [_around(rank_of[seat.worker.uid], there, ranks) for seat in seats]
        for seat, given in zip(seats, _given(seats, wanted, snapshot, labels), strict=True):
            seat_of[seat.worker.uid] = replace(seat, node=given.node, gpus=given.gpus, value=given.value)
    return replace(plan, seats=tuple(seat_of[seat.worker.uid] for seat in plan.seats))


def _around(rank: int, there: Mapping[int, NodeState], ranks: Sequence[int]) -> tuple[NodeState, NodeState]:
    """The next below and above; at either end the only one, twice. `ranks`: of all that stay, sorted."""
    above = bisect(ranks, rank)
    return there[ranks[max(above - 1, 0)]], there[ranks[min(above, len(ranks) - 1)]]


def _given(
    seats: list[Seat], wanted: list[tuple[NodeState, NodeState]], snapshot: Snapshot, labels: Mapping[Level, str]
) -> list[Seat]:
    """Which seat each gets. The lowest ask first for one by the next below them, the highest for one by the next above."""
    left = dict(enumerate(seats))
    given: dict[int, Seat] = {}

    def give(level: Level, ends: tuple[int, ...], step: int) -> None:
        near: dict[str | tuple[str, ...], list[int]] = {}
        for key in list(left)[::-step]:  # the next one last, where pop finds it
            near.setdefault(_domain(snapshot.nodes[left[key].node], level, labels), []).append(key)
        for number in range(len(seats))[::step]:
            here, *others = {_domain(wanted[number][end], level, labels) for end in ends}
            if number not in given and here and not others and near.get(here):
                given[number] = left.pop(near[here].pop())

    for level in WIDENING:
        if level is Level.MACHINE or level is Level.CLUSTER or level in labels:
            give(level, (0, 1), 1)
            give(level, (0,), 1)
            give(level, (1,), -1)
    return [given[number] for number in range(len(seats))]


def _domain(state: NodeState, level: Level, labels: Mapping[Level, str]) -> str | tuple[str, ...]:
    """What nodes share at that level; "" for a node that shares it with none. A rack's name need not be unique among blocks."""
    if level is Level.MACHINE:
        return state.name
    if level is Level.CLUSTER:
        return ("all",)
    wider = [labels[one] for one in WIDENING[WIDENING.index(level) + 1 :] if one in labels]
    own = state.labels.get(labels[level], "")
    return (own, *(state.labels.get(one, "") for one in wider)) if own else ""
