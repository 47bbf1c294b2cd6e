"""What the codec makes of ordinary and of awkward tensors; test_codec_bounds.py holds its promises for all values."""

import math
import struct
import zlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kompakt_runtime.codec import CorruptPacked, Packed, decode, encode
from kompakt_runtime.codec.select import SMALLEST
from tests.support.runtime.tensors import SHORT, bits_of, normal, same_bits


@pytest.mark.parametrize("bound", [0.3, 0.05, 0.01])
@pytest.mark.parametrize("dtype", SHORT)
def test_sixteen_bit_types_need_no_outliers_on_ordinary_data(dtype, bound):
    assert encode(normal(50_000, dtype=dtype), bound).outliers == 0


def test_outliers_are_exact_and_counted():
    x = torch.ones(1000)
    x[[3, 7, 500, 999]] = torch.tensor([math.nan, 3e38, math.inf, -math.inf])
    packed = encode(x, 0.01)
    assert packed.outliers == 4
    assert torch.equal(bits_of(decode(packed))[[3, 7, 500, 999]], bits_of(x)[[3, 7, 500, 999]])


def test_half_normal_data_needs_at_most_4_6_bits_an_element():
    assert encode(normal(1 << 20).relu(), 0.1).nbytes * 8 / (1 << 20) <= 4.6


def test_packing_that_would_not_help_stores_the_tensor_as_it_is():
    x = normal(10_000)
    packed = encode(x, 1e-9)
    assert packed.raw
    assert same_bits(decode(packed), x)
    assert packed.nbytes <= x.numel() * 4 + 128


def test_a_part_that_would_grow_makes_the_whole_plain_only_if_the_whole_does_not_gain():
    size = 1 << SMALLEST
    x = torch.zeros(2 * size + 5)
    x[:size] = normal(size) * 1e6
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
    back = decode(Packed.from_bytes(encode(x, 0.05).to_bytes()))
    assert (back.shape, back.stride(), back.dtype) == (x.shape, x.stride(), x.dtype)
    assert x.numel() == 0 or (back - x).abs().max() <= 0.05


def test_an_expanded_tensor_is_stored_once():
    assert encode(torch.randn(7, 1, 9).expand(7, 1000, 9), 1e-9).nbytes < 7 * 9 * 4 + 128


def test_overlapping_and_sparse_views_come_back_dense():
    windows = torch.randn(100).unfold(0, 10, 1)
    assert (decode(encode(windows, 0.01)) - windows).abs().max() <= 0.01
    gaps = torch.randn(100, 100)[:, ::50]
    assert decode(encode(gaps, 0.01)).stride() == (2, 1)


COMPLEX = torch.randn(5, dtype=torch.complex64)
NAMES = ["integers", "booleans", "complex numbers", "their conjugates"]


@pytest.mark.parametrize("x", [torch.arange(10), torch.tensor([True, False]), COMPLEX, COMPLEX.conj()], ids=NAMES)
def test_other_types_are_stored_as_they_are(x):
    packed = encode(x, 1.0)
    assert packed.raw
    assert torch.equal(decode(packed), x)


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


@given(st.binary(max_size=200))
def test_any_bytes_raise(data):
    for attempt in (data, b"kmpk\x03" + data):
        with pytest.raises(CorruptPacked):
            Packed.from_bytes(attempt)


def test_a_huge_shape_is_refused_before_anything_is_allocated():
    head = struct.pack("<4sBBBBd5Q", b"kmpk", 3, 1, 1, 1, 0.1, 1 << 50, 1 << 50, 1 << 45, 0, 0) + struct.pack("<qq", 1 << 50, 1)
    with pytest.raises(CorruptPacked, match="the sections need"):
        Packed.from_bytes(head + struct.pack("<I", zlib.crc32(head)))
