"""Every rejection is told in a sentence that ends with what to do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core.placement.cures import CURES
from kompakt_core.placement.explain import sentence
from kompakt_core.placement.model import Reason, Rejection

COUNTS = st.integers(0, 1 << 40)


@given(st.sampled_from(list(Reason)), COUNTS, COUNTS, st.sampled_from(["", "x", "worker", "gang"]))
def test_each_ends_with_what_to_do(reason: Reason, have: int, need: int, detail: str) -> None:
    assert sentence(Rejection(reason, None, have, need, detail)).endswith(f"; {CURES[reason]}")


@pytest.mark.parametrize(
    ("rejection", "told"),
    [
        (Rejection(Reason.MEMORY, None, 1_500_000_000, 64_000_000_000), "64.0 GB of memory are needed, 1.5 GB are free"),
        (Rejection(Reason.MEMORY, None, 5_000_000, 64_000_000), "64 MB of memory are needed, 5 MB are free"),
        (Rejection(Reason.CPU, None, 250, 2000), "2 CPUs are needed, 0.25 are free"),
        (Rejection(Reason.VALUE_TOO_LOW, None, 25_000, 50_000), "reaches 25.0 GB/s, the job's plan needs 50.0 GB/s"),
    ],
)
def test_numbers_have_units(rejection: Rejection, told: str) -> None:
    assert told in sentence(rejection)
