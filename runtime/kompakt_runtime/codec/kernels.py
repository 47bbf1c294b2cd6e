"""The codec's twin for NVIDIA GPUs: the bytes of `tiles.py`, written by Triton kernels. Imported only where it is used.

A program works through whole tiles, one after another, with 8 KiB of scratch of its own: elements go in by their rank
among the tile's nonzero ones and come out block by block. No two programs write the same place and nothing is added
up by atomics, so the order of programs does not show. Sizes come from a first run that only counts; the second run
computes the same again and writes (reading twice is cheaper than keeping codes of four bytes an element).

Floating-point operations are those of `grid.py` in the same order, each rounded once: the kernels are compiled without
fusing multiplications and additions, and divide by `div_rn`.
"""

from typing import Any

import torch

# ruff: noqa: SIM108, PIE808
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
# An `if` over a constexpr takes one branch at compile time; an expression would compile both. Triton's range has a start.
# Arguments of kernels have no Python types.
import triton
import triton.language as tl

from kompakt_runtime.codec.grid import DRAW_BITS, WIDEST, Grid, keys
from kompakt_runtime.codec.tiles import BITS, BLOCK, COUNT, EXPONENT_AT, TILE, WORDS_AT, Part, Sizes

Tensor = Any

KINDS = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
PROGRAMS_A_PROCESSOR = 4
# Numbers that differ from tensor to tensor: the compiler must not make a kernel for each.
CHANGING = ["elements", "tiles", "programs", "first", "first_key", "second_key", "blocks_room", "words_room", "outliers_room"]
FEW = 128  # outliers a program puts in their places at once


@triton.jit
def _magnitudes(bits, KIND: tl.constexpr):
    """Bit patterns -> the numbers as float32."""
    if KIND == 0:
        return bits.to(tl.float32, bitcast=True)
    if KIND == 1:
        return bits.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    return (bits << 16).to(tl.float32, bitcast=True)


@triton.jit
def _restored(code, step, smallest, KIND: tl.constexpr, STOCHASTIC: tl.constexpr):
    """Codes (float32) -> the magnitudes they stand for, rounded into the tensor's type; as bit patterns and as float32."""
    if STOCHASTIC:
        value = code * step
    else:
        value = (code + 0.5) * step
    if KIND == 0:
        if STOCHASTIC:
            value = tl.maximum(value, smallest)
        bits = value.to(tl.int32, bitcast=True)
    elif KIND == 1:
        half = value.to(tl.float16)
        if STOCHASTIC:
            half = tl.maximum(half.to(tl.float32), smallest).to(tl.float16)
        bits = half.to(tl.int16, bitcast=True).to(tl.int32)
        value = half.to(tl.float32)
    else:
        # To nearest even by whole numbers: the interpreter's conversion cuts off instead.
        if STOCHASTIC:
            value = tl.maximum(value, smallest)
        bits = value.to(tl.int32, bitcast=True)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        value = (bits << 16).to(tl.float32, bitcast=True)
    return bits, value


@triton.jit
def _narrowed(exponent, bound, KIND: tl.constexpr):
    """grid.narrowed_steps for one tile."""
    if KIND == 1:
        power = tl.maximum(exponent, 113).to(tl.int64) - 127 - 10
    else:
        power = tl.maximum(exponent, 1).to(tl.int64) - 127 - 7
    spacing = ((power + 1023) << 52).to(tl.float64, bitcast=True)
    wide = (tl.zeros([], tl.float32) + bound).to(tl.float64)
    exact = 2 * wide - tl.minimum(spacing, wide)
    rounded = exact.to(tl.float32)
    over = (rounded.to(tl.float64) > exact).to(tl.int32)
    return (rounded.to(tl.int32, bitcast=True) - over).to(tl.float32, bitcast=True)


@triton.jit
def _mix(h):
    """grid.mix on uint32."""
    h = h ^ (h >> 16)
    h = h * 0x7FEB352D
    h = h ^ (h >> 15)
    h = h * 0x846CA68B
    return h ^ (h >> 16)


@triton.jit
def _draw(number, first_key, second_key):
    """grid.draw for element numbers (int64); the keys are int32 of the same bits."""
    low = (number & 0xFFFFFFFF).to(tl.uint32)
    high = (number >> 32).to(tl.uint32)
    mixed = _mix(_mix(low ^ first_key.to(tl.uint32, bitcast=True)) ^ high ^ second_key.to(tl.uint32, bitcast=True))
    return (mixed >> DRAW_SHIFT).to(tl.float32)


DRAW_SHIFT = tl.constexpr(32 - DRAW_BITS)
CODES = tl.constexpr(1 << WIDEST)
DRAWS = tl.constexpr(float(1 << DRAW_BITS))
TILE_ = tl.constexpr(TILE)
BLOCK_ = tl.constexpr(BLOCK)
BLOCKS = tl.constexpr(TILE // BLOCK)
BYTES = tl.constexpr(TILE // 8)
WORDS_AT_ = tl.constexpr(WORDS_AT)
EXPONENT_AT_ = tl.constexpr(EXPONENT_AT)
COUNT_ = tl.constexpr(COUNT)
FEW_ = tl.constexpr(FEW)


@triton.jit
def _within(back, magnitude, bound):
    """grid._within."""
    difference = back - magnitude
    shadow = difference - back
    error = (back - (difference - shadow)) - (magnitude + shadow)
    size = tl.abs(difference)
    outward = tl.where(difference >= 0, error, -error)
    return (size < bound) | ((size == bound) & (outward <= 0))


@triton.jit(do_not_specialize=CHANGING)
def encode_tiles(
    x, scratch, bitmap, table, missed, block_starts, word_starts, outlier_starts, heads, words, places, kept,
    elements, tiles, programs, first, bound, step, inverse, smallest, first_key, second_key,
    blocks_room, words_room, outliers_room,
    KIND: tl.constexpr, STOCHASTIC: tl.constexpr, WRITE: tl.constexpr,
):  # fmt: skip
    """WRITE 0: bitmap, table and outliers of each tile; 1: heads, words, places and kept, at the given starts."""
    program = tl.program_id(0)
    own = scratch + program.to(tl.int64) * TILE_
    lane = tl.arange(0, TILE_)
    slot = tl.arange(0, BLOCKS)[:, None] * BLOCK_ + tl.arange(0, BLOCK_)[None, :]
    for tile in range(program, tiles, programs):
        row = tl.zeros([], tl.int64) + tile
        number = row * TILE_ + lane
        bits = tl.load(x + number, mask=number < elements, other=0).to(tl.int32)
        value = _magnitudes(bits, KIND)
        magnitude = tl.abs(value)
        nonzero = value != 0
        taken = nonzero.to(tl.int32)
        rank = tl.cumsum(taken, 0) - taken
        count = tl.sum(taken, 0)
        exponent = tl.zeros([], tl.int32)
        if KIND == 0 or STOCHASTIC:
            own_step, own_inverse = step, inverse
        else:
            finite = tl.where(magnitude < float("inf"), magnitude, 0.0)
            exponent = tl.maximum(tl.max(finite, 0), bound).to(tl.int32, bitcast=True) >> 23
            own_step = _narrowed(exponent, bound, KIND)
            own_inverse = tl.div_rn(1.0, own_step)
        scaled = magnitude * own_inverse
        code = tl.floor(scaled)
        if STOCHASTIC:
            share = (scaled - code) * DRAWS
            code = tl.where(share > _draw(number + first, first_key, second_key), code + 1.0, code)
        _, back = _restored(code, own_step, smallest, KIND, STOCHASTIC)
        inside = _within(back, magnitude, bound) & (code < CODES) & (back > 0)
        outside = nonzero & (inside == 0)
        whole = tl.where(inside & nonzero, code, 0.0).to(tl.int32)
        tl.debug_barrier()  # the tile before is read to its end
        tl.store(own + rank, whole | ((value < 0).to(tl.int32) << 24), mask=nonzero)
        tl.debug_barrier()
        stored = tl.load(own + slot, mask=slot < count, other=0)
        codes = stored & 0xFFFFFF
        negative = stored >> 24
        bit = tl.arange(0, BLOCK_)[None, :]
        signs = tl.sum(negative << bit, 1)
        signed = (signs != 0).to(tl.int32)
        largest = tl.max(codes, 1)
        width = tl.where(largest > 0, (largest.to(tl.float32).to(tl.int32, bitcast=True) >> 23) - 126, 0)
        planes = width + signed
        missing = outside.to(tl.int32)
        if WRITE == 0:
            eights = tl.reshape(taken, [BYTES, 8])
            byte = tl.sum(eights << tl.arange(0, 8)[None, :], 1)
            place = row * BYTES + tl.arange(0, BYTES)
            tl.store(bitmap + place, byte.to(tl.uint8), mask=place * 8 < elements)
            tl.store(table + tile, count | (tl.sum(planes, 0) << WORDS_AT_) | (exponent << EXPONENT_AT_))
            tl.store(missed + tile, tl.sum(missing, 0))
        else:
            block = tl.arange(0, BLOCKS)
            block_start = tl.load(block_starts + tile)
            used = block * BLOCK_ < count
            tl.store(
                heads + block_start + block, (width | (signed << 7)).to(tl.uint8), mask=used & (block_start + block < blocks_room)
            )
            start = tl.load(word_starts + tile) + tl.cumsum(planes, 0) - planes
            for plane in range(0, tl.max(width, 0)):
                word = tl.sum(((codes >> plane) & 1) << bit, 1)
                tl.store(words + start + plane, word, mask=(plane < width) & (start + plane < words_room))
            tl.store(words + start + width, signs, mask=(signed > 0) & (start + width < words_room))
            entry = tl.load(outlier_starts + tile) + tl.cumsum(missing, 0) - missing
            fits = outside & (entry < outliers_room)
            tl.store(places + entry, block_start * BLOCK_ + rank, mask=fits)
            tl.store(kept + entry, bits.to(kept.dtype.element_ty), mask=fits)


@triton.jit(do_not_specialize=["elements", "tiles", "programs"])
def decode_tiles(
    out, scratch, bitmap, table, block_starts, word_starts, outlier_starts, heads, words, places, kept,
    elements, tiles, programs, bound, step, smallest,
    KIND: tl.constexpr, STOCHASTIC: tl.constexpr, ZEROS: tl.constexpr,
):  # fmt: skip
    """Writes the elements' bit patterns. ZEROS 0: there is no bitmap."""
    program = tl.program_id(0)
    own = scratch + program.to(tl.int64) * TILE_
    lane = tl.arange(0, TILE_)
    block = tl.arange(0, BLOCKS)
    slot = block[:, None] * BLOCK_ + tl.arange(0, BLOCK_)[None, :]
    bit = tl.arange(0, BLOCK_)[None, :]
    for tile in range(program, tiles, programs):
        row = tl.load(table + tile)
        count = row & COUNT_
        block_start = tl.load(block_starts + tile)
        head = tl.load(heads + block_start + block, mask=block * BLOCK_ < count, other=0).to(tl.int32)
        width = head & 127
        signed = head >> 7
        planes = width + signed
        start = tl.load(word_starts + tile) + tl.cumsum(planes, 0) - planes
        codes = tl.zeros([BLOCKS, BLOCK_], tl.int32)
        for plane in range(0, tl.max(width, 0)):
            word = tl.load(words + start + plane, mask=plane < width, other=0)
            codes = codes | (((word[:, None] >> bit) & 1) << plane)
        signs = tl.load(words + start + width, mask=signed > 0, other=0)
        if KIND == 0 or STOCHASTIC:
            own_step = step
        else:
            own_step = _narrowed(row >> EXPONENT_AT_, bound, KIND)
        bits, _ = _restored(codes.to(tl.float32), own_step, smallest, KIND, STOCHASTIC)
        flip = (signs[:, None] >> bit) & 1
        if KIND == 0:
            bits = bits | (flip << 31)
        else:
            bits = (bits & 0x7FFF) | (flip << 15)
        tl.debug_barrier()
        tl.store(own + slot, bits)
        tl.debug_barrier()
        last = tl.load(outlier_starts + tile + 1)
        for few in range(tl.load(outlier_starts + tile), last, FEW_):
            index = few + tl.arange(0, FEW_)
            place = tl.load(places + index, mask=index < last, other=0) - block_start * BLOCK_
            exact = tl.load(kept + index, mask=index < last, other=0).to(tl.int32)
            tl.store(own + place, exact, mask=index < last)
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


def programs_for(device: Any, tiles: int) -> int:
    """Enough programs to fill the device, so few that their scratch stays at a few megabytes."""
    if device.type != "cuda":
        return min(tiles, 8)
    return min(tiles, PROGRAMS_A_PROCESSOR * int(torch.cuda.get_device_properties(device).multi_processor_count))


def encode_part(x: Tensor, grid: Grid, seed: int | None, first: int, room: Sizes | None = None) -> tuple[Part, Tensor]:
    """tiles.encode_part for float32, float16 and bfloat16: the same bytes."""
    device, tiles = x.device, -(-x.numel() // TILE)
    programs = programs_for(device, tiles)
    scratch = torch.empty(programs * TILE, dtype=torch.int32, device=device)
    bitmap = torch.empty(-(-x.numel() // 8), dtype=torch.uint8, device=device)
    table = torch.empty(tiles, dtype=torch.int32, device=device)
    missed = torch.empty(tiles, dtype=torch.int32, device=device)
    bits, scalars = x.view(BITS[x.dtype]), _scalars(x, grid, seed, first, tiles, programs)
    options = {"KIND": KINDS[x.dtype], "STOCHASTIC": grid.stochastic, "enable_fp_fusion": False}
    none = table.new_zeros(1, dtype=torch.int64)
    byte, kept = bitmap[:1], bits[:1]
    encode_tiles[(programs,)](
        bits, scratch, bitmap, table, missed, none, none, none, byte, table, none, kept, *scalars, 0, 0, 0, WRITE=0, **options
    )  # fmt: skip
    starts, truth = _starts(table, missed)
    sizes = room or Sizes(*truth.tolist())
    heads = torch.empty(sizes.blocks, dtype=torch.uint8, device=device)
    words = torch.empty(sizes.words, dtype=torch.int32, device=device)
    places = torch.zeros(sizes.outliers, dtype=torch.int64, device=device)
    kept = torch.empty(sizes.outliers, dtype=bits.dtype, device=device)
    encode_tiles[(programs,)](
        bits, scratch, bitmap, table, missed, *starts, heads, words, places, kept, *scalars,
        sizes.blocks, sizes.words, sizes.outliers, WRITE=1, **options,
    )  # fmt: skip
    dense = room is None and sizes.nonzero == x.numel()
    part = Part(x.numel(), None if dense else bitmap, table, heads, words, places, kept.view(x.dtype), sizes)
    return part, truth


def _scalars(x: Tensor, grid: Grid, seed: int | None, first: int, tiles: int, programs: int) -> tuple[Any, ...]:
    first_key, second_key = (key - (key >> 31 << 32) for key in keys(seed or 0))  # as int32 of the same bits
    numbers = (grid.bound, grid.step, 1 / grid.step, grid.smallest)
    return (x.numel(), tiles, programs, first, *numbers, first_key, second_key)


def _starts(table: Tensor, missed: Tensor) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor]:
    """Where each tile's blocks, words and outliers begin (int64), and the sums (nonzero, blocks, words, outliers)."""
    counts = (table & COUNT).to(torch.int64)
    blocks = (counts + (BLOCK - 1)) >> 5
    words = ((table >> WORDS_AT) & ((1 << (EXPONENT_AT - WORDS_AT)) - 1)).to(torch.int64)
    rows = torch.stack([blocks, words, missed.to(torch.int64)])
    ends = rows.cumsum(1)
    truth = torch.cat([counts.sum()[None], ends[:, -1]])
    block, word, outlier = (ends - rows).unbind(0)
    return (block, word, outlier), truth


def decode_part(part: Part, grid: Grid, out: Tensor) -> None:
    """tiles.decode_part for float32, float16 and bfloat16."""
    device, tiles = out.device, part.table.numel()
    programs = programs_for(device, tiles)
    scratch = torch.empty(programs * TILE, dtype=torch.int32, device=device)
    (block, word, _), truth = _starts(part.table, torch.zeros_like(part.table))
    places = part.places[: part.sizes.outliers]
    edges = torch.cat([block, truth[1:2]]) * BLOCK
    outliers = torch.searchsorted(places, edges)
    kind = BITS[out.dtype]
    bitmap = part.heads[:1] if part.bitmap is None else part.bitmap
    decode_tiles[(programs,)](
        out.view(kind), scratch, bitmap, part.table, block, word, outliers, part.heads, part.words, places, part.kept.view(kind),
        part.elements, tiles, programs, grid.bound, grid.step, grid.smallest,
        KIND=KINDS[out.dtype], STOCHASTIC=grid.stochastic, ZEROS=part.bitmap is not None, enable_fp_fusion=False,
    )  # fmt: skip
