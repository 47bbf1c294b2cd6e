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
from kompakt_runtime.codec.bins import coded, empty
from kompakt_runtime.codec.bits import pack_bits, padded, unpack_bits
from kompakt_runtime.codec.grid import Grid, draw, restored, work_dtype
from kompakt_runtime.codec.planes import lengths, pack_codes, unpack_codes

Tensor = Any

TILE = 2048
BLOCK = 32
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
    slots = _slots(x)
    draws = (
        None if seed is None else draw(seed, slots.of(torch.arange(first, first + x.numel(), device=x.device))).view(-1, BLOCK)
    )
    values = slots.of(x.view(BITS[x.dtype]), empty(grid)).view(x.dtype).view(-1, BLOCK)
    codes, places = coded(grid, values, draws)
    patterns = values.view(BITS[x.dtype])
    heads, words = pack_codes(codes, patterns)
    table = slots.counts + (slots.by_tile(lengths(heads)) << WORDS_AT)
    sizes = Sizes(slots.nonzero, slots.blocks, words.numel(), places.numel())
    kept = patterns.view(-1).index_select(0, places).view(x.dtype)
    return Part(x.numel(), slots.bitmap, table.to(torch.int32), heads, words, places, kept, sizes)


@dataclass(frozen=True)
class Slots:
    """counts: nonzero elements of each tile; places: see `slot_numbers`, None where no element is zero."""

    counts: Tensor
    nonzero: int
    blocks: int
    bitmap: Tensor = None
    places: Tensor = None

    def of(self, values: Tensor, empty: int = 0) -> Tensor:
        """The values (1-D, an element each) in their slots, `empty` in what is left of a tile's last block."""
        if self.places is None:
            return padded(values, BLOCK)
        slots = values.new_full((1 + self.blocks * BLOCK,), empty)
        return slots.scatter_(0, self.places, values)[1:]

    def by_tile(self, numbers: Tensor) -> Tensor:
        """Sums of a number for each block (1-D)."""
        if self.places is None:
            return padded(numbers, TILE // BLOCK).view(-1, TILE // BLOCK).sum(dim=1)
        ends = torch.cat([numbers.new_zeros(1, dtype=torch.int64), numbers.cumsum(0)])
        blocks = blocks_of(self.counts)
        last = blocks.cumsum(0)
        return ends.index_select(0, last) - ends.index_select(0, last - blocks)


def _slots(x: Tensor) -> Slots:
    if bool(x.abs().amin() > 0):  # not where there is a NaN either
        return _dense(x)
    mask = _nonzero(x)
    counts = padded(mask, TILE).view(-1, TILE).sum(dim=1)
    nonzero = int(counts.sum())
    if nonzero == x.numel():
        return _dense(x)
    blocks = int(blocks_of(counts).sum())
    bitmap = pack_bits(padded(mask.to(torch.uint8), 8))
    return Slots(counts, nonzero, blocks, bitmap, slot_numbers(mask, counts).to(torch.int64))


def _nonzero(x: Tensor) -> Tensor:
    """int32 of 0 and 1, by arithmetic on bit patterns: a comparison takes three times as long on CPUs."""
    patterns = x.view(BITS[x.dtype])
    return patterns.bitwise_and(torch.iinfo(patterns.dtype).max).clamp_(max=1).to(torch.int32)


def _dense(x: Tensor) -> Slots:
    counts = torch.full((-(-x.numel() // TILE),), TILE, device=x.device)
    if short := x.numel() % TILE:
        counts[-1] = short
    return Slots(counts, x.numel(), -(-x.numel() // BLOCK))


def blocks_of(counts: Tensor) -> Tensor:
    return (counts + (BLOCK - 1)) >> 5


def slot_numbers(mask: Tensor, counts: Tensor) -> Tensor:
    """For each element of a mask (1-D, int32 of 0 and 1) the number of its slot, from 1; 0 where the mask is 0. int32."""
    blocks = blocks_of(counts)
    before = ((blocks.cumsum(0) - blocks) * BLOCK).to(torch.int32)
    rows = padded(mask, TILE).view(-1, TILE)
    return rows.cumsum(1, dtype=torch.int32).add_(before[:, None]).mul_(rows).view(-1)[: mask.numel()]


def decode_part(part: Part, grid: Grid, out: Tensor) -> None:
    """Writes the part's elements into `out` (1-D, contiguous, `part.elements` long)."""
    sizes, bits = part.sizes, BITS[out.dtype]
    values = _values(part, grid).view(bits)
    if sizes.outliers:
        values[part.places[: sizes.outliers]] = part.kept[: sizes.outliers].view(bits)
    if part.bitmap is None:
        out.view(bits).copy_(values[: part.elements])
        return
    mask = unpack_bits(part.bitmap)[: part.elements].to(torch.int32)
    places = slot_numbers(mask, (part.table & COUNT).to(torch.int64))
    torch.index_select(torch.cat([values.new_zeros(1), values]), 0, places, out=out.view(bits))


def _values(part: Part, grid: Grid) -> Tensor:
    """The elements in their slots, outliers still wrong."""
    codes, signs = unpack_codes(part.heads[: part.sizes.blocks], part.words[: part.sizes.words])
    values = short.restored(grid, codes) if grid.short else restored(grid, codes.to(work_dtype(grid.dtype)))
    if signs is not None:
        patterns = values.view(BITS[grid.dtype])
        patterns |= _as_wide(signs, patterns.dtype)
    return values


def _as_wide(signs: Tensor, dtype: Any) -> Tensor:
    """The highest bit of int32 as the highest of another whole-number type."""
    apart = 8 * (dtype.itemsize - 4)
    return signs if not apart else (signs >> -apart).to(dtype) if apart < 0 else signs.to(dtype) << apart
