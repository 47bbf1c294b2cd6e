"""A gang's places on the real cluster, or what it waits for: the planner of core.placement and a delay policy together."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from kompakt_core.ids import NO_GPUS, GpuMask, NodeName, mask_of
from kompakt_core.placement.gang_placement import LEVEL_LABELS, plan_gang
from kompakt_core.placement.model import Gang, Level, NodeState, Plan, Reason, Rejection, Snapshot
from kompakt_core.placement.seating import WIDENING, SeatSearch
from kompakt_core.policy.delay import no_wait
from kompakt_core.policy.levels import Levels
from kompakt_core.policy.model import (
    NO_WAITING,
    OVERTAKEN_AT_MOST,
    DelayPolicy,
    LevelOffer,
    PlaceAt,
    Reserve,
    Timers,
    WaitingGang,
    WaitUntil,
)

__all__ = ["NO_DELAY", "DelayConfig", "GangReservation", "LevelWait", "accepted_levels", "levels_for", "place_or_wait"]


@dataclass(frozen=True, slots=True)
class DelayConfig:
    """How a gang waits. `timers`, `slowdown` and `remaining_s`: as in WaitingGang, for the policies that read them."""

    policy: DelayPolicy
    timers: Timers = NO_WAITING
    slowdown: Mapping[Level, float] = field(default_factory=dict)
    remaining_s: float | None = None
    overtaken_at_most: int = OVERTAKEN_AT_MOST


NO_DELAY = DelayConfig(no_wait)


@dataclass(frozen=True, slots=True)
class LevelWait:
    """The gang could be placed at `offered`, but waits for `level`. `at`: when that ends by time alone, None = never."""

    offered: Level
    level: Level
    at: float | None


@dataclass(frozen=True, slots=True)
class GangReservation:
    """What is kept for a gang that others have passed too often, where it would sit if it could: so many GPUs of each of these
    nodes, taken or free now, are the next that it gets; `level` is how it sits there.
    """

    level: Level
    gpus: Mapping[NodeName, int]


def place_or_wait(
    snapshot: Snapshot,
    gang: Gang,
    patience: DelayConfig,
    since: float,
    now: float,
    labels: Mapping[Level, str] = LEVEL_LABELS,
    overtaken: int = 0,
) -> Plan | LevelWait | Rejection | GangReservation:
    """The plan of `plan_gang`, unless the policy says that waiting for a better level still pays.

    `since`: the first moment at which the gang could be placed anywhere, on the clock of `now`. `overtaken`: as in WaitingGang;
    a gang that was passed over too often gets what to keep for it instead of a rejection or an endless wait.
    Refusals and errors are those of plan_gang.
    """
    plan = plan_gang(snapshot, gang, labels)
    if patience.policy is no_wait or gang_gpus(gang) == 1 or (isinstance(plan, Plan) and plan.level is Level.MACHINE):
        return plan  # a single GPU communicates with nobody
    waiting = WaitingGang(
        gang_gpus(gang),
        since,
        patience.timers,
        patience.slowdown,
        remaining_s=patience.remaining_s,
        overtaken=overtaken,
        overtaken_at_most=patience.overtaken_at_most,
    )
    if isinstance(plan, Rejection) and not (plan.reason is Reason.DOES_NOT_FIT_NOW and waiting.passed_over):
        return plan
    found = plan.level if isinstance(plan, Plan) else None
    empty = SeatSearch(if_nothing_ran(snapshot), gang, labels)
    levels = _levels_for(snapshot, empty, found)
    answer = patience.policy(waiting, LevelOffer(levels, found), now)
    if isinstance(answer, WaitUntil):
        return plan if found is None else LevelWait(found, answer.level, answer.at)
    if isinstance(answer, Reserve):
        kept = keep_at(answer.level, empty, snapshot)
        return kept or (plan if found is None else LevelWait(found, answer.level, None))
    return plan


def accepted_levels(
    snapshot: Snapshot, gang: Gang, patience: DelayConfig, since: float, now: float, labels: Mapping[Level, str] = LEVEL_LABELS
) -> Callable[[Level], bool]:
    """Whether the gang would take a place at a level now, if it had one there; arguments as of place_or_wait."""
    if patience.policy is no_wait or gang_gpus(gang) == 1:
        return lambda _: True
    empty = SeatSearch(if_nothing_ran(snapshot), gang, labels)
    waiting = WaitingGang(gang_gpus(gang), since, patience.timers, patience.slowdown, remaining_s=patience.remaining_s)

    @cache
    def accepts(level: Level) -> bool:
        levels = _levels_for(snapshot, empty, level)
        there = any(level is one for one, _ in levels.sizes)  # no place can be at a level that the cluster has not got
        return there and isinstance(patience.policy(waiting, LevelOffer(levels, level), now), PlaceAt)

    return accepts


def levels_for(snapshot: Snapshot, gang: Gang, found: Level, labels: Mapping[Level, str] = LEVEL_LABELS) -> Levels:
    """The cluster's levels as this gang sees them: `ideal` is the narrowest that could hold it if nothing else ran.

    Machines, racks and blocks are those that exist and are healthy now, however unequal; a node without a level's label is
    in none of its groups. `found`: the level at which the gang has places now. Counting GPUs is not enough: five workers with
    three GPUs each are not held by two machines of eight. So sizes of levels that cannot hold it are given as less
    than it needs, and those of levels that can as at least that.
    """
    return _levels_for(snapshot, SeatSearch(if_nothing_ran(snapshot), gang, labels), found)


def _levels_for(snapshot: Snapshot, empty: SeatSearch, found: Level | None) -> Levels:
    seated = empty.seat(found)
    ideal = seated[0] if seated is not None else found or empty.gang.required_level
    need = gang_gpus(empty.gang)
    sizes: list[tuple[Level, int]] = []
    largest = 1
    for level in WIDENING:
        groups = [sum(_healthy_gpus(snapshot.nodes[name]) for name in names) for names in empty.domains(level)]
        if not groups and level is not Level.CLUSTER:
            continue
        largest = max(largest, *groups, 1)
        holds = WIDENING.index(level) >= WIDENING.index(ideal)
        sizes.append((level, max(largest, need) if holds else max(1, min(largest, need - 1))))
    return Levels(tuple(sizes))


def gang_gpus(gang: Gang) -> int:
    """All GPUs it asks for."""
    return sum(worker.gpus for worker in gang.workers)


def _healthy_gpus(state: NodeState) -> int:
    return 0 if state.graph is None else state.graph.size - unhealthy_gpus(state).bit_count()


def unhealthy_gpus(state: NodeState) -> GpuMask:
    """The GPUs of a node that nobody may have."""
    return NO_GPUS if state.graph is None else mask_of([gpu.index for gpu in state.graph.gpus if gpu.health != "Healthy"])


def if_nothing_ran(snapshot: Snapshot) -> Snapshot:
    """The nodes with all their healthy GPUs free and no pod on them. What is not ready or cordoned now still is."""
    return Snapshot({name: _emptied(state) for name, state in snapshot.nodes.items()})


def _emptied(state: NodeState) -> NodeState:
    return replace(
        state,
        taken=unhealthy_gpus(state),
        free_cpu_millis=state.cpu_millis,
        free_memory_bytes=state.memory_bytes,
        free_pods=state.pods,
    )


def keep_at(level: Level, empty: SeatSearch, now: Snapshot) -> GangReservation | None:
    """The place at that level which lacks the fewest GPUs now; ties end on names. None where no place could hold the gang.

    `empty`: the gang on the cluster as if nothing ran, without nodes that are kept for others.
    """
    best: tuple[int, tuple[NodeName, ...], GangReservation] | None = None
    for seating in empty.seatings(level):
        gpus = Counter[NodeName]()
        for worker, node, _ in seating:
            gpus[node] += worker.gpus
        lacking = sum(max(0, number - now.nodes[node].free.bit_count()) for node, number in gpus.items())
        found = lacking, tuple(sorted(gpus)), GangReservation(level, dict(gpus))
        if best is None or found[:2] < best[:2]:
            best = found
    return None if best is None else best[2]
