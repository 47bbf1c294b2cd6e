"""What a worse level is taken to cost where nobody measured it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core.errors import InvalidInput
from kompakt_core.placement.model import Level
from kompakt_core.policy.levels import LEVEL_FACTORS, parse_factors, slowdowns
from tests.support.core.outcomes import refusal


def test_insensitive_jobs_communicate_for_free() -> None:
    assert slowdowns("Low") == slowdowns("None") == {}
    assert slowdowns("High")[Level.CLUSTER] == 0.5 * LEVEL_FACTORS[Level.CLUSTER] > slowdowns("Auto")[Level.CLUSTER] > 0


def test_factors_are_read_in_order() -> None:
    assert parse_factors("machine=0.1, rack=1,block=1,cluster=32") == dict(zip(Level, (0.1, 1.0, 1.0, 32.0), strict=True))


@pytest.mark.parametrize("text", ["", "machine=1", "machine=2,rack=1,block=2,cluster=3", "machine=0,rack=nan,block=1,cluster=2"])
def test_other_texts_are_refused_with_a_right_one(text: str) -> None:
    assert "machine=0.05" in refusal(parse_factors, text)


@given(st.text(alphabet="machinerackblockcluster=0123456789.,-einf ", max_size=60))
def test_any_text_gives_factors_or_a_sentence(text: str) -> None:
    try:
        found = parse_factors(text)
    except InvalidInput:
        return
    assert list(found) == list(Level)
    assert all(0 <= number <= 1_000_000 for number in found.values())


def test_what_was_measured_counts_instead_of_the_word() -> None:
    assert slowdowns("High", measured=0.2) == {level: 0.2 * factor for level, factor in LEVEL_FACTORS.items()}
    assert slowdowns("High", measured=0.0) == {}
