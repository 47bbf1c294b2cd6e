"""The largest batch that fits, from figures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_runtime.cost.batch import Taken, largest_batch

PEAKS = st.integers(1, 1 << 40)


@given(st.integers(1, 1 << 20), st.integers(1, 1 << 20), PEAKS, PEAKS, st.integers(0, 1 << 44))
def test_what_is_named_fits_and_on_a_line_hardly_more_would(batch, more, fixed, sample, limit):
    line = [Taken(b, fixed + b * sample) for b in (batch, batch + more, batch + 2 * more)]
    named, exact, last = largest_batch(line, limit), (limit - fixed) / sample, line[-1]
    assert named <= max(0, exact) + 1e-6 * abs(exact)
    if 2.01 * fixed < last.peak:
        assert named >= exact - 0.05 * max(0, exact - last.batch) - 1 - 1e-6 * abs(exact) or named == 0
    # What any batch takes makes one size as good as three; without it fewer are named beyond the measured.
    assert largest_batch([Taken(last.batch, last.peak, fixed)], limit) <= max(0, exact) + 1e-6 * abs(exact)
    assert largest_batch([last], limit) <= max(named, last.batch)


@pytest.mark.parametrize("peaks", [(12.65, 12.66, 12.67), (12.65, 12.67, 21.5)])
def test_peaks_of_small_batches_that_lie_elsewhere_promise_nothing(peaks):
    """As measured on six linear layers: the peak is the optimizer's step up to 512 rows, and activations' beyond it."""
    taken = [Taken(batch, int(peak * 1e6)) for batch, peak in zip((256, 512, 1024), peaks, strict=True)]
    assert largest_batch(taken, 43_000_000) == largest_batch(taken[-1:], 43_000_000)


def test_a_line_that_is_steeper_beyond_what_was_measured_promises_nothing_that_does_not_fit():
    """Four linear layers with dropout, as measured: into 18.75 MB fit 2,048 rows."""
    taken = [Taken(256, 5_420_000), Taken(512, 7_260_000), Taken(1024, 10_970_000)]
    assert 0.95 * 2048 <= largest_batch(taken, 18_750_000) <= 2048


@pytest.mark.parametrize("taken", [[], [Taken(0, 5)], [Taken(4, 100, 100)]])
def test_figures_that_allow_no_answer_are_refused(taken):
    with pytest.raises(ValueError, match="batch"):
        largest_batch(taken, 1000)
