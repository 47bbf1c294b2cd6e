"""What a one-pass copy gives back, in plain torch operations: the kernels' rule for bits, tile by tile, without any packing."""

from typing import Any

import torch

from kompakt_runtime.codec.one_pass_layout import CROWDED, LANES, RAW, TILE
from kompakt_runtime.codec.scales import MOST_BITS, Scale, codes, middles, scales

Tensor = Any


def expected(x: Tensor, bound: float) -> tuple[Tensor, list[int]]:
    """x: 1-D on the CPU. The elements that come back, and the width of each whole tile (RAW: as it was)."""
    rows = scales(x.dtype, bound)
    out, found = x.clone(), []
    for first in range(0, x.numel() // TILE * TILE, TILE):
        tile = x[first : first + TILE]
        width, values = _tile(tile, rows)
        out[first : first + TILE] = values
        found.append(width)
    return out, found


def _tile(tile: Tensor, rows: tuple[Scale, ...]) -> tuple[int, Tensor]:
    item = tile.element_size()
    patterns = tile.view(torch.int32) & 0x7FFFFFFF if item == 4 else tile.view(torch.int16).to(torch.int32) & 0x7FFF
    bits = _bits(patterns, rows, item)
    if bits > MOST_BITS:
        return RAW, tile
    row = rows[bits - 1]
    outside = patterns >= row.first_outside
    signed = int(bool((tile.view(torch.int32 if item == 4 else torch.int16) < 0).any()))
    units = 16 * (bits + signed) + -(-int(outside.sum()) * (2 if item == 4 else 1) // 4)
    if units >= TILE * item // 16:
        return RAW, tile
    magnitude = tile.to(torch.float32).abs()
    back = middles(codes(magnitude, row.inverse), row.step, tile.dtype)
    negative = torch.signbit(tile)
    return bits + signed, torch.where(outside, tile, torch.where(negative, -back, back))


def _bits(patterns: Tensor, rows: tuple[Scale, ...], item: int) -> int:
    most = patterns[sampled(item)].amax(dim=1)
    for bits in range(1, MOST_BITS + 1):
        if int((most >= rows[bits - 1].first_outside).sum()) <= CROWDED:
            return bits
    return MOST_BITS + 1


def sampled(item: int) -> Tensor:
    """For each lane the places in a tile of the 16 elements that decide about bits."""
    vector = 16 // item
    pairs = torch.tensor([4 * i + i % 4 for i in range(8)])
    chunk, within = pairs // (vector // 2), pairs % (vector // 2)
    lane = torch.arange(LANES)[:, None, None]
    start = (chunk * LANES * vector + within * 2)[None, :, None] + lane * vector
    return (start + torch.arange(2)).reshape(LANES, 16)
