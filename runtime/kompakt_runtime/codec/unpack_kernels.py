"""The Triton kernel that unpacks what `pack_kernels.py` wrote, all tiles or some of them."""

# ruff: noqa: RUF005, SIM108
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, assignment"
# An `if` over a constexpr takes one branch at compile time; an expression would compile both.
# Arguments of kernels have no Python types, and tuples grow.
import triton
import triton.language as tl

from kompakt_runtime.codec.one_pass_layout import HEAD, LANES, PAIRS, RAW
from kompakt_runtime.codec.word_kernels import HIGH, SIGNS, copy_rest, four, read_tile, write_raw

LANES_ = tl.constexpr(LANES)
PAIRS_ = tl.constexpr(PAIRS)
HEAD_ = tl.constexpr(HEAD)
RAW_ = tl.constexpr(RAW)
FIXED = tl.constexpr(0x47000000)  # 2^15 as float32


@triton.jit
def _unpack_group(words, GROUP: tl.constexpr, WIDTH: tl.constexpr):
    """The reverse of `_pack_group`."""
    found = ()
    for i in tl.static_range(16):
        code = words[GROUP * WIDTH + (i * WIDTH) // 16] >> ((i * WIDTH) % 16)
        if (i * WIDTH) % 16 + WIDTH <= 16:
            code = code & (((1 << WIDTH) - 1) * 0x00010001)
        else:
            after = words[GROUP * WIDTH + (i * WIDTH) // 16 + 1] & (((1 << ((i * WIDTH) % 16 + WIDTH - 16)) - 1) * 0x00010001)
            code = (code & (((1 << (16 - (i * WIDTH) % 16)) - 1) * 0x00010001)) | (after << (16 - (i * WIDTH) % 16))
        found = found + (code,)
    return found


@triton.jit
def _read_codes(packed, place, WIDTH: tl.constexpr):
    words = ()
    for k in tl.static_range(WIDTH // 2):
        words = words + four(packed, place + k * 128)
    if WIDTH % 2 == 1:
        lane = tl.arange(0, LANES_)[:, None]
        words = words + tl.split(tl.load(packed + place + (WIDTH // 2) * 128 + lane * 2 + tl.arange(0, 2)[None, :]))
    return _unpack_group(words, 0, WIDTH) + _unpack_group(words, 1, WIDTH)


@triton.jit
def _read_any(packed, place, width, FEWEST: tl.constexpr, WIDEST: tl.constexpr):
    """The codes of a tile of any width there is; only this differs between widths, since the compiler's time grows with the
    square of what is there for each."""
    if FEWEST == WIDEST:
        codes = _read_codes(packed, place, FEWEST)
    elif width <= (FEWEST + WIDEST) // 2:
        codes = _read_any(packed, place, width, FEWEST, (FEWEST + WIDEST) // 2)
    else:
        codes = _read_any(packed, place, width, (FEWEST + WIDEST) // 2 + 1, WIDEST)
    return codes


@triton.jit
def _middle(fixed, step):
    """The middle of a bin, as float32, 0 for code 0; `fixed`: bits of 2^15 plus the code."""
    value = fixed.to(tl.float32, bitcast=True) - 32768.5
    return tl.maximum(value, 0.0) * step


@triton.jit
def _restored(code, step, bits, magnitudes, signs, KIND: tl.constexpr):
    """A pair of codes -> the words of its elements: one word of 16-bit types (twice, for one type of answer), two of float32.
    magnitudes: ones where a code's magnitude lies once it is moved to bit 8."""
    sign = (code << (15 - bits)) & signs
    low = _middle(((code << 8) & magnitudes) | FIXED, step)
    high = _middle(((code >> 8) & magnitudes) | FIXED, step)
    if KIND == 0:
        first = low.to(tl.int32, bitcast=True) | ((sign << 16) & (SIGNS & HIGH))
        second = high.to(tl.int32, bitcast=True) | (sign & (SIGNS & HIGH))
    else:
        if KIND == 1:
            left = low.to(tl.float16).to(tl.int16, bitcast=True).to(tl.int32)
            right = high.to(tl.float16).to(tl.int16, bitcast=True).to(tl.int32)
            first = (left & 0xFFFF) | (right << 16) | sign
        else:
            left = low.to(tl.int32, bitcast=True) + 0x8000
            right = high.to(tl.int32, bitcast=True) + 0x8000
            first = ((left >> 16) & 0xFFFF) | (right & HIGH) | sign
        second = first
    return first, second


@triton.jit
def _write_tile(x, base, codes, step, bits, magnitudes, signs, KIND: tl.constexpr):
    words = ()
    for i in tl.static_range(PAIRS_):
        first, second = _restored(codes[i], step, bits, magnitudes, signs, KIND)
        if KIND == 0:
            words = words + (first, second)
        else:
            words = words + (first,)
    write_raw(x, base, words, KIND)


@triton.jit
def _apply_patches(elements, first, packed, place, count, KIND: tl.constexpr):
    """elements: pointer to single elements' bits; first: number of the tile's first."""
    for start in range(0, count, LANES_):
        index = start + tl.arange(0, LANES_)
        if KIND == 0:
            where = tl.load(packed + place + index * 2, mask=index < count, other=0)
            value = tl.load(packed + place + index * 2 + 1, mask=index < count, other=0)
        else:
            both = tl.load(packed + place + index, mask=index < count, other=0)
            where = (both >> 16) & 0x7FF
            value = both
        tl.store(elements + first + where, value.to(elements.dtype.element_ty), mask=index < count)


@triton.jit(do_not_specialize=["tiles", "rest_count", "programs", "first"])
def unpack_tiles(
    x, elements, scales, packed, rest, rest_out, tiles, rest_count, programs, first, start,
    KIND: tl.constexpr, FEWEST: tl.constexpr, WIDEST: tl.constexpr,
):  # fmt: skip
    """x: words of the result; elements: the same memory, an element at a time; rest: the elements kept as they are; first: the
    tile that `x` begins with, of which and its followers `tiles` are unpacked."""
    program = tl.program_id(0)
    if program == 0:
        copy_rest(rest, rest_out, rest_count)
    for tile in range(program, tiles, programs):
        number = tl.zeros([], tl.int64) + tile
        base = number * (2048 if KIND == 0 else 1024)
        entry = packed + HEAD_ + 2 * (first + tile)
        place = start + tl.load(entry).to(tl.int64) * 4
        about = tl.load(entry + 1)
        width = about & 31
        signed = (about >> 5) & 1
        bits = width - signed
        if width == RAW_:
            write_raw(x, base, read_tile(packed, place, KIND), KIND)
        else:
            step = tl.load(scales + bits * 4 + 2).to(tl.float32, bitcast=True)
            magnitudes = ((1 << bits) - 1) << 8
            signs = (0 - signed) & SIGNS
            codes = _read_any(packed, place, width, FEWEST, WIDEST)
            _write_tile(x, base, codes, step, bits, magnitudes, signs, KIND)
            missed = about >> 12
            if missed > 0:
                tl.debug_barrier()
                _apply_patches(elements, number * 2048, packed, place + width * 64, missed, KIND)
