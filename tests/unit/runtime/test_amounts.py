"""Amounts of memory: what people write, and what they get wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_runtime.amounts import Amount

GB = 10**9


@pytest.mark.parametrize(
    ("text", "there", "nbytes"),
    [
        ("20Gi", 0, 20 << 30),
        ("512Mi", 0, 512 << 20),
        ("1.5Gi", 0, 3 << 29),
        ("16G", 0, 16 * GB),
        ("123456789", 0, 123456789),
        ("80%", 10 * GB, 8 * GB),
        ("12.5%", 8 * GB, GB),
        ("100%", 7, 7),
    ],
)
def test_an_amount_is_read_as_kubernetes_writes_it(text, there, nbytes):
    assert Amount.of(text).of_all(there) == nbytes


WRONG = [
    "",
    "lots",
    "-1Gi",
    "20 Gi",
    "20GiB",
    "1e9",
    "nan",
    "inf",
    "٣Gi",
    "20gi",
    "%",
    "Gi",
    "1" * 16,
    "1Gi\n",
    "0.5",
    "1.0005Gi",
]
NOTHING = ["0", "0Gi", "0%", "0.0%"]
MORE_THAN_ALL = ["100.1%", "101%", "007%"]


@pytest.mark.parametrize("text", [*WRONG, *NOTHING, *MORE_THAN_ALL])
def test_anything_else_is_refused_with_what_would_be_right(text):
    right = r"^right is an amount above 0 such as 20Gi or 512Mi, or a share of the device's memory such as 80%, at most 100%$"
    with pytest.raises(ValueError, match=right):
        Amount.of(text)


@given(st.text(max_size=20))
def test_any_text_is_an_amount_above_nothing_or_a_value_error(text):
    refused = ""
    try:
        refused = "" if Amount.of(text).number > 0 else "nothing"
    except ValueError as error:
        refused = str(error)
    assert not refused or "20Gi" in refused
