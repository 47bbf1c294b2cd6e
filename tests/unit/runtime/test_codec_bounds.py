"""A million values against their bounds, and thousands of generated tensors against all that the codec promises.

Judged in exact arithmetic where float64 leaves a doubt. Each test's share of the million is a type's.
"""

import math
import struct
import zlib
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_runtime.codec import CorruptPacked, Packed, decode, encode
from kompakt_runtime.codec.grid import within
from tests.support.runtime.tensors import BITS, DTYPES, bits_of, same_bits

BOUNDS = 160
VALUES = 1600  # 4 types x 160 bounds x 1600 values: 1,024,000 triples in each of two modes
several = settings(deadline=None, max_examples=420)  # of each property and type


def any_bits(count: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Any bit pattern: NaN, infinity, subnormals and the largest numbers among them."""
    kind = BITS[torch.empty(0, dtype=dtype).element_size()]
    info = torch.iinfo(kind)
    return torch.randint(info.min, info.max, (count,), generator=generator, dtype=kind).view(dtype)


def near_edges(count: int, bound: float, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Multiples of half the bound (edges and middles of bins) and numbers up to two places beside them."""
    edges = torch.randint(-400, 400, (count,), generator=generator).double() * (bound / 2)
    beside = torch.randint(-2, 3, (count,), generator=generator)
    return (bits_of(edges.to(dtype)) + beside.to(BITS[torch.empty(0, dtype=dtype).element_size()])).view(dtype)


def mixture(bound: float, dtype: torch.dtype, generator: torch.Generator, count: int = VALUES) -> torch.Tensor:
    """Mostly edges and ordinary numbers at the bound's scale, so that most tensors are really packed; the rest is extreme."""
    scale = 10.0 ** (torch.rand(count // 4, generator=generator) * 7 - 3)
    ordinary = (torch.randn(count // 4, generator=generator, dtype=torch.float64) * scale * bound).to(dtype)
    info = torch.finfo(dtype)
    extremes = torch.tensor([0.0, -0.0, info.tiny, -info.tiny, info.smallest_normal * info.eps, info.max, info.min], dtype=dtype)
    wild = any_bits(count // 20, dtype, generator)
    rest = count - 2 * (count // 4) - wild.numel() - extremes.numel()
    zeros = torch.zeros(rest, dtype=dtype)
    parts = [near_edges(count // 4, bound, dtype, generator), ordinary, wild, extremes, zeros]
    return torch.cat(parts)[torch.randperm(count, generator=generator)]


def bounds_for(dtype: torch.dtype, generator: torch.Generator) -> list[float]:
    """Ordinary ones, powers of two, and the whole range of the type, from where nothing can be packed to where all is one bin."""
    info = torch.finfo(dtype)
    low, high = math.log2(info.tiny), math.log2(info.max)
    wide = 2.0 ** (torch.rand(BOUNDS // 2, generator=generator, dtype=torch.float64) * (high - low) + low)
    ordinary = 10.0 ** (torch.rand(BOUNDS // 4, generator=generator, dtype=torch.float64) * 4 - 3)
    return [*wide.tolist(), *ordinary.tolist(), *(2.0**-k for k in range(BOUNDS // 4))]


def misses(x: torch.Tensor, back: torch.Tensor, bound: float) -> list[tuple[float, float]]:
    """The pairs that break the promise; doubts of one rounding are settled by fractions."""
    x, back = x.double(), back.double()
    finite = x.isfinite()
    exact = ~finite & ((x == back) | (x.isnan() & back.isnan()))
    signs = (back.isfinite()) & (back.sign() == x.sign())
    error = (x - back).abs()
    clear = finite & signs & (error <= bound * (1 - 1e-15))
    doubtful = ~(exact | clear)
    pairs = zip(x[doubtful].tolist(), back[doubtful].tolist(), strict=True)
    return [(a, b) for a, b in pairs if not settled(a, b, bound)]


def settled(a: float, b: float, bound: float) -> bool:
    if not (math.isfinite(a) and math.isfinite(b)) or (a > 0) != (b > 0) or (a < 0) != (b < 0):
        return False
    return abs(Fraction(a) - Fraction(b)) <= Fraction(bound)


def test_the_judge_itself_sees_a_miss():
    x = torch.tensor([1.0, 0.0, -2.0, math.nan, math.inf, 3.0])
    wrong = torch.tensor([1.2, 1e-30, 2.0, 0.0, 3e38, 3.1])
    assert len(misses(x, wrong, 0.1)) == 5  # the last is none: float32 has 3.0999999 for it
    assert misses(x, x, 1e-300) == []
    assert misses(torch.tensor([1.0]), torch.tensor([1.1]), 0.1) != [], "float32's 1.1 is further than 0.1 from 1"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_codec_s_own_check_is_exact_where_a_rounded_difference_is_not(dtype):
    """b + d - s for small s, where the rounded difference is the bound and the true one may be on either side of it."""
    eps = torch.finfo(dtype).eps
    generator = torch.Generator().manual_seed(2)
    far = torch.ones(20_000, dtype=dtype) + torch.randint(0, 3, (20_000,), generator=generator).to(dtype) * eps
    near = (torch.rand(20_000, generator=generator, dtype=torch.float64) * 3 * eps).to(dtype)
    ours = within(far, near, 1.0).tolist()
    truth = [Fraction(a) - Fraction(b) <= 1 for a, b in zip(far.tolist(), near.tolist(), strict=True)]
    assert ours == truth
    assert ((far - near) <= 1.0).tolist() != truth, "rounded differences must fail here, or the test is too easy"


@pytest.mark.parametrize("seed", [None, 5], ids=["nearest", "stochastic"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_quarter_of_a_million_values_are_within_their_bounds(dtype, seed):
    generator = torch.Generator().manual_seed(11)
    packed_well = 0
    for bound in bounds_for(dtype, generator):
        x = mixture(bound, dtype, generator)
        packed = encode(x, bound, seed=seed)
        back = decode(packed)
        assert misses(x, back, bound) == [], f"{dtype}, bound {bound!r}"
        packed_well += not packed.raw
    assert packed_well > BOUNDS / 2, "most tensors must be packed, or nothing was tested"


@st.composite
def tensors(draw, dtype: torch.dtype) -> tuple[torch.Tensor, float]:
    """A tensor from a few numbers (how many elements, which mixture, which seed), and a bound."""
    bound = draw(st.floats(1e-3, 1) | st.sampled_from([2.0**-k for k in range(12)]) | st.floats(5e-324, 1e308))
    count, state = draw(st.integers(0, 700) | st.integers(2040, 2060)), draw(st.integers(0, 1 << 32))
    generator = torch.Generator().manual_seed(state)
    if count < 40 or draw(st.booleans()):
        return any_bits(count, dtype, generator), bound
    return mixture(min(bound, 1e30), dtype, generator, count), bound


seeds = st.none() | st.integers(-(1 << 70), 1 << 70)


@pytest.mark.parametrize("dtype", DTYPES)
@several
@given(data=st.data())
def test_bounds_hold_bytes_come_back_are_counted_and_are_the_same_again(dtype, data):
    (x, bound), seed = data.draw(tensors(dtype)), data.draw(seeds)
    before = bits_of(x).clone()
    packed = encode(x, bound, seed=seed)
    back, written = decode(packed), packed.to_bytes()
    assert misses(x, back, bound) == []
    assert torch.equal(bits_of(x), before)
    assert packed.nbytes == len(written) <= x.numel() * x.element_size() + 128
    again = Packed.from_bytes(written)
    assert again.to_bytes() == written == encode(x.clone(), bound, seed=seed).to_bytes()
    assert again.outliers == packed.outliers
    assert same_bits(decode(again), back)
    assert same_bits(decode(packed), back), "reading changes nothing"


@pytest.mark.parametrize("dtype", DTYPES)
@several
@given(
    shape=st.lists(st.integers(0, 9), min_size=0, max_size=5),
    random=st.randoms(use_true_random=False),
    form=st.sampled_from(["as it is", "expanded", "sliced", "channels last"]),
    seed=seeds,
)
def test_shape_strides_and_values_of_any_view(dtype, shape, random, form, seed):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(random.randrange(1 << 30)), dtype=torch.float64).to(dtype)
    x = view_of(x, form, random)
    back = decode(encode(x, 0.05, seed=seed))
    assert (back.shape, back.dtype) == (x.shape, x.dtype)
    if form != "sliced":
        assert back.stride() == x.stride()
    assert misses(x.reshape(-1), back.reshape(-1), 0.05) == []


def view_of(x: torch.Tensor, form: str, random) -> torch.Tensor:
    order = list(range(x.dim()))
    random.shuffle(order)
    x = x.permute(order)
    if form == "expanded" and x.dim():
        return x[..., None].expand(*x.shape, 7)
    if form == "sliced" and x.dim():
        return x[..., :: random.randrange(1, 4)]
    if form == "channels last" and x.dim() == 4:
        return x.contiguous(memory_format=torch.channels_last)
    return x


SAMPLES = {
    dtype: [encode(mixture(0.1, dtype, torch.Generator().manual_seed(3), 2500), 0.1, seed=seed).to_bytes() for seed in (None, 1)]
    for dtype in DTYPES
}


@pytest.mark.parametrize("dtype", DTYPES)
@several
@given(data=st.data())
def test_any_damage_is_noticed(dtype, data):
    packed = data.draw(st.sampled_from(SAMPLES[dtype]))
    place = data.draw(st.integers(0, len(packed) - 1))
    flipped = packed[:place] + bytes([packed[place] ^ data.draw(st.integers(1, 255))]) + packed[place + 1 :]
    for damaged in (flipped, packed[:place], packed + b"\0"):
        with pytest.raises(CorruptPacked):
            Packed.from_bytes(damaged)


@pytest.mark.parametrize("dtype", DTYPES)
@several
@given(
    changes=st.lists(st.tuples(st.integers(0, 200) | st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=4),
    cut=st.integers(0, 9),
    data=st.data(),
)
def test_forged_bytes_raise_or_decode_within_their_size(dtype, changes, cut, data):
    forged = bytearray(data.draw(st.sampled_from(SAMPLES[dtype]))[: -4 - cut])
    for place, value in changes:
        forged[place % len(forged)] = value
    try:
        packed = Packed.from_bytes(bytes(forged) + struct.pack("<I", zlib.crc32(forged)))
    except CorruptPacked:
        return
    assert decode(packed).untyped_storage().nbytes() <= 4 * 256 * len(forged)
