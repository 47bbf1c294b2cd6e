"""Bins of 16-bit types: all their numbers, at bounds from below the finest spacing to beyond the largest number."""

import math

import pytest
import torch

from kompakt_runtime.codec import encode
from kompakt_runtime.codec.grid import make_grid
from kompakt_runtime.codec.short import NUMBERS, bins, quantise, restored

DTYPES = [torch.float16, torch.bfloat16]


def positive(dtype: torch.dtype) -> torch.Tensor:
    """Every pattern without the sign: zero, all positive numbers in order, infinity, NaN."""
    return torch.arange(NUMBERS, dtype=torch.int32).to(torch.int16).view(dtype)


def bounds(dtype: torch.dtype) -> list[float]:
    """Powers of two and numbers between them over all the type's range, and a little beyond it."""
    info = torch.finfo(dtype)
    low, high = math.frexp(info.smallest_normal * info.eps)[1] - 3, math.frexp(info.max)[1] + 1
    exponents = range(max(low, -125), min(high, 127), 3)
    return [math.ldexp(share, exponent) for exponent in exponents for share in (0.5, 0.5625, 0.75, 0.999)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_number_keeps_every_bound_and_none_needs_to_be_an_outlier(dtype):
    x = positive(dtype)
    finite = x.isfinite()
    for bound in bounds(dtype):
        grid = make_grid(dtype, bound, False)
        codes, outside = quantise(grid, x)
        back = restored(grid, codes)[finite].double()
        assert torch.equal(outside, ~finite), f"bound {bound!r}"
        error = (back - x[finite].double()).abs()  # exact: both have few digits, at most 2^-24 apart in size where it matters
        assert bool((error <= bound)[1:].all()), f"bound {bound!r}"
        assert bool((back > 0)[1:].all()), f"bound {bound!r}"
        assert bool((codes[finite].diff() >= 0).all()), "codes are in the order of the numbers"


def fewest(dtype: torch.dtype, bound: float) -> int:
    """How many numbers of the type can stand for all positive ones within the bound: each reaches as far up as it can."""
    numbers = positive(dtype)[1:].double()
    numbers = numbers[numbers.isfinite()]
    count = place = 0
    while place < len(numbers):
        middle = int(torch.searchsorted(numbers, numbers[place] + bound, right=True)) - 1
        place = int(torch.searchsorted(numbers, numbers[middle] + bound, right=True))
        count += 1
    return count


@pytest.mark.parametrize("bound", [0.3, 0.1, 0.0625, 0.01, 0.003])
@pytest.mark.parametrize("dtype", DTYPES)
def test_there_are_hardly_more_codes_than_there_must_be(dtype, bound):
    x = positive(dtype)
    codes, outside = quantise(make_grid(dtype, bound, False), x)
    used = len(codes[~outside].unique())
    assert fewest(dtype, bound) <= used <= 1.02 * fewest(dtype, bound) + 8


@pytest.mark.parametrize("bound", [0.1, 0.03, 0.02, 0.01, 0.006])
@pytest.mark.parametrize("dtype", DTYPES)
def test_few_digits_cost_little_beside_float32(dtype, bound):
    x = torch.randn(1 << 16, generator=torch.Generator().manual_seed(0)).to(dtype)
    assert encode(x, bound).nbytes <= 1.04 * encode(x.float(), bound).nbytes


@pytest.mark.parametrize("dtype", DTYPES)
def test_codes_that_no_encoder_writes_still_give_a_number(dtype):
    grid = make_grid(dtype, 0.1, False)
    assert restored(grid, torch.tensor([(1 << 22) - 1], dtype=torch.int32)).shape == (1,)


def test_where_bins_of_neighbours_begin():
    """At a bound of 0.1 in bfloat16: from 2, where numbers are 1/64 apart, of 13; from 4 of 7, from 8 of 3, from 16 of one."""
    own = bins(torch.bfloat16, make_grid(torch.bfloat16, 0.1, False).bound)
    assert (own.first, own.sizes) == (128 << 7, (13, 7, 3, 1))
    assert own.step == pytest.approx(0.2 - 1 / 128)
