"""The codec's twin for NVIDIA GPUs: the bytes of `tiles.py`, written by the kernels of `tile_kernels.py`. Imported only where it
is used.
"""

from typing import Any

import torch

from kompakt_runtime.codec.grid import Grid, keys
from kompakt_runtime.codec.short import RUNGS, bins
from kompakt_runtime.codec.tile_kernels import decode_tiles, encode_tiles
from kompakt_runtime.codec.tiles import BITS, BLOCK, COUNT, TILE, WORDS_AT, Part, Sizes

Tensor = Any

KINDS = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
PROGRAMS_A_PROCESSOR = 4


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
    step, *neighbours = _bins(grid)
    return (x.numel(), tiles, programs, first, grid.bound, step, 1 / step, grid.smallest, first_key, second_key, *neighbours)


def _bins(grid: Grid) -> tuple[Any, ...]:
    """Width of equal bins; for 16-bit types rounded to nearest what `short.Bins` says beside it, else zeros."""
    if not grid.short:
        return (grid.step, 0, 0, *RUNGS * [1])
    own = bins(grid.dtype, grid.bound)
    return (own.step, own.first, own.below, *own.sizes)


def _starts(table: Tensor, missed: Tensor) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor]:
    """Where each tile's blocks, words and outliers begin (int64), and the sums (nonzero, blocks, words, outliers)."""
    counts = (table & COUNT).to(torch.int64)
    blocks = (counts + (BLOCK - 1)) >> 5
    words = (table >> WORDS_AT).to(torch.int64)
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
    step, *neighbours = _bins(grid)
    bitmap = part.heads[:1] if part.bitmap is None else part.bitmap
    decode_tiles[(programs,)](
        out.view(kind), scratch, bitmap, part.table, block, word, outliers, part.heads, part.words, places, part.kept.view(kind),
        part.elements, tiles, programs, step, grid.smallest, *neighbours,
        KIND=KINDS[out.dtype], STOCHASTIC=grid.stochastic, ZEROS=part.bitmap is not None, enable_fp_fusion=False,
    )  # fmt: skip
