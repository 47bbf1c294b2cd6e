"""Codes of blocks of 32 elements as bit planes, all planes of a block by swaps of bits between words (little-endian machines).

Eight words of a block hold its codes' bytes. An address of a bit among them has eight digits: three say which word, two which
byte in it, three which bit. Moving bits so that words become planes exchanges digits of the address, and exchanging a digit of
the word with one of the place inside of it takes six operations on half of all words. Words of the same number lie side by side,
so each operation runs over all blocks.
"""

from typing import Any, Final

import torch

Tensor = Any

WORDS: Final = 8
NEGATIVES: Final = 128
# Digits are exchanged in this order: which one of the word's, with which one of the place inside.
SWAPS: Final = ((0, 4), (1, 3), (2, 2), (0, 1), (1, 0))
# The swaps leave a plane's highest digit last.
WORD_OF: Final = torch.tensor((0, 2, 4, 6, 1, 3, 5, 7), device="cpu")
PLANE_OF: Final = torch.tensor((0, 4, 1, 5, 2, 6, 3, 7), device="cpu")
# By digit of the place: how far apart two places are that differ in it alone, and those that have a 0 there. Operations take
# tensors without dimensions sooner than numbers.
APART: Final = [torch.tensor(1 << digit, dtype=torch.int32, device="cpu") for digit in range(5)]
LOWER: Final = [
    torch.tensor(places, dtype=torch.int32, device="cpu")
    for places in (0x55555555, 0x33333333, 0x0F0F0F0F, 0x00FF00FF, 0x0000FFFF)
]


def planes(codes: Tensor) -> Tensor:
    """uint8, 32 to a block -> int32 (blocks, 8): bit i of plane b is bit b of the block's element i."""
    words = codes.view(torch.int32).view(-1, WORDS).t().contiguous().view(2, 2, 2, -1)
    for digit, place in SWAPS:
        _swap(words, digit, place)
    return words.view(WORDS, -1).index_select(0, WORD_OF).t().contiguous()


def codes(planes: Tensor) -> Tensor:
    """The reverse of `planes`."""
    words = planes.t().contiguous().index_select(0, PLANE_OF).view(2, 2, 2, -1)
    for digit, place in reversed(SWAPS):
        _swap(words, digit, place)
    return words.view(WORDS, -1).t().contiguous().view(-1).view(torch.uint8)


def _swap(words: Tensor, digit: int, place: int) -> None:
    """In place; a shift that copies the sign does no harm, since the upper places are masked."""
    first, second = words.unbind(digit)
    moved = (first >> APART[place]).bitwise_xor_(second).bitwise_and_(LOWER[place])
    second.bitwise_xor_(moved)
    first.bitwise_xor_(moved.bitwise_left_shift_(APART[place]))


def pack_codes(codes: Tensor, patterns: Tensor) -> tuple[Tensor, Tensor]:
    """Head bytes and words of all blocks. codes: int32 (blocks, 32); patterns: the elements as whole numbers, for their signs."""
    if not codes.numel():
        return codes.new_empty(0, dtype=torch.uint8), codes.new_empty(0)
    largest = codes.amax(dim=1)
    width = torch.frexp(largest.to(torch.float32))[1]  # bit length, exact below 2^24
    count = int(largest.max()).bit_length() // 8 + 1
    whole = (patterns >> (8 * patterns.element_size() - 1)).to(torch.int32)
    whole.bitwise_and_(1 << (8 * count - 1)).bitwise_or_(codes)  # signs have the highest plane
    every = _beside([planes((whole >> 8 * byte).to(torch.uint8)) for byte in range(count)])
    signed = every[:, -1] != 0
    places = _places(width, signed, count)
    words = every.new_empty(1 + int(width.sum() + signed.sum())).scatter_(0, places, every.view(-1))
    return (width + NEGATIVES * signed).to(torch.uint8), words[1:]


def unpack_codes(heads: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
    """Codes (int32, 1-D), and 1 for each element that is negative; None instead where none is."""
    if not heads.numel():
        return heads.new_empty(0, dtype=torch.int32), None
    width, signed = heads & (NEGATIVES - 1), heads >= NEGATIVES
    count = int(width.max()) // 8 + 1
    every = torch.cat([words.new_zeros(1), words]).index_select(0, _places(width, signed, count)).view(len(heads), -1)
    whole = codes(every[:, :WORDS]).to(torch.int32)
    for byte in range(1, count):
        whole |= codes(every[:, byte * WORDS : (byte + 1) * WORDS]).to(torch.int32) << 8 * byte
    if not bool(signed.any()):
        return whole, None
    negative = whole >> (8 * count - 1)
    return whole.bitwise_and_((1 << (8 * count - 1)) - 1), negative


def lengths(heads: Tensor) -> Tensor:
    """Words of each block."""
    return (heads & (NEGATIVES - 1)) + (heads >> 7)


def _beside(some: list[Tensor]) -> Tensor:
    return some[0] if len(some) == 1 else torch.cat(some, dim=1)


def _places(width: Tensor, signed: Tensor, count: int) -> Tensor:
    """For each plane that a block may have, eight for each of so many bytes, the last for signs: the number of its word, from 1;
    0 for a plane that the block has not. (Selecting by a mask takes several times as long.)
    """
    there = torch.arange(count * WORDS, dtype=width.dtype, device=width.device) < width[:, None]
    there[:, -1] = signed
    flat = there.view(-1).view(torch.uint8)
    return flat.cumsum(0).mul_(flat)
