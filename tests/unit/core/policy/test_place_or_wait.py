"""What a gang waits for on a cluster of real, unequal machines."""

from dataclasses import replace
from typing import Any

import pytest

from kompakt_core.placement.model import Gang, Level, NodeState, Plan, Reason, Rejection
from kompakt_core.policy.delay import FIRST_GUESS_S, dally, kompakt, never_relax
from kompakt_core.policy.model import Timers
from kompakt_core.policy.place_or_wait import NO_DELAY, DelayConfig, GangReservation, LevelWait, levels_for, place_or_wait
from tests.support.core.gangs import cluster, gang, node, worker

MACHINE, RACK, BLOCK, CLUSTER = Level
FIXED = DelayConfig(dally, Timers(600, 1800, 3600))
NEVER = DelayConfig(never_relax)
OWN = DelayConfig(kompakt, slowdown={MACHINE: 0.025, RACK: 0.5, CLUSTER: 2.0})
Answer = Level | LevelWait | GangReservation | Reason


def at(name: str, rack: str = "", block: str = "", taken: int = 0, machine: str = "dgx1-v100", **more: Any) -> NodeState:
    """A machine of which the first GPUs are taken."""
    labels = {f"kompakt.dev/{key}": value for key, value in (("rack", rack), ("block", block)) if value}
    return node(name, machine, tuple(range(taken)), labels=labels, **more)


def pair(taken: int = 0, **more: Any) -> tuple[NodeState, ...]:
    """One rack of two machines."""
    return tuple(at(name, "r", taken=taken, **more) for name in "ab")


def of(workers: int, gpus: int, **more: Any) -> Gang:
    return replace(gang(workers), workers=tuple(worker(index, gpus, **more) for index in range(workers)))


def answer(nodes: tuple[NodeState, ...], wanted: Gang, patience: DelayConfig, since: float, now: float, overtaken: int) -> Answer:
    """The level of the plan, or what is waited for, kept, or missing."""
    found = place_or_wait(cluster(*nodes), wanted, patience, since, now, overtaken=overtaken)
    match found:
        case Plan():
            return found.level
        case Rejection():
            return found.reason
    return found


HALF = {"cpu_millis": 8000, "free_cpu_millis": 4000, "memory_bytes": 8, "free_memory_bytes": 4, "pods": 2, "free_pods": 1}
FOUR_RACKED = tuple(at(f"{rack}{index}", rack) for rack in "ab" for index in range(2))
# Of gangs of two workers with four GPUs each, unless told otherwise.
ANSWERS: dict[str, tuple[tuple[NodeState, ...], Answer, dict[str, Any]]] = {
    "a gang waits for one machine until its timer": (pair(4), LevelWait(RACK, MACHINE, 700), {"since": 100, "now": 699.9}),
    "and takes the rack then": (pair(4), RACK, {"since": 100, "now": 700}),
    "a machine is taken at once": ((at("a", "r", taken=4), at("b", "r")), MACHINE, {"since": 100, "now": 100}),
    # 15 GPUs are fewer than a rack has, but no rack holds five workers of three.
    "who can only be spread waits for nothing": (FOUR_RACKED, CLUSTER, {"wanted": of(5, 3), "patience": NEVER}),
    "a large machine that is not ready is not waited for": (
        (*pair(), at("large", machine="dgx2-16xv100", ready=False)), RACK, {"wanted": of(3, 4)},
    ),
    "one that is only busy is": (
        (*pair(), at("large", machine="dgx2-16xv100", taken=8)), LevelWait(RACK, MACHINE, 600), {"wanted": of(3, 4)},
    ),
    "a machine that lacks processors even when empty is not waited for": (
        pair(cpu_millis=4000, free_cpu_millis=4000), RACK, {"wanted": of(2, 2, cpu_millis=3000)},
    ),
    "processors that others use now are waited for": (
        pair(**HALF), LevelWait(RACK, MACHINE, 600), {"wanted": of(2, 2, cpu_millis=3000, memory_bytes=3)},
    ),
    # Rack r could hold the gang if both its machines worked; racks s and t have one machine each.
    **{
        f"a rack in trouble is not waited for: {next(iter(trouble))}": (
            (at("a", "r"), at("b", "r", **trouble), at("c", "s"), at("d", "t")), CLUSTER, {"wanted": of(2, 8)},
        )
        for trouble in ({"ready": False}, {"unschedulable": True}, {"problem": Reason.STALE_TOPOLOGY})
    },
    "a rack that works is": (
        (at("a", "r"), at("b", "r", taken=1), at("c", "s"), at("d", "t")), LevelWait(CLUSTER, RACK, 1800), {"wanted": of(2, 8)},
    ),
    "nodes without labels are in no rack": (
        (*pair(6), at("c", taken=4), at("d", taken=4)), LevelWait(CLUSTER, RACK, 1800), {},
    ),
    "a cluster without labels has machines and itself": (
        (at("a", taken=4), at("b", taken=4)), LevelWait(CLUSTER, MACHINE, 600), {},
    ),
    "blocks lie between racks and the cluster": (
        tuple(at(f"{block}{rack}", rack, block, taken=4) for block in "xy" for rack in "ab"), LevelWait(BLOCK, RACK, 1800), {},
    ),
    "no patience is today's plan and never waits for racks": (
        (at("a", "r", taken=4), at("b", "s", taken=4)), CLUSTER, {"patience": NO_DELAY},
    ),
    "never-relax waits without end": (pair(4), LevelWait(RACK, MACHINE, None), {"patience": NEVER, "now": 1e9}),
    "kompakt waits as long as the gain of a first guess": (
        pair(4), LevelWait(RACK, MACHINE, pytest.approx(FIRST_GUESS_S * 0.475)), {"patience": OWN},
    ),
    # Its helper without GPUs finds no room beside it; one GPU communicates with nobody.
    "a single GPU waits for no level": (
        pair(free_pods=1), RACK, {"wanted": replace(of(1, 1), workers=(worker(0, 1), worker(1, 0)))},
    ),
    "what fits nowhere is refused": (pair(8), Reason.DOES_NOT_FIT_NOW, {}),
}  # fmt: skip


@pytest.mark.parametrize(("nodes", "expected", "told"), ANSWERS.values(), ids=ANSWERS)
def test_what_becomes_of_a_gang(nodes: tuple[NodeState, ...], expected: Answer, told: dict[str, Any]) -> None:
    assert answer(nodes, **{"wanted": of(2, 4), "patience": FIXED, "since": 0, "now": 0, "overtaken": 0} | told) == expected


@pytest.mark.parametrize(
    ("workers", "gpus", "ideal"),
    [
        pytest.param(2, 8, RACK, id="larger than a machine"),
        pytest.param(5, 3, CLUSTER, id="five of three fit no rack of two machines"),
        pytest.param(4, 3, RACK, id="four of three do"),
    ],
)
def test_the_ideal_level_follows_from_workers_and_machines_not_from_a_sum(workers: int, gpus: int, ideal: Level) -> None:
    assert levels_for(cluster(*FOUR_RACKED), of(workers, gpus), CLUSTER).ideal(workers * gpus) is ideal


def test_a_cluster_without_labels_has_two_levels() -> None:
    assert [level for level, _ in levels_for(cluster(at("a"), at("b")), of(2, 4), CLUSTER).sizes] == [MACHINE, CLUSTER]


BUSY = (at("a", "r", taken=4), at("b", "r", taken=3), at("c", "s", taken=4), at("d", "s", taken=8))
FULL = (at("a", "r", taken=7), at("b", "r", taken=6), at("c", "s", taken=8))
PASSED_OVER = DelayConfig(never_relax, overtaken_at_most=5)


@pytest.mark.parametrize(
    ("nodes", "wanted", "patience", "overtaken", "expected"),
    [
        pytest.param(BUSY, of(2, 4), PASSED_OVER, 4, LevelWait(RACK, MACHINE, None), id="not passed over too often yet"),
        pytest.param(BUSY, of(2, 4), PASSED_OVER, 5, GangReservation(MACHINE, {"b": 8}), id="the place that lacks the fewest"),
        pytest.param(FULL, of(2, 4), PASSED_OVER, 5, GangReservation(MACHINE, {"b": 8}), id="though it fits nowhere now"),
        pytest.param(FULL, of(2, 8), PASSED_OVER, 5, GangReservation(RACK, {"a": 8, "b": 8}), id="a whole rack"),
        pytest.param(
            pair(4), of(2, 4), replace(FIXED, overtaken_at_most=5), 9, LevelWait(RACK, MACHINE, 600), id="a timer helps"
        ),
        pytest.param(pair(), of(3, 8), PASSED_OVER, 9, Reason.NEVER_FITS, id="nothing is kept for what never fits"),
    ],
)
def test_who_is_passed_over_too_often_is_kept_a_place(
    nodes: tuple[NodeState, ...], wanted: Gang, patience: DelayConfig, overtaken: int, expected: Answer
) -> None:
    assert answer(nodes, wanted, patience, 0, 0, overtaken) == expected
