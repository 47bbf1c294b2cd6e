"""Bits in byte tensors, eight elements at a time by one 64-bit multiplication (little-endian machines).

Bit i of byte j belongs to element 8 j + i.
"""

from typing import Any

import torch

Tensor = Any  # torch.Tensor; torch stays untyped here because users bring their own

# A product with GATHER moves bit 0 of byte i to bit 56 + i; no two partial products meet, so nothing carries.
GATHER = 0x0102040810204080
SPREAD = 0x0101010101010101
# Bit i in byte i, as a signed 64-bit number.
DIAGONAL = 0x8040201008040201 - (1 << 64)
BYTE = 255
FULL = 0x7F7F7F7F7F7F7F7F


def pack_bits(bits: Tensor) -> Tensor:
    """uint8 of 0 and 1, length a multiple of 8, contiguous -> uint8 of an eighth of the length."""
    eights = bits.view(torch.int64)
    return ((eights * GATHER) >> 56).bitwise_and_(BYTE).to(torch.uint8)


def unpack_bits(packed: Tensor) -> Tensor:
    """The reverse of `pack_bits`: uint8 -> uint8 of 0 and 1, eight times as long."""
    spread = (packed.to(torch.int64) * SPREAD).bitwise_and_(DIAGONAL)
    # A byte that is not 0 has one bit: with FULL added its highest one is set, and nothing carries into the next.
    return ((spread.add_(FULL) >> 7).bitwise_and_(SPREAD)).view(torch.uint8)


def padded(values: Tensor, multiple: int) -> Tensor:
    """`values` (1-D) with zeros up to the next multiple; the same tensor where nothing is missing."""
    missing = -values.numel() % multiple
    if not missing:
        return values
    return torch.cat([values, values.new_zeros(missing)])
