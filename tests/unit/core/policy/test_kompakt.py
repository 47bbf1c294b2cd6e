"""Our own policy: waiting never costs more than the better level could give back."""

import pytest

from kompakt_core.placement.model import Level
from kompakt_core.policy.delay import FIRST_GUESS_S, dally, kompakt, never_relax, no_wait
from kompakt_core.policy.levels import Levels
from kompakt_core.policy.model import OVERTAKEN_AT_MOST, DelayPolicy, LevelOffer, PlaceAt, Reserve, WaitingGang, WaitUntil

MACHINE, RACK, BLOCK, CLUSTER = Level
LEVELS = Levels(((MACHINE, 8), (RACK, 32), (CLUSTER, 128)))
SLOW = {MACHINE: 0.03, RACK: 0.6, CLUSTER: 2.4}


def test_the_ideal_level_is_taken_at_once() -> None:
    assert kompakt(WaitingGang(8, 0, slowdown=SLOW), LevelOffer(LEVELS, MACHINE), 0) == PlaceAt(MACHINE)
    assert kompakt(WaitingGang(9, 0, slowdown=SLOW), LevelOffer(LEVELS, RACK), 0) == PlaceAt(RACK)


@pytest.mark.parametrize(
    ("attained", "remaining", "level", "seconds"),
    [
        (0, None, RACK, FIRST_GUESS_S * 0.57),
        (10_000, None, RACK, 10_000 * 0.57),  # as long again as it ran
        (10_000, None, CLUSTER, 10_000 * 2.37),
        (10_000, 100, CLUSTER, 237),  # declared: what is left counts
        (0, 0, CLUSTER, 0),
    ],
)
def test_a_worse_level_is_taken_when_the_wait_has_cost_the_gain(
    attained: float, remaining: float | None, level: Level, seconds: float
) -> None:
    waiting = WaitingGang(8, 500, slowdown=SLOW, attained_s=attained, remaining_s=remaining)
    opens = 500 + seconds
    assert kompakt(waiting, LevelOffer(LEVELS, level), opens + 0.01) == PlaceAt(level)
    if seconds:
        early = kompakt(waiting, LevelOffer(LEVELS, level), opens - 1)
        assert isinstance(early, WaitUntil)
        assert (early.at, early.level) == (pytest.approx(opens), MACHINE)


def test_a_job_that_communication_does_not_slow_waits_for_nothing() -> None:
    assert kompakt(WaitingGang(8, 0), LevelOffer(LEVELS, CLUSTER), 0) == PlaceAt(CLUSTER)


def test_who_was_overtaken_often_enough_gets_a_reservation() -> None:
    waiting = WaitingGang(8, 0, slowdown=SLOW, overtaken=OVERTAKEN_AT_MOST)
    assert kompakt(waiting, LevelOffer(LEVELS, None), 0) == Reserve(MACHINE)
    assert kompakt(WaitingGang(8, 0, overtaken=OVERTAKEN_AT_MOST - 1), LevelOffer(LEVELS, None), 0) == WaitUntil(None, MACHINE)


@pytest.mark.parametrize("policy", [dally, kompakt, never_relax, no_wait])
def test_all_policies_take_one_machine_at_once(policy: DelayPolicy) -> None:
    assert policy(WaitingGang(8, 0), LevelOffer(LEVELS, MACHINE), 0) == PlaceAt(MACHINE)
