"""Bit planes of codes, and the quick way to codes: both say what the plain, slow ways say."""

import pytest
import torch

from kompakt_runtime.codec.bins import coded
from kompakt_runtime.codec.bits import pack_bits, unpack_bits
from kompakt_runtime.codec.grid import make_grid, quantise
from kompakt_runtime.codec.planes import BYTES, PAIRS, codes, pack_codes, planes, unpack_codes


def some(high: int, count: int = 32 * 9) -> torch.Tensor:
    return torch.randint(high, (count,), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("of", [BYTES, PAIRS])
def test_a_plane_has_one_bit_of_each_code_in_their_order(of):
    given = some(1 << of.words).to(of.dtype)
    found = planes(given, of)
    assert found.shape[1] == 8 * given.element_size()
    for bit in range(found.shape[1]):
        assert torch.equal(found[:, bit], pack_bits(((given >> bit) & 1).to(torch.uint8)).view(torch.int32))
    assert torch.equal(codes(found, of), given)


def test_bits_come_back_as_zeros_and_ones():
    packed = torch.arange(256).to(torch.uint8)
    bits = unpack_bits(packed)
    assert bits.tolist() == [byte >> bit & 1 for byte in range(256) for bit in range(8)]


@pytest.mark.parametrize("bits", [0, 1, 7, 8, 15, 16, 22])
@pytest.mark.parametrize("negative", [False, True])
def test_blocks_of_any_width_come_back(bits, negative):
    given = some(1 << bits).to(torch.int32).view(-1, 32)
    given[1] >>= 3  # blocks differ in width
    given[2] = 0
    patterns = torch.where(some(2).bool() & negative, -1.0, 1.0).view(-1, 32)
    patterns[3] = 1.0  # and in whether they have signs
    heads, words = pack_codes(given, patterns.view(torch.int32))
    found, signs = unpack_codes(heads, words)
    assert torch.equal(found, given.view(-1))
    assert (signs is None) == (not negative)
    assert not negative or torch.equal(signs, torch.where(patterns < 0, -(1 << 31), 0).to(torch.int32).view(-1))
    assert heads.tolist() == [
        max(block).bit_length() + 128 * (row < 0).any().item() for block, row in zip(given.tolist(), patterns, strict=True)
    ]
    assert words.numel() == sum(head % 128 + head // 128 for head in heads.tolist())


def test_no_blocks_have_no_words():
    heads, words = pack_codes(torch.empty(0, 32, dtype=torch.int32), torch.empty(0, 32, dtype=torch.int32))
    found, signs = unpack_codes(heads, words)
    assert (heads.numel(), words.numel(), found.numel(), signs) == (0, 0, 0, None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("strange", [[], [0.0], [torch.nan], [torch.inf, -torch.inf], [3e30], [1e-42]])
def test_the_quick_way_finds_the_codes_and_outliers_of_the_careful_one(dtype, strange):
    grid = make_grid(dtype, 0.1, False)
    edges = torch.arange(32 * 40, dtype=torch.float64) * grid.step  # between bins: a rounding decides
    spread = torch.randn(32 * 200, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 1000
    values = torch.cat([edges, spread]).to(dtype)
    values[100 : 100 + len(strange)] = torch.tensor(strange, dtype=dtype)
    values = values.view(-1, 32)
    found, places = coded(grid, values, None)
    wanted, outside = quantise(grid, values, None)
    assert torch.equal(found, wanted)
    assert torch.equal(places, outside.view(-1).nonzero().view(-1))


def test_some_elements_are_beyond_the_bound_by_rounding_alone_and_the_quick_way_tells():
    grid = make_grid(torch.float32, 0.1, False)
    values = (torch.arange(32 * 4096, dtype=torch.float64) * grid.step).float().view(-1, 32)
    assert coded(grid, values, None)[1].numel() > 0
