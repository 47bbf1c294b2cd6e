"""Whom to stop where rests are known: what all together lose against what the gang is spared."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core.errors import InvalidInput
from kompakt_core.policy.exchange import stopping_pays

SECONDS = st.floats(0, 1e7)


@pytest.mark.parametrize(
    ("gang", "victims", "cost", "pays"),
    [
        (100, [100], 0, True),
        (100, [100], 1, False),
        (100, [400, 100, 100, 100], 0, True),
        (100, [399, 390, 390, 390], 0, False),
        (100, [1000, 99], 0, False),
        (100, [1000, 60], 40, True),
        (10, [400] * 4, 91, False),
    ],
)
def test_each_victim_waits_for_the_gang_and_the_gang_for_the_last_victim(
    gang: float, victims: list[float], cost: float, pays: bool
) -> None:
    assert stopping_pays(gang, victims, cost) is pays


@given(SECONDS, st.lists(SECONDS, min_size=1, max_size=5), SECONDS)
def test_it_is_what_serving_one_after_the_other_in_both_orders_gives(gang: float, victims: list[float], cost: float) -> None:
    gang_first = gang + sum(gang + cost + one for one in victims)
    victims_first = sum(victims) + max(victims) + gang
    shorter = min(victims) + cost < gang
    if abs(gang_first - victims_first) > 1e-3 and abs(min(victims) + cost - gang) > 1e-3:
        assert stopping_pays(gang, victims, cost) is (gang_first < victims_first and not shorter)


@pytest.mark.parametrize("wrong", [(1, [], 0), (-1, [1], 0), (1, [-1.0], 0), (1, [1], -1)])
def test_numbers_below_zero_and_no_victims_are_refused(wrong: tuple[float, list[float], float]) -> None:
    with pytest.raises(InvalidInput, match="at least one victim"):
        stopping_pays(*wrong)
