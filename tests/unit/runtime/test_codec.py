"""The codec keeps its bound as real numbers, whatever the values; broken bytes are refused before they are believed."""

import math
import struct
import zlib
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_runtime.codec import CorruptPacked, Packed, decode, encode
from kompakt_runtime.codec.select import SMALLEST

torch.set_num_threads(1)
FLOATS = {torch.float64: 8, torch.float32: 4, torch.float16: 2, torch.bfloat16: 2}
BITS = {8: torch.int64, 4: torch.int32, 2: torch.int16}
calm = settings(deadline=None, max_examples=150)


def bits_of(x: torch.Tensor) -> torch.Tensor:
    """The bit patterns, which tell NaN from NaN and 0.0 from -0.0."""
    return x.contiguous().view(BITS[x.element_size()])


@st.composite
def awkward(draw) -> tuple[torch.Tensor, float]:
    """Any bit patterns of any float type, ordinary numbers, exact bin edges; and a bound from far too small to far too large."""
    dtype = draw(st.sampled_from(list(FLOATS)))
    bound = draw(st.one_of(st.floats(1e-3, 1), st.floats(5e-324, 1e308), st.sampled_from([2.0**-k for k in range(12)])))
    size = FLOATS[dtype] * 8
    patterns = draw(st.lists(st.integers(-(1 << (size - 1)), (1 << (size - 1)) - 1), max_size=40))
    numbers = draw(st.lists(st.floats(-100, 100, width=32), max_size=60))
    edges = draw(st.lists(st.integers(-300, 300), max_size=40))
    any_bits = torch.tensor(patterns, dtype=BITS[FLOATS[dtype]]).view(dtype)
    plain = torch.tensor(numbers, dtype=torch.float64).to(dtype)
    on_edge = (torch.tensor(edges, dtype=torch.float64) * bound).to(dtype)
    return torch.cat([any_bits, plain, on_edge, plain.new_zeros(draw(st.integers(0, 40)))]), bound


def holds(x: float, back: float, bound: float) -> bool:
    """The promise for one element, in exact arithmetic."""
    if not math.isfinite(x):
        return back == x or (math.isnan(x) and math.isnan(back))
    if x == 0:
        return back == 0
    same_sign = math.copysign(1, x) == math.copysign(1, back)
    return back != 0 and math.isfinite(back) and same_sign and abs(Fraction(back) - Fraction(x)) <= Fraction(bound)


@calm
@given(awkward())
def test_every_element_is_within_the_bound_as_a_real_number(case):
    x, bound = case
    packed = encode(x, bound)
    back = decode(packed)
    assert back.dtype == x.dtype
    broken = [(a, b) for a, b in zip(x.double().tolist(), back.double().tolist(), strict=True) if not holds(a, b, bound)]
    assert not broken
    assert packed.nbytes == len(packed.to_bytes()) <= x.numel() * x.element_size() + 128
    assert torch.equal(bits_of(decode(Packed.from_bytes(packed.to_bytes()))), bits_of(back))
    assert torch.equal(bits_of(decode(packed)), bits_of(back)), "decoding twice gives the same"


@pytest.mark.parametrize("dtype", FLOATS)
def test_thirty_thousand_values_of_all_magnitudes(dtype):
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(30_000, generator=generator, dtype=torch.float64) * 10.0 ** torch.randint(
        -6, 3, (30_000,), generator=generator
    )
    x = x.to(dtype)
    for bound in (1e-4, 0.01, 0.3, 50.0):
        back = decode(encode(x, bound))
        # A difference of two numbers of at most 53 bits, judged in float64: only a miss by half a rounding could hide.
        assert (back.double() - x.double()).abs().max() <= bound * (1 + 1e-15)
        assert torch.equal(back.sign(), x.sign())


def test_sixteen_bit_types_need_no_outliers_on_ordinary_data():
    x = torch.randn(50_000, generator=torch.Generator().manual_seed(1))
    for dtype in (torch.float16, torch.bfloat16):
        for bound in (0.3, 0.05, 0.01):
            assert encode(x.to(dtype), bound).outliers == 0


def test_outliers_are_exact_and_counted():
    x = torch.ones(1000)
    x[[3, 500, 999]] = torch.tensor([math.nan, math.inf, -math.inf])
    x[7] = 3e38
    packed = encode(x, 0.01)
    assert packed.outliers == 4
    assert torch.equal(bits_of(decode(packed))[[3, 7, 500, 999]], bits_of(x)[[3, 7, 500, 999]])


def test_half_normal_data_needs_at_most_4_6_bits_an_element():
    x = torch.randn(1 << 20, generator=torch.Generator().manual_seed(0))
    assert encode(x.relu(), 0.1).nbytes * 8 / x.numel() <= 4.6


def test_packing_that_would_not_help_stores_the_tensor_as_it_is():
    x = torch.randn(10_000, generator=torch.Generator().manual_seed(0))
    packed = encode(x, 1e-9)
    assert packed.raw
    assert torch.equal(bits_of(decode(packed)), bits_of(x))
    assert packed.nbytes <= x.numel() * 4 + 128


def test_a_part_that_would_grow_makes_the_whole_plain_only_if_the_whole_does_not_gain():
    size = 1 << SMALLEST
    x = torch.zeros(2 * size + 5)
    x[:size] = torch.randn(size, generator=torch.Generator().manual_seed(0)) * 1e6
    assert encode(x, 1e-3).raw
    x = torch.cat([x, x.new_zeros(4 * size)])
    packed = encode(x, 1e-3)
    assert not packed.raw
    assert len(packed.parts) > 1
    assert (decode(packed).double() - x.double()).abs().max() <= 1e-3


LAYOUTS = {
    "scalar": lambda: torch.tensor(1.5),
    "empty": lambda: torch.empty(0, 3),
    "transposed": lambda: torch.randn(33, 47).t(),
    "channels last": lambda: torch.randn(4, 8, 5, 6).to(memory_format=torch.channels_last),
    "expanded": lambda: torch.randn(7, 1, 9).expand(7, 1000, 9),
    "all expanded": lambda: torch.tensor(2.0).expand(1000, 1000),
    "heads": lambda: torch.randn(2, 10, 4, 8).permute(0, 2, 1, 3),
    "every other column": lambda: torch.randn(64, 64)[:, ::2],
    "one dimension of 1": lambda: torch.randn(64, 1, 3).transpose(0, 1),
    "at an offset": lambda: torch.randn(1000)[37:901],
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_shape_and_strides_come_back(name):
    x = LAYOUTS[name]()
    packed = Packed.from_bytes(encode(x, 0.05).to_bytes())
    back = decode(packed)
    assert (back.shape, back.stride(), back.dtype) == (x.shape, x.stride(), x.dtype)
    assert x.numel() == 0 or (back - x).abs().max() <= 0.05


def test_an_expanded_tensor_is_stored_once():
    assert encode(torch.randn(7, 1, 9).expand(7, 1000, 9), 1e-9).nbytes < 7 * 9 * 4 + 128


def test_overlapping_and_sparse_views_come_back_dense():
    windows = torch.randn(100).unfold(0, 10, 1)
    assert (decode(encode(windows, 0.01)) - windows).abs().max() <= 0.01
    gaps = torch.randn(100, 100)[:, ::50]
    assert decode(encode(gaps, 0.01)).stride() == (2, 1)


def test_other_types_are_stored_as_they_are():
    for x in (torch.arange(10), torch.tensor([True, False]), torch.randn(5, dtype=torch.complex64)):
        packed = encode(x, 1.0)
        assert packed.raw
        assert torch.equal(decode(packed), x)
    conjugate = torch.randn(5, dtype=torch.complex64).conj()
    assert torch.equal(decode(encode(conjugate, 1.0)), conjugate)


@pytest.mark.parametrize("bound", [0, -1, math.nan, math.inf, "0.1", None])
def test_a_bound_that_is_no_positive_number_is_refused(bound):
    with pytest.raises(ValueError, match="error_bound must be a positive finite number"):
        encode(torch.ones(3), bound)


def test_what_cannot_be_packed_is_refused_with_a_sentence():
    for seed in ("1", 1.0, True):
        with pytest.raises(TypeError, match="seed must be a whole number"):
            encode(torch.ones(3), 0.1, seed=seed)
    with pytest.raises(TypeError, match="only dense tensors"):
        encode(torch.ones(3).to_sparse(), 0.1)


def sealed(data: bytes) -> bytes:
    """The data with a right checksum, so that the checks behind it are reached."""
    return data + struct.pack("<I", zlib.crc32(data))


SAMPLE = encode(torch.randn(300, generator=torch.Generator().manual_seed(0)).relu(), 0.1).to_bytes()


@calm
@given(st.data())
def test_damaged_bytes_raise(data):
    place = data.draw(st.integers(0, len(SAMPLE) - 1))
    flipped = bytes([SAMPLE[place] ^ data.draw(st.integers(1, 255))])
    with pytest.raises(CorruptPacked):
        Packed.from_bytes(SAMPLE[:place] + flipped + SAMPLE[place + 1 :])
    with pytest.raises(CorruptPacked):
        Packed.from_bytes(SAMPLE[:place])


@calm
@given(st.lists(st.tuples(st.integers(0, len(SAMPLE) - 5), st.integers(0, 255)), min_size=1, max_size=4), st.integers(0, 8))
def test_forged_bytes_with_a_right_checksum_raise_or_decode_within_their_size(changes, cut):
    forged = bytearray(SAMPLE[: -4 - cut])
    for place, value in changes:
        forged[min(place, len(forged) - 1)] = value
    try:
        packed = Packed.from_bytes(sealed(bytes(forged)))
    except CorruptPacked:
        return
    assert decode(packed).untyped_storage().nbytes() <= 4 * 256 * len(forged)


@calm
@given(st.binary(max_size=200))
def test_any_bytes_raise(data):
    for attempt in (data, b"kmpk\x03" + data):
        with pytest.raises(CorruptPacked):
            Packed.from_bytes(attempt)


def test_a_huge_shape_is_refused_before_anything_is_allocated():
    head = struct.pack("<4sBBBBd5Q", b"kmpk", 3, 1, 1, 1, 0.1, 1 << 50, 1 << 50, 1 << 45, 0, 0) + struct.pack("<qq", 1 << 50, 1)
    with pytest.raises(CorruptPacked, match="the sections need"):
        Packed.from_bytes(sealed(head))
