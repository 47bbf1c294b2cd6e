"""Triton functions that move a tile's words between memory and lanes and look at the elements in them.

Each of 32 lanes holds 64 elements as 32 words of two 16-bit halves, or 64 words of float32. Loads and stores are 16 bytes a lane.
KIND: 0 float32, 1 float16, 2 bfloat16; elements travel as bit patterns.
"""

# ruff: noqa: SIM108
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
# An `if` over a constexpr takes one branch at compile time; an expression would compile both.
# Arguments of kernels have no Python types.
import triton
import triton.language as tl

from kompakt_runtime.codec.one_pass_layout import LANES

LANES_ = tl.constexpr(LANES)
BOTH = tl.constexpr(0x00010001)  # the lowest bit of both halves
SIGNS = tl.constexpr(0x80008000 - (1 << 32))
MAGNITUDES = tl.constexpr(0x7FFF7FFF)
HIGH = tl.constexpr(0xFFFF0000 - (1 << 32))


@triton.jit
def four(words, place):
    """Four neighbouring words of each lane, by one 16-byte load."""
    lane = tl.arange(0, LANES_)[:, None]
    quad = tl.load(words + place + lane * 4 + tl.arange(0, 4)[None, :])
    even, odd = tl.split(tl.reshape(quad, [LANES_, 2, 2]))
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth


@triton.jit
def put_four(words, place, first, second, third, fourth, some):
    """some: whether anything is written, the same for all lanes."""
    lane = tl.arange(0, LANES_)[:, None]
    quad = tl.reshape(tl.join(tl.join(first, third), tl.join(second, fourth)), [LANES_, 4])
    tl.store(words + place + lane * 4 + tl.arange(0, 4)[None, :], quad, mask=tl.full([LANES_, 4], 1, tl.int1) & some)


@triton.jit
def put_two(words, place, first, second, some):
    lane = tl.arange(0, LANES_)[:, None]
    pair = tl.join(first, second)
    tl.store(words + place + lane * 2 + tl.arange(0, 2)[None, :], pair, mask=tl.full([LANES_, 2], 1, tl.int1) & some)


@triton.jit
def read_tile(x, base, KIND: tl.constexpr):
    """All words of a tile: PAIRS tensors for 16-bit types, twice as many for float32."""
    found = ()
    for chunk in tl.static_range(16 if KIND == 0 else 8):
        found = found + four(x, base + chunk * 128)
    return found


@triton.jit
def signs_of(words, i: tl.constexpr, KIND: tl.constexpr):
    """Of pair i: its sign bits in bits 15 and 31; for 16-bit types the other bits mean nothing."""
    if KIND == 0:
        return ((words[2 * i] >> 16) & 0x8000) | (words[2 * i + 1] & (SIGNS & HIGH))
    return words[i]


@triton.jit
def nonzero_of(words, i: tl.constexpr, KIND: tl.constexpr):
    """1 in each half whose element is not zero."""
    if KIND == 0:
        return tl.minimum(words[2 * i] & 0x7FFFFFFF, 1) | (tl.minimum(words[2 * i + 1] & 0x7FFFFFFF, 1) << 16)
    return (((words[i] & MAGNITUDES) + MAGNITUDES) >> 15) & BOTH


@triton.jit
def outside_of(words, i: tl.constexpr, first_outside, KIND: tl.constexpr):
    """Bits 15 and 31 tell which elements have no code; the other bits mean nothing."""
    if KIND == 0:
        low = (first_outside - 1) - (words[2 * i] & 0x7FFFFFFF)
        return ((low >> 16) & 0x8000) | (((first_outside - 1) - (words[2 * i + 1] & 0x7FFFFFFF)) & (SIGNS & HIGH))
    return (words[i] & MAGNITUDES) + (0x8000 - first_outside) * BOTH


@triton.jit
def largest_of(words, i: tl.constexpr, KIND: tl.constexpr):
    """The larger bit pattern of a pair, without the sign."""
    if KIND == 0:
        return tl.maximum(words[2 * i] & 0x7FFFFFFF, words[2 * i + 1] & 0x7FFFFFFF)
    return tl.maximum(words[i] & 0x7FFF, (words[i] >> 16) & 0x7FFF)


@triton.jit
def magnitude_of(words, i: tl.constexpr, HALF: tl.constexpr, KIND: tl.constexpr):
    """One element of a pair as float32."""
    if KIND == 0:
        bits = words[2 * i + HALF] & 0x7FFFFFFF
        return bits.to(tl.float32, bitcast=True)
    if KIND == 1:
        bits = (words[i] >> (16 * HALF)) & 0x7FFF
        return bits.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    if HALF == 0:
        bits = (words[i] & 0x7FFF) << 16
    else:
        bits = words[i] & 0x7FFF0000
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def write_raw(out, place, words, KIND: tl.constexpr):
    for k in tl.static_range(16 if KIND == 0 else 8):
        put_four(out, place + k * 128, words[4 * k], words[4 * k + 1], words[4 * k + 2], words[4 * k + 3], True)


@triton.jit
def copy_rest(rest, out, count):
    """The elements after the last whole tile, as they are."""
    for start in range(0, count, 256):
        index = start + tl.arange(0, 256)
        tl.store(out + index, tl.load(rest + index, mask=index < count, other=0), mask=index < count)
