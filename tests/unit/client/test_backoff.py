"""How long is waited before the next try."""

from hypothesis import given
from hypothesis import strategies as st

from kompakt_client.backoff import JITTER, Backoff

FIRST, LONGEST = 0.2, 10.0
CHANCE = st.floats(0, 1, exclude_max=True)


@given(st.integers(1, 100), CHANCE)
def test_pauses_grow_up_to_the_longest_one_and_a_part_of_each_is_random(failures: int, chance: float) -> None:
    """Clients that failed together would else come back together."""
    whole = Backoff(FIRST, LONGEST).seconds(failures, random=lambda: 0.0)
    assert whole == min(FIRST * 2 ** (failures - 1), LONGEST)
    assert whole * (1 - JITTER) <= Backoff(FIRST, LONGEST).seconds(failures, random=lambda: chance) <= whole
    assert Backoff(FIRST, LONGEST).seconds(failures, random=lambda: 0.9) < 0.6 * whole


@given(st.integers(1, 100), CHANCE, st.floats(0, 100))
def test_no_pause_is_shorter_than_the_server_said(failures: int, chance: float, said: float) -> None:
    assert Backoff(FIRST, LONGEST).seconds(failures, said, lambda: chance) >= said
