"""Moments as they stand in objects."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core.contract import timestamps
from tests.support.core.outcomes import helps, outcome

ZONES = st.integers(-840, 840).map(lambda minutes: timezone(timedelta(minutes=minutes)))
MOMENTS = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=ZONES)


@given(MOMENTS, st.integers(0, 4102444800))
def test_a_moment_reads_as_it_was_written(moment: datetime, seconds: int) -> None:
    found = timestamps.decode(timestamps.encode(moment))
    assert (found, found.utcoffset()) == (moment.replace(microsecond=0), timedelta(0))
    assert timestamps.decode(timestamps.encode_micro(moment)) == moment, "a Lease's, to the microsecond"
    assert timestamps.seconds(timestamps.encode(float(seconds))) == seconds
    assert timestamps.canonical(moment.isoformat()) == timestamps.encode(moment.astimezone(UTC)), "another zone becomes UTC"


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2026, 11, 21, 10, 30, 0, 999999, UTC), "2026-11-21T10:30:00Z"),
        (datetime(33, 1, 2, tzinfo=UTC), "0033-01-02T00:00:00Z"),
        (0.9, "1970-01-01T00:00:00Z"),
    ],
)
def test_moments_are_written_as_the_api_server_writes_them(moment: datetime | float, text: str) -> None:
    assert timestamps.encode(moment) == text


def test_leases_get_six_digits_of_the_second() -> None:
    assert timestamps.encode_micro(datetime(2026, 11, 21, 10, 30, tzinfo=UTC)) == "2026-11-21T10:30:00.000000Z"


NO_MOMENTS = (
    *("", "yesterday", "2026-01-31", "2026-01-31T12:00:00", "2026-01-32T12:00:00Z", "2026-01-31 12:00:00Z"),
    *("2026-W05-6T12:00:00Z", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "٢026-01-31T12:00:00Z"),
    *(None, 7, ["2026-01-31T12:00:00Z"]),
)


@pytest.mark.parametrize("text", NO_MOMENTS)
def test_what_is_no_moment_is_refused_with_its_place_and_an_example(text: object) -> None:
    refused = outcome(timestamps.decode, text, "status.until")
    assert helps(refused, "status.until: ")
    assert timestamps.EXAMPLE in str(refused)
    assert timestamps.seconds(text) is None


@given(st.text(max_size=40) | st.from_regex(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", fullmatch=True))
def test_any_text_is_a_moment_that_is_written_again_as_the_same_or_refused(text: str) -> None:
    found = outcome(timestamps.decode, text)
    if isinstance(found, datetime):
        assert timestamps.decode(timestamps.encode_micro(found)) == found
    else:
        assert helps(found)
