"""Stochastic rounding: unbiased, of the stated variance, and the same random bits everywhere."""

import pytest
import torch

from kompakt_runtime.codec import decode, encode
from kompakt_runtime.codec.grid import DRAW_BITS, draw
from tests.support.runtime.tensors import DTYPES


def mixed(h: int) -> int:
    """The mixing function once more, in plain whole numbers."""
    h ^= h >> 16
    h = h * 0x7FEB352D % 2**32
    h ^= h >> 15
    h = h * 0x846CA68B % 2**32
    return h ^ h >> 16


def test_the_random_bits_are_those_of_the_plain_formula():
    elements = [0, 1, 2, 12345, 2**31 - 1, 2**32 - 1, 2**32, 2**40 + 17]
    for seed in (0, 1, 2**63 + 5, -1):
        one = mixed(seed % 2**32)
        two = mixed(one ^ (seed >> 32) % 2**32)
        wanted = [mixed(mixed(e % 2**32 ^ mixed(two ^ one)) ^ (e >> 32) ^ two) >> 8 for e in elements]
        assert draw(seed, torch.tensor(elements)).tolist() == wanted


def test_the_random_bits_look_random():
    count = 1 << 18
    numbers = torch.stack([draw(seed, torch.arange(count)).double() / (1 << DRAW_BITS) for seed in (0, 1, 2, 1 << 32)]) - 0.5
    noise = 5 / count**0.5  # five standard deviations of a mean, in units of one
    assert (numbers.mean(dim=1) * 12**0.5).abs().max() < noise
    assert (numbers.square().mean(dim=1) * 12 - 1).abs().max() < noise
    correlations = torch.corrcoef(torch.cat([numbers, numbers[:1].roll(1, 1), numbers[:1].roll(2048, 1)])) - torch.eye(6)
    assert correlations.abs().max() < noise
    spread = torch.histc(numbers[0], bins=256).float()
    assert ((spread - count / 256).square() / (count / 256)).sum() < 255 + 5 * (2 * 255) ** 0.5


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_mean_is_exact_and_the_variance_at_most_a_sixth_of_the_bound_squared(dtype):
    bound, repeats = 0.1, 150
    x = (torch.randn(8000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).to(dtype)
    errors = torch.stack([decode(encode(x, bound, seed=seed)).double() - x.double() for seed in range(repeats)])
    assert errors.abs().max() <= bound
    variance = errors.square().mean()
    assert variance <= bound**2 / 6 * 1.02
    # Over all draws, and for small and large elements apart: bias hides near zero, where signs must hold.
    for part in (x.abs() >= 0, x.abs() < 0.05, (x.abs() > 0.05) & (x.abs() < 0.1), x.abs() > 1):
        drawn = errors[:, part] * x[part].sign().double()
        assert drawn.mean().abs() < 5 * (variance / drawn.numel()) ** 0.5 + 1e-6


def test_no_single_value_is_biased():
    bound, repeats = 0.1, 400
    x = torch.linspace(-0.5, 0.5, 101)
    mean = torch.stack([decode(encode(x, bound, seed=seed)).double() for seed in range(repeats)]).mean(dim=0)
    # The step is 1/16; a value's mean over n draws has at most step / 2 / sqrt(n) of standard deviation.
    assert (mean - x.double()).abs().max() < 4.5 * 0.0625 / 2 / repeats**0.5


def test_nearest_would_fail_the_same_test():
    x = torch.linspace(-0.5, 0.5, 101)
    assert (decode(encode(x, 0.1)) - x).abs().max() > 0.05


def test_a_repeat_gives_the_same_and_another_seed_another():
    x = torch.randn(5000, generator=torch.Generator().manual_seed(0))
    assert encode(x, 0.1, seed=7).to_bytes() == encode(x, 0.1, seed=7).to_bytes()
    a, b = decode(encode(x, 0.1, seed=7)), decode(encode(x, 0.1, seed=8))
    assert 0.3 < (a != b).float().mean() < 0.7


def test_the_element_s_place_decides_not_the_zeros_before_it():
    x = torch.full((4000,), 0.33)
    y = x.clone()
    y[:2000:3] = 0
    a, b = decode(encode(x, 0.1, seed=1)), decode(encode(y, 0.1, seed=1))
    assert torch.equal(a[y != 0], b[y != 0])


def test_the_global_generator_does_not_move():
    before = torch.get_rng_state()
    encode(torch.randn(100, generator=torch.Generator().manual_seed(0)), 0.1, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
