"""A run of a tensor's elements as zero bitmap, code widths and bit planes; tiles of 2048 elements stand on their own.

The nonzero elements of a tile fill *slots*, 32 to a block, the last block of a tile padded with zeros. A part holds

    bitmap   one bit an element: is it not zero (left out when none is zero)
    table    int32 a tile: its nonzero elements, its words << 12
    heads    one byte a block: the code width in bits, plus 128 where the block has negatives
    words    int32: for each block its codes as bit planes of one word, lowest bit first, then the plane of signs
    places   int64 an outlier: its slot
    kept     the outliers as they are

Sizes depend on the data and are read back: these are the operations for CPUs, where that costs nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from kompakt_runtime.codec import short
from kompakt_runtime.codec.bits import pack_bits, padded, unpack_bits
from kompakt_runtime.codec.grid import Grid, draw, quantise, restored, work_dtype

Tensor = Any

TILE = 2048
BLOCK = 32
NEGATIVES = 128
WORDS_AT = 12  # fields of the table
COUNT = (1 << WORDS_AT) - 1


# Elements are moved as bit patterns: some operations on 16-bit numbers rewrite a NaN.
BITS = {torch.float64: torch.int64, torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}


@dataclass(frozen=True)
class Sizes:
    """What depends on the data, as counts."""

    nonzero: int
    blocks: int
    words: int
    outliers: int


@dataclass(frozen=True)
class Part:
    """The packed elements; the tensors are 1-D, on one device, each as long as `sizes` says."""

    elements: int
    bitmap: Tensor  # None when no element is zero
    table: Tensor
    heads: Tensor
    words: Tensor
    places: Tensor
    kept: Tensor
    sizes: Sizes

    @property
    def nbytes(self) -> int:
        return sum(section.numel() * section.element_size() for section in self.sections)

    @property
    def needed(self) -> int:
        return self.nbytes

    @property
    def outliers(self) -> int:
        return self.sizes.outliers

    @property
    def sections(self) -> list[Tensor]:
        """The tensors that there are."""
        return [section for name in SECTIONS if (section := getattr(self, name)) is not None]

    def filled(self, sections: Iterator[Tensor]) -> "Part":
        """The same with these tensors in the places of its own."""
        return replace(self, **{name: next(sections) for name in SECTIONS if getattr(self, name) is not None})


SECTIONS = tuple(field.name for field in fields(Part) if field.name not in ("elements", "sizes"))


def encode_part(x: Tensor, grid: Grid, seed: int | None, first: int) -> Part:
    """`x` (1-D, contiguous, floating; at most 2^28 elements), whose first element has the number `first` in the tensor."""
    mask = x != 0
    counts = padded(mask, TILE).view(-1, TILE).sum(dim=1)
    blocks = (counts + (BLOCK - 1)) >> 5
    ends = blocks.cumsum(0)
    nonzero = int(counts.sum())
    slots = _Slots(x, mask, counts, nonzero)
    draws = None if seed is None else draw(seed, slots.numbers(first)).view(-1, BLOCK)
    values = slots.of(x.view(BITS[x.dtype])).view(x.dtype).view(-1, BLOCK)
    codes, outside = short.quantise(grid, values) if grid.short else quantise(grid, values, draws)
    heads, words, word_ends = _planes(codes, values < 0)
    places = outside.view(-1).nonzero().view(-1)
    kept = values.view(BITS[x.dtype]).view(-1)[places].view(x.dtype)
    table = counts + (_share(word_ends, ends, blocks) << WORDS_AT)
    bitmap = None if nonzero == x.numel() else pack_bits(padded(mask.view(torch.uint8), 8))
    sizes = Sizes(nonzero, int(ends[-1]), words.numel(), places.numel())
    return Part(x.numel(), bitmap, table.to(torch.int32), heads, words, places, kept, sizes)


class _Slots:
    """Where the nonzero elements of each tile go; `of` moves them."""

    def __init__(self, x: Tensor, mask: Tensor, counts: Tensor, nonzero: int) -> None:
        self._elements, self._device = x.numel(), x.device
        self._all = nonzero == x.numel()
        if not self._all:
            self._mask = gaps(padded(mask, TILE).view(-1, TILE), counts)

    def of(self, values: Tensor) -> Tensor:
        """The values (1-D, an element each) in their slots, 0 elsewhere."""
        if self._all:
            return padded(values, BLOCK)
        wide = values.new_zeros(-(-self._elements // TILE), TILE + BLOCK)
        spread(wide, values)
        return wide.masked_select(self._mask)

    def numbers(self, first: int) -> Tensor:
        """The element's number in the tensor for each slot."""
        return self.of(torch.arange(first, first + self._elements, device=self._device))


def spread(wide: Tensor, values: Tensor) -> None:
    """Writes 1-D values into the first TILE columns of a row for each tile."""
    whole = values.numel() // TILE
    wide[:whole, :TILE] = values[: whole * TILE].view(-1, TILE)
    if whole < wide.shape[0]:
        wide[whole, : values.numel() - whole * TILE] = values[whole * TILE :]


def gaps(mask: Tensor, counts: Tensor) -> Tensor:
    """The mask (tiles, TILE) with 32 columns more, true for the slots that pad the tile's last block."""
    wide = mask.new_empty(mask.shape[0], TILE + BLOCK)
    wide[:, :TILE] = mask
    torch.lt(torch.arange(BLOCK, device=mask.device), (-counts % BLOCK)[:, None], out=wide[:, TILE:])
    return wide


def _planes(codes: Tensor, negative: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Head bytes and words of all blocks, and where each block's words end, a 0 before them."""
    signs = pack_bits(negative.reshape(-1).view(torch.uint8)).view(torch.int32)
    signed = (signs != 0).to(torch.int32)
    largest = codes.amax(dim=1) if codes.numel() else codes.new_zeros(codes.shape[0])
    width = torch.frexp(largest.to(torch.float32))[1].to(torch.int32)  # bit length, exact below 2^24
    ends = torch.cat([signed.new_zeros(1, dtype=torch.int64), (width + signed).cumsum(0)])
    total, starts = int(ends[-1]), ends[:-1]
    words = codes.new_zeros(total + 1)  # the last place takes the planes that a block does not have
    widest = int(largest.max()).bit_length() if codes.numel() else 0
    if widest <= 8:
        codes = codes.to(torch.uint8)
    for bit in range(widest):
        plane = ((codes >> bit) & 1).to(torch.uint8).view(-1)
        words[torch.where(width > bit, starts + bit, total)] = pack_bits(plane).view(torch.int32)
    words[torch.where(signed > 0, starts + width, total)] = signs
    return (width + NEGATIVES * signed).to(torch.uint8), words[:total], ends


def _share(ends: Tensor, last: Tensor, count: Tensor) -> Tensor:
    """For each tile the sum over its blocks, from running ends over all blocks."""
    return ends[last] - ends[last - count]


def decode_part(part: Part, grid: Grid, out: Tensor) -> None:
    """Writes the part's elements into `out` (1-D, contiguous, `part.elements` long)."""
    sizes, bits = part.sizes, BITS[out.dtype]
    counts = (part.table & COUNT).to(torch.int64)
    values = _values(part, grid).view(bits)
    if sizes.outliers:
        values[part.places[: sizes.outliers]] = part.kept[: sizes.outliers].view(bits)
    if part.bitmap is None:
        out.view(bits).copy_(values[: part.elements])
        return
    mask = unpack_bits(part.bitmap)[: part.elements].view(torch.bool)
    wide = values.new_zeros(counts.numel(), TILE + BLOCK)
    wide.masked_scatter_(gaps(padded(mask, TILE).view(-1, TILE), counts), values)
    whole = part.elements // TILE
    flat = out.view(bits)
    flat[: whole * TILE].view(-1, TILE).copy_(wide[:whole, :TILE])
    if whole < counts.numel():
        flat[whole * TILE :] = wide[whole, : part.elements - whole * TILE]


def _values(part: Part, grid: Grid) -> Tensor:
    """The elements in their slots, outliers still wrong."""
    blocks, total = part.sizes.blocks, part.sizes.words
    heads = part.heads[:blocks]
    width = (heads & (NEGATIVES - 1)).to(torch.int32)
    signed = heads >> 7
    starts = (width + signed).cumsum(0) - width - signed
    words = torch.cat([part.words[:total], part.words.new_zeros(1)])  # the last: planes that a block does not have
    widest = int(width.max()) if blocks else 0
    kind = torch.uint8 if widest <= 8 else torch.int32
    codes = torch.zeros(blocks * BLOCK, dtype=kind, device=heads.device)
    for bit in range(widest):
        plane = words[torch.where(width > bit, starts + bit, total)]
        codes |= unpack_bits(plane.view(torch.uint8)).to(kind) << bit
    values = short.restored(grid, codes) if grid.short else restored(grid, codes.to(work_dtype(grid.dtype)))
    if not (blocks and int(signed.max())):
        return values
    negative = words[torch.where(signed > 0, starts + width, total)]
    flip = unpack_bits(negative.view(torch.uint8))
    return values * (1 - 2 * flip.to(values.dtype))
