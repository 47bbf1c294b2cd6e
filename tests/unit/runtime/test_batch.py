"""The largest batch that fits, from figures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_runtime.batch import Taken, largest_batch

PEAKS = st.integers(1, 1 << 40)


@given(st.integers(1, 1 << 20), st.integers(1, 1 << 20), PEAKS, PEAKS, st.integers(0, 1 << 44))
def test_what_is_named_fits_by_the_line_and_half_as_many_more_do_not(batch, more, fixed, sample, limit):
    """Peaks that lie on a line: the answer is within 2 % of it beyond what was measured, and within one sample otherwise."""
    line = [Taken(b, fixed + b * sample) for b in (batch, batch + more)]
    named = largest_batch(line, limit)
    exact = (limit - fixed) / sample
    assert named <= max(0, exact) + 1e-6 * abs(exact)
    assert named >= min(exact, exact - 0.02 * (exact - batch - more)) - 1 - 1e-6 * abs(exact) or named == 0
    # What a smaller batch is known to take besides makes one measurement as good as two; not knowing it names fewer.
    assert abs(largest_batch([Taken(batch + more, line[1].peak, fixed)], limit) - named) <= 1
    assert largest_batch([Taken(batch + more, line[1].peak)], limit) <= max(named, batch + more)


@pytest.mark.parametrize("taken", [[], [Taken(0, 5)], [Taken(4, 100), Taken(8, 100)], [Taken(4, 100, 100)]])
def test_figures_that_allow_no_answer_are_refused(taken):
    with pytest.raises(ValueError, match="batch"):
        largest_batch(taken, 1000)
