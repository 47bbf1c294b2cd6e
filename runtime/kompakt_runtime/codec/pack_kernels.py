"""The Triton kernel that packs in one pass; `one_pass.py` launches it, `one_pass_layout.py` says what lies where.

A lane packs its own elements: none ever travels to another. A tile finds out how many bits it needs, takes room by adding to
one counter, and writes; nothing is read twice and nothing is kept elsewhere.
"""

# ruff: noqa: PIE808, RUF005, SIM108
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, assignment"
# An `if` over a constexpr takes one branch at compile time; an expression would compile both.
# Arguments of kernels have no Python types, and tuples grow.
import triton
import triton.language as tl

from kompakt_runtime.codec.one_pass_layout import CROWDED, HEAD, LANES, PAIRS, RAW
from kompakt_runtime.codec.scales import MOST_BITS
from kompakt_runtime.codec.word_kernels import (
    BOTH,
    HIGH,
    SIGNS,
    copy_rest,
    largest_of,
    magnitude_of,
    nonzero_of,
    outside_of,
    put_four,
    put_two,
    read_tile,
    signs_of,
    write_raw,
)

LANES_ = tl.constexpr(LANES)
PAIRS_ = tl.constexpr(PAIRS)
HEAD_ = tl.constexpr(HEAD)
RAW_ = tl.constexpr(RAW)
CROWDED_ = tl.constexpr(CROWDED)
MOST_BITS_ = tl.constexpr(MOST_BITS)
CHUNKS_ = tl.constexpr((MOST_BITS + 1) // 2)


@triton.jit
def _fixed(magnitude, inverse, KIND: tl.constexpr):
    """The quotient plus 2^15 + 1, as bits. For 16-bit types the product is exact: fused or not, it is the same number."""
    if KIND == 0:
        value = magnitude * inverse + 32769.0
    else:
        value = tl.fma(magnitude, inverse, 32769.0)
    return value.to(tl.int32, bitcast=True)


@triton.jit
def _coded(words, i: tl.constexpr, inverse, bits, magnitudes, signs, KIND: tl.constexpr):
    """Codes of a pair: magnitude in the low `bits` bits of each half (`magnitudes`: ones there in the lower half only), then
    the sign if `signs` lets it through."""
    low = _fixed(magnitude_of(words, i, 0, KIND), inverse, KIND)
    high = _fixed(magnitude_of(words, i, 1, KIND), inverse, KIND)
    both = ((low >> 8) & 0xFFFF) | ((high << 8) & HIGH)
    # A product, not a sum: what NaN leaves in one half must not carry into the other.
    return (both & (nonzero_of(words, i, KIND) * magnitudes)) | ((signs_of(words, i, KIND) >> (15 - bits)) & signs)


@triton.jit
def _sampled(words, KIND: tl.constexpr):
    """Of each lane the largest of 16 elements that lie at every place modulo eight."""
    most = largest_of(words, 0, KIND)
    for i in tl.static_range(1, 8):
        most = tl.maximum(most, largest_of(words, 4 * i + i % 4, KIND))
    return most


@triton.jit
def _enough_bits(most, scales):
    """The fewest magnitude bits with which at most CROWDED lanes have a sampled number without a code; MOST_BITS + 1: none."""
    low = tl.full([], 1, tl.int32)
    high = tl.full([], MOST_BITS_ + 1, tl.int32)
    for _ in tl.static_range(4):
        middle = (low + high) >> 1
        crowded = tl.sum((most >= tl.load(scales + middle * 4)).to(tl.int32), 0)
        high = tl.where(crowded <= CROWDED_, middle, high)
        low = tl.where(crowded <= CROWDED_, low, middle + 1)
    return high


@triton.jit
def _counted(mask):
    """Bits set in each word."""
    mask = mask - ((mask >> 1) & 0x55555555)
    mask = (mask & 0x33333333) + ((mask >> 2) & 0x33333333)
    mask = (mask + (mask >> 4)) & 0x0F0F0F0F
    mask = mask + (mask >> 8)
    return (mask + (mask >> 16)) & 0x3F


@triton.jit
def _pack_group(codes, GROUP: tl.constexpr, WIDTH: tl.constexpr):
    """16 words of two codes -> WIDTH words; a code may lie across two words, each half by itself."""
    found = ()
    filled = codes[16 * GROUP]
    for i in tl.static_range(1, 16):
        code = codes[16 * GROUP + i]
        if (i * WIDTH) % 16 == 0:
            found = found + (filled,)
            filled = code
        elif (i * WIDTH) % 16 + WIDTH <= 16:
            filled = filled | (code << ((i * WIDTH) % 16))
        else:
            low = code & (((1 << (16 - (i * WIDTH) % 16)) - 1) * 0x00010001)
            found = found + (filled | (low << ((i * WIDTH) % 16)),)
            filled = (code >> (16 - (i * WIDTH) % 16)) & (((1 << ((i * WIDTH) % 16 + WIDTH - 16)) - 1) * 0x00010001)
    return found + (filled,)


@triton.jit
def _arranged(codes, WIDTH: tl.constexpr):
    """What a lane writes at this width: its whole chunks of four words, filled up with what is never stored, and then the two
    words of half a chunk."""
    packed = _pack_group(codes, 0, WIDTH) + _pack_group(codes, 1, WIDTH)
    found = ()
    for k in tl.static_range(4 * CHUNKS_):
        if k < WIDTH // 2 * 4:
            found = found + (packed[k],)
        else:
            found = found + (codes[k],)
    return found + (packed[2 * WIDTH - 2], packed[2 * WIDTH - 1])


@triton.jit
def _arranged_any(codes, width, FEWEST: tl.constexpr, WIDEST: tl.constexpr):
    if FEWEST == WIDEST:
        words = _arranged(codes, FEWEST)
    elif width <= (FEWEST + WIDEST) // 2:
        words = _arranged_any(codes, width, FEWEST, (FEWEST + WIDEST) // 2)
    else:
        words = _arranged_any(codes, width, (FEWEST + WIDEST) // 2 + 1, WIDEST)
    return words


@triton.jit
def _write_codes(out, place, codes, width, FEWEST: tl.constexpr, WIDEST: tl.constexpr):
    """One store for each chunk, whatever the width: the compiler's time grows with the square of how many there are."""
    words = _arranged_any(codes, width, FEWEST, WIDEST)
    for k in tl.static_range(CHUNKS_):
        put_four(out, place + k * 128, words[4 * k], words[4 * k + 1], words[4 * k + 2], words[4 * k + 3], k < width >> 1)
    put_two(out, place + (width >> 1) * 128, words[4 * CHUNKS_], words[4 * CHUNKS_ + 1], (width & 1) == 1)


@triton.jit
def _places(words, first_outside, KIND: tl.constexpr):
    """Of each lane two masks: which low and which high halves have no code."""
    low = tl.zeros([LANES_], tl.int32)
    high = tl.zeros([LANES_], tl.int32)
    for i in tl.static_range(PAIRS_):
        outside = outside_of(words, i, first_outside, KIND)
        low = low | (((outside >> 15) & 1) << i)
        high = high | (((outside >> 31) & 1) << i)
    return low, high


@triton.jit
def _write_patches(x, base, out, place, low, high, counts, KIND: tl.constexpr):
    """Elements without a code as they are, each lane's one after another: place and bits in one word, for float32 in two."""
    entry = tl.cumsum(counts, 0) - counts
    lane = tl.arange(0, LANES_)
    for _ in range(0, tl.max(counts, 0)):
        upper = (low == 0).to(tl.int32)
        mask = tl.where(low == 0, high, low)
        bit = mask & (0 - mask)
        index = ((bit.to(tl.uint32, bitcast=True).to(tl.float32).to(tl.int32, bitcast=True) >> 23) & 255) - 127
        some = mask != 0
        if KIND == 0:
            element = (index >> 1) * 128 + lane * 4 + (index & 1) * 2 + upper
            value = tl.load(x + base + element, mask=some, other=0)
            tl.store(out + place + entry * 2, element, mask=some)
            tl.store(out + place + entry * 2 + 1, value, mask=some)
        else:
            element = (index >> 2) * 256 + lane * 8 + (index & 3) * 2 + upper
            value = (tl.load(x + base + (element >> 1), mask=some, other=0) >> (upper * 16)) & 0xFFFF
            tl.store(out + place + entry, (element << 16) | value, mask=some)
        entry = entry + some.to(tl.int32)
        low = low & ~tl.where(upper == 0, bit, 0)
        high = high & ~tl.where(upper == 1, bit, 0)


@triton.jit(do_not_specialize=["tiles", "rest_count", "programs", "capacity"])
def pack_tiles(
    x, scales, out, rest, rest_out, tiles, rest_count, programs, start, capacity,
    KIND: tl.constexpr, FEWEST: tl.constexpr, WIDEST: tl.constexpr,
):  # fmt: skip
    """start: word of `out` where packed tiles begin, a multiple of 4; FEWEST, WIDEST: widths there are, sign included."""
    program = tl.program_id(0)
    if program == 0:
        copy_rest(rest, rest_out, rest_count)
    for tile in range(program, tiles, programs):
        number = tl.zeros([], tl.int64) + tile
        base = number * (2048 if KIND == 0 else 1024)
        words = read_tile(x, base, KIND)
        bits = _enough_bits(_sampled(words, KIND), scales)
        first_outside = tl.load(scales + bits * 4)
        inverse = tl.load(scales + bits * 4 + 1).to(tl.float32, bitcast=True)
        outside = outside_of(words, 0, first_outside, KIND)
        negative = signs_of(words, 0, KIND)
        for i in tl.static_range(1, PAIRS_):
            outside = outside | outside_of(words, i, first_outside, KIND)
            negative = negative | signs_of(words, i, KIND)
        seen = tl.sum(((negative & SIGNS) != 0).to(tl.int32) + (((outside & SIGNS) != 0).to(tl.int32) << 8), 0)
        signed = ((seen & 255) > 0).to(tl.int32)
        width = bits + signed
        low = tl.zeros([LANES_], tl.int32)
        high = tl.zeros([LANES_], tl.int32)
        missed = tl.full([], 0, tl.int32)
        if seen > 255:
            low, high = _places(words, first_outside, KIND)
            missed = tl.sum(_counted(low) + _counted(high), 0)
        units = width * 16 + (((missed * (2 if KIND == 0 else 1)) + 3) >> 2)
        whole = 512 if KIND == 0 else 256
        raw = (bits > MOST_BITS_) | (units >= whole)
        units = tl.where(raw, whole, units)
        offset = tl.atomic_add(out, units, sem="relaxed")
        if missed > 0:
            tl.atomic_add(out + 1, tl.where(raw, 0, missed), sem="relaxed")
        entry = out + HEAD_ + 2 * tile
        tl.store(entry, offset)
        tl.store(entry + 1, tl.where(raw, RAW_, width | (signed << 5) | (missed << 12)))
        place = start + offset.to(tl.int64) * 4
        if offset + units <= capacity:
            if raw:
                write_raw(out, place, words, KIND)
            else:
                magnitudes = (1 << bits) - 1
                signs = (signed * BOTH) << bits
                codes = ()
                for i in tl.static_range(PAIRS_):
                    codes = codes + (_coded(words, i, inverse, bits, magnitudes, signs, KIND),)
                _write_codes(out, place, codes, width, FEWEST, WIDEST)
                if missed > 0:
                    counts = _counted(low) + _counted(high)
                    _write_patches(x, base, out, place + width * 64, low, high, counts, KIND)
