"""Timers: every boundary of the offer table, and the numbers of the tuner."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core.errors import InvalidInput
from kompakt_core.placement.model import Level
from kompakt_core.policy.delay import dally, never_relax, no_wait
from kompakt_core.policy.levels import Levels
from kompakt_core.policy.model import LevelOffer, PlaceAt, Timers, WaitingGang, WaitUntil
from kompakt_core.policy.tuner import PastWait, PastWaits, WaitHistory, estimate, timers_in_leases, tuned_timers
from tests.support.core.outcomes import refusal

MACHINE, RACK, BLOCK, CLUSTER = Level
# 4 racks of 4 machines of 8 GPUs, a lease of an hour, R = 6 and N = 12 leases.
LEVELS = Levels(((MACHINE, 8), (RACK, 32), (CLUSTER, 128)))
HOUR = 3600.0
TIMERS = timers_in_leases(6, 12, HOUR)


@pytest.mark.parametrize(
    ("gpus", "level", "waited", "expected"),
    [
        (8, MACHINE, 0, PlaceAt(MACHINE)),  # one machine: at once, whatever the wait
        (1, MACHINE, 0, PlaceAt(MACHINE)),
        (8, RACK, 0, WaitUntil(6 * HOUR, MACHINE)),
        (8, RACK, 6 * HOUR - 1, WaitUntil(6 * HOUR, MACHINE)),
        (8, RACK, 6 * HOUR, PlaceAt(RACK)),  # the comparison is >=
        (8, CLUSTER, 6 * HOUR, WaitUntil(12 * HOUR, RACK)),
        (8, CLUSTER, 12 * HOUR - 1, WaitUntil(12 * HOUR, RACK)),
        (8, CLUSTER, 12 * HOUR, PlaceAt(CLUSTER)),  # N runs from the same start, it is not added to R
        (9, RACK, 0, PlaceAt(RACK)),  # larger than a machine: no machine to wait for
        (32, RACK, 0, PlaceAt(RACK)),
        (9, CLUSTER, 0, WaitUntil(12 * HOUR, RACK)),
        (32, CLUSTER, 12 * HOUR, PlaceAt(CLUSTER)),
        (33, CLUSTER, 0, PlaceAt(CLUSTER)),  # larger than a rack: nothing to wait for
        (8, None, 99 * HOUR, WaitUntil(None, MACHINE)),  # too few GPUs on offer: no timer helps
    ],
)
def test_the_offer_table(gpus: int, level: Level | None, waited: float, expected: PlaceAt | WaitUntil) -> None:
    since = 1000.0
    if isinstance(expected, WaitUntil) and expected.at is not None:
        expected = WaitUntil(expected.at + since, expected.level)
    assert dally(WaitingGang(gpus, since, TIMERS), LevelOffer(LEVELS, level), since + waited) == expected


@pytest.mark.parametrize(("gpus", "level"), [(8, RACK), (8, CLUSTER), (9, CLUSTER)])
def test_no_wait_takes_what_never_relax_refuses_for_ever(gpus: int, level: Level) -> None:
    waiting, offer = WaitingGang(gpus, 0, TIMERS), LevelOffer(LEVELS, level)
    assert no_wait(waiting, offer, 0) == PlaceAt(level)
    assert never_relax(waiting, offer, 1e9) == WaitUntil(None, LEVELS.within(level))


def test_blocks_have_a_timer_of_their_own() -> None:
    levels = Levels(((MACHINE, 8), (RACK, 16), (BLOCK, 64), (CLUSTER, 256)))
    waiting = WaitingGang(8, 0, Timers(10, 20, 30))
    opens = {
        level: next(now for now in range(40) if dally(waiting, LevelOffer(levels, level), now) == PlaceAt(level))
        for level in Level
    }
    assert opens == {MACHINE: 0, RACK: 10, BLOCK: 20, CLUSTER: 30}


def test_a_cluster_without_racks_waits_for_a_machine_only() -> None:
    levels = Levels(((MACHINE, 8), (CLUSTER, 64)))
    waiting = WaitingGang(8, 0, Timers(10, 20, 30))
    assert dally(waiting, LevelOffer(levels, CLUSTER), 9) == WaitUntil(10, MACHINE)
    assert dally(waiting, LevelOffer(levels, CLUSTER), 10) == PlaceAt(CLUSTER)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        (((RACK, 8), (CLUSTER, 16)), "Machine first"),
        (((MACHINE, 8),), "Cluster last"),
        (((MACHINE, 8), (RACK, 8)), "of the whole cluster last"),
        (((MACHINE, 8), (CLUSTER, 4)), "never fall"),
        (((MACHINE, 0), (CLUSTER, 4)), "from 1 up"),
        (((MACHINE, 1), (CLUSTER, 4), (RACK, 4)), "outwards"),
    ],
)
def test_levels_that_cannot_be_are_refused(sizes: tuple[tuple[Level, int], ...], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        Levels(sizes)


def test_a_gang_larger_than_the_cluster_hears_the_largest_possible() -> None:
    assert "129 GPUs; the largest possible is 128" in refusal(LEVELS.ideal, 129)


def history(*leases: float, level: Level = MACHINE, window: float = 48) -> WaitHistory:
    known = WaitHistory(HOUR)
    for number, wait in enumerate(leases):
        known = known.with_wait(level, 8, number * HOUR, wait * HOUR, window)
    return known


@pytest.mark.parametrize(
    ("machine", "rack", "window", "expected"),
    [
        ((), (), 48, (6, 12)),  # nothing known: the floors
        ((2, 4), (), 48, (6, 12)),  # 3 + 2 * 1 = 5: below the floor
        ((5, 9), (), 48, (11, 12)),  # 7 + 2 * 2 = 11
        ((5, 9.1), (), 48, (12, 12)),  # 7.05 + 2 * 2.05 = 11.15, rounded up
        ((100,), (), 48, (39, 12)),  # the cap: ceil(0.8 * 48) = 39
        ((), (10, 14), 48, (6, 16)),  # 12 + 2 * 2
        ((), (100,), 48, (6, 48)),  # the cap of the rack is the window
        ((100,), (100,), 10, (8, 10)),
        ((), (), 5, (4, 5)),  # the caps come last: below the floors
    ],
)
def test_the_tuner(machine: tuple[float, ...], rack: tuple[float, ...], window: float, expected: tuple[int, int]) -> None:
    known = WaitHistory(HOUR, history(*machine).machine, history(*rack, level=RACK).rack)
    assert tuned_timers(known, 8, window) == expected
    assert tuned_timers(known, 4, window) == tuned_timers(WaitHistory(HOUR), 4, window)  # another demand learns nothing from it


def test_waits_below_a_lease_and_allocations_across_racks_leave_no_trace() -> None:
    assert history(0.99).machine == {}
    assert history(1.0).machine[8].entries == (PastWait(0, 1.0),)
    assert history(50, level=CLUSTER) == WaitHistory(HOUR)


def test_old_entries_are_dropped_when_a_new_one_comes_and_the_neighbour_of_a_dropped_one_is_skipped() -> None:
    known = history(1, 2, 3, 4, window=100)
    after = known.with_wait(MACHINE, 8, 20 * HOUR, 5 * HOUR, 10)
    assert [wait.leases for wait in after.machine[8].entries] == [2, 4, 5]
    assert known.machine[8] == history(1, 2, 3, 4, window=100).machine[8]


def plainly_pruned(waits: list[PastWait], oldest: float) -> list[PastWait]:
    """The walk of the original, one by one."""
    kept, index = list(waits), 0
    while index < len(kept):
        if kept[index].at < oldest:
            del kept[index]
        index += 1
    return kept


@given(st.lists(st.tuples(st.floats(0, 9), st.floats(1, 100)), min_size=1, max_size=40), st.floats(1, 30))
def test_the_estimate_is_that_of_the_waits_that_the_original_walk_leaves(raw: list[tuple[float, float]], window: float) -> None:
    """`raw`: leases since the allocation before, and leases waited."""
    known, kept, at = WaitHistory(1.0), list[PastWait](), 0.0
    for after, leases in raw:
        at += after
        known = known.with_wait(MACHINE, 8, at, leases, window)
        kept = [*plainly_pruned(kept, at - window), PastWait(at, leases)]
        values = [wait.leases for wait in kept]
        mean = math.fsum(values) / len(values)
        spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
        assert known.machine[8].entries == tuple(kept)
        assert estimate(known.machine[8]) == pytest.approx(mean + 2 * spread, rel=1e-12)


def test_equal_waits_have_no_spread_at_all() -> None:
    assert estimate(history(*[7.1] * 30).machine[8]) == 7.1 * HOUR / HOUR
    assert estimate(PastWaits()) == 1


def test_a_window_below_one_lease_is_refused() -> None:
    assert "a window of 0 leases" in refusal(tuned_timers, WaitHistory(HOUR), 8, 0)
