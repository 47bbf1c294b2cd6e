"""Triton kernels that write and read the bytes of `tiles.py`; `kernels.py` launches them.

A program works through whole tiles, one after another, with 8 KiB of scratch of its own: elements go in by their rank
among the tile's nonzero ones and come out block by block. No two programs write the same place and nothing is added
up by atomics, so the order of programs does not show. Sizes come from a first run that only counts; the second run
computes the same again and writes (reading twice is cheaper than keeping codes of four bytes an element).

How elements become codes: `number_kernels.py`.
"""

# ruff: noqa: SIM108, PIE808
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
# An `if` over a constexpr takes one branch at compile time; an expression would compile both. Triton's range has a start.
# Arguments of kernels have no Python types.
import triton
import triton.language as tl

from kompakt_runtime.codec.number_kernels import coded, magnitudes, restored
from kompakt_runtime.codec.tiles import BLOCK, COUNT, TILE, WORDS_AT

# Numbers that differ from tensor to tensor: the compiler must not make a kernel for each.
NEIGHBOURS = ["edge", "below", "size0", "size1", "size2", "size3"]  # of short.Bins
CHANGING = [
    "elements", "tiles", "programs", "first", "first_key", "second_key", *NEIGHBOURS,
    "blocks_room", "words_room", "outliers_room",
]  # fmt: skip
FEW = 128  # outliers a program puts in their places at once
TILE_ = tl.constexpr(TILE)
BLOCK_ = tl.constexpr(BLOCK)
BLOCKS = tl.constexpr(TILE // BLOCK)
BYTES = tl.constexpr(TILE // 8)
WORDS_AT_ = tl.constexpr(WORDS_AT)
COUNT_ = tl.constexpr(COUNT)
FEW_ = tl.constexpr(FEW)


@triton.jit
def _by_rank(own, rank, nonzero, stored, count):
    """What the nonzero elements store, gathered to the front: [BLOCKS, BLOCK] by way of the program's scratch."""
    tl.debug_barrier()  # the tile before is read to its end
    tl.store(own + rank, stored, mask=nonzero)
    tl.debug_barrier()
    slot = tl.arange(0, BLOCKS)[:, None] * BLOCK_ + tl.arange(0, BLOCK_)[None, :]
    return tl.load(own + slot, mask=slot < count, other=0)


@triton.jit
def _planes(stored):
    """Of gathered codes: magnitudes, each block's width in bits, and its signs as one word."""
    codes = stored & 0xFFFFFF
    signs = tl.sum((stored >> 24) << tl.arange(0, BLOCK_)[None, :], 1)
    largest = tl.max(codes, 1)
    width = tl.where(largest > 0, (largest.to(tl.float32).to(tl.int32, bitcast=True) >> 23) - 126, 0)
    return codes, width, signs


@triton.jit
def _write_bitmap(bitmap, row, taken, elements):
    byte = tl.sum(tl.reshape(taken, [BYTES, 8]) << tl.arange(0, 8)[None, :], 1)
    place = row * BYTES + tl.arange(0, BYTES)
    tl.store(bitmap + place, byte.to(tl.uint8), mask=place * 8 < elements)


@triton.jit
def _write_blocks(heads, words, block_start, word_start, count, codes, width, signs, blocks_room, words_room):
    """Each block's head (width, and whether signs follow), then its bit planes and signs."""
    block = tl.arange(0, BLOCKS)
    signed = (signs != 0).to(tl.int32)
    inside = (block * BLOCK_ < count) & (block_start + block < blocks_room)
    tl.store(heads + block_start + block, (width | (signed << 7)).to(tl.uint8), mask=inside)
    planes = width + signed
    start = word_start + tl.cumsum(planes, 0) - planes
    for plane in range(0, tl.max(width, 0)):
        word = tl.sum(((codes >> plane) & 1) << tl.arange(0, BLOCK_)[None, :], 1)
        tl.store(words + start + plane, word, mask=(plane < width) & (start + plane < words_room))
    tl.store(words + start + width, signs, mask=(signed > 0) & (start + width < words_room))


@triton.jit
def _write_outliers(places, kept, start, rank, bits, outside, outliers_room):
    """Places among the nonzero elements, `rank`, and bit patterns, in the order of elements from entry `start`."""
    missing = outside.to(tl.int32)
    entry = start + tl.cumsum(missing, 0) - missing
    fits = outside & (entry < outliers_room)
    tl.store(places + entry, rank, mask=fits)
    tl.store(kept + entry, bits.to(kept.dtype.element_ty), mask=fits)


@triton.jit(do_not_specialize=CHANGING)
def encode_tiles(
    x, scratch, bitmap, table, missed, block_starts, word_starts, outlier_starts, heads, words, places, kept,
    elements, tiles, programs, first, bound, step, inverse, smallest, first_key, second_key,
    edge, below, size0, size1, size2, size3, blocks_room, words_room, outliers_room,
    KIND: tl.constexpr, STOCHASTIC: tl.constexpr, WRITE: tl.constexpr,
):  # fmt: skip
    """WRITE 0: bitmap, table and outliers of each tile; 1: heads, words, places and kept, at the given starts."""
    program = tl.program_id(0)
    own = scratch + program.to(tl.int64) * TILE_
    for tile in range(program, tiles, programs):
        row = tl.zeros([], tl.int64) + tile
        number = row * TILE_ + tl.arange(0, TILE_)
        bits = tl.load(x + number, mask=number < elements, other=0).to(tl.int32)
        value = magnitudes(bits, KIND)
        magnitude = tl.abs(value)
        nonzero = value != 0
        taken = nonzero.to(tl.int32)
        rank = tl.cumsum(taken, 0) - taken
        count = tl.sum(taken, 0)
        code, inside = coded(
            bits, magnitude, number + first, bound, step, inverse, smallest, first_key, second_key,
            edge, below, size0, size1, size2, size3, KIND, STOCHASTIC,
        )  # fmt: skip
        outside = nonzero & (inside == 0)
        whole = tl.where(inside & nonzero, code, 0.0).to(tl.int32)
        stored = _by_rank(own, rank, nonzero, whole | ((value < 0).to(tl.int32) << 24), count)
        codes, width, signs = _planes(stored)
        if WRITE == 0:
            _write_bitmap(bitmap, row, taken, elements)
            planes = tl.sum(width + (signs != 0).to(tl.int32), 0)
            tl.store(table + tile, count | (planes << WORDS_AT_))
            tl.store(missed + tile, tl.sum(outside.to(tl.int32), 0))
        else:
            block_start, word_start = tl.load(block_starts + tile), tl.load(word_starts + tile)
            _write_blocks(heads, words, block_start, word_start, count, codes, width, signs, blocks_room, words_room)
            outlier_start = tl.load(outlier_starts + tile)
            _write_outliers(places, kept, outlier_start, block_start * BLOCK_ + rank, bits, outside, outliers_room)


@triton.jit
def _read_codes(heads, words, block_start, word_start, count):
    """Of one tile's blocks: codes [BLOCKS, BLOCK], and sign bits in the same places."""
    block = tl.arange(0, BLOCKS)
    bit = tl.arange(0, BLOCK_)[None, :]
    head = tl.load(heads + block_start + block, mask=block * BLOCK_ < count, other=0).to(tl.int32)
    width = head & 127
    signed = head >> 7
    planes = width + signed
    start = word_start + tl.cumsum(planes, 0) - planes
    codes = tl.zeros([BLOCKS, BLOCK_], tl.int32)
    for plane in range(0, tl.max(width, 0)):
        word = tl.load(words + start + plane, mask=plane < width, other=0)
        codes = codes | (((word[:, None] >> bit) & 1) << plane)
    signs = tl.load(words + start + width, mask=signed > 0, other=0)
    return codes, (signs[:, None] >> bit) & 1


@triton.jit
def _put_outliers(own, places, kept, start, last, base):
    """Exact bit patterns over those that stand for codes; `base`: the tile's first place."""
    for few in range(start, last, FEW_):
        index = few + tl.arange(0, FEW_)
        place = tl.load(places + index, mask=index < last, other=0) - base
        exact = tl.load(kept + index, mask=index < last, other=0).to(tl.int32)
        tl.store(own + place, exact, mask=index < last)


@triton.jit(do_not_specialize=["elements", "tiles", "programs", *NEIGHBOURS])
def decode_tiles(
    out, scratch, bitmap, table, block_starts, word_starts, outlier_starts, heads, words, places, kept,
    elements, tiles, programs, step, smallest, edge, below, size0, size1, size2, size3,
    KIND: tl.constexpr, STOCHASTIC: tl.constexpr, ZEROS: tl.constexpr,
):  # fmt: skip
    """Writes the elements' bit patterns. ZEROS 0: there is no bitmap."""
    program = tl.program_id(0)
    own = scratch + program.to(tl.int64) * TILE_
    lane = tl.arange(0, TILE_)
    slot = tl.arange(0, BLOCKS)[:, None] * BLOCK_ + tl.arange(0, BLOCK_)[None, :]
    for tile in range(program, tiles, programs):
        row = tl.load(table + tile)
        block_start = tl.load(block_starts + tile)
        codes, flip = _read_codes(heads, words, block_start, tl.load(word_starts + tile), row & COUNT_)
        bits = restored(codes.to(tl.float32), step, smallest, edge, below, size0, size1, size2, size3, KIND, STOCHASTIC)
        if KIND == 0:
            bits = bits | (flip << 31)
        else:
            bits = (bits & 0x7FFF) | (flip << 15)
        tl.debug_barrier()
        tl.store(own + slot, bits)
        tl.debug_barrier()
        start, last = tl.load(outlier_starts + tile), tl.load(outlier_starts + tile + 1)
        _put_outliers(own, places, kept, start, last, block_start * BLOCK_)
        tl.debug_barrier()
        number = (tl.zeros([], tl.int64) + tile) * TILE_ + lane
        if ZEROS:
            byte = tl.load(bitmap + (number >> 3), mask=number < elements, other=0).to(tl.int32)
            taken = (byte >> (lane & 7)) & 1
        else:
            taken = (number < elements).to(tl.int32)
        rank = tl.cumsum(taken, 0) - taken
        result = tl.load(own + rank, mask=taken > 0, other=0)
        tl.store(out + number, result.to(out.dtype.element_ty), mask=number < elements)
