"""What the load benchmark reads out of the operator's histogram."""

import pytest

from benchmarks.load import buckets, quantile
from kompakt_operator.health import Pulse


def text_after(*seconds: float) -> str:
    pulse = Pulse()
    for each in seconds:
        pulse.looked("done", each)
    return pulse.text()


@pytest.mark.parametrize(
    ("share", "bounds"), [(0.5, (0.01, 0.025)), (0.98, (0.01, 0.025)), (0.99, (0.25, 0.5)), (1.0, (10.0, float("inf")))]
)
def test_a_share_of_the_looks_lies_between_two_bounds(share: float, bounds: tuple[float, float]) -> None:
    looks = [0.02] * 98 + [0.3] + [60.0]
    assert quantile({}, buckets(text_after(*looks)), share) == bounds


def test_what_was_before_the_first_reading_does_not_count() -> None:
    before, after = buckets(text_after(9.0, 9.0)), buckets(text_after(9.0, 9.0, 0.001))
    assert quantile(before, after, 0.99) == (0.0, 0.005)
