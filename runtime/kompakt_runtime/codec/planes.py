"""Codes of blocks of 32 elements as bit planes, all planes of a block by swaps of bits between words (little-endian machines).

A block's codes fill eight words where a code is a byte, 16 where it is two. The address of a bit among them has a digit for each
bit of the word's number and of the place inside the word; five of all digits say which code of the block it is, the others which
bit of the code. Moving bits so that words become planes exchanges digits of the address, and exchanging a digit of the word with
one of the place inside of it takes six operations on half of all words. Words of the same number lie side by side, so each
operation runs over all blocks.
"""

from dataclasses import dataclass
from typing import Any, Final

import torch

Tensor = Any

NEGATIVES: Final = 128
WIDTHS: Final = NEGATIVES - 1
# By digit of the place: how far apart two places are that differ in it alone, and those that have a 0 there. Operations take
# tensors without dimensions sooner than numbers.
APART: Final = [torch.tensor(1 << digit, dtype=torch.int32, device="cpu") for digit in range(5)]
LOWER: Final = [
    torch.tensor(places, dtype=torch.int32, device="cpu")
    for places in (0x55555555, 0x33333333, 0x0F0F0F0F, 0x00FF00FF, 0x0000FFFF)
]


@dataclass(frozen=True)
class Codes:
    """How codes of one type lie in words. swaps: digits are exchanged in this order: which one of the word's, the highest first,
    with which one of the place inside; word_of: the word that each plane lies in after the swaps; back: the dimensions of planes,
    when their numbers are written in digits, in the order of words.
    """

    dtype: Any
    swaps: tuple[tuple[int, int], ...]
    word_of: Tensor
    back: tuple[int, ...]

    @property
    def words(self) -> int:
        """Of a block; as many as planes."""
        return 1 << len(self.digits)

    @property
    def digits(self) -> tuple[int, ...]:
        return (2,) * (len(self.back) - 1)


def _codes(dtype: Any, swaps: tuple[tuple[int, int], ...], order: tuple[int, ...]) -> Codes:
    """order: which digits of a word's number say after the swaps which plane it is, the highest first."""
    words = torch.arange(1 << len(order), device="cpu").view((2,) * len(order)).permute(order).reshape(-1)
    back = sorted(range(len(order)), key=order.__getitem__)
    return Codes(dtype, swaps, words, (*(1 + digit for digit in back), 0))


def _there(top: int) -> Tensor:
    """By head byte, 1 for each plane that such a block has; the last one is that of signs."""
    heads = torch.arange(256, device="cpu")
    there = (torch.arange(top + 1, device="cpu") < (heads & WIDTHS)[:, None]).to(torch.int64)
    there[:, top] = heads >> 7
    return there


# Signed, so that a wider type continues the sign, which has the highest plane.
BYTES: Final = _codes(torch.int8, ((0, 4), (1, 3), (2, 2), (0, 1), (1, 0)), (2, 0, 1))
PAIRS: Final = _codes(torch.int16, ((0, 4), (1, 3), (2, 2), (3, 1), (0, 0)), (1, 2, 3, 0))
THERE: Final = {top: _there(top) for top in (7, 15, 23)}


def planes(given: Tensor, of: Codes) -> Tensor:
    """Codes, 32 to a block -> int32 (blocks, planes): bit i of plane b is bit b of the block's element i."""
    words = given.view(torch.int32).view(-1, of.words).t().contiguous().view(*of.digits, -1)
    for digit, place in of.swaps:
        _swap(words, digit, place)
    return words.view(of.words, -1).index_select(0, of.word_of).t().contiguous()


def codes(planes: Tensor, of: Codes) -> Tensor:
    """The reverse of `planes`."""
    words = planes.reshape(-1, *of.digits).permute(of.back).contiguous()
    for digit, place in reversed(of.swaps):
        _swap(words, digit, place)
    return words.view(of.words, -1).t().contiguous().view(-1).view(of.dtype)


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
    pieces = _pieces(int(largest.max()).bit_length())
    top = _planes(pieces) - 1
    whole = (patterns >> (8 * patterns.element_size() - 1)).to(torch.int32)
    whole.bitwise_and_(1 << top).bitwise_or_(codes)
    every = [planes((whole >> 16 if number else whole).to(of.dtype), of) for number, of in enumerate(pieces)]
    beside = every[0] if len(every) == 1 else torch.cat(every, dim=1)
    heads = (beside[:, top] != 0).to(torch.uint8).mul_(NEGATIVES).add_(width)
    places, count = _places(heads, top)
    words = beside.new_empty(1 + count).scatter_(0, places, beside.view(-1))
    return heads, words[1:]


def unpack_codes(heads: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
    """Codes (int32, 1-D), and the sign bit of each element's pattern of 32 bits; None instead where none is negative."""
    if not heads.numel():
        return heads.new_empty(0, dtype=torch.int32), None
    pieces = _pieces(int((heads & WIDTHS).max()))
    top = _planes(pieces) - 1
    every = torch.cat([words.new_zeros(1), words]).index_select(0, _places(heads, top)[0]).view(heads.numel(), -1)
    whole = codes(every[:, : pieces[0].words], pieces[0]).to(torch.int32)
    if len(pieces) > 1:
        upper = codes(every[:, pieces[0].words :], pieces[1]).to(torch.int32)
        whole.bitwise_and_(0xFFFF).bitwise_or_(upper << 16)
    if int(heads.max()) < NEGATIVES:
        return whole, None
    signs = whole & -(1 << 31)
    return whole.bitwise_and_((1 << top) - 1), signs


def lengths(heads: Tensor) -> Tensor:
    """Words of each block."""
    return (heads & WIDTHS) + (heads >> 7)


def _pieces(bits: int) -> tuple[Codes, ...]:
    """What codes of so many bits, and signs, are cut into."""
    return (BYTES,) if bits < 8 else (PAIRS,) if bits < 16 else (PAIRS, BYTES)


def _planes(pieces: tuple[Codes, ...]) -> int:
    return sum(of.words for of in pieces)


def _places(heads: Tensor, top: int) -> tuple[Tensor, int]:
    """For each plane that a block may have, the last for signs, the number of its word, from 1; 0 for a plane that the block has
    not (selecting by a mask takes several times as long). And how many there are.
    """
    there = THERE[top].index_select(0, heads.to(torch.int32)).view(-1)
    places = there.cumsum(0)
    count = int(places[-1])
    return places.mul_(there), count
